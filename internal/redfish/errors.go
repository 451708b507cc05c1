// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"fmt"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
)

// UnreachableError says that no answer came: no connection, or not within the time.
type UnreachableError struct {
	// Address of the service.
	Address string
	// Action is what was tried.
	Action string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s: the BMC at %s does not answer: %v", e.Action, e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// CertificateError says that the service presents a certificate that is not trusted. Nothing was sent to it.
type CertificateError struct {
	// Address of the service.
	Address string
	// Expected fingerprint; empty when none is pinned.
	Expected string
	// Seen fingerprint; empty when the service presented nothing.
	Seen string
	// Err is why a certificate without a pin is not trusted.
	Err error
}

func (e *CertificateError) Error() string {
	if e.Expected != "" {
		return fmt.Sprintf("the certificate of the BMC at %s changed: expected %s, seen %s; if that is right, pin the new "+
			"one in spec.bmc.certificateFingerprint",
			e.Address, e.Expected, orNothing(e.Seen))
	}
	return fmt.Sprintf(
		"the certificate of the BMC at %s is not trusted: %v; have it signed by a known authority, or pin it in "+
			"spec.bmc.certificateFingerprint (seen %s)",
		e.Address, e.Err, orNothing(e.Seen))
}

// Unwrap returns the cause.
func (e *CertificateError) Unwrap() error { return e.Err }

// AuthenticationError says that the account is unknown, its password wrong, or its rights too small.
type AuthenticationError struct {
	// Address of the service.
	Address string
	// Action is what was tried.
	Action string
	// Status is 401 or 403.
	Status int
}

func (e *AuthenticationError) Error() string {
	if e.Status == 403 {
		return fmt.Sprintf("%s: the account has too few rights at the BMC at %s; give it the role Operator", e.Action,
			e.Address)
	}
	return fmt.Sprintf("%s: the BMC at %s refuses the user name or the password; correct the Secret that "+
		"spec.bmc.credentialsRef names", e.Action, e.Address)
}

// RefusedError says that the service understood and does not do it.
type RefusedError struct {
	// Address of the service.
	Address string
	// Action is what was tried.
	Action string
	// Problem is what the service says, or what it lacks.
	Problem string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: the BMC at %s refuses: %s", e.Action, e.Address, e.Problem)
}

// SystemsError says that the service has not exactly one computer, and none was named.
type SystemsError struct {
	// Address of the service.
	Address string
	// Systems there are, the first few of them.
	Systems []string
}

func (e *SystemsError) Error() string {
	if len(e.Systems) == 0 {
		return fmt.Sprintf("the BMC at %s has no ComputerSystem", e.Address)
	}
	return fmt.Sprintf("the BMC at %s has several systems; name that of the host in spec.bmc.system: %s", e.Address,
		strings.Join(e.Systems, ", "))
}

// IdentityError says that the computer is not the machine that is meant, or that nothing tells whether it is. Its power
// was not switched, and what it says of its power is not the machine's.
type IdentityError struct {
	// Address of the service, and the computer's path there.
	Address, System string
	// Differs says that both are known.
	Differs bool
	// Meant is what is known of the machine.
	Meant Machine
	// UUID, Serial number and SKU are what the BMC says of the computer.
	UUID, Serial, SKU string
}

func (e *IdentityError) Error() string {
	problem, remedy := "nothing tells whether the BMC at %s is the host's", "correct spec.bmc, or, if it is the host's, "+
		"set spec.bmc.systemID to what this BMC says there"
	shared := e.Meant.Shared + " has this UUID and a BMC too"
	if e.Meant.ID != "" {
		shared = e.Meant.Shared + " is known by that systemID too"
	}
	switch {
	case e.Differs:
		// Nobody in a hurry is to copy from here what makes this BMC the host's.
		problem, remedy = "the BMC at %s is another machine's", "correct spec.bmc; if the machine itself shows that it is "+
			"the host's: docs/bmc.md (Which computer it is)"
		if e.Meant.ID != "" && e.Meant.Shared != "" {
			remedy = shared + ": " + remedy
		}
	case e.Meant.Shared != "":
		remedy = "correct spec.bmc, or, if it is the host's: " + shared + ", so if both are one machine, delete one of " +
			"them; else set spec.bmc.systemID of each to what its own BMC alone says, as the SerialNumber"
	}
	return fmt.Sprintf(problem+": its %s has %s, and the host %s; %s", e.Address, e.System,
		known("UUID", e.UUID, "SerialNumber", e.Serial, "SKU", e.SKU),
		known("by spec.bmc.systemID", e.Meant.ID, "product UUID", firmware.UUID(e.Meant.UUID), "serial number",
			firmware.Serial(e.Meant.Serial)), remedy)
}

// known lists what is not empty, of pairs of a name and a value.
func known(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, pairs[i]+" "+pairs[i+1])
		}
	}
	if len(all) == 0 {
		return "no identity"
	}
	return strings.Join(all, ", ")
}

// MisbehavedError says that the service broke, or did not do what it said it did.
type MisbehavedError struct {
	// Address of the service.
	Address string
	// Action is what was tried.
	Action string
	// Problem is what it did instead.
	Problem string
}

func (e *MisbehavedError) Error() string {
	return fmt.Sprintf("%s: the BMC at %s misbehaves: %s", e.Action, e.Address, e.Problem)
}

func orNothing(fingerprint string) string {
	if fingerprint == "" {
		return "none"
	}
	return fingerprint
}
