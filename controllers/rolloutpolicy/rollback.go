// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/noderefutil"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment/mdutil"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldowner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;create;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get

// mostWhy is what of a failure is remembered at a MachineDeployment.
const mostWhy = 512

// revision is what of a template makes a revision of it, as Cluster API compares them (mdutil.MachineTemplateUpToDate).
// Everything else of a template is changed in place, and stays as it is when a revision is restored.
type revision struct {
	Version           string                                     `json:"version,omitempty"`
	FailureDomain     string                                     `json:"failureDomain,omitempty"`
	Bootstrap         clusterv1.Bootstrap                        `json:"bootstrap"`
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef"`
}

func revisionOf(template *clusterv1.MachineTemplateSpec) revision {
	spec := template.Spec
	return revision{spec.Version, spec.FailureDomain, spec.Bootstrap, spec.InfrastructureRef}
}

func (r revision) restore(template *clusterv1.MachineTemplateSpec) {
	spec := &template.Spec
	spec.Version, spec.FailureDomain, spec.Bootstrap, spec.InfrastructureRef = r.Version, r.FailureDomain, r.Bootstrap,
		r.InfrastructureRef
}

func (r revision) raw() []byte {
	raw, _ := json.Marshal(r) // strings and no more
	return raw
}

func (r revision) digest() string {
	sum := sha256.Sum256(r.raw())
	return hex.EncodeToString(sum[:8])
}

// changed are the fields of a MachineDeployment that would be written to come from one to the other.
func (r revision) changed(to revision) [][]string {
	var paths [][]string
	for _, field := range []struct {
		name    string
		differs bool
	}{
		{"version", r.Version != to.Version}, {"failureDomain", r.FailureDomain != to.FailureDomain},
		{"bootstrap", !equality.Semantic.DeepEqual(r.Bootstrap, to.Bootstrap)},
		{"infrastructureRef", r.InfrastructureRef != to.InfrastructureRef},
	} {
		if field.differs {
			paths = append(paths, []string{"spec", "template", "spec", field.name})
		}
	}
	return paths
}

// record keeps templates whose rollout was completed, of MachineDeployments that are set back when another one fails,
// and forgets what failed before them.
// It is made while the MachineSet is there, which Cluster API deletes with its last Machine.
func (r *Reconciler) record(ctx context.Context, seen *observation, status *quoinv1.RolloutPolicyStatus,
	plan rollout.Result) error {
	var failures []error
	for i, p := range plan.Progress {
		shown := &status.MachineDeployments[i]
		set, pool := seen.sets[p.Completed], seen.pools[p.Pool]
		if set == nil {
			continue
		}
		if err := r.endAttempt(ctx, seen, pool, set); err != nil {
			failures = append(failures, err)
		}
		// A pool that is seen first may have a template that never worked.
		if !p.RollsBack || shown.Recorded == p.Completed || shown.Recorded == "" && !p.Works {
			continue
		}
		if err := r.keep(ctx, pool, set); err != nil {
			failures = append(failures, err)
			continue
		}
		if former := shown.Recorded; former != "" {
			if err := r.forget(ctx, pool, former); err != nil {
				failures = append(failures, err)
				continue
			}
		}
		shown.Recorded = p.Completed
	}
	return errors.Join(failures...)
}

// endAttempt forgets a template that failed once another one was completed than that which was restored.
func (r *Reconciler) endAttempt(ctx context.Context, seen *observation, of *clusterv1.MachineDeployment,
	completed *clusterv1.MachineSet) error {
	mark := rollout.ParseAttempt(of.Annotations[quoinv1.RolledBackAnnotation])
	if mark.At.IsZero() || mark.Restored == revisionOf(&completed.Spec.Template).digest() {
		return nil
	}
	ended := of.DeepCopy()
	delete(ended.Annotations, quoinv1.RolledBackAnnotation)
	if err := r.Client.Patch(ctx, ended, objectpatch.OnlyOf(of)); err != nil {
		return fmt.Errorf("take annotation %s off MachineDeployment %s: %w", quoinv1.RolledBackAnnotation, of.Name, err)
	}
	seen.pools[of.Name] = ended
	return nil
}

