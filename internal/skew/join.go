// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

// KubeadmBounds are how far a kubeadm may be ahead of what it works on.
type KubeadmBounds struct {
	// Installs bounds the Kubernetes of a control plane that it makes, Kubelet the kubelet of its host.
	Installs Bound `json:"installs"`
	Kubelet  Bound `json:"kubelet"`
	// Joins bounds the kubeadm that made a cluster or last upgraded it.
	Joins Bound `json:"joins"`
}

// Installer is a kubeadm that is about to run on a host. Versions are empty of what it has nothing to do with.
type Installer struct {
	// Object is whose host it is, for people: "Machine w1".
	Object, Version string
	// Installs is the version of the control plane that it makes, Kubelet that of the kubelet beside it.
	Installs, Kubelet string
	// Cluster is the version of the kubeadm that made the cluster which it joins, or last upgraded it.
	Cluster string
}

// CheckInstaller lists what the policy does not allow of a kubeadm (R13, R14, R15).
func (p Policy) CheckInstaller(i Installer) []Violation {
	own, err := Parse(i.Version)
	if err != nil || p.Kubeadm == nil {
		return nil
	}
	var violations []Violation
	for _, other := range []struct {
		version, what string
		bound         Bound
	}{
		{i.Installs, "Kubernetes", p.Kubeadm.Installs},
		{i.Kubelet, "kubelet", p.Kubeadm.Kubelet},
		{i.Cluster, "a cluster of kubeadm", p.Kubeadm.Joins},
	} {
		version, err := Parse(other.version)
		if err != nil || !later(version, own) && distance(own, version) <= other.bound.of(own.Minor()) {
			continue
		}
		violations = append(violations, Violation{Rule: other.bound.Rule, object: i.Object, message: saying(
			"kubeadm %s of %s is %s from %s %s (%s): bring it to v%d.%d first", text(own), i.Object,
			minors(distance(own, version)), other.what, text(version), other.bound.Rule, version.Major(), version.Minor())})
	}
	return violations
}

// JoiningKubeadm is the version of the kubeadm that a node joins with: that of the control plane's oldest API server
// where it is of a newer minor than the node, and else the node's own. Kubelets may be three minors older than API
// servers, while kubeadm joins only a control plane of its own minor. Versions that are none are left out.
func JoiningKubeadm(node string, controlPlane ...string) string {
	own, err := Parse(node)
	if err != nil {
		return node
	}
	oldest := Oldest(controlPlane...)
	if found, err := Parse(oldest); err == nil && later(found, own) {
		return oldest
	}
	return node
}

// Newest of versions; empty when there is none. Versions that are none are left out.
func Newest(versions ...string) string {
	newest := ""
	for _, version := range versions {
		if _, err := Parse(version); err == nil && (newest == "" || Older(newest, version)) {
			newest = version
		}
	}
	return newest
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
