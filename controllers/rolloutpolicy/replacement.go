// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	texttemplate "text/template"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=create
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines,verbs=create;delete
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs,verbs=get;create;delete
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigtemplates,verbs=get

const (
	configKind  = "KubeadmConfig"
	machineKind = "QuoinMachine"
	// longestName and randomLength are what Cluster API keeps to in names of Machines.
	longestName, randomLength = 63, 5
)

// succession fills in which Machine takes the place of which, and whether another one could be made.
func (r *Reconciler) succession(
	ctx context.Context, reader client.Reader, seen *observation, s *spares, all []clusterv1.Machine,
) error {
	// In one order, so that pools that could have the same host agree on whose it is.
	slices.SortFunc(seen.state.Pools, func(a, b rollout.Pool) int { return strings.Compare(a.Name, b.Name) })
	for i := range seen.state.Pools {
		pool, wants := &seen.state.Pools[i], 0
		byUID := map[string]string{}
		for _, m := range pool.Machines {
			byUID[string(seen.machines[m.Name].UID)] = m.Name
		}
		var first *clusterv1.Machine
		for j := range pool.Machines {
			m := &pool.Machines[j]
			machine := seen.machines[m.Name]
			m.Succession = rollout.SuccessionOf(machine)
			uid, _, _ := strings.Cut(machine.Annotations[quoinv1.RolloutReplacesAnnotation], " ")
			m.Replaces = byUID[uid]
			switch {
			case !m.Deleting && !m.Hosted:
				wants++
			case !m.Deleted.IsZero() && m.Leave.PreDrain && !m.Outdated && m.Replacement == "":
				wants++
				first = cmp.Or(first, machine)
			}
		}
		if first == nil || !seen.guarded[first.Name] {
			continue
		}
		set := seen.sets[metav1.GetControllerOf(first).Name]
		pool.Room.Replicas = int(ptr.Deref(set.Spec.Replicas, 1))
		if pool.Room.Unmade = unmade(set, all); pool.Room.Unmade != "" {
			continue
		}
		infra := s.machines[first.Spec.InfrastructureRef.Name]
		if infra == nil {
			pool.Room.Unmade = "its QuoinMachine is not there"
			continue
		}
		if err := r.readHosts(ctx, reader, s); err != nil {
			return err
		}
		pool.Room.Hosts = s.free(first, set, infra, wants)
	}
	return nil
}

// free counts the hosts that one more Machine of the MachineSet could claim. As many as its pool wants are not free for
// the pools that come after it.
func (s *spares) free(
	like *clusterv1.Machine, set *clusterv1.MachineSet, infra *infrav1.QuoinMachine, wants int,
) int {
	request := requestOf(like, infra)
	if request == nil {
		return 0
	}
	request.Worker, request.Taken, request.FailCgroupV1 = true, s.taken, true
	request.FailureDomain, request.Version = set.Spec.Template.Spec.FailureDomain, set.Spec.Template.Spec.Version
	n := 0
	for i := range s.hosts {
		host := &s.hosts[i]
		if s.promised[host.UID] || placement.Select(*request, []placement.Host{placement.HostOf(host)}).Chosen == nil {
			continue
		}
		if n++; n <= wants {
			s.promised[host.UID] = true
		}
	}
	return n
}

// replace has another Machine take the place of one that was deleted. First come the parts, which nobody acts on
// without a Machine, then the Machine, then the record of it. Their name comes of the UID of the one that was deleted,
// so that a process that begins anew goes on where another one died and makes no second one.
//
// The parts belong to the Cluster and not to the MachineSet, which deletes parts of its own that no Machine has
// (cleanupOrphanedBootstrapConfigsInfraMachines in machineset_controller.go). Labels, annotations and what else is
// changed in place the MachineSet applies itself when it sees the Machine: what were written here would never be taken
// off again.
func (r *Reconciler) replace(
	ctx context.Context, cluster *clusterv1.Cluster, seen *observation, old *clusterv1.Machine,
) error {
	known := seen.sets[metav1.GetControllerOf(old).Name]
	set := &clusterv1.MachineSet{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(known), set); err != nil {
		return fmt.Errorf("read MachineSet %s: %w", known.Name, err)
	}
	if set.UID != known.UID || set.Generation != known.Generation {
		return apierrors.NewConflict(schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "machinesets"},
			set.Name, fmt.Errorf("it was changed meanwhile"))
	}
	name, err := replacementName(set, string(old.UID))
	if err != nil {
		return err
	}
	machine, err := replacementOf(cluster, set, old, name)
	if err != nil {
		return err
	}
	for _, ref := range []*clusterv1.ContractVersionedObjectReference{
		&machine.Spec.InfrastructureRef, &machine.Spec.Bootstrap.ConfigRef,
	} {
		if !ref.IsDefined() {
			continue
		}
		if err := r.clonePart(ctx, cluster, machine, ref); err != nil {
			return err
		}
	}
	if err := r.createOnce(ctx, machine); err != nil {
		return err
	}
	return r.change(ctx, old, func(old *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&old.ObjectMeta, quoinv1.RolloutReplacementAnnotation, rollout.ReplacementOf(old, name))
	})
}

