// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
)

// powerOff is what a BMC says of a host that cannot run.
const powerOff = string(redfish.Off)

// Power changes the power of hosts through their BMCs. Each method is one bounded conversation, apart from those with the
// host itself, so that neither waits for the other.
type Power interface {
	// State is what the BMC says now: On, Off, PoweringOn or PoweringOff.
	State(ctx context.Context, host *infrav1.QuoinHost) (string, error)
	// Off turns the host off, and returns when that was read back.
	Off(ctx context.Context, host *infrav1.QuoinHost) error
	// On turns the host on.
	On(ctx context.Context, host *infrav1.QuoinHost) error
	// Cycle makes the host boot.
	Cycle(ctx context.Context, host *infrav1.QuoinHost) error
}

// overRedfish talks to real BMCs. The reader should be uncached, like that of the connector.
type overRedfish struct{ reader client.Reader }

func (o *overRedfish) State(ctx context.Context, host *infrav1.QuoinHost) (state string, err error) {
	err = o.with(ctx, host, func(c *redfish.Client) error {
		read, err := c.State(ctx)
		state = string(read)
		return err
	})
	return state, err
}

func (o *overRedfish) Off(ctx context.Context, host *infrav1.QuoinHost) error {
	return o.with(ctx, host, func(c *redfish.Client) error { return c.PowerOff(ctx) })
}

func (o *overRedfish) On(ctx context.Context, host *infrav1.QuoinHost) error {
	return o.with(ctx, host, func(c *redfish.Client) error { return c.PowerOn(ctx) })
}

func (o *overRedfish) Cycle(ctx context.Context, host *infrav1.QuoinHost) error {
	return o.with(ctx, host, func(c *redfish.Client) error { return c.PowerCycle(ctx) })
}

func (o *overRedfish) with(ctx context.Context, host *infrav1.QuoinHost, fn func(*redfish.Client) error) error {
	bmc := host.Spec.BMC
	if bmc == nil {
		return errors.New("the host has no spec.bmc")
	}
	name := client.ObjectKey{Namespace: host.Namespace, Name: bmc.CredentialsRef.Name}
	secret := &corev1.Secret{}
	if err := o.reader.Get(ctx, name, secret); err != nil {
		return fmt.Errorf("reading Secret %s, which spec.bmc.credentialsRef names: %w", name, err)
	}
	user, password := string(secret.Data[corev1.BasicAuthUsernameKey]), string(secret.Data[corev1.BasicAuthPasswordKey])
	if secret.Type != corev1.SecretTypeBasicAuth || user == "" {
		return fmt.Errorf("Secret %s, which spec.bmc.credentialsRef names, must have type %s and the keys %s and %s",
			name, corev1.SecretTypeBasicAuth, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
	}
	c, err := redfish.New(redfish.Target{
		Address: bmc.Address, System: bmc.System, Fingerprint: bmc.CertificateFingerprint, Credentials: redfish.Login(user, password),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	return fn(c)
}

// order tells a host's BMC something beside the workers, and reads back what the power is then.
func (t *turn) powerOrder(op string, fn func(context.Context, *infrav1.QuoinHost) error) (state string, done bool, err error) {
	host := t.host.DeepCopy() // the order outlives this reconcile
	state, done, err = async.Do(t.r.PowerCalls, t.key(), op, longExchange, func(ctx context.Context) (string, error) {
		if err := fn(ctx, host); err != nil {
			return "", err
		}
		return t.r.Power.State(ctx, host)
	})
	if done && err == nil {
		t.notePower(state)
	}
	return state, done, err
}

func (t *turn) notePower(state string) {
	if t.host.Status.Power == nil {
		t.host.Status.Power = &infrav1.HostPower{}
	}
	t.host.Status.Power.State, t.host.Status.Power.ReadAt = state, &metav1.Time{Time: t.now}
}
