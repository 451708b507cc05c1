// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// CredentialsSecret holds the key that logs in to the hosts.
const CredentialsSecret = "quoin-hosts-ssh"

func (l *Lab) registerHosts(ctx context.Context, step *progress.Step) error {
	return l.register(ctx, step, l.Hosts)
}

// register puts hosts into the inventory and waits until each can be claimed.
func (l *Lab) register(ctx context.Context, step *progress.Step, hosts []*Host) error {
	if err := l.CreateCredentials(ctx, CredentialsSecret, l.keys.private); err != nil {
		return err
	}
	for _, host := range hosts {
		object, err := l.QuoinHost(ctx, host)
		if err != nil {
			return err
		}
		// The Service of the webhooks is reached a moment after clusterctl has seen their Deployment available.
		err = step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
			err := l.Management.Create(ctx, object)
			if apierrors.IsAlreadyExists(err) {
				err = nil
			}
			return err == nil, nil, err
		})
		if err != nil {
			return fmt.Errorf("registering host %s: %w", host.Name, err)
		}
	}
	return l.pollHosts(ctx, step, infrav1.HostStateAvailable, hosts...)
}

// CreateCredentials makes a Secret with an SSH key.
func (l *Lab) CreateCredentials(ctx context.Context, name string, privateKey []byte) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Type:       corev1.SecretTypeSSHAuth,
		Data:       map[string][]byte{corev1.SSHAuthPrivateKey: privateKey},
	}
	if err := l.Management.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("credentials of the hosts: %w", err)
	}
	return nil
}

// CreateOtherCredentials makes a Secret with a key that no host accepts.
func (l *Lab) CreateOtherCredentials(ctx context.Context, name string) error {
	key, err := newPrivateKey()
	if err != nil {
		return err
	}
	return l.CreateCredentials(ctx, name, key)
}

// QuoinHost is the inventory's object for a host.
func (l *Lab) QuoinHost(ctx context.Context, host *Host) (*infrav1.QuoinHost, error) {
	object := &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: host.Name, Labels: host.Labels},
		Spec: infrav1.QuoinHostSpec{
			Address:        host.Address,
			User:           hostUser,
			CredentialsRef: infrav1.SecretReference{Name: CredentialsSecret},
			FailureDomain:  host.FailureDomain,
		},
	}
	if host.Pinned {
		key, err := l.hostKey(ctx, host)
		if err != nil {
			return nil, err
		}
		object.Spec.HostKeys = []string{key}
	}
	return object, nil
}

// AwaitHosts waits until the named hosts, or all when none is named, are in a state.
func (l *Lab) AwaitHosts(ctx context.Context, deadline time.Duration, state infrav1.HostState, hosts ...*Host) error {
	if len(hosts) == 0 {
		hosts = l.Hosts
	}
	return l.Step(ctx, fmt.Sprintf("Waiting for %d hosts to be %s", len(hosts), state), deadline, func(ctx context.Context, step *progress.Step) error {
		return l.pollHosts(ctx, step, state, hosts...)
	})
}

func (l *Lab) pollHosts(ctx context.Context, step *progress.Step, state infrav1.HostState, hosts ...*Host) error {
	return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
		var waiting []string
		for _, host := range hosts {
			object := &infrav1.QuoinHost{}
			if err := l.Management.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: host.Name}, object); err != nil {
				return false, nil, fmt.Errorf("reading host %s: %w", host.Name, err)
			}
			if object.Status.State != state {
				waiting = append(waiting, describeHost(object))
			}
		}
		return len(waiting) == 0, waiting, nil
	})
}

// describeHost is one line: name, state, what it waits for.
func describeHost(host *infrav1.QuoinHost) string {
	line := fmt.Sprintf("host %s %s", host.Name, orUnknown(string(host.Status.State)))
	if ready := meta.FindStatusCondition(host.Status.Conditions, infrav1.HostReadyCondition); ready != nil && ready.Status != metav1.ConditionTrue {
		line += ": " + ready.Message
	}
	return line
}

func orUnknown(text string) string {
	if text == "" {
		return "(nothing seen yet)"
	}
	return text
}
