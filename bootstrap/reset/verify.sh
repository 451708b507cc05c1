# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what is left of a node: a sentence, a tab, and what to do. Changes nothing.
#   arguments: the root directory, the ports, "--", the virtual addresses, "--", the disks to be empty
command -v awk >/dev/null && command -v ip >/dev/null || { echo "awk or ip is not installed on this host, so nothing can be verified" >&2; exit 1; }
root=$1
shift

case $(systemctl is-enabled kubelet.service 2>/dev/null) in enabled | enabled-runtime) found "the kubelet starts with the host" "disable it: systemctl disable --now kubelet.service" ;; esac
[ ! -s "$root/created" ] || found "$root/created still lists what was installed" "see which step of the reset failed, and clean again"

if command -v ctr >/dev/null; then
	quoin_left_containers
	case $? in
	0) ;;
	124 | 137)
		# Slow says nothing about what is left: neither a finding nor clean.
		echo "containerd has not answered within 30 s, so its containers are unknown; it is asked again" >&2
		exit 1
		;;
	*) found "containerd does not answer, so its containers are unknown" "start or repair containerd" ;;
	esac
fi

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

quoin_left "$root"

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
