# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what outlives a claim unless somebody takes it back, so that what a host had before one can be compared with
# what it has afterwards. Changes nothing.
#   trace <kind>, a tab, the name, a tab, what it is
#   file <kind>, a tab, its mode and owner, a tab, the name, a tab, what it is
#   traced <kind>: all of that kind was printed
#   skipped <what cannot be seen, and why>

skipped() { printf 'skipped %s\n' "$*"; }

quoin_trace() { printf 'trace %s\t%s\t%s\n' "$1" "$2" "$3"; }

# quoin_line <text>: sets $line to it, as a shell reads it ($'...') where it is more than one line or no text.
quoin_line() {
	line=$1
	case $1 in
	*[[:cntrl:]]* | \$\'*)
		line=$(printf '%s' "$1" | od -An -v -tu1 | LC_ALL=C awk '{ for (i = 1; i <= NF; i++)
			printf $i < 32 || 126 < $i || $i == 92 || $i == 39 ? "\\%03o" : "%c", $i + 0 }')
		line="\$'$line'"
		;;
	esac
}

# quoin_trace_file <kind> <file>: by its content, mode and owner. What belongs to the host alone, or comes and goes by itself, is none.
quoin_trace_file() {
	case "$1 $2" in
	# Its own keys are pinned; kubectl writes its cache anew at each use.
	'sshd /etc/ssh/ssh_host_'* | 'kube /root/.kube/cache/'*) return 0 ;;
	# A plan of Quoin's has its directory, and a reset removes those of others.
	'transient /run/systemd/transient/quoin-run-'*.service)
		plan=${2#*/quoin-run-}
		plan=${plan%.service}
		case $plan in [a-z0-9]*) [ ! -d "/var/lib/quoin/runs/$plan" ] || return 0 ;; esac
		;;
	# Sessions, and containers of others.
	'transient /run/systemd/transient/'*.slice | 'transient /run/systemd/transient/'*.slice.d/*.conf) return 0 ;;
	'transient /run/systemd/transient/'*.scope | 'transient /run/systemd/transient/'*.scope.d/*.conf)
		case ${2##*/transient/} in session-* | docker-* | libpod-* | cri-containerd-* | machine-* | snap.*) return 0 ;; esac
		;;
	esac
	quoin_line "$2"
	name=$line
	if [ -L "$2" ]; then
		quoin_line "$(readlink "$2")"
		quoin_trace "$1" "$name" "-> $line"
	elif [ -f "$2" ]; then
		sum=$(sha256sum <"$2" 2>/dev/null)
		printf 'file %s\t%s\t%s\t%s\n' "$1" "$(stat -c '%a %u:%g' "$2" 2>/dev/null)" "$name" "${sum%% *}"
	fi
}

# quoin_trace_mode <kind> <directory>: where somebody but root may put files. A user's own directories are his.
quoin_trace_mode() {
	case $1 in linger | home) return 0 ;; esac
	how=$(stat -c '%A %a %u:%g' "$2" 2>/dev/null)
	case $how in
	?????w* | ????????w*) ;;
	*' 0:'*) return 0 ;;
	esac
	quoin_line "$2/"
	printf 'file %s\t%s\t%s\tdirectory\n' "$1" "${how#* }" "$line"
}

