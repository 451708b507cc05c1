# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Takes out of the kernel's network what kube-proxy and network plugins put in. Names that nobody else uses say so by
# themselves; anything else goes only when it was not there before the claim.

# before <list> <line>: was it there before the claim? Blanks at the end, which ip prints and read drops, say nothing.
before() { sed 's/[[:space:]]*$//' "$QUOIN_ROOT/before/$1" 2>/dev/null | grep -xF -- "$2" >/dev/null; }

# bird_runs: the one of a network plugin ended with its pod, so this one is the administrator's, and so are its routes.
bird_runs() {
	for comm in /proc/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		case $name in bird | bird6) return 0 ;; esac
	done
	return 1
}

# clear_rules <save> <restore>: deletes the chains of Kubernetes and of network plugins and the rules that jump to them;
# nothing else.
clear_rules() {
	command -v "$1" >/dev/null && command -v "$2" >/dev/null || return 0
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

# paired <link>: is its other end here too, and not in a pod?
paired() {
	read -r own <"/sys/class/net/$1/ifindex" && read -r peer <"/sys/class/net/$1/iflink" || return 1
	for other in /sys/class/net/*; do
		read -r index <"$other/ifindex" && [ "$index" = "$peer" ] && read -r back <"$other/iflink" && [ "$back" = "$own" ] && return 0
	done
	return 1
}

# plugin_link <link>: one that has a master belongs to a bridge of somebody's.
plugin_link() {
	case $1 in
	cni0 | flannel.* | flannel-v6.* | nodelocaldns | kube-ipvs0) return 0 ;;
	esac
	[ -f "$QUOIN_ROOT/before/links" ] && ! before links "$1" || return 1
	case $1 in
	lxcbr* | lxdbr*) return 1 ;;
	vethwe-*) return 0 ;;
	veth*)
		if ! [ -e "/sys/class/net/$1/master" ]; then
			paired "$1" && return 1
			return 0
		fi
		case $(basename "$(readlink -f "/sys/class/net/$1/master")") in cni0 | kube-bridge | weave) return 0 ;; *) return 1 ;; esac
		;;
	cali* | cilium_* | lxc* | vxlan.calico | vxlan-v6.calico | wireguard.cali | wg-v6.cali | weave | kube-* | vxlan-*) return 0 ;;
	esac
	return 1
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
		case " $words " in
		*" fwmark 0x200/0xf00 lookup 2004 "* | *" fwmark 0xa00/0xf00 lookup 2005 "* | *" lookup 77 "* | *" lookup 78 "* | *" lookup 79 "*) ;;
		" from all lookup local ") [ "$pref" = 100: ] || continue ;;
		*) continue ;;
		esac
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

reset_network() {
	unmount_own
	clear_rules iptables-save iptables-restore
	clear_rules ip6tables-save ip6tables-restore
	if command -v nft >/dev/null; then
		for family in ip ip6; do
			for table in kube-proxy calico flannel-ipv4 flannel-ipv6; do nft delete table "$family" "$table" 2>/dev/null || :; done
		done
	fi
	clear_services
	clear_links
	clear_lookups 4
	clear_lookups 6
	if command -v ipset >/dev/null; then
		ipset list -name 2>/dev/null | while read -r set; do
			case $set in KUBE-* | cali40* | cali60* | weave-* | inet6:KUBE-*) ipset destroy "$set" 2>/dev/null || : ;; esac
		done
	fi
	# Programs that Cilium pinned stay on the host's own links, and drop what they do not know.
	[ ! -d /sys/fs/bpf ] || rm -rf /sys/fs/bpf/cilium /sys/fs/bpf/tc/globals/cilium_* 2>/dev/null
	# Without the list from before our time nothing says what is the cluster's.
	if [ -d /etc/cni/net.d ] && [ -f "$QUOIN_ROOT/cni-before" ]; then
		ls -A /etc/cni/net.d | while read -r name; do
			grep -qxF -- "$name" "$QUOIN_ROOT/cni-before" || rm -rf "/etc/cni/net.d/$name"
		done
	fi
	empty /var/lib/cni
	for d in /var/lib/calico /var/lib/cilium /var/lib/weave /run/calico /run/cilium /run/flannel; do
		[ -f "$QUOIN_ROOT/before/dirs" ] && ! before dirs "$d" || continue
		unmount_below "$d"
		empty "$d"
	done
}
