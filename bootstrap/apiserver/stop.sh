# Copyright The Quoin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Moves the manifest of the API server out of the directory of manifests, where the kubelet reads every file whatever its name,
# and waits until the API server has ended.
manifest=$kubernetes/manifests/kube-apiserver.yaml

runs() {
	for comm in "$proc"/[0-9]*/comm; do
		read -r name 2>/dev/null <"$comm" || continue
		[ "$name" = kube-apiserver ] || continue
		# One that ended and was not collected yet serves nobody.
		case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "${comm%/comm}/status" 2>/dev/null) in '' | Z | X) ;; *) return 0 ;; esac
	done
	return 1
}

if [ -e "$manifest" ]; then
	# Within one file system as a rule, so that the kubelet never reads half of it.
	mv -fT "$manifest" "$kubernetes/quoin-kube-apiserver.yaml" && sync "$kubernetes" || exit 1
fi
while runs; do
	if [ "$looks" -le 0 ]; then
		echo "the kubelet has not ended the API server, whose manifest is gone; look whether it runs: systemctl status kubelet" >&2
		exit 1
	fi
	looks=$((looks - 1))
	sleep "$pause"
done
