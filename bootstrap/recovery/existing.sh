# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# etcd_existing: the member is told that its cluster exists. etcd then refuses to start without its data, where it would begin
# an empty cluster under the same ids.
etcd_existing() {
	state=--initial-cluster-state
	[ -s "$manifest" ] || return 0
	read_manifest "$manifest"
	if ! grep -q -- "$state=existing" "$manifest"; then
		[ -d "$data/member/wal" ] || quoin_fail "$data holds no data of etcd, although kubeadm has begun a cluster there"
		awk -v state="$state" 'index($0, state) { next } { print } /^ *- etcd$/ { sub(/etcd$/, state "=existing"); print }' "$manifest" >"$QUOIN_RUN_DIR/etcd.yaml"
		grep -q -- "$state=existing" "$QUOIN_RUN_DIR/etcd.yaml" ||
			quoin_fail "the command in $manifest is not the one that kubeadm writes: $state=existing cannot be added. Keep the command in your patches of kubeadm"
		put_manifest "$QUOIN_RUN_DIR/etcd.yaml"
	fi
	quoin_settle 600 etcd_exists || quoin_fail "etcd was started with $state=existing and is not ready after 600 s; $look"
}

etcd_exists() { works "$state=existing" && ready; }