// keep the template of a MachineSet in a ControllerRevision of its name, which goes with the MachineDeployment.
func (r *Reconciler) keep(ctx context.Context, of *clusterv1.MachineDeployment, set *clusterv1.MachineSet) error {
	number, err := mdutil.Revision(set)
	if err != nil {
		number = 0 // it is for people only
	}
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: set.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: of.Spec.ClusterName,
				clusterv1.MachineDeploymentNameLabel: of.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(),
				Kind: "MachineDeployment", Name: of.Name, UID: of.UID, Controller: ptr.To(true)}}},
		Data: runtime.RawExtension{Raw: revisionOf(&set.Spec.Template).raw()}, Revision: number}
	err = r.Client.Create(ctx, kept)
	if apierrors.IsAlreadyExists(err) {
		_, err = r.recorded(ctx, of, set.Name)
	}
	if err != nil {
		return fmt.Errorf("record the template of MachineSet %s: %w", set.Name, err)
	}
	return nil
}

// forget what was kept of a MachineSet. A status that names another's is no reason to delete that.
func (r *Reconciler) forget(ctx context.Context, of *clusterv1.MachineDeployment, name string) error {
	kept := &appsv1.ControllerRevision{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: name}, kept)
	if err == nil && metav1.IsControlledBy(kept, of) {
		err = r.Client.Delete(ctx, kept, client.Preconditions{UID: &kept.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ControllerRevision %s: %w", name, err)
	}
	return nil
}

// recorded is the template that was kept of a MachineSet; nil when none was.
func (r *Reconciler) recorded(
	ctx context.Context, of *clusterv1.MachineDeployment, name string,
) (*revision, error) {
	kept := &appsv1.ControllerRevision{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: name}, kept)
	switch {
	case name == "" || apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ControllerRevision %s: %w", name, err)
	case !metav1.IsControlledBy(kept, of):
		return nil, fmt.Errorf("ControllerRevision %s is not of MachineDeployment %s: delete it", name, of.Name)
	}
	template := &revision{}
	if err := json.Unmarshal(kept.Data.Raw, template); err != nil {
		return nil, fmt.Errorf("read what ControllerRevision %s has: %w", name, err)
	}
	return template, nil
}

