// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"sort"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// imagesWayOut is what a person can do about a host that images do not come to. There is no time after which one that
// can take images is not waited for: CoreDNS would be moved to where it cannot start.
const imagesWayOut = ". Condition AddonImagesPresent of a QuoinHost says what keeps them from it; the Machine of one " +
	"that will never hold them is replaced when it is annotated with cluster.x-k8s.io/remediate-machine"

// fetchAddons sees to it that every host that stays holds the images that CoreDNS and kube-proxy will have. Outdated
// Machines leave before these follow: on their hosts an import would take processors and disk from an etcd that serves,
// for nothing.
func fetchAddons(s facts) *controlplane.Step {
	var unasked, lacking []string
	for _, host := range s.Hosts {
		// What a host of this version needs comes with its provisioning.
		if host.Present || host.Version == s.Version || s.leavesOutdated(host) {
			continue
		}
		if !host.Requested {
			unasked = append(unasked, host.Name)
		} else if host.Provisioned && host.Unfit == "" {
			lacking = append(lacking, host.Name)
		}
	}
	sort.Strings(lacking)
	if len(unasked) > 0 {
		return s.prepull(unasked, s.Version, "")
	}
	if len(lacking) > 0 {
		return s.wait(s.during(controlplane.Rollout), controlplane.ReasonAddonImages,
			"waiting for the add-on images of %s on the hosts of %s%s", s.Version, list(lacking), imagesWayOut)
	}
	return nil
}

// leavesOutdated reports whether the host is of an outdated Machine of the control plane.
func (s facts) leavesOutdated(host controlplane.Host) bool {
	return slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
		return machine.Name == host.Machine && !machine.UpToDate
	})
}

// holdAddons sees to it that the Machines that stay can run what runs on the one that leaves: CoreDNS and kube-proxy
// keep their old images until every API server is new, and a host of the new version does not bring those along.
func holdAddons(s facts, leaving controlplane.Machine) *controlplane.Step {
	if s.AddonsVersion == "" {
		return nil
	}
	var unasked, lacking []string
	for _, host := range s.Hosts {
		switch {
		case host.Machine == "" || host.Machine == leaving.Name || host.PresentRunning || s.unscheduled(host.Machine):
		case !host.RequestedRunning && host.Version != s.AddonsVersion:
			unasked = append(unasked, host.Name)
		default:
			lacking = append(lacking, host.Name)
		}
	}
	sort.Strings(lacking)
	if len(unasked) > 0 {
		return s.prepull(unasked, s.AddonsVersion, ", which run until the add-ons follow")
	}
	if len(lacking) > 0 {
		return s.wait(s.during(controlplane.Rollout), controlplane.ReasonAddonImages,
			"Machine %s stays until the hosts of %s hold the add-on images of %s, which run now%s",
			leaving.Name, list(lacking), s.AddonsVersion, imagesWayOut)
	}
	return nil
}

// prepull asks hosts for the images of the version's add-ons.
func (s facts) prepull(hosts []string, version, why string) *controlplane.Step {
	sort.Strings(hosts)
	step := change(controlplane.PrepullAddons, s.during(controlplane.Rollout), controlplane.ReasonAddonImages,
		"asking the hosts of %s for the add-on images of %s%s", list(hosts), version, why)
	step.Hosts, step.Version = hosts, version
	return step
}

// configure writes the version to kubeadm-config, which decides what a join installs.
func configure(s facts) *controlplane.Step {
	if s.ConfigVersion == s.Version {
		return nil
	}
	step := change(controlplane.UpdateKubeadmConfig, s.during(controlplane.Rollout), controlplane.ReasonNewVersion,
		"writing version %s to the kubeadm-config ConfigMap, which holds %s", s.Version, s.ConfigVersion)
	step.RecheckAfter = controlplane.RecheckSoon
	return step
}

// followVersion gives the add-ons the version once every API server runs it, because kube-proxy may not be newer than
// any of them. A kubelet of another version is waited for without a bound: its Machine votes, and what replaces it for
// no more than that is a person, or a health check that was asked to.
func followVersion(s facts) *controlplane.Step {
	if step := s.first(configure, fetchAddons); step != nil {
		return step
	}
	for _, machine := range s.Machines {
		if !machine.Gone() && machine.Kubelet != s.Version {
			return s.wait(s.ongoing(), controlplane.ReasonMachineNotReady, "waiting for Machine %s: its kubelet runs %q, not "+
				"%s; if that stays so, %s", machine.Name, machine.Kubelet, s.Version, haveReplaced)
		}
	}
	if s.AddonsProblem != "" {
		return s.wait(s.during(controlplane.Rollout), controlplane.ReasonAddonsUnknown,
			"CoreDNS and kube-proxy cannot follow: %s. It is tried again until that is mended", s.AddonsProblem)
	}
	if !s.AddonsCurrent {
		followers := "CoreDNS and kube-proxy"
		if s.ProxyHeld {
			followers = "CoreDNS"
		}
		return change(controlplane.UpdateAddons, s.during(controlplane.Rollout), controlplane.ReasonNewVersion,
			"giving %s the images of %s", followers, s.Version)
	}
	return nil
}
