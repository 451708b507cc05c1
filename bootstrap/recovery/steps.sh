# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# One function per step of a recovery of etcd. Each may run again after it was cut off, also under another plan: $kept says
# what was there before the first one.
kept=$QUOIN_ROOT/recovery
flag=--force-new-cluster
tool=$kept/etcdutl
resting=$kept/kubelet-rests

# leave: whatever ends a step, also its time, the kubelet runs, and no manifest of ours with the flag outlives it, nor one that a killed
# step left. By that etcd answers as a quorum, beside which nobody can ask again, and its next start throws out who joined meanwhile.
# Who is killed soon waits for nothing.
leave() {
	trap '' TERM
	if [ -s "$kept/etcd.yaml" ] && grep -qs -- "$flag" "$manifest"; then
		rm -f "$manifest" && sync "${manifest%/*}"
		! kubelet_runs || systemctl --no-block restart kubelet.service
		read_manifest "$kept/etcd.yaml" && ! works || kill -TERM "${proc##*/}" 2>/dev/null || :
	fi
	wake_kubelet --no-block
}
trap leave EXIT
trap 'exit 1' TERM

# keep_manifest keeps how etcd was started, before anything changes; without any, no member was ever started here.
keep_manifest() {
	if [ -s "$manifest" ] && ! grep -q -- "$flag" "$manifest"; then
		mkdir -p "$kept" && chmod 0700 "$kept" && cp "$manifest" "$kept/etcd.yaml.part" && chmod 0600 "$kept/etcd.yaml.part" &&
			sync "$kept/etcd.yaml.part" && mv -f "$kept/etcd.yaml.part" "$kept/etcd.yaml" || quoin_fail "$kept cannot be written"
	fi
	[ -s "$kept/etcd.yaml" ] || return 1
	read_manifest "$kept/etcd.yaml"
	case $metrics in http://*) ;; *) quoin_fail "$manifest has no --listen-metrics-urls=http://..., where etcd is asked whether it has a quorum" ;; esac
	# The reset looks there, also when the manifest is gone.
	printf '%s\n' "$data" >"$QUOIN_ROOT/etcd-data-dir"
}

# kubelet_runs: or it did a moment ago, and somebody restarts it.
kubelet_runs() {
	case $(systemctl is-active kubelet.service 2>/dev/null) in active | activating | reloading | deactivating) ;; *) return 1 ;; esac
}

# rest_kubelet: while the manifest goes, the kubelet rests. One that has not reached an API server since it started, as after a power
# cut, neither stops a static pod whose manifest is gone nor starts another of its name (deletePod in pkg/kubelet/kubelet.go,
# allowStaticPodStart in pod_workers.go), and one that reaches it kills what it does not know a second after it asked it to end.
rest_kubelet() {
	kubelet_runs || return 0
	mkdir -p "$kept" && cat /proc/sys/kernel/random/boot_id >"$resting" && sync "$resting" || quoin_fail "$kept cannot be written; is there room?"
	systemctl stop kubelet.service || quoin_fail "the kubelet cannot be stopped: look at journalctl -u kubelet"
}

# wake_kubelet [--no-block]: it starts anew, so it knows no pod of before, and registers its Node, which may be younger than the data. One
# that somebody else has stopped stays stopped, and one that had to rest before the host was started has started with it.
wake_kubelet() {
	[ -e "$resting" ] || return 0
	[ "$(cat "$resting")" != "$(cat /proc/sys/kernel/random/boot_id)" ] || systemctl ${1:+"$1"} start kubelet.service ||
		quoin_fail "the kubelet cannot be started: look at journalctl -u kubelet, start it, and ask again under another id"
	rm -f "$resting"
}

# ended: no etcd works on the data. Each one that does is asked to end, also one that the kubelet had begun to start before it was stopped.
ended() {
	if works; then
		[ "$proc" = "${asked:-}" ] || kill -TERM "${proc##*/}" 2>/dev/null || :
		asked=$proc
		return 1
	fi
	sleep 2
	stopped
}

# take_etcd <seconds> takes the manifest away and ends etcd.
take_etcd() {
	rest_kubelet
	rm -f "$manifest" && sync "${manifest%/*}" || quoin_fail "$manifest cannot be removed"
	quoin_settle "$1" ended
}

