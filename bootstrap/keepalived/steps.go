// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Ownership says what may answer at the virtual address before keepalived starts.
type Ownership struct {
	// ClaimedByUs is true when a member of this very cluster may hold the address. Else it must be silent.
	ClaimedByUs bool
}

// InstallSteps probe the address, write the configuration, enable and start keepalived.
func InstallSteps(c Config, o Ownership) ([]run.Step, error) {
	conf, err := c.Render()
	if err != nil {
		return nil, err
	}
	var probe, wait strings.Builder
	for _, address := range c.Addresses {
		addr := address.Addr()
		if !o.ClaimedByUs {
			fmt.Fprintf(&probe, `who=$(quoin_probe %s %s %d)
[ -z "$who" ] || quoin_fail "the virtual address is taken: $who; choose another controlPlaneEndpoint, or find and remove that holder"
`, ssh.Quote(c.Interface), addr, c.Port)
			fmt.Fprintf(&wait, `tries=0
until ip -o address show to %[1]s | grep -q .; do
	tries=$((tries + 1))
	[ $tries -lt 40 ] || quoin_fail "keepalived did not take %[1]s within 20 s; see: journalctl -u keepalived"
	sleep 0.5
done
`, addr)
		}
	}
	steps := []run.Step{{Name: "keepalived-check", Script: fmt.Sprintf(`command -v keepalived >/dev/null || quoin_fail "keepalived is not installed; install the package keepalived, or use an external load balancer"
ip link show dev %[1]s >/dev/null 2>&1 || quoin_fail "this host has no interface %[1]s for the virtual address; correct the interface of the load balancer"
if [ -e %[2]s ] && ! grep -qF '%[3]s' %[2]s; then
	# Some packages bring an example, which nobody runs; it is put aside and comes back when the host is reset.
	case $(systemctl is-active keepalived.service 2>/dev/null) in active | activating | reloading) runs=1 ;; *) runs=0 ;; esac
	case $(systemctl is-enabled keepalived.service 2>/dev/null) in enabled | enabled-runtime) runs=1 ;; esac
	[ $runs = 0 ] || quoin_fail "%[2]s was not written by Quoin, and keepalived runs or is enabled; this host serves another virtual address, so choose another host, or disable keepalived and remove that file"
fi
`, c.Interface, confPath, mark)}}
	if probe.Len() > 0 {
		steps = append(steps, run.Step{Name: "keepalived-probe", Script: probeFunction + probe.String()})
	}
	steps = append(steps, run.Step{Name: "keepalived-start", Script: fmt.Sprintf(`set -eu
new=$QUOIN_RUN_DIR/keepalived
printf '%%s' %s >"$new"
quoin_put "$new" %s 0755
printf '%%s' %s >"$new"
quoin_put "$new" %s 0644
rm -f "$new" %s
quoin_record 'unit keepalived.service'
systemctl enable keepalived.service
systemctl reload-or-restart keepalived.service
`, ssh.Quote(c.checkScript()), checkPath, ssh.Quote(conf), confPath, leavingPath)})
	if wait.Len() > 0 {
		// kubeadm init reaches its own API server through the virtual address.
		steps = append(steps, run.Step{Name: "keepalived-wait", Script: wait.String()})
	}
	return steps, nil
}

// ReleaseSteps stop and disable keepalived, and remove its configuration and the addresses, if they are ours. They are
// harmless on a host that never had any.
func ReleaseSteps(addresses []netip.Prefix) []run.Step {
	var remove strings.Builder
	for _, address := range addresses {
		// keepalived that was killed leaves the address behind.
		fmt.Fprintf(&remove, `ip -o address show to %[1]s | while read -r _ dev _ local _; do ip address delete "$local" dev "$dev"; done
if ip -o address show to %[1]s | grep -q .; then quoin_fail "the virtual address %[1]s cannot be removed from this host"; fi
`, address.Addr())
	}
	return []run.Step{{Name: "release-virtual-address", Script: fmt.Sprintf(`if grep -qsF '%[1]s' %[2]s; then
	systemctl disable --now keepalived.service || quoin_fail "keepalived cannot be stopped; stop it by hand"
	rm -f %[2]s %[3]s
fi
rm -f %[4]s
`, mark, confPath, checkPath, leavingPath) + remove.String()}}
}

// probeFunction prints who answers at <address>, through <interface> or at <port>; nothing when the address is free or
// this host's own.
const probeFunction = `quoin_probe() {
	ip -o address show to "$2" | grep -q . && return 0
	ip neighbor flush to "$2" dev "$1" >/dev/null 2>&1
	case $2 in *:*) url="https://[$2]:$3/livez" ;; *) url="https://$2:$3/livez" ;; esac
	if command -v curl >/dev/null; then
		curl -q --noproxy '*' --silent --insecure --max-time 3 --output /dev/null "$url" && { echo "something answers at $url"; return 0; }
	fi
	if command -v ping >/dev/null; then
		ping -c 2 -W 1 "$2" >/dev/null 2>&1 && { echo "a host answers ping at $2"; return 0; }
	fi
	# One that drops both still resolves, if it is in this network: the attempts above made the kernel ask.
	mac=$(ip neighbor show to "$2" dev "$1" 2>/dev/null | sed -n 's/.*lladdr \([0-9a-fA-F:]*\).*/\1/p' | head -n 1)
	[ -z "$mac" ] || echo "the network interface $mac answers for $2"
}
`

// maxAnswer bounds what a host's answer brings into a condition.
const maxAnswer = 300

func sentence(answer string) string {
	answer, _, _ = strings.Cut(strings.TrimSpace(answer), "\n")
	return strings.ToValidUTF8(answer[:min(len(answer), maxAnswer)], "")
}

// Probe asks through host whether anything answers at addr (neighbor table, ping) or at its port. The answer is a
// sentence naming who answers, empty when the address is free or held by this host itself.
func Probe(ctx context.Context, host ssh.Host, iface string, addr netip.Addr, port int) (string, error) {
	if !interfaceName.MatchString(iface) || !addr.IsValid() {
		return "", fmt.Errorf("cannot probe %s through interface %q", addr, iface)
	}
	script := probeFunction + fmt.Sprintf("quoin_probe %s %s %d\n", ssh.Quote(iface), ssh.Quote(addr.String()), port)
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return "", fmt.Errorf("probing %s: %w", addr, err)
	}
	return sentence(result.Stdout), nil
}
