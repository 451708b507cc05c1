// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostpower switches the machine behind a QuoinHost through its BMC: the address and the pinned certificate
// from spec.bmc, the account from the Secret that it names.
package hostpower

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
)

// ErrNoBMC says that the host has no BMC.
var ErrNoBMC = errors.New("the host has no BMC; set spec.bmc")

// Power switches hosts. It is safe for concurrent use, and keeps nothing between calls: a BMC is asked a few times in
// the life of a host, and has room for few connections.
type Power struct {
	// Reader of Secrets; it should be uncached.
	Reader client.Reader
	// Hosts finds QuoinHosts by the indexes of package fieldindex.
	Hosts client.Reader
	// Egress rules which addresses are connected to.
	Egress *egress.Rules
	// Output bounds what is kept at once of long answers, by namespace. Nothing is bounded but each answer when nil.
	Output ssh.OutputRoom
	// Interval between two readings of a state that should change; that of package redfish when 0.
	Interval time.Duration
}

// State reads the power state: On, Off, PoweringOn or PoweringOff. Errors here and below are ErrNoBMC,
// *hostaccess.CredentialsError, or those of package redfish.
func (p *Power) State(ctx context.Context, host *infrav1.QuoinHost) (string, error) {
	var state redfish.PowerState
	err := p.with(ctx, host, nil, func(c *redfish.Client) (err error) {
		state, err = c.State(ctx)
		return err
	})
	return string(state), err
}

// Off turns the host off, and returns nil only when the BMC has confirmed it by two readings in a row: the host is
// fenced. It takes minutes at worst, so call it from where nothing waits for it. due is asked right before the order,
// which is not given where it returns an error; that is the error then. Nothing is asked when it is nil.
func (p *Power) Off(ctx context.Context, host *infrav1.QuoinHost, due func(context.Context) error) error {
	return p.with(ctx, host, due, func(c *redfish.Client) error { return c.PowerOff(ctx) })
}

// On turns the host on.
func (p *Power) On(ctx context.Context, host *infrav1.QuoinHost) error {
	return p.with(ctx, host, nil, func(c *redfish.Client) error { return c.PowerOn(ctx) })
}

// Cycle makes the host boot, whatever it did before. due is as that of Off.
func (p *Power) Cycle(ctx context.Context, host *infrav1.QuoinHost, due func(context.Context) error) error {
	return p.with(ctx, host, due, func(c *redfish.Client) error { return c.PowerCycle(ctx) })
}

func (p *Power) with(
	ctx context.Context, host *infrav1.QuoinHost, due func(context.Context) error, do func(*redfish.Client) error,
) error {
	bmc := host.Spec.BMC
	if bmc == nil {
		return ErrNoBMC
	}
	if bmc.SystemID != "" && host.MachineReplaced() {
		return fmt.Errorf("the machine behind QuoinHost %s/%s was replaced, and spec.bmc.systemID may name the one before: "+
			"see its condition %s", host.Namespace, host.Name, infrav1.HostUnchangedCondition)
	}
	credentials, err := p.credentials(ctx, client.ObjectKey{Namespace: host.Namespace, Name: bmc.CredentialsRef.Name})
	if err != nil {
		return err
	}
	machine := machineOf(host)
	if machine.Shared, err = SharesIdentity(ctx, p.Hosts, host); err != nil {
		return err
	}
	c, err := redfish.New(redfish.Target{
		Address: bmc.Address, System: bmc.System, Credentials: credentials, Fingerprint: bmc.CertificateFingerprint,
		Machine: machine, Interval: p.Interval, Control: p.Egress.Control,
		Output: p.Output, Owner: host.Namespace, Due: due,
	})
	if err != nil {
		return fmt.Errorf("spec.bmc of QuoinHost %s/%s: %w", host.Namespace, host.Name, err)
	}
	defer c.Close()
	return do(c)
}

// machineOf is by what the host's computer is known: a person's word, or what its own firmware said when it was
// inspected.
func machineOf(host *infrav1.QuoinHost) redfish.Machine {
	machine := redfish.Machine{ID: host.Spec.BMC.SystemID}
	if facts := host.Status.Facts; facts != nil {
		machine.UUID, machine.Serial = facts.ProductUUID, facts.SerialNumber
	}
	return machine
}

