# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# A mark is the file images/<checksum of an archive>: a line for each image that came with it, its name and containerd's
# digest of it. One of an image that was pulled by its name has the checksum of that, and the name alone.

# quoin_digest <list of ctr> <name>: of the image that has this name now.
quoin_digest() { printf '%s\n' "$1" | awk -v n="$2" '$1 == n { print $3 }'; }

# quoin_holds <mark> <list of ctr> <name>...: reports whether each is pinned, and is what came with the archive of this
# mark. A name alone says nothing: whoever had the host before can have given it to anything.
quoin_holds() {
	mark=$1 list=$2
	shift 2
	[ -f "$mark" ] || return 1
	for name in "$@"; do
		grep -qxF -- "$name $(quoin_digest "$list" "$name")" "$mark" || return 1
		case $(printf '%s\n' "$list" | awk -v n="$name" '$1 == n') in
		*io.cri-containerd.pinned=pinned*) ;;
		*) return 1 ;;
		esac
	done
}

# quoin_marked <checksum>: reports whether its images came once, with digests, so that they need no room.
quoin_marked() {
	[ -f "$QUOIN_ROOT/images/$1" ] && awk 'NF < 2 { n = 1 } END { exit n }' "$QUOIN_ROOT/images/$1"
}

# quoin_unmark <name>: what brought an image under this name says nothing about it any more.
quoin_unmark() {
	for old in "$QUOIN_ROOT"/images/*; do
		if [ -f "$old" ] && awk -v n="$1" '$1 == n { f = 1 } END { exit !f }' "$old"; then rm -f "$old"; fi
	done
}