# stop_etcd: nothing starts it again. Its log is whole also when it had to be killed.
stop_etcd() {
	if ! take_etcd 60; then
		! works || kill -KILL "${proc##*/}" 2>/dev/null || :
		quoin_settle 240 ended || quoin_fail "etcd did not end within 300 s, although it was killed: does the disk of $data answer?"
	fi
	wake_kubelet
}

# start_etcd <file> [way out]: returns when etcd is ready. The guard follows the data in place, for which a person vouches.
start_etcd() {
	! guarded "$1" || guard_mark "$1"
	put_manifest "$1"
	wake_kubelet
	quoin_settle 900 ready || quoin_fail "etcd was started and is not ready after 900 s; does the kubelet run? $look${2:-}"
}

# refuse_quorum: nothing is lost that a recovery would bring back. An etcd that an earlier attempt forced does not count.
refuse_quorum() {
	[ -s "$manifest" ] && ! grep -q -- "$flag" "$manifest" || return 0
	! ready || quoin_fail "etcd on this host answers with a quorum: nothing is lost that a recovery would bring back"
}

recovery_check_stop() { ! keep_manifest || refuse_quorum; }

recovery_stop() {
	keep_manifest || data=/var/lib/etcd
	stop_etcd
}

# recovery_member <name>: etcd was started here, as this member.
recovery_member() {
	[ -s "$kept/etcd.yaml" ] || ! grep -qs -- "$flag" "$manifest" || quoin_fail "$manifest carries $flag already, and not from here: take it out first"
	keep_manifest || quoin_fail "$manifest does not exist: no etcd member was ever started here"
	[ "$name" = "$1" ] || quoin_fail "the member on this host is $name, not $1"
}

# recovery_check <name of the member>
recovery_check() {
	recovery_member "$1"
	[ -d "$data/member" ] || quoin_fail "$data holds no data"
	forced "$kept/forcing.yaml"
	[ -n "$(argument initial-advertise-peer-urls "$kept/etcd.yaml")" ] || quoin_fail "$manifest has no --initial-advertise-peer-urls"
	room
	refuse_quorum
}

# room: for all copies together, so that none fails when others are stopped: of the data as they are in $kept, and etcdutl, and of the
# data made anew beside them. Both may be on one disk.
room() {
	copy=$(($(kib "$data") + 32768)) anew=$(kib "$data/member")
	if [ "$(stat -c %d "$data")" = "$(stat -c %d "$kept")" ]; then
		has_room "$data" $((copy + anew))
	else
		has_room "$kept" "$copy"
		has_room "$data" "$anew"
	fi
	log=$(argument wal-dir "$kept/etcd.yaml")
	[ -z "$log" ] || has_room "$log" 65536
}

# kib <path>: what it takes.
kib() {
	used=$(du -sk "$1")
	echo "${used%%[!0-9]*}"
}

# has_room <directory> <KiB>
has_room() {
	free=$(df -Pk "$1" | awk 'END { print $4 }')
	[ "$free" -gt "$2" ] || quoin_fail "$1 has $free KiB free, and the copies that a recovery makes of etcd's data need $2 there: make room, and ask again under another id"
}

# delivered <directory> <sha256 of its list>: what was brought there is whole. Each file has the name of its checksum.
delivered() {
	sum=$(sha256sum <"$1/sums") || return 1
	[ "${sum%% *}" = "$2" ] || return 1
	while read -r sum _; do printf '%s  %s\n' "$sum" "$1/$sum"; done <"$1/sums" | sha256sum -c >/dev/null
}

# recovery_check_snapshot <name of the member> <id> <sha256> <bytes>: nothing has changed yet when the data are not here.
recovery_check_snapshot() {
	recovery_member "$1"
	delivered "$kept/snapshot-$2" "$3" || quoin_fail "the data in $kept/snapshot-$2 are not those that were sent; ask again under another id"
	disk=$data
	[ -d "$disk" ] || disk=$(dirname "$disk")
	free=$(df -Pk "$disk" | awk 'END { print $4 }')
	[ "$free" -gt $(($4 / 1024)) ] || quoin_fail "$disk has $free KiB free, and the data of the snapshot need $(($4 / 1024)): make room, and ask again under another id"
	refuse_quorum
}

