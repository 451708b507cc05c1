# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# How a file of a bundle comes to where it can be used, on top of the prelude of package run. quoin_curl is defined before.

# quoin_size <file>: its bytes, 0 when it is not there.
quoin_size() { stat -c %s "$1" 2>/dev/null || echo 0; }

# quoin_sum <file>: leaves its checksum in $sum, or fails when it cannot be read.
quoin_sum() {
	sum=$(sha256sum <"$1") || return 1
	sum=${sum%% *}
}

# quoin_room <bytes> <directory> <what>
quoin_room() {
	place=$2
	until [ -d "$place" ]; do place=$(dirname "$place"); done
	free=$(df -Pk "$place" | awk 'NR == 2 { print $4 }')
	[ "$free" -gt $(($1 / 1024)) ] || quoin_fail "$3 needs $1 bytes, but only $free KiB are free below $2; make room there"
}

# quoin_download <url> <part> <size>: goes on where an earlier attempt ended, as long as there is progress.
quoin_download() {
	command -v curl >/dev/null || quoin_fail "curl is not installed, so $1 cannot be fetched; install curl, or use a bundle on the host"
	tries=0
	: >>"$2" || exit 1
	while :; do
		have=$(quoin_size "$2")
		[ "$have" -lt "$3" ] || return 0
		quoin_room $(($3 - have)) "$QUOIN_ROOT" "$1"
		# Nobody vouches for what comes until it is whole, so it must not fill the disk. The page of an error may be longer.
		quoin_curl "$1" "$2" --continue-at - --max-filesize $(($3 + 65536))
		code=$?
		[ "$code" != 0 ] || return 0
		[ "$code" != 47 ] || quoin_fail "$quoin_moved"
		[ "$code" != 63 ] || quoin_fail "$1 has more than the $3 bytes that manifest.json says; copy the bundle again, completely"
		# A server without ranges, or one that has another file by now: from the beginning then. Unless it refuses that as well.
		case $code in 22 | 33 | 36)
			[ "$have" -gt 0 ] || [ "$code" != 22 ] || tries=9
			: >"$2"
			;;
		esac
		[ "$(quoin_size "$2")" -le "$have" ] || tries=0
		tries=$((tries + 1))
		[ "$tries" -le 3 ] || quoin_fail "$1 could not be fetched (curl ended with code $code); check that the bundle is complete and that its server answers"
		sleep "$tries"
	done
}

# quoin_fetch <from> <sha256> <size>: leaves the verified path in $fetched. A file on the host is used where it lies; any
# other is in the cache under its checksum, or comes there: what was fetched once is never fetched again.
quoin_fetch() {
	fetched=$QUOIN_ROOT/cache/$2
	case $1 in
	/*)
		fetched=$1
		[ -f "$1" ] || quoin_fail "$1 is missing on this host; copy the complete bundle there"
		;;
	pushed:*) [ -f "$fetched" ] || quoin_fail "${1#pushed:} was sent to this host, but is gone from $QUOIN_ROOT/cache; it is sent again with the next attempt" ;;
	*)
		mkdir -p "$QUOIN_ROOT/cache" || exit 1
		# A cut between the last byte and the name leaves either.
		[ ! -f "$fetched" ] || mv -f "$fetched" "$fetched.part" || exit 1
		fetched=$fetched.part
		before=$(quoin_size "$fetched")
		quoin_download "$1" "$fetched" "$3"
		if [ "$before" -gt 0 ] && quoin_sum "$fetched" && [ "$sum" != "$2" ]; then
			# What was there before may be what is wrong.
			echo "what was fetched of $1 earlier is damaged; it is fetched anew"
			rm -f "$fetched"
			quoin_download "$1" "$fetched" "$3"
		fi
		;;
	esac
	quoin_sum "$fetched" || quoin_fail "$1 cannot be read"
	if [ "$sum" != "$2" ]; then
		size=$(quoin_size "$fetched")
		case $fetched in "$QUOIN_ROOT"/cache/*) rm -f "$fetched" ;; esac
		quoin_fail "$1 has sha256:$sum ($size bytes), but manifest.json expects sha256:$2 ($3 bytes); copy the bundle again, completely"
	fi
	case $fetched in
	*.part)
		sync "$fetched" && mv -f "$fetched" "${fetched%.part}" || exit 1
		fetched=${fetched%.part}
		;;
	esac
}

# quoin_forget removes a fetched file that is in its place now: the cache is for what is on the way.
quoin_forget() {
	case $fetched in "$QUOIN_ROOT"/cache/*) rm -f "$fetched" ;; esac
}
