# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what a cluster left under names that nobody else uses: what needs no record of before. Changes nothing.
#   found <sentence>, a tab, what to do
#   trace tool, a tab, the program by which something was looked for

found() { printf 'found %s\t%s\n' "$1" "$2"; }
looked() { quoin_trace tool "$1" ''; }

quoin_chains='^:(KUBE-|CNI-|cali-|CILIUM_|OLD_CILIUM_|FLANNEL-|WEAVE)'

# quoin_nft_tables: the family and the name of each that is a plugin's.
quoin_nft_tables() {
	nft list tables 2>/dev/null | while read -r _ family table; do
		case $table in kube-proxy | calico | flannel-ipv4 | flannel-ipv6 | cilium) echo "$family $table" ;; esac
	done
}

quoin_sets() {
	ipset list -name 2>/dev/null | while read -r set; do
		case $set in KUBE-* | cali40* | cali60* | weave-* | inet6:KUBE-*) echo "$set" ;; esac
	done
}

quoin_left_rules() {
	seen=
	for save in iptables-save ip6tables-save iptables-legacy-save ip6tables-legacy-save iptables-nft-save ip6tables-nft-save; do
		command -v $save >/dev/null || continue
		if ! rules=$($save 2>/dev/null); then
			skipped "rules of iptables: $save fails on this host"
			continue
		fi
		seen=yes
		looked $save
		chain=$(printf '%s\n' "$rules" | grep -E "$quoin_chains" | head -n 1)
		[ -z "$chain" ] || found "rules of a cluster remain in iptables: chain ${chain%% *}" "see: $save | grep ${chain%% *}"
	done
	[ -n "$seen" ] || skipped "rules of iptables: no iptables-save works on this host"
	if ! command -v nft >/dev/null; then
		skipped "tables of nftables: nft is not installed on this host"
	elif ! nft list tables >/dev/null 2>&1; then
		skipped "tables of nftables: nft fails on this host"
	else
		looked nft
		quoin_nft_tables | while read -r family table; do
			found "the nftables table $family $table of a cluster remains" "remove it: nft delete table $family $table"
		done
	fi
	if ! command -v ipset >/dev/null; then
		skipped "sets of ipset: ipset is not installed on this host"
	elif ! ipset list -name >/dev/null 2>&1; then
		skipped "sets of ipset: ipset fails on this host"
	else
		looked ipset
		for set in $(quoin_sets); do found "the ipset $set of a cluster remains" "remove it: ipset destroy $set"; done
	fi
}

# quoin_shims: the process ids of what holds containers of Kubernetes for containerd. One that containerd lost sight of
# outlives its container, and containerd names it no more.
quoin_shims() {
	for comm in /proc/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		case $name in containerd-shim*) ;; *) continue ;; esac
		pid=${comm%/comm}
		case "$(tr '\000' ' ' 2>/dev/null <"$pid/cmdline") " in *" -namespace k8s.io "*) echo "${pid#/proc/}" ;; esac
	done
}

# lives <directory in /proc>: a process that ended and was not collected yet does nothing any more.
lives() {
	case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$1/status" 2>/dev/null) in '' | Z | X) return 1 ;; esac
}

# quoin_pod_processes: the process ids of what runs in the groups of pods, whichever version and driver of cgroups made
# them: a process that a pod started on the host itself outlives it there. Pods in a container of others are theirs.
quoin_pod_processes() {
	find /sys/fs/cgroup -path '*kubepods*' -name cgroup.procs ! -path '*/docker*' ! -path '*/libpod*' ! -path '*/lxc*' \
		-exec cat {} + 2>/dev/null | sort -un | while read -r pid; do
		# A host in a container may see groups of others, whose processes have the number 0.
		[ "$pid" = 0 ] || ! lives "/proc/$pid" || echo "$pid"
	done
}

# Where network plugins keep what they gave out.
quoin_cni_dirs=/var/lib/cni

