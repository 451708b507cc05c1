// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// leavingPath marks a host that will leave the control plane. keepalived prefers the others while it is there.
const leavingPath = "/etc/keepalived/quoin-leaving"

// handOverScript has keepalived start again, and marks the host. One that stops resigns, and another one takes the
// address within half a second; it would wait three seconds for one that is merely less preferred. The one that has
// started again is as good as the other for a moment, and does not take the address back from an equal.
//
// Before that, while packets of this host still reach everybody, connections to the address are reset. Who talks would
// learn of the move by the next request, which the new holder refuses, but who only listens, as a watch does, would
// hear nothing until client-go asks after 30 seconds of silence. Reflectors connect anew at once: so that it is not to
// this host, the kernel takes nothing for the address for five seconds, which it ends by itself. Attempts are repeated
// after a second, and reach the other host. On lo that does not hold: clients on this host, which is about to be
// drained, notice after 30 seconds as before. Without ss, xfrm or INET_DIAG_DESTROY all do.
const handOverScript = `grep -qsF '%[1]s' %[2]s && ! [ -e %[3]s ] || exit 0
held=
for address in %[4]s; do
	ip -o address show to "$address" | grep -q . || continue
	held=1
	command -v ss >/dev/null && ip xfrm policy update dst "$address" dir in action block limit time-hard 5 &&
		ss --kill --tcp src "$address" >/dev/null
done
timeout 30 systemctl restart keepalived.service && : >%[3]s && sync %[3]s || exit 1
[ -z "$held" ] || echo held
`

// HandOver has a host that is about to leave give the virtual addresses to another one, while the API servers of both
// still serve: who talks to an address connects anew and goes on. held says that it had one of them. The host remains a
// candidate of last resort. To call it again, or on a host without keepalived, changes nothing.
func HandOver(ctx context.Context, host ssh.Host, addresses []netip.Prefix) (held bool, err error) {
	var list []string
	for _, address := range addresses {
		list = append(list, address.Addr().String())
	}
	result, err := host.Run(ctx, ssh.Command{Sudo: true, Script: fmt.Sprintf(handOverScript, mark, confPath, leavingPath,
		strings.Join(list, " "))})
	if err != nil {
		return false, fmt.Errorf("having keepalived hand the virtual address over: %w", err)
	}
	return strings.TrimSpace(result.Stdout) == "held", nil
}
