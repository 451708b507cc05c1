# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Takes out of the kernel's network what kube-proxy and network plugins put in. Names that nobody else uses say so by
# themselves; anything else goes only when it was not there before the claim.

# before <list> <line>: was it there before the claim? Blanks at the end, which ip prints and read drops, say nothing.
before() { sed 's/[[:space:]]*$//' "$QUOIN_ROOT/before/$1" 2>/dev/null | grep -xF -- "$2" >/dev/null; }

# clear_rules <save> <restore>: deletes the chains of Kubernetes and of network plugins and the rules that jump to them;
# nothing else.
clear_rules() {
	command -v "$1" >/dev/null && command -v "$2" >/dev/null || return 0
	# Not a word to a variant that nobody uses: the kernel would load it.
	"$1" 2>/dev/null | grep -qE "$quoin_chains" || return 0
	"$1" 2>/dev/null | awk '
		/^\*/ { print; n = 0 }
		/^:(KUBE-|CNI-|cali-|CILIUM_|OLD_CILIUM_|FLANNEL-|WEAVE)/ { chains[++n] = substr($1, 2) }
		/^-A (KUBE-|CNI-|cali-|CILIUM_|OLD_CILIUM_|FLANNEL-|WEAVE)/ { next }
		/^-A .* (-j|-g) (KUBE-|CNI-|cali-|CILIUM_|OLD_CILIUM_|FLANNEL-|WEAVE)/ { sub(/^-A/, "-D"); print }
		/^COMMIT/ {
			for (i = 1; i <= n; i++) print "-F " chains[i]
			for (i = 1; i <= n; i++) print "-X " chains[i]
			print
		}' | "$2" --noflush || quoin_fail "the rules of Kubernetes cannot be taken out of iptables; see: $1 | grep KUBE-"
}

# clear_services removes the virtual servers of kube-proxy and no other, never all at once: those whose address lies on
# its own link, and node ports that were not there before.
clear_services() {
	[ -e /sys/class/net/kube-ipvs0 ] && command -v ipvsadm >/dev/null || return 0
	ipvsadm --save --numeric 2>/dev/null | while read -r verb kind service rest; do
		[ "$verb" = -A ] || continue
		address=${service%:*} port=${service##*:}
		address=${address#[} address=${address%]}
		if [ -z "$(ip -o address show dev kube-ipvs0 to "$address" 2>/dev/null)" ]; then
			case $port in *[!0-9]* | '') continue ;; esac
			[ -f "$QUOIN_ROOT/before/services" ] && [ "$port" -ge 30000 ] && ! before services "$verb $kind $service${rest:+ $rest}" || continue
		fi
		ipvsadm --delete-service "$kind" "$service" || :
	done
}

# plugin_link <link>: those that nobody else makes go in any case, as an inspection finds them in any case.
plugin_link() {
	quoin_cluster_link "$1" && return 0
	[ -f "$QUOIN_ROOT/before/links" ] && ! before links "$1" && quoin_plugin_link "$1"
}

clear_links() {
	for link in /sys/class/net/*; do
		link=${link##*/}
		if [ -e "/sys/class/net/$link" ] && plugin_link "$link"; then ip link delete "$link" 2>/dev/null || :; fi
	done
}

# clear_lookups <4|6>: rules of policy routing and routes that stay when their links go.
clear_lookups() {
	[ -f "$QUOIN_ROOT/before/rules$1" ] || return 0
	# Cilium moves the first rule of all behind its own.
	if grep -q '^0:.*from all lookup local' "$QUOIN_ROOT/before/rules$1" && ! ip "-$1" rule list | grep -q '^0:'; then
		ip "-$1" rule add pref 0 from all lookup local
	fi
	ip "-$1" rule list 2>/dev/null | while read -r pref words; do
		before "rules$1" "$pref	$words" && continue
		quoin_plugin_rule "$words" || [ "$pref $words" = '100: from all lookup local' ] || continue
		ip "-$1" rule delete pref "${pref%:}" $words || :
	done
	ip "-$1" route list 2>/dev/null | while read -r words; do
		before "routes$1" "$words" && continue
		case " $words " in
		*" proto bird "*) bird_runs && continue ;;
		*" proto 80 "*) ;;
		*) continue ;;
		esac
		ip "-$1" route delete ${words% onlink} || :
	done
}

# put_plugins_back: programs that containerd runs as root, some of them in the place of the host's own.
put_plugins_back() {
	# Drivers of volumes, which the kubelet runs as root.
	drivers=/usr/libexec/kubernetes/kubelet-plugins/volume/exec
	if [ -f "$QUOIN_ROOT/before/volumes" ] && [ -d $drivers ]; then
		ls -A $drivers | while read -r name; do before volumes "$name" || rm -rf "$drivers/$name"; done
	fi
	[ -d "$QUOIN_ROOT/before/plugins" ] && [ -d /opt/cni/bin ] || return 0
	ls -A /opt/cni/bin | while read -r name; do
		# Claims that began before there was a list of names have the copies alone.
		if [ -f "$QUOIN_ROOT/before/names" ]; then before names "$name"; else [ -e "$QUOIN_ROOT/before/plugins/$name" ]; fi || rm -rf "/opt/cni/bin/$name"
	done
	ls -A "$QUOIN_ROOT/before/plugins" | while read -r name; do
		cmp -s "$QUOIN_ROOT/before/plugins/$name" "/opt/cni/bin/$name" && continue
		cp -a "$QUOIN_ROOT/before/plugins/$name" "/opt/cni/bin/$name.quoin-part" && mv -fT "/opt/cni/bin/$name.quoin-part" "/opt/cni/bin/$name" || :
	done
}

reset_network() {
	unmount_own
	# A plugin picks the variant that it likes, whatever the host uses.
	for variant in iptables ip6tables iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do clear_rules $variant-save $variant-restore; done
	if command -v nft >/dev/null; then
		quoin_nft_tables | while read -r family table; do nft delete table "$family" "$table" || :; done
	fi
	clear_services
	clear_links
	clear_lookups 4
	clear_lookups 6
	if command -v ipset >/dev/null; then
		# A set of sets is in the way of those it lists.
		for set in $(quoin_sets) $(quoin_sets); do ipset destroy "$set" 2>/dev/null || :; done
	fi
	# Programs that Cilium pinned stay on the host's own links, and drop what they do not know.
	[ ! -d /sys/fs/bpf ] || rm -rf /sys/fs/bpf/cilium /sys/fs/bpf/tc/globals/cilium_* 2>/dev/null
	# Without the list from before our time nothing says what is the cluster's.
	if [ -d /etc/cni/net.d ] && [ -f "$QUOIN_ROOT/cni-before" ]; then
		ls -A /etc/cni/net.d | while read -r name; do
			grep -qxF -- "$name" "$QUOIN_ROOT/cni-before" || rm -rf "/etc/cni/net.d/$name"
		done
	fi
	# That of Cilium; others write it for Cilium too.
	[ ! -f "$QUOIN_ROOT/before/settings" ] || before settings 99-zzz-override_cilium.conf || rm -f /etc/sysctl.d/99-zzz-override_cilium.conf
	put_plugins_back
	empty /var/lib/cni
	for d in /var/lib/calico /var/lib/cilium /var/lib/weave /run/calico /run/cilium /run/flannel; do
		[ -f "$QUOIN_ROOT/before/dirs" ] && ! before dirs "$d" || continue
		unmount_below "$d"
		empty "$d"
	done
}
