// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// secretsOf is what nobody may be told of what a host says: the Secrets that it refers to, and the bootstrap data of
// its Machine. It is asked for only where there is something to tell. What cannot be compared is not shown.
func (r *Reconciler) secretsOf(ctx context.Context, host *infrav1.QuoinHost) *redact.Redactor {
	var values []string
	for _, name := range host.SecretNames() {
		secret := &corev1.Secret{}
		switch err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, secret); {
		case apierrors.IsNotFound(err):
			// Nobody has it any more, and nothing connects with it.
		case err != nil:
			return redact.Withhold(fmt.Sprintf("Secret %s/%s could not be read: %v", host.Namespace, name, err))
		}
		for _, value := range secret.Data {
			values = append(values, string(value))
		}
	}
	bootstrap, err := r.bootstrapSecrets(ctx, host)
	if err != nil {
		return redact.Withhold(err.Error())
	}
	public := []string{host.Name, host.Spec.Address}
	for _, disk := range host.Spec.Disks {
		public = append(public, disk.ID)
	}
	return redact.New(append(values, redact.Without(bootstrap, public...)...)...)
}

// bootstrapSecrets are those of the bootstrap data that the host was given; none when its Machine has none, or never
// had this host. As long as they may run there, they have to be known.
func (r *Reconciler) bootstrapSecrets(ctx context.Context, host *infrav1.QuoinHost) ([]string, error) {
	ref := host.Spec.ConsumerRef
	if ref == nil {
		return nil, nil
	}
	machine := &clusterv1.Machine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Machine}, machine)
	if apierrors.IsNotFound(err) || err == nil && ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "") == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Machine %s/%s: %w", ref.Namespace, ref.Machine, err)
	}
	if had, err := r.hadBy(ctx, host, machine); err != nil || !had {
		return nil, err
	}
	data, err := r.bootstrapData(ctx, machine)
	switch {
	case is[*bootstrapDataError](err):
		// It is not what a bootstrap provider made, and was brought to no host.
		return nil, nil
	case apierrors.IsNotFound(err) && host.Status.State != infrav1.HostStateProvisioning:
		return nil, nil
	case err != nil:
		return nil, err
	}
	var variables cloudinit.Variables
	if host.Status.Facts != nil {
		variables = instanceData(host, host.ProviderID())
	}
	return cloudinit.Secrets(data, variables), nil
}

// hadBy reports whether the host may have been given the bootstrap data of the Machine that its claim names. Whoever
// writes the claim names any Machine, and what is taken out of the words of his host would tell him what its data say.
// A QuoinMachine that is gone speaks against nothing: its Machine names it still.
func (r *Reconciler) hadBy(ctx context.Context, host *infrav1.QuoinHost, machine *clusterv1.Machine) (bool, error) {
	ref := host.Spec.ConsumerRef
	if machine.Spec.ProviderID != "" {
		return machine.Spec.ProviderID == host.ProviderID(), nil
	}
	if of := machine.Spec.InfrastructureRef; of.Name != ref.Name || of.Kind != "QuoinMachine" {
		return false, nil
	}
	quoinMachine := &infrav1.QuoinMachine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, quoinMachine)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading QuoinMachine %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return host.ClaimedBy(quoinMachine), nil
}

// redactedError is an error without what must not be told.
type redactedError struct {
	err     error
	secrets *redact.Redactor
}

func (e *redactedError) Error() string { return e.readable(e.err.Error()) }

func (e *redactedError) Unwrap() error { return e.err }

// readable is a text about the error.
func (e *redactedError) readable(text string) string {
	if exit, ok := errors.AsType[*ssh.ExitError](e.err); ok && len(exit.Stderr) >= ssh.MaxStderr {
		// One line, of which only the end was kept.
		said := strings.TrimSpace(exit.Stderr)
		if before, _, found := strings.Cut(text, said); found {
			return e.secrets.Text(before) + e.secrets.Tail(said)
		}
	}
	if is[*ssh.ExitError](e.err) || is[*ssh.SudoError](e.err) || is[*ssh.ShellError](e.err) {
		return e.secrets.Text(text)
	}
	return e.secrets.Values(text)
}

// redacted takes out of the error of a conversation what must not be told. One that never came about says nothing of
// the host's: thousands of hosts may be silent together, and no Secret is read for that.
func (r *Reconciler) redacted(ctx context.Context, host *infrav1.QuoinHost, err error) error {
	quiet := (ssh.NeverRan(err) || ssh.IsTransient(err)) && !is[*ssh.SudoError](err) && !is[*ssh.ShellError](err) ||
		is[*hostaccess.CredentialsError](err) || is[*hostaccess.HostKeyMissingError](err) ||
		errors.Is(err, hostaccess.ErrNotPinned)
	if err == nil || quiet {
		return err
	}
	return &redactedError{err: err, secrets: r.secretsOf(ctx, host)}
}

// readable is the text about an error as people may read it.
func readable(err error, text string) string {
	if redacted, ok := errors.AsType[*redactedError](err); ok {
		return redacted.readable(text)
	}
	return text
}

// elsewhere says that the claim is of another namespace than the host: whoever reads the host's status need not be
// allowed to read what the bootstrap data of that namespace print.
func (r *reconciliation) elsewhere() bool {
	ref := r.host.Spec.ConsumerRef
	return ref != nil && ref.Namespace != r.host.Namespace
}

// see says where that is told.
func (r *reconciliation) see() string {
	ref := r.host.Spec.ConsumerRef
	return fmt.Sprintf("see QuoinMachine %s/%s", ref.Namespace, ref.Name)
}

// tellMachine tells the QuoinMachine what its bootstrap data made a host of another namespace say. Only the host's
// controller knows it, and the host does not tell.
func (r *reconciliation) tellMachine(ctx context.Context, reason, message string) error {
	m := r.claim.quoinMachine
	if m == nil {
		return nil
	}
	message = text.Shorten(message, maxMessage)
	if known := conditions.Get(m, infrav1.MachineBootstrapDataRanCondition); known != nil && known.Reason == reason &&
		known.Message == message {
		return nil
	}
	updated := m.DeepCopy()
	conditions.Set(updated, metav1.Condition{Type: infrav1.MachineBootstrapDataRanCondition, Status: metav1.ConditionFalse,
		Reason: reason, Message: message, ObservedGeneration: m.Generation})
	if err := r.patchMachineStatus(ctx, m, updated); err != nil {
		return err
	}
	if r.controller.Recorder != nil {
		r.controller.Recorder.Eventf(updated, r.host, corev1.EventTypeWarning, reason, reason, "%s", message)
	}
	return nil
}

// untellMachine takes back what tellMachine said of an attempt before.
func (r *reconciliation) untellMachine(ctx context.Context) error {
	m := r.claim.quoinMachine
	if m == nil || !conditions.Has(m, infrav1.MachineBootstrapDataRanCondition) {
		return nil
	}
	updated := m.DeepCopy()
	conditions.Delete(updated, infrav1.MachineBootstrapDataRanCondition)
	return r.patchMachineStatus(ctx, m, updated)
}

func (r *reconciliation) patchMachineStatus(ctx context.Context, before, after *infrav1.QuoinMachine) error {
	err := r.controller.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("telling QuoinMachine %s/%s what became of its bootstrap data: %w", before.Namespace, before.Name,
			err)
	}
	return nil
}
