# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints which files of a bundle this host lacks, and how many bytes of each have arrived. Changes nothing but for the
# folder that they come into.
mkdir -p "$QUOIN_ROOT/cache" && chmod 0700 "$QUOIN_ROOT" || exit 1
images=$(ctr -n k8s.io images ls 2>/dev/null)

size() { stat -c %s "$1" 2>/dev/null || echo 0; }

# arrived <sha256> <bytes>
arrived() {
	if [ "$(size "$QUOIN_ROOT/cache/$1")" != "$2" ]; then
		echo "lacks $1 $(size "$QUOIN_ROOT/cache/$1.part")"
	fi
}

# file <sha256> <bytes> <path>
file() {
	if [ "$(size "$3")" = "$2" ]; then
		sum=$(sha256sum <"$3")
		[ "${sum%% *}" != "$1" ] || return 0
	fi
	arrived "$1" "$2"
}

# image <sha256> <bytes> <name>...: the same words as those by which the plan decides.
image() {
	digest=$1 bytes=$2
	shift 2
	quoin_holds "$QUOIN_ROOT/images/$digest" "$images" "$@" && return 0
	arrived "$digest" "$bytes"
}

echo "free $(df -Pk "$QUOIN_ROOT" | awk 'NR == 2 { print $4 }')"
