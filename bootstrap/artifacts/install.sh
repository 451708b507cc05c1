# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# What the install steps call, on top of fetch.sh.

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
	quoin_room "$3" "$(dirname "$4")" "$4"
	quoin_fetch "$1" "$2" "$3"
	quoin_put "$fetched" "$4" "$5" || quoin_fail "$4 could not be installed from $1"
	quoin_forget
}

# quoin_image <from> <sha256> <size> <name>...: imports unless this very archive was imported and containerd still holds
# what it brought, by digest. Pinned images survive the kubelet's image collector.
quoin_image() {
	from=$1 digest=$2 size=$3
	shift 3
	command -v ctr >/dev/null || quoin_fail "ctr is not installed, so images cannot be imported; install containerd"
	held=$(ctr -n k8s.io images ls) || quoin_fail "containerd does not answer; check that its service runs"
	quoin_holds "$QUOIN_ROOT/images/$digest" "$held" "$@" && return
	# Its layers are stored packed and unpacked.
	quoin_room $((size * 2)) "$quoin_containerd" "image $1"
	quoin_fetch "$from" "$digest" "$size"
	for name in "$@"; do quoin_unmark "$name"; done
	ctr -n k8s.io images import "$fetched" || quoin_fail "containerd could not import $from"
	held=$(ctr -n k8s.io images ls) || quoin_fail "containerd does not answer; check that its service runs"
	mark=
	for name in "$@"; do
		is=$(quoin_digest "$held" "$name")
		[ -n "$is" ] || quoin_fail "$from does not carry image $name, as manifest.json says; make the bundle again"
		ctr -n k8s.io images label "$name" io.cri-containerd.pinned=pinned || quoin_fail "image $name could not be pinned"
		mark="$mark$name $is
"
	done
	mkdir -p "$QUOIN_ROOT/images" && printf %s "$mark" >"$QUOIN_ROOT/images/$digest" || exit 1
	quoin_forget
}

# quoin_hold <version> <line>...: notes what a version has on this host, so that what no version has can go. A line is
# the checksum of an archive, or "image <name>".
quoin_hold() {
	mkdir -p "$QUOIN_ROOT/versions" || exit 1
	version=$1
	shift
	printf '%s\n' "$@" >"$QUOIN_ROOT/versions.part" && sync "$QUOIN_ROOT/versions.part" &&
		mv -f "$QUOIN_ROOT/versions.part" "$QUOIN_ROOT/versions/$version" || exit 1
}

# quoin_prune <version>...: forgets every other version, with what was fetched and the images that we brought for it. What
# cannot be removed takes room and does no other harm, so it ends nothing.
quoin_prune() {
	for file in "$QUOIN_ROOT"/versions/*; do
		case " $* " in *" ${file##*/} "*) ;; *) rm -f "$file" ;; esac
	done
	rm -rf "$QUOIN_ROOT/cache"
	for mark in "$QUOIN_ROOT"/images/*; do
		[ -f "$mark" ] || continue
		grep -qxF -- "${mark##*/}" "$QUOIN_ROOT"/versions/* && continue
		while read -r name _; do
			grep -qxF -- "image $name" "$QUOIN_ROOT"/versions/* && continue
			echo "removing image $name, which no version on this host needs"
			ctr -n k8s.io images rm "$name" </dev/null || echo "warning: image $name could not be removed"
		done <"$mark"
		rm -f "$mark"
	done
	return 0
}

# quoin_whole: reads lines "<bytes> <directory>" and fails when a file system has no room for all of them, before the first
# byte is fetched.
quoin_whole() {
	while read -r bytes place; do
		until [ -d "$place" ]; do place=$(dirname "$place"); done
		printf '%s %s\n' "$(($bytes / 1024 + 1))" "$(df -Pk "$place" | tail -n 1)"
	done | sort -k 7 | {
		at='' need=0
		while read -r kib _ _ _ free _ mount; do
			[ "$mount" = "$at" ] || need=0
			at=$mount need=$((need + kib))
			[ "$need" -lt "$free" ] || quoin_fail "Kubernetes needs $need KiB on the file system of $mount, but only $free KiB are free; make room there"
		done
	}
}
