# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# For hosts whose Kubernetes we did not bring ourselves: is it the wanted version, whole, and with its images?

# quoin_programs <version>: says of each program what it is instead; nothing when all are right.
quoin_programs() {
	quoin_program kubeadm "$1" "$(kubeadm version -o short 2>/dev/null)"
	quoin_program kubelet "$1" "$(kubelet --version 2>/dev/null | sed -n 's/^Kubernetes //p')"
	quoin_program kubectl "$1" "$(kubectl version --client 2>/dev/null | sed -n 's/^Client Version: //p')"
}

# quoin_program <name> <wanted> <is>
quoin_program() {
	[ "$2" = "$3" ] && return
	command -v "$1" >/dev/null || { echo "$1 is not installed"; return; }
	echo "$1 is ${3:-of an unknown version}"
}

# quoin_list: reads lines and prints them as one, with commas.
quoin_list() {
	list=
	while read -r line; do list="${list:+$list, }$line"; done
	printf '%s\n' "$list"
}

# quoin_kubelet_unit <etc>: lets the kubelet read what only this node has, whatever unit it came with.
quoin_kubelet_unit() {
	unit=$(systemctl cat kubelet.service 2>/dev/null) || quoin_fail "this host has no kubelet.service; install the unit that comes with the kubelet's packages"
	command=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart=//p' | tail -n 1)
	case $command in
	*'$QUOIN_KUBELET_ARGS'*) ;;
	'' | *\\) quoin_fail "kubelet.service has no ExecStart on one line, so the arguments of this node cannot be added; write it on one line" ;;
	*)
		printf '%s\n' "# The arguments of this node, beside those of kubeadm." "[Service]" "EnvironmentFile=-$QUOIN_ROOT/kubelet.env" \
			"ExecStart=" "ExecStart=$command "'$QUOIN_KUBELET_ARGS' >"$QUOIN_RUN_DIR/kubelet-unit" &&
			quoin_put "$QUOIN_RUN_DIR/kubelet-unit" "$1/systemd/system/kubelet.service.d/20-quoin.conf" 0644 ||
			quoin_fail "the kubelet's unit cannot be extended"
		rm -f "$QUOIN_RUN_DIR/kubelet-unit"
		;;
	esac
	systemctl daemon-reload
}

# quoin_held: the names of the images in containerd.
quoin_held() {
	command -v ctr >/dev/null || quoin_fail "ctr is not installed, so images cannot be looked at; install containerd"
	held=$(ctr -n k8s.io images ls -q) || quoin_fail "containerd does not answer; check that its service runs"
}

# quoin_wanted_images <version> <role>: what kubeadm would use, from the repository that this host's images are of. A kubeadm
# of an older version knows the newer kube-proxy, and its own CoreDNS.
quoin_wanted_images() {
	repository=$(printf '%s\n' "$held" | sed -n 's|/kube-proxy:v[^/]*$||p' | head -n 1)
	wanted=$(kubeadm config images list --kubernetes-version "$1" ${repository:+--image-repository "$repository"} 2>/dev/null) ||
		quoin_fail "kubeadm cannot say which images $1 needs; run: kubeadm config images list --kubernetes-version $1"
	if [ "$2" != control-plane ]; then
		wanted=$(printf '%s\n' "$wanted" | grep -v -e '/kube-apiserver:' -e '/kube-controller-manager:' -e '/kube-scheduler:' -e '/etcd:')
	fi
}

# quoin_find_image <name>: leaves in $image what containerd has under this name, or under the same name of another repository.
quoin_find_image() {
	image=$(printf '%s\n' "$held" | grep -xF -- "$1" | head -n 1)
	[ -n "$image" ] || image=$(printf '%s\n' "$held" | while read -r name; do
		case $name in */"${1##*/}") echo "$name" && break ;; esac
	done)
	[ -n "$image" ]
}

# quoin_pin <name>: the kubelet's collector leaves it alone.
quoin_pin() { ctr -n k8s.io images label "$1" io.cri-containerd.pinned=pinned >/dev/null || quoin_fail "image $1 could not be pinned"; }

# quoin_require_images <version> <role>: every image is there, and stays.
quoin_require_images() {
	quoin_held
	quoin_wanted_images "$1" "$2"
	missing=
	set -- "$1"
	for name in $wanted; do
		if quoin_find_image "$name"; then
			quoin_pin "$image"
			set -- "$@" "image $image"
		else
			missing="${missing:+$missing, }$name"
		fi
	done
	[ -z "$missing" ] || quoin_fail "containerd lacks images of Kubernetes $1: $missing; import them (ctr -n k8s.io images import <file>), or let them be pulled: spec.artifacts.preinstalled.images: Pullable"
	quoin_hold "$@"
}

# quoin_pull_images <version> <role>: what can be pulled is here before it is needed, and stays. What cannot is left to the
# kubelet, which may know a registry that we do not.
quoin_pull_images() {
	quoin_held
	quoin_wanted_images "$1" "$2"
	set -- "$1"
	for name in $wanted; do
		if ! quoin_find_image "$name"; then
			if ! quoin_pull "$name"; then
				echo "warning: image $name could not be pulled ahead; the kubelet will try itself"
				continue
			fi
			image=$name
			mark=$(printf '%s' "$name" | sha256sum)
			mark=${mark%% *}
			mkdir -p "$QUOIN_ROOT/images" && printf '%s\n' "$name" >"$QUOIN_ROOT/images/$mark" || exit 1
			set -- "$@" "$mark"
		elif mark=$(printf '%s' "$image" | sha256sum) && [ -f "$QUOIN_ROOT/images/${mark%% *}" ]; then
			set -- "$@" "${mark%% *}"
		fi
		quoin_pin "$image"
		set -- "$@" "image $image"
	done
	quoin_hold "$@"
}

# quoin_pull <name>: as the kubelet would, where there is a tool for it.
quoin_pull() {
	if command -v crictl >/dev/null; then
		timeout 600 crictl --runtime-endpoint unix:///run/containerd/containerd.sock pull "$1" </dev/null
	elif [ -d /etc/containerd/certs.d ]; then
		timeout 600 ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d "$1" </dev/null
	else
		timeout 600 ctr -n k8s.io images pull "$1" </dev/null
	fi
}