# recovery_put <id> <sha256>: etcd is stopped. The old data stay beside the new ones, on whatever disk that is.
recovery_put() {
	keep_manifest
	umask 077
	from=$kept/snapshot-$1 new=$data/restored-$1 old=$data/before-$1
	if [ ! -e "$new" ]; then
		delivered "$from" "$2" || quoin_fail "the data in $from are not those that were sent"
		rm -rf "$new.part"
		mkdir -p "$new.part" || quoin_fail "$data cannot be written"
		while read -r sum name; do
			mkdir -p "$new.part/$(dirname "$name")" && cp "$from/$sum" "$new.part/$name" && sync "$new.part/$name" ||
				quoin_fail "the data of the snapshot cannot be copied to $data; is there room?"
		done <"$from/sums"
		sync -f "$new.part" && mv -T "$new.part" "$new" && sync "$data" || quoin_fail "$data cannot be written"
	fi
	put_member "$1"
}

# put_member <id>: puts the member in $new in the place of the one in $data, which becomes $old. The log may have a disk of its own,
# with the mark of the guard on it: there the files are changed.
put_member() {
	[ -d "$new/member" ] || return 0
	log=$(argument wal-dir "$kept/etcd.yaml")
	anew=$log/restored-$1
	if [ -n "$log" ] && [ ! -e "$anew" ]; then
		rm -rf "$anew.part"
		mkdir -p "$anew.part" && cp "$new/member/wal"/*.wal "$anew.part/" && sync -f "$anew.part" && mv -T "$anew.part" "$anew" &&
			sync "$log" || quoin_fail "the log cannot be copied to $log; is there room?"
	fi
	# Another recovery may stop the plan now: it waits until one member is whole, and for seconds only, so from here on files are
	# renamed and not copied.
	trap '' TERM
	if [ -n "$log" ]; then
		if [ ! -e "$log/before-$1" ]; then
			mkdir -p "$log/before-$1.part" || quoin_fail "$log cannot be written"
			for f in "$log"/*.wal; do
				[ ! -e "$f" ] || mv "$f" "$log/before-$1.part/" || quoin_fail "the old log cannot be put aside in $log"
			done
			mv -T "$log/before-$1.part" "$log/before-$1" && sync "$log" || quoin_fail "$log cannot be written"
		fi
		for f in "$anew"/*.wal; do
			[ ! -e "$f" ] || mv "$f" "$log/" || quoin_fail "$log cannot be written"
		done
		sync "$log" || quoin_fail "$log cannot be written"
	fi
	if [ -e "$data/member" ]; then
		mv -T "$data/member" "$old" || quoin_fail "the old data cannot be put aside as $old"
	fi
	mv -T "$new/member" "$data/member" && sync "$data" || quoin_fail "$data cannot be written"
}

# forced <file>: writes the manifest of a member that throws the others out of the list.
forced() {
	awk -v flag="$flag" '{ print } /^ *- etcd$/ { sub(/etcd$/, flag); print }' "$kept/etcd.yaml" >"$1" || quoin_fail "$1 cannot be written; is there room?"
	grep -q -- "$flag" "$1" || quoin_fail "the command in $manifest is not the one that kubeadm writes"
}

# recovery_keep <copy>: etcd is stopped. All of the copy is on the disk before it has its name: the next attempt believes in it.
recovery_keep() {
	keep_manifest
	[ ! -d "$1" ] || return 0
	rm -rf "$1.part"
	cp -a "$data" "$1.part" && sync -f "$1.part" && mv -T "$1.part" "$1" && sync "${1%/*}" || quoin_fail "the data of etcd cannot be copied to $1; is there room?"
}

# keep_tool takes etcdutl out of the image that etcd runs from, for only that is surely of its version; else it is the host's.
keep_tool() {
	rm -f "$tool.part" "$tool"
	if works && program=$(readlink "$proc/exe" 2>/dev/null) && [ -f "$proc/root${program%/*}/etcdutl" ]; then
		cp "$proc/root${program%/*}/etcdutl" "$tool.part" || quoin_fail "etcdutl cannot be copied to $kept; is there room?"
	else
		program=$(command -v etcdutl) ||
			quoin_fail "etcdutl, which has clients list everything anew, is neither in etcd's image nor on this host: install that of etcd's version, and ask again under another id"
		ln -s "$program" "$tool.part"
	fi
	sync -f "$kept" && mv -f "$tool.part" "$tool" || quoin_fail "$kept cannot be written; is there room?"
}

# end_in_order stops an etcd that works. Nobody kills it, however long it takes.
end_in_order() {
	works || quoin_fail "etcd ended by itself, so its database may lack what is in its log: look why, and ask again under another id; $look"
	take_etcd 600 || quoin_fail "etcd did not end in order within 600 s, so its database may lack what is in its log: ask again under another id"
	wake_kubelet
}

# recovery_force: etcd takes what is in its log, without the others, and is stopped again: only when it ends in order its database
# has all of that. Cut off anywhere, all of it is done again.
recovery_force() {
	keep_manifest
	forced "$kept/forcing.yaml"
	start_etcd "$kept/forcing.yaml"
	keep_tool
	end_in_order
}

# recovery_raise <id>: etcd is stopped. The others may have given clients revisions that this member never had, and it would give the
# same numbers to other writes: clients would wait for what they believe to have seen. So it goes on far above, and all before counts
# as compacted, upon which clients list everything anew, as after a restore of a snapshot.
recovery_raise() {
	keep_manifest
	umask 077
	new=$data/raised-$1 old=$data/before-$1
	if [ ! -e "$new" ]; then
		peers=$(argument initial-advertise-peer-urls "$kept/etcd.yaml")
		rm -rf "$new.part"
		"$tool" snapshot restore "$data/member/snap/db" --skip-hash-check --data-dir="$new.part" --name="$name" \
			--initial-cluster="$name=$(printf '%s' "$peers" | sed "s/,/,$name=/g")" --initial-advertise-peer-urls="$peers" \
			--initial-cluster-token="$1" --bump-revision=1000000000 --mark-compacted >"$kept/etcdutl.log" 2>&1 ||
			quoin_fail "etcdutl cannot make the data of etcd anew: $(tail -n 1 "$kept/etcdutl.log")"
		sync -f "$new.part" && mv -T "$new.part" "$new" && sync "$data" || quoin_fail "$data cannot be written"
	fi
	put_member "$1"
}

# recovery_start <id>: with the flag, every start would throw out the members that join from now on. The kubelet waits for minutes
# before it starts again what crashed often, as etcd did without its data. It knows a static pod by its manifest, so this one says
# that it is another.
recovery_start() {
	keep_manifest
	stop_etcd
	awk -v mark="quoin.cluster.x-k8s.io/recovery" -v id="$1" 'index($0, mark) { next } { print } /^  annotations:$/ { print "    " mark ": \"" id "\"" }' \
		"$kept/etcd.yaml" >"$kept/starting.yaml" && sync "$kept/starting.yaml" || quoin_fail "$kept cannot be written; is there room?"
	start_etcd "$kept/starting.yaml" '; when it becomes ready after all, take spec.recovery away; if it never does, ask again under another id'
}

# recovery_end: the next recovery begins with the manifest that is in place then. Copies of the data stay until the reset.
recovery_end() { rm -f "$kept/etcd.yaml" "$kept/forcing.yaml" "$kept/starting.yaml"; }

# recovery_end_raised <id>: the data from before are in the copy.
recovery_end_raised() {
	keep_manifest
	sync -f "$kept" || quoin_fail "$kept cannot be written"
	rm -rf "$data/raised-$1" "$data/before-$1" "$tool" "$kept/etcdutl.log"
	log=$(argument wal-dir "$kept/etcd.yaml")
	[ -z "$log" ] || rm -rf "$log/before-$1" "$log/restored-$1"
	recovery_end
}

# recovery_end_snapshot <id>: what was brought is in place, or put away by etcd.
recovery_end_snapshot() {
	keep_manifest
	rm -rf "$kept/snapshot-$1" "$data/restored-$1"
	log=$(argument wal-dir "$kept/etcd.yaml")
	[ -z "$log" ] || rm -rf "$log/restored-$1"
	recovery_end
}
