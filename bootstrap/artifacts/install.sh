# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What the install steps call, on top of the prelude of package run.

# quoin_fetch <from> <sha256> <size>: leaves the verified path in $fetched. A file on the host is used where it lies; a
# remote one comes into the cache under its checksum, so that what was fetched once is never fetched again.
quoin_fetch() {
	case $1 in
	/*)
		[ -f "$1" ] || quoin_fail "$1 is missing on this host; copy the complete bundle there"
		fetched=$1
		;;
	*)
		fetched=$QUOIN_ROOT/cache/$2
		if ! [ -f "$fetched" ]; then
			command -v curl >/dev/null || quoin_fail "curl is not installed, so $1 cannot be fetched; install curl, or use a bundle on the host"
			mkdir -p "$QUOIN_ROOT/cache" || exit 1
			free=$(df -Pk "$QUOIN_ROOT/cache" | awk 'NR == 2 { print $4 }')
			[ "$free" -gt $(($3 / 1024)) ] || quoin_fail "$1 needs $3 bytes, but only $free KiB are free below $QUOIN_ROOT; make room there"
			curl @CURL@ --output "$fetched.part" -- "$1" || quoin_fail "$1 could not be fetched; check that the bundle is complete and that its server answers"
		else
			mv -f "$fetched" "$fetched.part" || exit 1
		fi
		fetched=$fetched.part
		;;
	esac
	sum=$(sha256sum <"$fetched") || quoin_fail "$1 cannot be read"
	sum=${sum%% *}
	if [ "$sum" != "$2" ]; then
		size=$(stat -c %s "$fetched")
		case $fetched in *.part) rm -f "$fetched" ;; esac
		quoin_fail "$1 has sha256 $sum ($size bytes), but manifest.json expects $2 ($3 bytes); copy the bundle again, completely"
	fi
	case $fetched in
	*.part)
		sync "$fetched" && mv -f "$fetched" "${fetched%.part}" || exit 1
		fetched=${fetched%.part}
		;;
	esac
}

# quoin_install <from> <sha256> <size> <to> <mode>
quoin_install() {
	if [ -f "$4" ]; then
		sum=$(sha256sum <"$4")
		if [ "${sum%% *}" = "$2" ]; then
			# Right already, and not ours to remove unless it was.
			chmod "$5" "$4"
			return
		fi
	fi
	quoin_fetch "$1" "$2" "$3"
	quoin_put "$fetched" "$4" "$5" || quoin_fail "$4 could not be installed from $1"
	quoin_forget
}

# quoin_forget removes a fetched file that is in its place now: the cache is for what is on the way.
quoin_forget() {
	case $fetched in "$QUOIN_ROOT"/cache/*) rm -f "$fetched" ;; esac
}

# quoin_image <from> <sha256> <size> <name>...: imports unless this very archive was imported and containerd still holds
# each name. Pinned images survive the kubelet's image collector.
quoin_image() {
	from=$1 digest=$2 size=$3
	shift 3
	command -v ctr >/dev/null || quoin_fail "ctr is not installed, so images cannot be imported; install containerd"
	mark=$QUOIN_ROOT/images/$digest
	held=$(ctr -n k8s.io images ls) || quoin_fail "containerd does not answer; check that its service runs"
	missing=
	for name in "$@"; do
		line=$(printf '%s\n' "$held" | awk -v n="$name" '$1 == n')
		[ -n "$line" ] || missing=$name
		case $line in *io.cri-containerd.pinned=pinned*) ;; *) missing=$name ;; esac
	done
	[ -f "$mark" ] && [ -z "$missing" ] && return
	quoin_fetch "$from" "$digest" "$size"
	# A name may come back with other content: what another archive brought under it does not count any more.
	for name in "$@"; do
		grep -lxF -- "$name" "$QUOIN_ROOT"/images/* 2>/dev/null | while read -r old; do rm -f "$old"; done
	done
	ctr -n k8s.io images import "$fetched" || quoin_fail "containerd could not import $from"
	for name in "$@"; do
		ctr -n k8s.io images ls -q | grep -qxF -- "$name" ||
			quoin_fail "$from does not carry image $name, as manifest.json says; make the bundle again"
		ctr -n k8s.io images label "$name" io.cri-containerd.pinned=pinned || quoin_fail "image $name could not be pinned"
	done
	mkdir -p "$QUOIN_ROOT/images" && printf '%s\n' "$@" >"$mark" || exit 1
	quoin_forget
}