// SharesIdentity names another QuoinHost of the namespace that is known by what a person says of the host's computer,
// or, where that is no more than the host's product UUID, or nothing, has a BMC and that UUID: whose BMC is whose does
// not follow from it. It is empty when there is none. Those of other namespaces do not count: who registers hosts there
// must not keep this one from being fenced.
func SharesIdentity(ctx context.Context, hosts client.Reader, host *infrav1.QuoinHost) (string, error) {
	find, bmc, facts := WithUUIDOf, host.Spec.BMC, host.Status.Facts
	if bmc != nil && bmc.SystemID != "" && (facts == nil || !firmware.SameUUID(bmc.SystemID, facts.ProductUUID)) {
		find = KnownBySystemIDOf
	}
	alike, err := find(ctx, hosts, host)
	if err != nil || len(alike) == 0 {
		return "", err
	}
	first := slices.MinFunc(alike, func(a, b infrav1.QuoinHost) int { return strings.Compare(a.Name, b.Name) })
	return fmt.Sprintf("QuoinHost %s/%s", first.Namespace, first.Name), nil
}

// WithUUIDOf lists the other QuoinHosts of the namespace that have a BMC and the product UUID of the host. They are
// shared with the cache.
func WithUUIDOf(ctx context.Context, hosts client.Reader, host *infrav1.QuoinHost) ([]infrav1.QuoinHost, error) {
	identity := placement.ProductUUID(host)
	if identity == "" {
		return nil, nil
	}
	return others(ctx, hosts, host, fieldindex.HostsWithIdentity(identity))
}

// KnownBySystemIDOf lists the other QuoinHosts of the namespace, with a BMC or without, of which inspection or a person
// says what spec.bmc.systemID says of the host. They are shared with the cache.
func KnownBySystemIDOf(
	ctx context.Context, hosts client.Reader, host *infrav1.QuoinHost,
) ([]infrav1.QuoinHost, error) {
	return others(ctx, hosts, host, fieldindex.HostsKnownBy(host.Spec.BMC.SystemID))
}

func others(
	ctx context.Context, hosts client.Reader, host *infrav1.QuoinHost, like client.ListOption,
) ([]infrav1.QuoinHost, error) {
	list := &infrav1.QuoinHostList{}
	if err := hosts.List(ctx, list, client.InNamespace(host.Namespace), like, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the QuoinHosts that are like QuoinHost %s/%s: %w", host.Namespace, host.Name, err)
	}
	var others []infrav1.QuoinHost
	for i := range list.Items {
		if list.Items[i].Name != host.Name {
			others = append(others, list.Items[i])
		}
	}
	return others, nil
}

func (p *Power) credentials(ctx context.Context, name client.ObjectKey) (redfish.Credentials, error) {
	create := fmt.Sprintf("kubectl -n %s create secret generic %s --type=%s --from-literal=username=<user> "+
		"--from-file=password=<file>",
		name.Namespace, name.Name, corev1.SecretTypeBasicAuth)
	refuse := func(problem, fix string) (redfish.Credentials, error) {
		return redfish.Credentials{}, &hostaccess.CredentialsError{Secret: name.String(), Problem: problem, Fix: fix}
	}
	secret := &corev1.Secret{}
	if err := p.Reader.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return refuse("does not exist", "create it with: "+create)
		}
		return redfish.Credentials{}, fmt.Errorf("reading credentials Secret %s: %w", name, err)
	}
	if secret.Type != corev1.SecretTypeBasicAuth {
		return refuse(fmt.Sprintf("has type %q", secret.Type), "delete it and create it again with: "+create)
	}
	user, password := secret.Data[corev1.BasicAuthUsernameKey], secret.Data[corev1.BasicAuthPasswordKey]
	if len(user) == 0 || len(password) == 0 {
		return refuse("lacks username or password", "store both")
	}
	return redfish.Login(string(user), string(password)), nil
}
