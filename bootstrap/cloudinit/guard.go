// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// guardPath sorts behind what images and installers bring, so it has the last word among the files.
const guardPath = "/etc/cloud/cloud.cfg.d/99-quoin.cfg"

// guard is what cloud-init must not do again when a host boots, be it the same instance or, after its datasource has
// changed, a new one: name the host, write /etc/hosts, render the network, make new SSH host keys (the pinned ones
// would be gone), create users or set passwords, upgrade packages. What the instance's own user data says outranks any
// file.
const guard = `# Written by Quoin: this host is a node of Kubernetes. Cleaning the host removes this file.
preserve_hostname: true
manage_etc_hosts: false
network: {config: disabled}
ssh_deletekeys: false
users: []
package_update: false
package_upgrade: false
package_reboot_if_required: false
`

// GuardStep keeps a cloud-init that is enabled on the host from undoing at the next boot what the plan does. It does
// nothing elsewhere, and comes before the steps that change what cloud-init would change.
func GuardStep() run.Step {
	return run.Step{Name: "guard-cloud-init", Script: `command -v cloud-init >/dev/null || exit 0
[ ! -e /etc/cloud/cloud-init.disabled ] || exit 0
grep -qs 'cloud-init=disabled' /proc/cmdline && exit 0
printf '%s' ` + ssh.Quote(guard) + ` >"$QUOIN_RUN_DIR/cloud-init" && quoin_put "$QUOIN_RUN_DIR/cloud-init" ` + guardPath + ` 0644
`}
}
