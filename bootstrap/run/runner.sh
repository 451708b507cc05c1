# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the steps of one plan, in order, and survives being killed at any instruction.
#   runner.sh <root> <run directory> <boot id file> run|stop
#
# The journal is the truth. A line is on the disk before what it announces begins, so what a torn last line would have
# said has not begun. "result" is only a summary, written after the secrets are gone.
set -u
umask 077
root=$1 dir=$2 boot=$(cat "$3") verb=$4
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
HOME=${HOME:-/root} QUOIN_ROOT=$root QUOIN_RUN_DIR=$dir QUOIN_BOOT_ID=$boot
export PATH HOME QUOIN_ROOT QUOIN_RUN_DIR QUOIN_BOOT_ID
journal=$dir/journal

# The journal is read by awk: without it a step that is done would look new.
command -v awk >/dev/null && command -v flock >/dev/null && command -v timeout >/dev/null || exit 1

# Two runners of one plan would break "once". Steps do not inherit the lock: a daemon they leave must not hold it.
exec 9>"$dir/lock"
flock -n 9 || exit 0
[ -f "$dir/complete" ] || exit 1
# An empty result is one that a full disk or a cut left: the journal says the same again.
[ -s "$dir/result" ] && exit 0

# note <words>: what cannot be journaled does not begin. The plan then is lost and waits until it is taken up again.
note() {
	printf '%s %s %s\n' "$(date +%s)" "$boot" "$*" >>"$journal" && sync "$journal" || exit 1
}

# has <step> <word>: is there such a line? Field by field, for a name may be the beginning of another. A journal that was
# not read to its end says neither: the plan then is lost, as in note, and nothing runs twice.
has() {
	awk -v s="$1" -v w="$2" '$3 == s && $4 == w { f = 1 } END { exit f ? 10 : 11 }' <"$journal"
	case $? in
	10) return 0 ;;
	11) return 1 ;;
	esac
	exit 1
}

# The end of a plan, good or bad: secrets go, journal and logs of plain steps stay.
finish() {
	while read -r name _ secret _; do
		[ "$secret" = 1 ] && rm -f "$dir/log/$name"
	done <"$dir/steps"
	rm -rf "$dir/scripts" "$dir/files" "$dir/env" "$dir/env.part"
	printf '%s\n' "$*" >"$dir/result.tmp" && sync "$dir/result.tmp" && mv -f "$dir/result.tmp" "$dir/result" &&
		sync "$dir" || exit 1
	exit 0
}

# The name of the journal must be as durable as its lines.
[ -f "$journal" ] || { : >>"$journal" && sync "$journal" "$dir"; } || exit 1
if [ -s "$journal" ] && [ -n "$(tail -c 1 "$journal")" ]; then
	echo >>"$journal" || exit 1
fi

# An end that was journaled but not yet summed up.
ended=$(awk '$4 == "failed" { print "failed", $3, $5, $6; exit } $4 == "interrupted" { print "interrupted", $3; exit }' <"$journal") ||
	exit 1
[ -n "$ended" ] && finish "$ended"

if [ "$verb" = stop ]; then
	step=$(awk '$4 == "start" { s = $3 } END { print s }' <"$journal") || exit 1
	note "${step:--} interrupted"
	finish "interrupted ${step:--}"
fi

# uptime in whole seconds: what nobody sets while a step runs.
uptime() {
	read -r up _ </proc/uptime && echo "${up%.*}"
}

while read -r name once secret limit; do
	has "$name" done && continue
	if [ "$once" = 1 ] && has "$name" start; then
		note "$name interrupted"
		finish "interrupted $name"
	fi
	log=$dir/log/$name
	note "$name start"
	begun=$(uptime)
	(
		exec 9>&-
		[ "$secret" = 1 ] && log=/dev/null
		cd / && exec timeout -k 15 "$limit" /bin/sh -c '. "$1"; . "$2"' "$name" "$dir/prelude.sh" "$dir/scripts/$name" </dev/null >>"$log" 2>&1
	) &
	# timeout makes a process group of its own number.
	group=$!
	wait "$group"
	code=$?
	# A script may use these codes itself, so only the clock says whose they are. What the step started and left must not
	# go on after the plan has failed: timeout waits for the shell alone.
	case $code in 124 | 137)
		if [ $(($(uptime) - begun)) -ge "$limit" ]; then
			kill -s KILL -- "-$group" 2>/dev/null
			code="$code $limit"
		fi ;;
	esac
	if [ "$code" != 0 ]; then
		note "$name failed $code"
		finish "failed $name $code"
	fi
	note "$name done 0"
done <"$dir/steps"
finish succeeded