// replacementOf is the Machine, whose references are those of the templates still.
func replacementOf(
	cluster *clusterv1.Cluster, set *clusterv1.MachineSet, old *clusterv1.Machine, name string,
) (*clusterv1.Machine, error) {
	labels, err := metav1.LabelSelectorAsMap(&set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of MachineSet %s: %w", set.Name, err)
	}
	for key, value := range map[string]string{
		clusterv1.ClusterNameLabel: cluster.Name, clusterv1.MachineSetNameLabel: format.MustFormatValue(set.Name),
		clusterv1.MachineDeploymentNameLabel: set.Labels[clusterv1.MachineDeploymentNameLabel],
	} {
		labels[key] = value
	}
	of := set.Spec.Template.Spec
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: labels,
			Annotations: map[string]string{quoinv1.RolloutReplacesAnnotation: string(old.UID) + " " + old.Name},
			// From the first moment on, or it would pass for one that stands alone.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet",
				Name: set.Name, UID: set.UID, Controller: ptr.To(true)}},
			Finalizers: []string{clusterv1.MachineFinalizer},
		},
		Spec: clusterv1.MachineSpec{ClusterName: set.Spec.ClusterName, Version: of.Version, FailureDomain: of.FailureDomain,
			Bootstrap: *of.Bootstrap.DeepCopy(), InfrastructureRef: of.InfrastructureRef},
	}, nil
}

// replacementName is a name as the MachineSet gives it, with what comes of the UID in the place of what is random.
func replacementName(set *clusterv1.MachineSet, uid string) (string, error) {
	sum := sha256.Sum256([]byte(uid))
	random := rand.SafeEncodeString(hex.EncodeToString(sum[:]))[:randomLength]
	parsed, err := texttemplate.New("name").Option("missingkey=error").Parse(
		cmp.Or(set.Spec.MachineNaming.Template, "{{ .machineSet.name }}-{{ .random }}"))
	if err != nil {
		return "", fmt.Errorf("read machineNaming.template of MachineSet %s: %w", set.Name, err)
	}
	var name bytes.Buffer
	if err := parsed.Execute(&name, map[string]any{
		"cluster": map[string]any{"name": set.Spec.ClusterName}, "machineSet": map[string]any{"name": set.Name},
		"random": random,
	}); err != nil {
		return "", fmt.Errorf("name a Machine of MachineSet %s: %w", set.Name, err)
	}
	if name.Len() > longestName {
		return name.String()[:longestName-randomLength] + random, nil
	}
	return name.String(), nil
}

// clonePart makes a part of the Machine of its template, and has the reference name the part.
func (r *Reconciler) clonePart(
	ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine,
	ref *clusterv1.ContractVersionedObjectReference,
) error {
	version := infrav1.GroupVersion.Version
	if ref.APIGroup == bootstrapv1.GroupVersion.Group {
		version = bootstrapv1.GroupVersion.Version
	}
	from := &corev1.ObjectReference{APIVersion: schema.GroupVersion{Group: ref.APIGroup, Version: version}.String(),
		Kind: ref.Kind, Namespace: machine.Namespace, Name: ref.Name}
	of, err := external.Get(ctx, r.APIReader, from)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	part, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: of, TemplateRef: from, Namespace: machine.Namespace, Name: machine.Name, ClusterName: cluster.Name,
		OwnerRef: &metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name,
			UID: cluster.UID},
		Annotations: map[string]string{
			quoinv1.RolloutReplacesAnnotation: machine.Annotations[quoinv1.RolloutReplacesAnnotation]},
	})
	if err != nil {
		return fmt.Errorf("make a part of Machine %s from %s %s: %w", machine.Name, ref.Kind, ref.Name, err)
	}
	ref.Kind, ref.Name = part.GetKind(), part.GetName()
	return r.createOnce(ctx, part)
}

