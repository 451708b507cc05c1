#!/bin/bash
# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0

# survivor.sh makes an etcd cluster of one out of the member on this host, with the data that this member has. It is for a
# stacked etcd of kubeadm that has lost its quorum for good; docs/disaster-recovery.md says when, and what comes before and
# after it.
#
#   sudo ./survivor.sh <name of this host's node> --others-are-off
#
# It refuses while the quorum lives. It keeps a copy of the data and of the manifest, and can be run again when it was cut off.
set -euo pipefail

root=${ROOT:-}
metrics=${ETCD_METRICS:-127.0.0.1:2381}
patience=${PATIENCE:-300}
manifest=$root/etc/kubernetes/manifests/etcd.yaml
data=$root/var/lib/etcd
kept=$root/var/lib/quoin-recovery
guard=$root/etc/kubernetes/quoin/etcd-has-its-data
resting=$kept/kubelet-rests
flag=--force-new-cluster

say() { echo "survivor: $*"; }
refuse() { echo "survivor: refused: $*" >&2; exit 1; }

# answer prints the status of a path of etcd's metrics address; nothing when nobody answers.
answer() {
	# shellcheck disable=SC2016 # the inner shell expands it
	timeout 5 bash -c 'exec 3<>"/dev/tcp/${1%:*}/${1##*:}" && printf "GET %s HTTP/1.0\r\n\r\n" "$2" >&3 && read -r _ code _ <&3 && echo "$code"' \
		answer "$metrics" "$1" 2>/dev/null || true
}

# ready: etcd serves reads that a quorum agreed on. The alarm CORRUPT of anybody says nothing about that, and stays among the data.
ready() { [ "$(answer '/readyz?exclude=data_corruption')" = 200 ]; }

until_ready() {
	local left=$patience
	until ready; do
		left=$((left - 1))
		[ "$left" -gt 0 ] || refuse "etcd did not become ready within $patience s; its log is below /var/log/pods/kube-system_etcd-*"
		sleep 1
	done
}

# room refuses where the disks lack it for all copies together: of the data as they are, and of the data made anew beside them.
room() {
	local copy anew
	copy=$(du -sk "$data" | cut -f 1)
	anew=$(du -sk "$data/member" | cut -f 1)
	if [ "$(stat -c %d "$data")" = "$(stat -c %d "$kept")" ]; then
		anew=$((copy + anew)) copy=0
	fi
	has_room "$data" "$anew" && has_room "$kept" "$copy"
}

# has_room <directory> <KiB>
has_room() { [ "$(df -Pk "$1" | awk 'END { print $4 }')" -gt "$2" ]; }

# process prints where the kernel tells of the etcd that works on the data; nothing when there is none.
process() {
	local comm
	for comm in /proc/[0-9]*/comm; do
		[ "$(cat "$comm" 2>/dev/null)" = etcd ] && tr '\0' '\n' 2>/dev/null <"${comm%comm}cmdline" | grep -qxF -- "--data-dir=$data" || continue
		echo "${comm%/comm}"
		return
	done
}

# rest: while the manifest goes, the kubelet rests. One that has not reached an API server since it started, as after a power cut,
# neither stops a static pod whose manifest is gone nor starts another of its name.
rest() {
	case $(systemctl is-active kubelet.service 2>/dev/null) in active | activating | reloading | deactivating) ;; *) return 0 ;; esac
	cat /proc/sys/kernel/random/boot_id >"$resting"
	sync "$resting"
	systemctl stop kubelet.service || refuse "the kubelet cannot be stopped: look at journalctl -u kubelet"
}

# wake: the kubelet starts anew, so it knows no pod of before, and registers its Node, which may be younger than data that a person put
# in place. One that somebody else has stopped stays stopped, and one that had to rest before the host was started has started with it.
wake() {
	[ -e "$resting" ] || return 0
	[ "$(cat "$resting")" != "$(cat /proc/sys/kernel/random/boot_id)" ] || systemctl start kubelet.service ||
		refuse "the kubelet cannot be started: look at journalctl -u kubelet, start it, and run this again"
	rm -f "$resting"
}
trap wake EXIT

# end takes the manifest away and ends etcd; given a number of seconds, it is killed when it takes longer. One that the kubelet had
# begun to start before it was stopped is ended as well: several looks find none.
end() {
	rest
	rm -f "$manifest"
	local at asked= left=$patience quiet=0
	while [ "$quiet" -lt 3 ]; do
		at=$(process)
		quiet=$((quiet + 1))
		# The port is closed before the process has let go of its files.
		[ -z "$at$(answer /livez)" ] || quiet=0
		[ -z "$at" ] || [ "$at" = "$asked" ] || kill -TERM "${at##*/}" 2>/dev/null || true
		asked=$at
		left=$((left - 1))
		[ "$left" -gt 0 ] || refuse "etcd did not end within $patience s: does the disk of $data answer?"
		[ -z "$at" ] || [ $((patience - left)) != "${1:-}" ] || kill -KILL "${at##*/}" 2>/dev/null || true
		sleep 1
	done
	wake
}

# stop ends etcd for good. Its log is whole also when it had to be killed.
stop() { end 60; }

# keep_tool takes etcdutl out of the image that etcd runs from, for only that is surely of its version; else it is the host's.
keep_tool() {
	local proc program
	proc=$(process)
	program=$(readlink "$proc/exe" 2>/dev/null) || program=
	if [ -n "$program" ] && [ -f "$proc/root${program%/*}/etcdutl" ]; then
		install -m 0700 "$proc/root${program%/*}/etcdutl" "$kept/etcdutl"
		return
	fi
	program=$(command -v etcdutl) || refuse "etcdutl is neither in etcd's image nor on this host: install that of etcd's version, and run this again"
	ln -sf "$program" "$kept/etcdutl"
}