# quoin_trace_below <kind> <directory>: the shell's own patterns, for a name is a word to them whatever is in it.
quoin_trace_below() {
	quoin_trace_mode "$1" "$2"
	for file in "$2"/* "$2"/.[!.]* "$2"/..?*; do
		if [ -d "$file" ] && ! [ -L "$file" ]; then quoin_trace_below "$1" "$file"; else quoin_trace_file "$1" "$file"; fi
	done
}

# quoin_trace_files <kind> <file or directory>...
quoin_trace_files() {
	kind=$1
	shift
	for top in "$@"; do
		# It may be a link.
		if [ -d "$top" ]; then quoin_trace_below "$kind" "${top%/}"; else quoin_trace_file "$kind" "$top"; fi
	done
	echo "traced $kind"
}

# quoin_trace_users: who may log in, and with what. A service's account without a shell is none of these.
quoin_trace_users() {
	while IFS=: read -r name _ uid gid _ home shell; do
		case $shell in
		*/nologin | */false | /bin/sync) [ "$uid" = 0 ] || continue ;;
		esac
		quoin_trace user "$name" "$uid:$gid:$home:$shell"
	done </etc/passwd && echo 'traced user'
	away=:
	while IFS=: read -r name _ _ _ _ home _; do
		if quoin_remote "$home"; then
			case $away in *":$mount:"*) continue ;; esac
			away=$away$mount:
			quoin_line "$mount"
			skipped "keys, settings and units of users whose homes are below $line: another machine has them"
			continue
		fi
		for file in "$home/.ssh/authorized_keys" "$home/.ssh/authorized_keys2"; do
			[ -f "$file" ] || continue
			while IFS= read -r line || [ -n "$line" ]; do
				case $line in '' | '#'*) ;; *) quoin_trace key "$name" "$line" ;; esac
			done <"$file"
		done
	done </etc/passwd && echo 'traced key'
	while IFS=: read -r group _ _ members; do
		for name in $(printf '%s\n' "$members" | tr , ' '); do quoin_trace member "$name" "$group"; done
	done </etc/group && echo 'traced member'
	[ -r /etc/shadow ] || return 0
	while IFS=: read -r name hash _; do
		case $hash in '!'* | '*'*) continue ;; esac
		sum=$(printf '%s' "$hash" | sha256sum)
		quoin_trace password "$name" "${sum%% *}"
	done </etc/shadow && echo 'traced password'
}

# quoin_cluster_link <link>: has it a name that only a cluster gives?
quoin_cluster_link() {
	case $1 in
	cni0 | flannel.* | flannel-v6.* | cilium_* | vxlan.calico | vxlan-v6.calico | wireguard.cali | wg-v6.cali | kube-ipvs0 | kube-bridge | \
		nodelocaldns | lxc_health | kube-dummy-if) return 0 ;;
	# Calico and Cilium fill the name of a pod's link up with a hash; what others name so is shorter, or says something.
	cali*) pod=${1#cali} ;;
	lxc*) pod=${1#lxc} ;;
	*) return 1 ;;
	esac
	[ ${#1} = 15 ] || return 1
	case $pod in *[!0-9a-f]*) return 1 ;; esac
}

# quoin_plugin_link <link>: is it what network plugins make? What has a master belongs to a bridge of somebody's.
quoin_plugin_link() {
	case $1 in
	lxcbr* | lxdbr*) return 1 ;;
	cali* | lxc* | weave | vethwe-* | kube-* | vxlan-*) return 0 ;;
	veth*)
		if ! [ -e "/sys/class/net/$1/master" ]; then
			quoin_paired "$1" && return 1
			return 0
		fi
		case $(basename "$(readlink -f "/sys/class/net/$1/master")") in cni0 | kube-bridge | weave) return 0 ;; esac
		;;
	esac
	return 1
}

# quoin_paired <link>: is its other end here too, and not in a pod?
quoin_paired() {
	read -r own <"/sys/class/net/$1/ifindex" && read -r peer <"/sys/class/net/$1/iflink" || return 1
	for other in /sys/class/net/*; do
		read -r index <"$other/ifindex" && [ "$index" = "$peer" ] && read -r back <"$other/iflink" && [ "$back" = "$own" ] && return 0
	done
	return 1
}

# quoin_plugin_rule <rule of policy routing without its priority>
quoin_plugin_rule() {
	case " $1 " in
	*" fwmark 0x200/0xf00 lookup 2004 "* | *" fwmark 0xa00/0xf00 lookup 2005 "* | *" lookup 77 "* | *" lookup 78 "* | *" lookup 79 "*) return 0 ;;
	esac
	return 1
}

# bird_runs: the one of a network plugin ended with its pod, so this one is the administrator's, and so are its routes.
bird_runs() {
	for comm in /proc/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		case $name in bird | bird6) return 0 ;; esac
	done
	return 1
}

quoin_trace_network() {
	for link in /sys/class/net/*; do
		link=${link##*/}
		if ! quoin_cluster_link "$link" && quoin_plugin_link "$link"; then quoin_trace link "$link" ''; fi
	done
	echo 'traced link'
	command -v ip >/dev/null || return 0
	for family in 4 6; do
		ip "-$family" rule list 2>/dev/null | while read -r pref words; do
			if quoin_plugin_rule "$words" || [ "$pref $words" = '100: from all lookup local' ]; then quoin_trace rule "$words" "$family"; fi
		done
		ip "-$family" route list 2>/dev/null | while read -r words; do
			case " $words " in
			*" proto bird "*) bird_runs || quoin_trace route "$words" '' ;;
			*" proto 80 "*) quoin_trace route "$words" '' ;;
			esac
		done
	done
	printf 'traced rule\ntraced route\n'
	# Of the kernel itself, without a program. A kernel that has none has no such file.
	if [ -r /proc/net/ip_vs ]; then
		while read -r proto service _; do
			case $proto in TCP | UDP | SCTP | FWM) quoin_trace ipvs "$proto $service" '' ;; esac
		done </proc/net/ip_vs
	fi
	echo 'traced ipvs'
}