# quoin_left_node <directory of Quoin>: of the kubelet, of kubeadm, of etcd and of the plans that made the node.
quoin_left_node() {
	for comm in /proc/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		case $name in kubelet | etcd | kube-apiserver | kube-controller | kube-scheduler | kube-proxy)
			lives "${comm%/comm}" || continue
			pid=${comm#/proc/}
			found "process $name runs (pid ${pid%/comm})" "stop it: kill ${pid%/comm}" ;;
		esac
	done
	# As one name, whatever is in it: whoever had the node wrote it.
	data=$(head -n 1 "$1/etcd-data-dir" 2>/dev/null)
	for d in /etc/kubernetes /var/lib/etcd ${data:+"$data"} /var/lib/kubelet /run/kubeadm /var/run/kubernetes; do
		# Packages bring empty directories; only files make a node. With the slash, for it may be a link.
		left=$(find "$d/" -type f 2>/dev/null | head -n 1)
		[ -z "$left" ] || found "$d is not empty: $left" "look whether it is needed, then remove it"
	done
	# The next claim's plans would take these for its own. The journal of the reset itself stays, and what was staged.
	for left in "$1"/runs/provision-* "$1"/runs/addons-* "$1"/runs/recover-* "$1/recovery" "$1/originals" "$1/before" \
		"$1/cni-before" "$1/kubelet.env" /run/cluster-api/bootstrap-success.complete /run/cluster-api/placeholder; do
		[ ! -e "$left" ] || found "$left remains" "remove it: rm -r $left"
	done
	if grep -qs '^# Written by Quoin\.' /etc/keepalived/keepalived.conf; then
		found "/etc/keepalived/keepalived.conf is the one of a node" "systemctl disable --now keepalived.service, then remove it"
	fi
	mounts=$(awk -v p="$(readlink -f /var/lib/kubelet)/" 'p != "/" && index($2, p) == 1 { print $2 }' /proc/self/mounts | head -n 3 | tr '\n' ' ')
	[ -z "$mounts" ] || found "mounts remain: $mounts" "unmount them or reboot the host"
	for d in $quoin_cni_dirs; do
		left=$(find "$d/" -type f 2>/dev/null | head -n 1)
		[ -z "$left" ] || found "$d is not empty: $left" "remove what is in it"
	done
}

# quoin_left_containers: returns what asking containerd for them returns.
quoin_left_containers() {
	ids=$(timeout -k 5 30 ctr -n k8s.io containers ls -q 2>/dev/null) || return
	[ -z "$ids" ] || found "containers of Kubernetes remain: $(echo $ids | cut -c 1-200)" "restart containerd or reboot the host"
}

# quoin_left_anew <directory of Quoin>: as quoin_left, on a host of which nobody has a record. Chains of CNI may be those
# of podman or nerdctl then, and where one of them is, so may its addresses.
quoin_left_anew() (
	quoin_chains=$(printf '%s\n' "$quoin_chains" | sed 's/CNI-|//')
	if command -v podman >/dev/null || command -v nerdctl >/dev/null; then quoin_cni_dirs=/var/lib/cni/flannel; fi
	quoin_left "$1"
)

# quoin_left <directory of Quoin>
quoin_left() {
	quoin_left_kinds "$1"
	echo 'traced tool'
}

# quoin_left_kinds <directory of Quoin>: by each of the kinds of things that a cluster leaves.
quoin_left_kinds() {
	quoin_left_node "$1"
	quoin_left_rules
	for pid in $(quoin_shims); do found "process $pid holds a container of Kubernetes that is gone" "end it: kill -s KILL $pid"; done
	pids=$(quoin_pod_processes | head -n 10 | tr '\n' ' ')
	names=$(for pid in $pids; do cat "/proc/$pid/comm" 2>/dev/null; done | sort -u | tr '\n' ' ')
	[ -z "$pids" ] || found "processes of pods run: $names" "end them: kill -s KILL $pids"
	for dir in /var/log/pods /var/log/containers; do
		# Not files alone: the second has links only.
		file=$(find "$dir/" -mindepth 1 2>/dev/null | head -n 1)
		[ -z "$file" ] || found "$dir is not empty: $file" "remove what is in it"
	done
	for link in /sys/class/net/*; do
		link=${link##*/}
		! quoin_cluster_link "$link" || found "the network link $link of a cluster remains" "remove it: ip link delete $link"
	done
	for pin in /sys/fs/bpf/cilium /sys/fs/bpf/tc/globals/cilium_*; do
		[ ! -e "$pin" ] || found "programs of Cilium remain at $pin" "remove them: rm -r $pin"
	done
	if ! command -v tc >/dev/null; then
		skipped "programs of Cilium on network links: tc is not installed on this host"
		return 0
	fi
	looked tc
	for link in /sys/class/net/*; do
		[ -e "$link/device" ] || continue
		link=${link##*/}
		if { tc filter show dev "$link" ingress; tc filter show dev "$link" egress; } 2>/dev/null | grep -q cil_; then
			found "programs of Cilium remain on the network link $link" "reboot the host, or remove them: tc qdisc del dev $link clsact"
		fi
	done
	return 0
}