# mark <name>: something is done, and on the disk, before the next run believes that it is.
mark() {
	sync -f "$kept"
	: >"$kept/$1"
	sync "$kept/$1" "$kept"
}

# argument <name>: what the manifest gives etcd.
argument() { sed -n "s/^ *- --$1=//p" "$kept/etcd.yaml" | head -n 1; }

# raise makes the data anew, far above all revisions that the others may have given to clients: those list everything again then,
# instead of waiting for what they believe to have seen.
raise() {
	local new=$data/raised old=$data/before name peers
	name=$(argument name)
	peers=$(argument initial-advertise-peer-urls)
	if [ ! -e "$new" ]; then
		rm -rf "$new.part"
		"$kept/etcdutl" snapshot restore "$data/member/snap/db" --skip-hash-check --data-dir="$new.part" --name="$name" \
			--initial-cluster="$name=${peers//,/,$name=}" --initial-advertise-peer-urls="$peers" --initial-cluster-token="$(date +%s)" \
			--bump-revision=1000000000 --mark-compacted >"$kept/etcdutl.log" 2>&1 ||
			refuse "etcdutl cannot make the data of etcd anew: $(tail -n 1 "$kept/etcdutl.log")"
		sync -f "$new.part"
		mv -T "$new.part" "$new"
		sync "$data"
	fi
	if [ -d "$new/member" ]; then
		[ ! -e "$data/member" ] || mv -T "$data/member" "$old"
		mv -T "$new/member" "$data/member"
		sync "$data"
	fi
}

# vouch: the pod of the member with which the cluster began mounts a mark among its data, by a link (docs/adr/0016), and does not
# start without. The data in place are those of the member.
vouch() {
	local mark=$data/member/wal/quoin-began-here
	: >"$mark"
	sync "$mark" "${mark%/*}"
	ln -sfnT "$mark" "$guard.part"
	mv -fT "$guard.part" "$guard"
	sync "${guard%/*}"
}

# start puts a manifest in place at once: the kubelet reads whatever it finds there.
start() {
	! grep -q -- "mountPath: $guard\$" "$1" || vouch
	install -m 0600 "$1" "$kept/.starting"
	mv "$kept/.starting" "$manifest"
	wake
	until_ready
}

[ "${2:-}" = --others-are-off ] ||
	refuse "usage: $0 <name of this host's node> --others-are-off; say the latter only when no other member can ever start again with its data"
[ -e "$manifest" ] || [ -e "$kept/etcd.yaml" ] || refuse "$manifest does not exist: this is no control-plane host of kubeadm"
install -d -m 0700 "$kept"
[ -e "$kept/etcd.yaml" ] || {
	grep -q -- "$flag" "$manifest" && refuse "$manifest carries $flag already, and not from here: take it out first"
	grep -qE '^ *- --name=' "$manifest" || refuse "$manifest names no member"
	install -m 0600 "$manifest" "$kept/.etcd.yaml"
	# Whether the quorum lives, and when etcd has stopped, is known from that address only.
	grep -E '^ *- --listen-metrics-urls=' "$manifest" | grep -qE "http://${metrics//./\\.}(,|\$)" ||
		{ rm -f "$kept/.etcd.yaml"; refuse "$manifest does not have etcd's metrics on http://$metrics: give the address that it has there, such as ETCD_METRICS=127.0.0.1:2381"; }
	! ready || { rm -f "$kept/.etcd.yaml"; refuse "etcd answers with a quorum; nothing is lost that this would bring back"; }
	name=$(sed -n 's/^ *- --name=//p' "$manifest")
	[ "$name" = "$1" ] || { rm -f "$kept/.etcd.yaml"; refuse "the member on this host is $name, not $1"; }
	! grep -qE '^ *- --wal-dir=' "$manifest" || { rm -f "$kept/.etcd.yaml"; refuse "the log of etcd is not among its data (--wal-dir): ask for the recovery in spec.recovery, which knows how"; }
	[ -d "$data/member" ] || { rm -f "$kept/.etcd.yaml"; refuse "$data holds no data"; }
	room || { rm -f "$kept/.etcd.yaml"; refuse "there is no room for the copies that are made of etcd's data, one in $kept and one in $data: make some"; }
	sync -f "$kept"
	mv "$kept/.etcd.yaml" "$kept/etcd.yaml"
	sync "$kept"
}

if [ ! -e "$kept/forced" ]; then
	say "stopping etcd"
	stop
	if [ ! -e "$kept/copied" ]; then
		say "copying its data to $kept/data"
		rm -rf "$kept/data"
		cp -a "$data" "$kept/data"
		mark copied
	fi
	say "starting it as a cluster of one"
	sed "s/^\( *\)- etcd\$/&\n\1- $flag/" "$kept/etcd.yaml" >"$kept/forcing.yaml"
	grep -q -- "$flag" "$kept/forcing.yaml" || refuse "the command in $manifest is not the one that kubeadm writes"
	start "$kept/forcing.yaml"
	keep_tool
	# Only an etcd that ended in order has all of its log in its database.
	[ -n "$(process)" ] || refuse "etcd ended by itself: look why, and run this again"
	end
	mark forced
fi
if [ ! -e "$kept/raised" ]; then
	say "raising its revision, so that clients list everything again"
	raise
	mark raised
fi
# With the flag, every start would throw out the members that join from now on.
say "starting it as it was before"
stop
start "$kept/etcd.yaml"
rm -rf "$data/raised" "$data/before" "$kept/etcdutl"
done=$root/var/lib/quoin-recovery.$(date -u +%Y%m%dT%H%M%SZ)
mv "$kept" "$done"
say "done: etcd has one member, $1. What was there before lies in $done"