# quoin_trace_images: a name says nothing, for whoever has the host can give it to anything.
quoin_trace_images() {
	if command -v ctr >/dev/null; then
		# It waits for one that does not run.
		[ -S /run/containerd/containerd.sock ] || return 0
		images=$(timeout -k 5 30 ctr -n k8s.io images ls 2>/dev/null) || return 0
		printf '%s\n' "$images" | while read -r name _ digest _; do
			case $digest in *:*) quoin_trace image "$name" "$digest" ;; esac
		done
	fi
	echo 'traced image'
}

# Where other machines' file systems are mounted: a look there waits for them, and what they hold is not this host's.
quoin_remotes=$(awk '$3 ~ /^(nfs.*|cifs|smb.*|ceph|glusterfs|9p|afs|lustre|autofs|fuse\..*)$/ { print $2 }' /proc/self/mounts |
	# What the table has of a blank is its number.
	while read -r mount; do printf '%b\n' "$mount"; done)

# quoin_remote <path>: reports whether the path lies there, and sets $mount to where.
quoin_remote() {
	while IFS= read -r mount; do
		case $1/ in "${mount:-/dev/null}"/*) return 0 ;; esac
	done <<REMOTES
$quoin_remotes
REMOTES
	return 1
}

# quoin_trace_mounts: what is mounted, and will be. The kernel's own, those of sessions and of containers come and go, and
# so does what an automounter mounts.
quoin_trace_mounts() {
	if [ -f /etc/fstab ]; then
		while IFS= read -r words || [ -n "$words" ]; do
			case $words in '' | '#'*) ;; *) quoin_trace mount /etc/fstab "$words" ;; esac
		done </etc/fstab
	fi
	automounts=$(awk '$3 == "autofs" { print $2 }' /proc/self/mounts)
	while read -r from at type _; do
		case $at in
		/proc | /proc/* | /sys | /sys/* | /dev | /dev/* | /run | /run/* | /snap/* | /var/snap/* | /var/lib/docker/* | /var/lib/containers/* | \
			/var/lib/containerd/* | /var/lib/kubelet/* | /var/lib/lxcfs | /var/lib/lxd/* | /var/lib/incus/* | /var/lib/nfs/*) continue ;;
		esac
		if [ "$type" != autofs ]; then
			for automount in $automounts; do
				case $at/ in "$automount"/*) continue 2 ;; esac
			done
		fi
		# A disk may have another name after a boot.
		case $from in /dev/*) from=disk ;; esac
		quoin_trace mount "$at" "$from $type"
	done </proc/self/mounts
	echo 'traced mount'
}

# quoin_trace_data: where volumes of the host's own directories and storage plugins leave what they held.
quoin_trace_data() {
	for dir in /var/openebs /var/lib/calico /var/lib/cilium /var/lib/weave /var/lib/csi-* /var/lib/longhorn /var/lib/openebs* /var/lib/rook; do
		quoin_trace_dir "$dir"
	done
	for parent in '' /opt /srv /mnt /var/local; do
		quoin_remote "$parent" && continue
		for dir in "$parent"/* "$parent"/.[!.]* "$parent"/..?*; do quoin_trace_dir "$dir"; done
	done
	echo 'traced data'
}

# quoin_trace_dir <directory>
quoin_trace_dir() {
	case $1 in /opt/cni | /opt/containerd | /run | /tmp | /lost+found) return 0 ;; esac
	quoin_remote "$1" && return 0
	if [ -d "$1" ] && ! [ -L "$1" ]; then
		quoin_line "$1"
		quoin_trace data "$line" ''
	fi
}

# quoin_trace_homes: what shells, sshd and programs read of a user's own, and do for him.
quoin_trace_homes() {
	set -- /root
	while IFS=: read -r _ _ _ _ _ home _; do
		case $home in /root | / | '') continue ;; esac
		quoin_remote "$home" || set -- "$@" "$home"
	done </etc/passwd
	for home in "$@"; do
		for file in .profile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshenv .zprofile .zshrc .zlogin .kshrc .cshrc \
			.tcshrc .pam_environment .ssh/rc .ssh/environment .ssh/config .curlrc .config/curlrc .wgetrc .netrc .gitconfig .forward; do
			if [ -e "$home/$file" ] || [ -L "$home/$file" ]; then set -- "$@" "$home/$file"; fi
		done
		shift
	done
	quoin_trace_files home "$@"
}

# quoin_trace_services: what systemd runs until the next boot, and what it runs for users, without a login even.
quoin_trace_services() {
	quoin_trace_files transient /run/systemd/system /run/systemd/transient
	set -- /var/lib/systemd/linger
	while IFS=: read -r _ _ _ _ _ home _; do
		# That of root is below.
		case $home in /root | / | '') continue ;; esac
		quoin_remote "$home" || set -- "$@" "$home/.config/systemd" "$home/.local/share/systemd"
	done </etc/passwd
	quoin_trace_files linger "$@"
}

quoin_traces() {
	quoin_trace_network
	quoin_trace_images
	quoin_trace_data
	quoin_trace_mounts
	quoin_trace_files plugin /opt/cni/bin /usr/libexec/kubernetes
	quoin_trace_files cni /etc/cni/net.d
	quoin_trace_files kube /root/.kube
	quoin_trace_homes
	quoin_trace_users
	quoin_trace_files sudo /etc/sudoers /etc/sudoers.d
	quoin_trace_files sshd /etc/ssh
	quoin_trace_files cron /etc/crontab /etc/anacrontab /etc/cron.d /etc/cron.hourly /etc/cron.daily /etc/cron.weekly /etc/cron.monthly \
		/var/spool/cron /var/spool/at
	quoin_trace_files unit /etc/systemd/system /etc/systemd/user /etc/systemd/system-generators /usr/local/lib/systemd /root/.config/systemd
	quoin_trace_services
	quoin_trace_files boot /etc/rc.local /etc/init.d /etc/ld.so.preload /etc/udev/rules.d
	quoin_trace_files kernel /etc/sysctl.conf /etc/sysctl.d /etc/modules /etc/modules-load.d /etc/modprobe.d
	quoin_trace_files login /etc/profile /etc/profile.d /etc/environment /etc/update-motd.d /etc/pam.d
	# What packages, the network, logs, shells and the boot run by themselves, whom they trust, and where they look first.
	quoin_trace_files hook /etc/bash.bashrc /etc/bashrc /etc/zsh /etc/apt /etc/dpkg /etc/yum.conf /etc/yum.repos.d /etc/dnf \
		/etc/logrotate.conf /etc/logrotate.d /etc/NetworkManager/conf.d /etc/NetworkManager/dispatcher.d /etc/networkd-dispatcher \
		/etc/network /etc/dhcp /etc/systemd/*.conf /etc/systemd/*.conf.d /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d \
		/var/lib/cloud/scripts /etc/ld.so.conf /etc/ld.so.conf.d /etc/nsswitch.conf /etc/security /etc/polkit-1 /etc/sudo.conf /usr/local/share/ca-certificates /etc/pki/ca-trust/source
	quoin_trace_files program /usr/local/sbin /usr/local/bin
	# Where images come from, and what containerd runs as root beside them.
	quoin_trace_files runtime /etc/containerd /etc/crictl.yaml /etc/cdi /run/cdi /etc/nri /opt/nri
}
