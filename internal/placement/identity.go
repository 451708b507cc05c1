// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strings"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
)

// Identity is what must be a host's own within a Cluster, as words for people: a node is named after its hostname, DHCP
// leases and journals go by the machine-id, and network plugins by one or the other.
type Identity string

// IdentitiesOf lists what is known of the identity of a host. What every host of a make has tells nothing.
func IdentitiesOf(host *infrav1.QuoinHost) []Identity {
	facts := host.Status.Facts
	if facts == nil {
		return nil
	}
	var out []Identity
	// As the kubelet makes a name of it.
	if name := strings.ToLower(strings.TrimSpace(facts.Hostname)); name != "" && !strings.HasPrefix(name, "localhost") {
		out = append(out, Identity("hostname "+name))
	}
	if id := MachineID(facts); id != "" {
		out = append(out, Identity("machine-id "+id))
	}
	if id := ProductUUID(host); id != "" {
		out = append(out, id)
	}
	return out
}

// Taken lists what identifies those of the hosts that have a claim of one of a Cluster's QuoinMachines: no other
// Machine of the Cluster can have a host with the same.
func Taken(hosts []infrav1.QuoinHost, machines []infrav1.QuoinMachine) []Identity {
	named := map[string]*infrav1.QuoinMachine{}
	for i := range machines {
		named[machines[i].Name] = &machines[i]
	}
	var taken []Identity
	for i := range hosts {
		ref := hosts[i].Spec.ConsumerRef
		if ref != nil && named[ref.Name] != nil && hosts[i].ClaimedBy(named[ref.Name]) {
			taken = append(taken, IdentitiesOf(&hosts[i])...)
		}
	}
	return taken
}

// ProductUUID is the identity by which the BMC of a host knows it, one for both byte orders. Without a BMC there is
// none: containers, and some boards of a make, share a UUID.
func ProductUUID(host *infrav1.QuoinHost) Identity {
	if host.Spec.BMC == nil || host.Status.Facts == nil {
		return ""
	}
	id := firmware.CanonicalUUID(host.Status.Facts.ProductUUID)
	if id == "" {
		return ""
	}
	return Identity("product UUID " + id)
}

// MachineID is what is known of the host's machine-id; empty when it tells nothing.
func MachineID(facts *infrav1.HostFacts) string {
	if facts.MachineID == "uninitialized" {
		return ""
	}
	return facts.MachineID
}

// Remedy says how the host gets an identity of its own.
func (i Identity) Remedy() string {
	switch kind, _, _ := strings.Cut(string(i), " "); kind {
	case "hostname":
		return "give one of them another name: hostnamectl hostname <name>"
	case "machine-id":
		return "give one of them its own: rm -f /etc/machine-id /var/lib/dbus/machine-id && systemd-machine-id-setup && " +
			"reboot"
	}
	return "give one of them its own in the firmware, or in the definition of the virtual machine"
}

// Common is the first of the identities that both have; empty when there is none.
func Common(a, b []Identity) Identity {
	for _, one := range a {
		if slices.Contains(b, one) {
			return one
		}
	}
	return ""
}

// Meet reports whether one namespace could claim both hosts, so that one Cluster could have both.
func Meet(a, b Host) bool {
	offers := a.ConsumerNamespaces
	if len(offers) == 0 {
		offers = []string{a.Namespace}
	}
	return slices.ContainsFunc(offers, func(namespace string) bool {
		return NamespaceAllowed(b, namespace) || namespace == AnyNamespace
	})
}
