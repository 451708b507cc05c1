# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Functions that every step may use. $QUOIN_ROOT/created lists, one per line and before the fact, what we bring onto the
# host, so that cleaning touches nothing else:
#   file <path>      did not exist before us
#   dir <path>       did not exist before us; removed when empty
#   original <path>  existed; its first content lies below $QUOIN_ROOT/originals
#   unit <name>      a systemd unit that we enabled or started

# quoin_fail <sentence>: ends the step with a message for people.
quoin_fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

# quoin_secret <command...>: runs a command of bootstrap data, and keeps nothing of what it prints.
quoin_secret() {
	"$@" >/dev/null 2>&1
}

# quoin_settle <seconds> <command...>: waits until the command succeeds.
quoin_settle() {
	left=$1
	shift
	while ! "$@"; do
		[ "$left" -gt 0 ] || return 1
		left=$((left - 1))
		sleep 1
	done
}

# quoin_record <line>: adds a line to the list, once, and makes it durable.
quoin_record() {
	grep -qxF -- "$1" "$QUOIN_ROOT/created" 2>/dev/null && return 0
	printf '%s\n' "$1" >>"$QUOIN_ROOT/created" && sync "$QUOIN_ROOT/created"
}

# quoin_claim <path>: call before creating or changing a file.
quoin_claim() {
	grep -qxF -e "file $1" -e "original $1" "$QUOIN_ROOT/created" 2>/dev/null && return 0
	if [ -e "$1" ] || [ -L "$1" ]; then
		mkdir -p "$QUOIN_ROOT/originals$(dirname "$1")" || return 1
		rm -rf "$QUOIN_ROOT/originals$1" "$QUOIN_ROOT/originals$1.part"
		cp -a "$1" "$QUOIN_ROOT/originals$1.part" && sync "$QUOIN_ROOT/originals$1.part" &&
			mv -fT "$QUOIN_ROOT/originals$1.part" "$QUOIN_ROOT/originals$1" && quoin_record "original $1"
	else
		quoin_record "file $1"
	fi
}

# quoin_dirs <path>: mkdir -p that remembers which directories are ours.
quoin_dirs() {
	[ -d "$1" ] && return 0
	quoin_dirs "$(dirname "$1")" || return 1
	quoin_record "dir $1"
	mkdir -m 0755 "$1" 2>/dev/null || [ -d "$1" ]
}

# quoin_put <from> <to> <mode> [owner[:group]]: installs a file atomically. The same content again changes nothing but mode and owner.
quoin_put() {
	if [ -f "$2" ] && ! [ -L "$2" ] && cmp -s "$1" "$2"; then
		quoin_claim "$2" && chown "${4:-root:root}" "$2" && chmod "$3" "$2"
		return
	fi
	quoin_claim "$2" && quoin_dirs "$(dirname "$2")" || return 1
	rm -f "$2".quoin-part
	(umask 077 && cat "$1" >"$2".quoin-part) && chown "${4:-root:root}" "$2".quoin-part && chmod "$3" "$2".quoin-part &&
		sync "$2".quoin-part && mv -fT "$2".quoin-part "$2"
}

# A user can put a link at any name in his home, and exchange it at any time. So root goes into the directory first, and
# follows nothing in it.
quoin_enter_keys() {
	here=$(cd "$1" && pwd -P) && cd "$1/.ssh" && [ "$(pwd -P)" = "${here%/}/.ssh" ] ||
		quoin_fail "$1/.ssh is not a directory of its own: root follows no link in the home of a user; put the directory itself there"
}

# quoin_read_keys <home> <file>: a copy of authorized_keys with its owner; empty where there is none.
quoin_read_keys() (
	rm -f "$2"
	quoin_enter_keys "$1"
	if [ -e authorized_keys ] || [ -L authorized_keys ]; then cp -aT authorized_keys "$2" || exit; else : >"$2"; fi
	[ -f "$2" ] && ! [ -L "$2" ] ||
		quoin_fail "$1/.ssh/authorized_keys is not a plain file: root follows no link in the home of a user; put the file itself there"
)

# quoin_write_keys <home> <file>: puts it there, as it is, in place of authorized_keys.
quoin_write_keys() (
	quoin_enter_keys "$1"
	cp -aT --remove-destination "$2" authorized_keys.quoin-part && sync authorized_keys.quoin-part &&
		mv -fT authorized_keys.quoin-part authorized_keys
)
