// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

// JoiningKubeadm is the version of the kubeadm that a node joins with: that of the control plane's oldest API server
// where it is of a newer minor than the node, and else the node's own. Kubelets may be three minors older than API
// servers, while kubeadm joins only a control plane of its own minor. Versions that are none are left out.
func JoiningKubeadm(node string, controlPlane ...string) string {
	own, err := Parse(node)
	if err != nil {
		return node
	}
	oldest := Oldest(controlPlane...)
	if found, err := Parse(oldest); err == nil && (found.Major() > own.Major() || found.Minor() > own.Minor()) {
		return oldest
	}
	return node
}

// Oldest of versions; empty when there is none. Versions that are none are left out.
func Oldest(versions ...string) string {
	oldest := ""
	for _, version := range versions {
		if _, err := Parse(version); err == nil && (oldest == "" || Older(version, oldest)) {
			oldest = version
		}
	}
	return oldest
}
