// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	hostssh "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// trusts says whether there is anything to know the host by.
func trusts(spec *infrav1.QuoinHostSpec) bool {
	return len(spec.HostKeys) > 0 || len(spec.HostCertificateAuthorities) > 0
}

// validateTrust refuses keys that are none, and a policy that nothing can meet.
func validateTrust(path *field.Path, spec *infrav1.QuoinHostSpec) field.ErrorList {
	reasons := validateKeys(path.Child("hostKeys"), spec.HostKeys,
		"give a line of the host's /etc/ssh/ssh_host_*_key.pub, or leave hostKeys empty to trust the key of the first "+
			"contact")
	reasons = append(reasons, validateKeys(path.Child("hostCertificateAuthorities"), spec.HostCertificateAuthorities,
		"give the public key with which host keys are signed, as in a @cert-authority line of a known_hosts file")...)
	if spec.HostKeyPolicy == infrav1.HostKeyPolicyStrict && !trusts(spec) {
		reasons = append(reasons, field.Required(path.Child("hostKeys"),
			"hostKeyPolicy is Strict, so the host is known before the first contact: give its keys (cat "+
				"/etc/ssh/ssh_host_ed25519_key.pub at its console) or hostCertificateAuthorities, or choose TrustOnFirstUse"))
	}
	if bastion := spec.Bastion; bastion != nil {
		reasons = append(reasons, validateManagementAddress(path.Child("bastion", "address"), bastion.Address)...)
		reasons = append(reasons, validateKeys(path.Child("bastion", "hostKeys"), bastion.HostKeys,
			"give a line of the bastion's /etc/ssh/ssh_host_*_key.pub")...)
	}
	return reasons
}

func validateKeys(path *field.Path, keys []string, way string) field.ErrorList {
	var reasons field.ErrorList
	for i, key := range keys {
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil {
			reasons = append(reasons, field.Invalid(path.Index(i), key, "this is not a public key: "+way))
			continue
		}
		// What would end each attempt to connect.
		if _, err := hostssh.ParseHostKeys(key); err != nil {
			reasons = append(reasons, field.Invalid(path.Index(i), key, err.Error()))
		}
	}
	return reasons
}

// warnAboutTrust tells what a person has to do whom the first contact is trusted for.
func warnAboutTrust(spec *infrav1.QuoinHostSpec) admission.Warnings {
	if trusts(spec) {
		return nil
	}
	return admission.Warnings{"spec.hostKeys is empty: whoever answers at " + spec.Address +
		" first is trusted. Compare the fingerprint of the event " +
		"HostKeyRecorded with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub at its console), or give " +
		"hostKeys and hostKeyPolicy: Strict"}
}

// warnAboutLeftovers says, when what a claim brings begins to count, that what earlier ones brought does not: an
// inspection took it for the host's own.
func warnAboutLeftovers(before, after *infrav1.QuoinHost) admission.Warnings {
	passes := func(host *infrav1.QuoinHost) bool {
		return ptr.Deref(host.Spec.Cleaning.IgnoreChanges, !host.Shared())
	}
	if before.Spec.ClaimGeneration == 0 || !passes(before) || passes(after) {
		return nil
	}
	return admission.Warnings{"Machines had this host while what came with them was let pass (spec.consumerNamespaces, " +
		"spec.cleaning.ignoreChanges), and what they left counts as the host's own now: no release finds it. Look at its " +
		"users, keys, jobs and units before others have it; or install it anew, delete the QuoinHost and register it again"}
}

// kernelName is a name that the kernel gives to disks in the order in which it finds them.
var kernelName = regexp.MustCompile(
	`^(sd[a-z]+|hd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme[0-9]+(n[0-9]+)?(p[0-9]+)?|` +
		`mmcblk[0-9]+|md[0-9]+|dm-[0-9]+|loop[0-9]+)[0-9]*$`)

// validateDisks refuses names under which another disk may lie after the next boot: one would be wiped in place of the
// other.
func validateDisks(path *field.Path, disks []infrav1.DiskRole) field.ErrorList {
	var reasons field.ErrorList
	seen := map[string]bool{}
	for i, disk := range disks {
		at := path.Index(i).Child("id")
		if kernelName.MatchString(disk.ID) {
			reasons = append(reasons, field.Invalid(at, disk.ID,
				"the kernel may give this name to another disk at the next boot: "+
					"give the id of the disk in status.facts.disks (a WWN, a serial number or a by-id name)"))
		}
		if seen[disk.ID] {
			reasons = append(reasons, field.Duplicate(at, disk.ID))
		}
		seen[disk.ID] = true
	}
	return reasons
}

// validateBMC refuses an address that no Redfish service can have.
func validateBMC(path *field.Path, bmc *infrav1.BMC) field.ErrorList {
	if bmc == nil {
		return nil
	}
	parsed, err := url.Parse(bmc.Address)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil ||
		strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" {
		return field.ErrorList{field.Invalid(path.Child("address"), bmc.Address,
			"give https://<address or name>[:<port>] and nothing else: credentials belong into the Secret that credentialsRef "+
				"names, the system into spec.bmc.system")}
	}
	return validateManagementAddress(path.Child("address"), parsed.Hostname())
}

// validateLostTrust refuses to take away everything that the host is known by.
func validateLostTrust(before, after *infrav1.QuoinHostSpec) field.ErrorList {
	if !trusts(before) || trusts(after) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "hostKeys"), fmt.Sprintf(
		"without a key, whoever answers at the address next would be trusted: annotate the host with %s=<fingerprint of "+
			"the new key> instead, or write the new key here",
		infrav1.AcceptHostKeyAnnotation))}
}
