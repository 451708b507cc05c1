// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
)

// TestRoles shows where each image goes. kube-proxy matters most: its name
// begins like those of the control plane, and it must reach old hosts first.
func TestRoles(t *testing.T) {
	both := []artifacts.Role{artifacts.ControlPlane, artifacts.Worker}
	for name, want := range map[string][]artifacts.Role{
		"kube-apiserver-v1.36.3.tar": {artifacts.ControlPlane},
		"etcd-3.6.8-0.tar":           {artifacts.ControlPlane},
		"kube-proxy-v1.36.3.tar":     {artifacts.ControlPlane, artifacts.Worker, artifacts.Addon},
		"coredns-v1.14.2.tar":        {artifacts.ControlPlane, artifacts.Worker, artifacts.Addon},
		"pause-3.10.2.tar":           {artifacts.ControlPlane, artifacts.Worker, artifacts.Addon},
		"testnet-v1.tar":             both,
		"webserver-v1.tar":           {artifacts.Worker},
		"quoin-manager.tar":          both,
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(rolesOf(name)).To(Equal(want))
		})
	}
}

// TestUnitPaths shows that drop-ins do not end up as units.
func TestUnitPaths(t *testing.T) {
	g := NewWithT(t)
	g.Expect(unitPath("kubelet.service")).To(Equal("/etc/systemd/system/kubelet.service"))
	g.Expect(unitPath("10-kubeadm.conf")).To(Equal("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"))
}
