# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The guard of a first member: its pod mounts the file to which $guard leads. That is an empty one until the cluster has
# begun, and from then on a mark among the member's data. A link that leads nowhere is no file: no container starts.
guard=/etc/kubernetes/quoin/etcd-has-its-data
mark=quoin-began-here

# guard_leads <file>: at once. A container that starts meanwhile finds the one file or the other.
guard_leads() {
	ln -sfnT "$1" "$guard.part" && mv -fT "$guard.part" "$guard" && sync "${guard%/*}" ||
		quoin_fail "$guard cannot be written"
}

# guard_begin <directory of patches> <ours> <patch>: before kubeadm init. The patch is named to be applied last.
guard_begin() {
	[ "$1" = "$2" ] || [ -d "$1" ] ||
		quoin_fail "kubeadm is to find patches in $1, which does not exist: bring them with files or preKubeadmCommands"
	umask 022
	not_begun=${guard%/*}/etcd-has-not-begun
	mkdir -p "${guard%/*}" && : >"$not_begun" && sync "$not_begun" || quoin_fail "$not_begun cannot be written"
	guard_leads "$not_begun"
	printf '%s' "$3" >"$QUOIN_RUN_DIR/etcd-guard.yaml" &&
		quoin_put "$QUOIN_RUN_DIR/etcd-guard.yaml" "$1/etcdzz-quoin+strategic.yaml" 0644 || quoin_fail "$1 cannot be written"
}

# guarded <manifest>: its pod mounts the file.
guarded() { grep -q -- "mountPath: $guard\$" "$1" && grep -q -- " path: $guard\$" "$1"; }

# guard_close: behind kubeadm init.
guard_close() {
	[ -s "$manifest" ] || return 0
	guarded "$manifest" ||
		quoin_fail "$manifest does not mount $guard, so etcd would begin an empty cluster once it has lost its data:" \
			"keep its volumes in your patches of kubeadm"
	read_manifest "$manifest"
	guard_mark "$manifest"
}

# guard_mark <manifest>: the data that are in place are those of the member.
guard_mark() {
	log=$(argument wal-dir "$1")
	log=${log:-$data/member/wal}
	[ -d "$log" ] || quoin_fail "$log does not exist, although etcd has begun a cluster here"
	: >"$log/$mark" && sync "$log/$mark" "$log" || quoin_fail "$log/$mark cannot be written"
	guard_leads "$log/$mark"
}