// createOnce makes an object, unless it was made before for the same reason.
func (r *Reconciler) createOnce(ctx context.Context, object client.Object) error {
	kind := object.GetObjectKind().GroupVersionKind()
	if _, is := object.(*clusterv1.Machine); is {
		kind = clusterv1.GroupVersion.WithKind("Machine")
	}
	why := object.GetAnnotations()[quoinv1.RolloutReplacesAnnotation]
	err := r.Client.Create(ctx, object)
	if err == nil || !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("create %s %s: %w", kind.Kind, object.GetName(), err)
		}
		return nil
	}
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(kind)
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(object), is); err != nil {
		return fmt.Errorf("read %s %s: %w", kind.Kind, object.GetName(), err)
	}
	if is.Annotations[quoinv1.RolloutReplacesAnnotation] != why {
		return fmt.Errorf("create %s %s: somebody else has one of that name", kind.Kind, object.GetName())
	}
	return nil
}

// stray reports whether the QuoinMachine was made for a Machine that was not made yet, or never will.
func stray(machine *infrav1.QuoinMachine) bool {
	return machine.Annotations[quoinv1.RolloutReplacesAnnotation] != "" && metav1.GetControllerOf(machine) == nil &&
		machine.DeletionTimestamp.IsZero()
}

// discard deletes parts whose Machine was never made, and never will: the one in whose place it were is gone, or nobody
// asks for it any more. The QuoinMachine comes first and goes last, so that it tells of the others.
func (r *Reconciler) discard(ctx context.Context, cluster *clusterv1.Cluster, led bool) error {
	parts := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, parts, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the QuoinMachines of Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	parts.Items = slices.DeleteFunc(parts.Items, func(m infrav1.QuoinMachine) bool { return !stray(&m) })
	if len(parts.Items) == 0 {
		return nil
	}
	machines := &clusterv1.MachineList{}
	if err := r.APIReader.List(ctx, machines, client.InNamespace(cluster.Namespace)); err != nil {
		return fmt.Errorf("list the Machines of namespace %s: %w", cluster.Namespace, err)
	}
	var failures []error
	for i := range parts.Items {
		part := &parts.Items[i]
		uid, _, _ := strings.Cut(part.Annotations[quoinv1.RolloutReplacesAnnotation], " ")
		if slices.ContainsFunc(machines.Items, func(m clusterv1.Machine) bool {
			return m.Spec.InfrastructureRef.Name == part.Name || led && string(m.UID) == uid
		}) {
			continue
		}
		config := &unstructured.Unstructured{}
		config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind(configKind))
		err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(part), config)
		if err == nil && config.GetAnnotations()[quoinv1.RolloutReplacesAnnotation] ==
			part.Annotations[quoinv1.RolloutReplacesAnnotation] {
			err = r.Client.Delete(ctx, config, client.Preconditions{UID: ptr.To(config.GetUID())})
		}
		if client.IgnoreNotFound(err) != nil {
			err = fmt.Errorf("delete %s %s, which no Machine has: %w", configKind, part.Name, err)
			failures = append(failures, r.recordRefusal(part, rollout.Delete, err))
			continue
		}
		err = r.Client.Delete(ctx, part, client.Preconditions{UID: &part.UID})
		if client.IgnoreNotFound(err) != nil {
			err = fmt.Errorf("delete %s %s, which no Machine has: %w", machineKind, part.Name, err)
			failures = append(failures, r.recordRefusal(part, rollout.Delete, err))
		}
	}
	return errors.Join(failures...)
}

// replaces reports whether the plan makes a Machine.
func replaces(plan rollout.Result) bool {
	return slices.ContainsFunc(plan.Leaves, func(d rollout.Decision) bool { return d.Action == rollout.Replace })
}