// rollBack sets the templates back that failed, one step each, and shows what became of it in the status.
func (r *Reconciler) rollBack(
	ctx context.Context, policy *quoinv1.RolloutPolicy, seen *observation, failures []rollout.Failure,
	status *quoinv1.RolloutPolicyStatus,
) error {
	var refusals []string
	var failed []error
	for _, failure := range failures {
		refusal, err := r.restore(ctx, policy, seen, failure)
		failed = append(failed, err)
		if refusal != "" {
			refusals = append(refusals, refusal)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err // what is so of the others is said when all is known
	}
	shown := metav1.Condition{Type: quoinv1.RolloutPolicyRolledBackCondition, Status: metav1.ConditionFalse,
		Reason: quoinv1.NothingRolledBackReason}
	switch back := seen.rolledBack(policy); {
	case len(refusals) > 0:
		shown.Reason, shown.Message = quoinv1.RollbackRefusedReason, strings.Join(refusals, "\n")
	case len(back) > 0:
		shown.Status, shown.Reason, shown.Message = metav1.ConditionTrue, quoinv1.RolledBackReason, strings.Join(back, "\n")
	case meta.FindStatusCondition(status.Conditions, shown.Type) == nil:
		return nil
	}
	shown.Message = text.Shorten(shown.Message, mostMessage)
	meta.SetStatusCondition(&status.Conditions, shown)
	return nil
}

// rolledBack says which selected MachineDeployments have a template that was restored.
func (seen *observation) rolledBack(policy *quoinv1.RolloutPolicy) []string {
	var back []string
	for _, pool := range seen.state.Pools {
		of := seen.pools[pool.Name]
		mark := rollout.ParseAttempt(of.Annotations[quoinv1.RolledBackAnnotation])
		place, err := rollout.Select(&policy.Spec, of.Name, of.Labels)
		if err == nil && place >= 0 && !mark.At.IsZero() && mark.Restored == revisionOf(&of.Spec.Template).digest() {
			back = append(back, fmt.Sprintf("MachineDeployment %s has the template of before since %s, because another one "+
				"failed: %s. Give it one that works", of.Name, mark.At.UTC().Format(time.RFC3339), mark.Why))
		}
	}
	return back
}

// restore the template that was recorded, or say why not.
func (r *Reconciler) restore(
	ctx context.Context, policy *quoinv1.RolloutPolicy, seen *observation, failure rollout.Failure,
) (refusal string, err error) {
	of, known := &clusterv1.MachineDeployment{}, seen.pools[failure.Pool]
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(known), of); err != nil {
		return "", fmt.Errorf("read MachineDeployment %s: %w", known.Name, err)
	}
	if present := revisionOf(&of.Spec.Template); present.digest() != revisionOf(&known.Spec.Template).digest() {
		return "", nil // somebody was faster, and the cache will say so
	}
	to, err := r.recorded(ctx, of, failure.To)
	if err != nil {
		return "", err
	}
	way, err := r.way(ctx, of, to)
	if err != nil {
		return "", err
	}
	if refusal := failure.Refuse(way); refusal != "" {
		return refusal, nil
	}
	unseen, err := r.unseen(ctx, seen.machines[failure.Machine])
	if err != nil {
		return "", err
	}
	if unseen != "" {
		seen.unseen = true
		return fmt.Sprintf("MachineDeployment %s is not set back as long as nobody knows whether Machine %s works: %s. Give "+
			"it the template before yourself, or wait", of.Name, failure.Machine, unseen), nil
	}
	before := of.DeepCopy()
	to.restore(&of.Spec.Template)
	metav1.SetMetaDataAnnotation(&of.ObjectMeta, quoinv1.RolledBackAnnotation, rollout.Attempt{At: r.Clock.Now(),
		Failed: way.Present, Restored: way.Recorded, Why: text.Shorten(failure.Why, mostWhy)}.String())
	switch err := r.Client.Patch(ctx, of, objectpatch.OnlyOf(before)); {
	case apierr.IsRefusal(err):
		return fmt.Sprintf("the former template of MachineDeployment %s is not taken: %s", of.Name, err), nil
	case err != nil:
		return "", fmt.Errorf("set MachineDeployment %s back: %w", of.Name, err)
	}
	seen.pools[of.Name] = of
	for _, object := range []client.Object{policy, of} {
		r.Recorder.Eventf(object, nil, corev1.EventTypeWarning, quoinv1.RolledBackReason, "Rollback",
			"MachineDeployment %s has the template of MachineSet %s again: %s", of.Name, failure.To, failure.Why)
	}
	return "", nil
}

// unseen says why what the Machine's object says of its Node may not be so; empty when the Cluster's own API server
// says the same. The objects stay as they were while Cluster API has no connection to it, and while its managers are
// away.
func (r *Reconciler) unseen(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	if r.ClusterCache == nil || machine == nil {
		return "", nil
	}
	infra := &infrav1.QuoinMachine{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
	if err := client.IgnoreNotFound(r.APIReader.Get(ctx, key, infra)); err != nil {
		return "", fmt.Errorf("read QuoinMachine %s: %w", key.Name, err)
	}
	node, err := r.nodeNow(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName},
		infra.Spec.ProviderID)
	switch {
	case err != nil:
		return fmt.Sprintf("the API server of Cluster %s cannot be reached: %s", machine.Spec.ClusterName,
			text.Shorten(err.Error(), mostWhy)), nil
	case node != nil && noderefutil.IsNodeReady(node) && !conditions.IsTrue(machine, clusterv1.MachineNodeReadyCondition):
		return fmt.Sprintf("its Node %s is Ready, which Cluster API has not seen yet", node.Name), nil
	}
	return "", nil
}

