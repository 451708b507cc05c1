# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what this host is, one fact per line: a word, then the value. Changes nothing. Needs POSIX sh, coreutils and
# iproute2; what else is missing is left out.
set -u
has() { command -v "$1" >/dev/null 2>&1; }
quoin_say_left() { sed -n -e 's/^found \([^	]*\)	.*/kubernetes \1/p' -e '/^traced* tool/p'; }

say clock "$(date +%s.%N)"
say hostname "$(hostname 2>/dev/null || cat /proc/sys/kernel/hostname)"
for f in /etc/os-release /usr/lib/os-release; do
	if [ -r "$f" ]; then
		(
			ID='' VERSION_ID='' PRETTY_NAME=''
			. "$f"
			say os.id "$ID"
			say os.version "$VERSION_ID"
			say os.name "$PRETTY_NAME"
		)
		break
	fi
done
say kernel "$(uname -r)"
say machine "$(uname -m)"
quoin_identity
say cpus "$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
say memory.kib "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
[ "$(wc -l </proc/swaps)" -gt 1 ] && say swap yes

# disk_details <name> <directory in /sys/block>
disk_details() {
	for f in "$2/device/wwid" "$2/wwid"; do
		if [ -r "$f" ]; then say disk.wwn "$1 $(tr -d '\0' <"$f" 2>/dev/null | tr -s '[:space:]' '_')"; break; fi
	done
	for f in "$2/device/serial" "$2/serial"; do
		if [ -r "$f" ]; then say disk.serial "$1 $(tr -d '\0' <"$f" 2>/dev/null | tr -s '[:space:]' '_')"; break; fi
	done
	# What is on it. A disk that does not answer must not hold the inspection.
	[ -b "/dev/$1" ] || return 0
	if has blkid; then
		what=$(timeout -k 5 20 blkid -p -o export "/dev/$1" 2>/dev/null | sed -n -e 's/^PTTYPE=//p' -e 's/^TYPE=//p' | head -n 1)
		[ -z "$what" ] || say disk.content "$1 $what"
	fi
	if has lsblk; then
		timeout -k 5 20 lsblk -nP -o NAME,TYPE,FSTYPE,LABEL,MOUNTPOINT "/dev/$1" 2>/dev/null | head -n 128 | while read -r line; do say disk.volume "$1 $line"; done
	fi
}
quoin_disks disk_details

# link <name> <hardware address> <mtu> <state>: what is or stands for hardware, and no pod's end.
for d in /sys/class/net/*; do
	[ -e "$d/device" ] || [ -d "$d/bonding" ] || [ -d "$d/bridge" ] || continue
	say link "${d##*/} $(cat "$d/address" 2>/dev/null) $(cat "$d/mtu" 2>/dev/null) $(cat "$d/operstate" 2>/dev/null)"
done

if has ip; then
	ip -o address show scope global 2>/dev/null | while read -r _ dev family local rest; do
		case $rest in *deprecated* | *temporary* | *tentative*) continue ;; esac
		say address "${dev%%@*} $local"
	done
	say default "$(ip -o route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)"
	say default6 "$(ip -6 -o route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)"
fi

if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
	say cgroup 2
else
	say cgroup 1
	if grep -qsr -e '--fail-cgroupv1=false' /etc/default/kubelet /etc/sysconfig/kubelet /etc/systemd/system/kubelet.service.d; then
		say kubelet.cgroupv1 yes
	else
		say kubelet.cgroupv1 no
	fi
fi
[ -d /run/systemd/system ] && say systemd yes
if has cloud-init && ! [ -e /etc/cloud/cloud-init.disabled ] && ! grep -qs 'cloud-init=disabled' /proc/cmdline; then say cloudinit yes; fi
[ -e /etc/cloud/cloud.cfg.d/99-quoin.cfg ] && say cloudinit.guarded yes
if has containerd || has ctr; then
	say runtime containerd
	say runtime.version "$(containerd --version 2>/dev/null | awk '{ print $3 }')"
	if has ctr && [ -S /run/containerd/containerd.sock ]; then
		answer=$(timeout -k 5 30 ctr version 2>/dev/null)
		case $? in
		124 | 137)
			# Slow is not broken: the host would be refused for its load.
			echo "containerd has not answered within 30 s; it is asked again" >&2
			exit 1
			;;
		esac
		case $answer in *Server:*) say runtime.socket yes ;; esac
		quoin_left_containers | quoin_say_left
	fi
fi
has keepalived && say keepalived yes
has curl && say curl yes
for c in awk ip iptables conntrack mount nsenter socat ethtool flock sha256sum timeout systemd-run; do has "$c" || say missing "$c"; done

for sshd in /usr/sbin/sshd /usr/local/sbin/sshd; do
	if [ -x "$sshd" ]; then
		"$sshd" -T 2>/dev/null | while read -r key value; do
			case $key in
			allowtcpforwarding) say forwarding "$value" ;;
			disableforwarding) [ "$value" = yes ] && say forwarding no ;;
			esac
		done
		break
	fi
done

quoin_left_anew /var/lib/quoin | quoin_say_left
[ -s /var/lib/quoin/created ] && say kubernetes "files that Quoin installed and has not cleaned"

[ -r /var/lib/quoin/owner.json ] && say owner "$(cat /var/lib/quoin/owner.json)"
quoin_traces
say clock.end "$(date +%s.%N)"
say end ok
