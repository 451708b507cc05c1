# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what is left of a node: a sentence, a tab, and what to do. Changes nothing.
#   arguments: the root directory, the ports, "--", the virtual addresses, "--", the disks to be empty
command -v awk >/dev/null && command -v ip >/dev/null || { echo "awk or ip is not installed on this host, so nothing can be verified" >&2; exit 1; }
root=$1
shift

# lives <directory in /proc>: a process that ended and was not collected yet does nothing any more.
lives() {
	case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$1/status" 2>/dev/null) in '' | Z | X) return 1 ;; esac
}

for comm in /proc/[0-9]*/comm; do
	read -r name 2>/dev/null <"$comm" || continue
	case $name in kubelet | etcd | kube-apiserver | kube-controller | kube-scheduler | kube-proxy)
		lives "${comm%/comm}" || continue
		pid=${comm#/proc/}
		found "process $name runs (pid ${pid%/comm})" "stop it: kill ${pid%/comm}" ;;
	esac
done

data=$(cat "$root/etcd-data-dir" 2>/dev/null)
for d in /etc/kubernetes /var/lib/etcd $data /var/lib/kubelet /run/kubeadm /var/run/kubernetes; do
	# With the slash, for it may be a link.
	left=$(find "$d/" -type f 2>/dev/null | head -n 1)
	[ -z "$left" ] || found "$d is not empty: $left" "look whether it is needed, then remove it"
done
# The next claim's plans would take these for its own. The journal of the reset itself stays, and what was staged.
for left in "$root"/runs/provision-* "$root"/runs/addons-* "$root"/runs/recover-* "$root/recovery" "$root/originals" "$root/before" \
	"$root/cni-before" "$root/kubelet.env" /run/cluster-api/bootstrap-success.complete /run/cluster-api/placeholder; do
	[ ! -e "$left" ] || found "$left remains" "remove it: rm -r $left"
done
if grep -qs '^# Written by Quoin\.' /etc/keepalived/keepalived.conf; then
	found "/etc/keepalived/keepalived.conf is the one of a node" "systemctl disable --now keepalived.service, then remove it"
fi
case $(systemctl is-enabled kubelet.service 2>/dev/null) in enabled | enabled-runtime) found "the kubelet starts with the host" "disable it: systemctl disable --now kubelet.service" ;; esac
[ ! -s "$root/created" ] || found "$root/created still lists what was installed" "see which step of the reset failed, and clean again"

if command -v ctr >/dev/null; then
	ids=$(timeout -k 5 30 ctr -n k8s.io containers ls -q 2>/dev/null)
	case $? in
	0) [ -z "$ids" ] || found "containers of Kubernetes remain: $(echo $ids | cut -c 1-200)" "restart containerd or reboot the host" ;;
	124 | 137)
		# Slow says nothing about what is left: neither a finding nor clean.
		echo "containerd has not answered within 30 s, so its containers are unknown; it is asked again" >&2
		exit 1
		;;
	*) found "containerd does not answer, so its containers are unknown" "start or repair containerd" ;;
	esac
fi

mounts=$(awk -v p="$(readlink -f /var/lib/kubelet)/" 'p != "/" && index($2, p) == 1 { print $2 }' /proc/self/mounts | head -n 3 | tr '\n' ' ')
[ -z "$mounts" ] || found "mounts remain: $mounts" "unmount them or reboot the host"

while [ $# -gt 0 ] && [ "$1" != -- ]; do
	hex=$(printf '%04X' "$1")
	if cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v p=":$hex" '$4 == "0A" && substr($2, length($2) - 4) == p { f = 1 } END { exit !f }'; then
		found "something listens on port $1" "find it with: ss -ltnp sport = :$1"
	fi
	shift
done
shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	[ -z "$(ip -o address show to "$1" 2>/dev/null)" ] || found "this host still holds the virtual address $1" "remove it: ip address delete"
	shift
done

quoin_left
left=$(find /var/lib/cni/ -type f 2>/dev/null | head -n 1)
[ -z "$left" ] || found "/var/lib/cni is not empty: $left" "remove what is in it"

[ $# -eq 0 ] || shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	if disk=$(quoin_disk "$1"); then
		left=$(wipefs --no-act --parsable "$disk") || { echo "$1 ($disk) cannot be read, so nothing can be verified" >&2; exit 1; }
		left=$(printf '%s\n' "$left" | sed '/^#/d; /^$/d; s/.*,//' | sort -u | tr '\n' ' ' | sed 's/ $//')
		[ -z "$left" ] || found "disk $1 ($disk) still holds $left" "wipe it (wipefs --all $disk), or correct its role in spec.disks"
	else
		found "no disk of this host has the id $1, or two have" "correct spec.disks of the QuoinHost"
	fi
	shift
done

quoin_traces
echo end