// nodeNow is the Node with the provider ID as the API server of the Cluster has it; nil when there is none.
func (r *Reconciler) nodeNow(ctx context.Context, cluster client.ObjectKey, providerID string) (*corev1.Node, error) {
	cached, live, err := r.workload(ctx, cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout)
	defer cancel()
	nodes := &corev1.NodeList{}
	if err := cached.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		if providerID == "" || nodes.Items[i].Spec.ProviderID != providerID {
			continue
		}
		node := &corev1.Node{}
		err := live.Get(ctx, client.ObjectKey{Name: nodes.Items[i].Name}, node)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return node, err
	}
	return nil, live.List(ctx, &corev1.NodeList{}, client.Limit(1)) // it answers
}

// way is what speaks for and against setting the template back.
func (r *Reconciler) way(
	ctx context.Context, of *clusterv1.MachineDeployment, to *revision,
) (rollout.Way, error) {
	present := revisionOf(&of.Spec.Template)
	_, owned := of.Labels[clusterv1.ClusterTopologyOwnedLabel]
	way := rollout.Way{Cluster: of.Spec.ClusterName, Topology: owned, Present: present.digest(),
		Attempt: rollout.ParseAttempt(of.Annotations[quoinv1.RolledBackAnnotation])}
	if to == nil {
		return way, nil
	}
	way.Recorded = to.digest()
	for _, path := range present.changed(*to) {
		if owner := fieldowner.Applying(of.ManagedFields, path...); owner != "" {
			way.Owner, way.Field = owner, strings.Join(path, ".")
			break
		}
	}
	template := &infrav1.QuoinMachineTemplate{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: to.InfrastructureRef.Name}, template)
	if client.IgnoreNotFound(err) != nil {
		return way, fmt.Errorf("read QuoinMachineTemplate %s: %w", to.InfrastructureRef.Name, err)
	}
	if err != nil {
		way.Missing = "QuoinMachineTemplate " + to.InfrastructureRef.Name
	}
	return way, nil
}

// trialOf and trialShown are a trial as the status has it.
func trialOf(former quoinv1.RolloutProgress) rollout.Trial {
	of := former.Trial
	return rollout.Trial{
		Revision: of.MachineSet, Since: of.Since.Time, Host: cmp.Or(of.Host, of.Failed), Failed: of.Failed,
	}
}

func trialShown(trial rollout.Trial) quoinv1.RolloutTrial {
	if trial.Revision == "" {
		return quoinv1.RolloutTrial{}
	}
	return quoinv1.RolloutTrial{MachineSet: trial.Revision, Since: metav1.NewTime(trial.Since), Host: trial.Host,
		Failed: trial.Failed}
}

// proofsOf and proofsShown are what was proved of Machines as the status has it.
func proofsOf(former quoinv1.RolloutProgress) []rollout.Proof {
	var proofs []rollout.Proof
	for _, of := range former.Proved {
		proofs = append(proofs, rollout.Proof{Machine: of.Name, Since: of.Since.Time, Lost: of.Lost.Time})
	}
	return proofs
}

func proofsShown(proofs []rollout.Proof) []quoinv1.RolloutProvedMachine {
	var shown []quoinv1.RolloutProvedMachine
	for _, of := range proofs {
		shown = append(shown, quoinv1.RolloutProvedMachine{Name: of.Machine, Since: metav1.NewTime(of.Since),
			Lost: metav1.NewTime(of.Lost)})
	}
	return shown
}
