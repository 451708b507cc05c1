// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Reboot asks a host to reboot, unless it has done so since bootID was read: asking again after an error, or after the
// answer was lost with the connection, boots it once. The host goes down a moment after the answer.
func Reboot(ctx context.Context, host ssh.Host, bootID string) error {
	script := fmt.Sprintf(`[ "$(cat /proc/sys/kernel/random/boot_id)" = %s ] || exit 0
case $(systemctl show --property=ActiveState --value quoin-reboot.service 2>/dev/null) in active | activating) exit 0 ;; esac
systemd-run --quiet --collect --unit=quoin-reboot --description='Quoin reboots this host' -- /bin/sh -c 'sleep 2; exec systemctl reboot'
`, ssh.Quote(bootID))
	if _, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true}); err != nil {
		return fmt.Errorf("rebooting the host: %w", err)
	}
	return nil
}
