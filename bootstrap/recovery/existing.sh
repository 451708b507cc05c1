# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# etcd_existing: the member is told that its cluster exists. etcd then refuses to start without its data, where it would begin
# an empty cluster under the same ids.
etcd_existing() {
	state=--initial-cluster-state
	[ -s "$manifest" ] || return 0
	read_manifest "$manifest"
	log=$(argument wal-dir "$manifest")
	if ! grep -q -- "$state=existing" "$manifest"; then
		[ -d "${log:-$data/member/wal}" ] || quoin_fail "${log:-$data/member/wal} does not exist, although kubeadm has begun a cluster of etcd here"
		awk -v state="$state" 'index($0, state) { next } { print } /^ *- etcd$/ { sub(/etcd$/, state "=existing"); print }' \
			"$manifest" >"$QUOIN_RUN_DIR/etcd.yaml" || quoin_fail "$QUOIN_RUN_DIR/etcd.yaml cannot be written; is there room?"
		grep -q -- "$state=existing" "$QUOIN_RUN_DIR/etcd.yaml" ||
			quoin_fail "the command in $manifest is not the one that kubeadm writes: $state=existing cannot be added. Keep the command in your patches of kubeadm"
		put_manifest "$QUOIN_RUN_DIR/etcd.yaml"
		! quoin_settle 60 etcd_changes || works "$state=existing" || end_apiserver
	fi
	quoin_settle 200 etcd_exists || quoin_fail "etcd was started with $state=existing and is not ready; $look"
	# What comes next talks to the API server. One that does not listen here is nobody's fault.
	quoin_settle 60 server_serves || :
}

# etcd_changes: etcd has stopped, or was started again already.
etcd_changes() { works "$state=existing" || stopped; }

# end_apiserver kills the API server, which the kubelet starts again. Without etcd it would take the kubelet's requests and hang, and
# the kubelet starts no other etcd before half a minute of that is over.
end_apiserver() {
	for comm in /proc/[0-9]*/comm; do
		read -r process 2>/dev/null <"$comm" || continue
		[ "$process" = kube-apiserver ] || continue
		pid=${comm%/comm}
		kill -KILL "${pid#/proc/}" 2>/dev/null
	done
	return 0
}

# server_serves: the API server answers, also when it refuses to say how it is. Without curl nobody asks.
server_serves() {
	[ -s "${manifest%/*}/kube-apiserver.yaml" ] && command -v curl >/dev/null || return 0
	port=$(argument secure-port "${manifest%/*}/kube-apiserver.yaml")
	case $(curl --noproxy '*' --silent --insecure --max-time 5 --output /dev/null --write-out '%{http_code}' "https://127.0.0.1:${port:-6443}/readyz") in
	200 | 401 | 403) ;;
	*) return 1 ;;
	esac
}

# etcd_exists: etcd was started again, and serves. Where it cannot be asked, that it runs must do; one of before 3.5.11 knows no
# such question.
etcd_exists() {
	works "$state=existing" || return 1
	case $metrics in http://*) askable || return 0 ;; *) return 0 ;; esac
	case $(readiness) in 200 | 404) ;; *) return 1 ;; esac
}
