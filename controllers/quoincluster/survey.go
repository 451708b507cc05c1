// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
)

// survey is what a move of the Cluster meets.
type survey struct {
	moving.Site
	// hosts of the site, as they were read; not to be changed.
	hosts []*infrav1.QuoinHost
}

// survey reads what a move of the Cluster meets. Whether the control plane is quiet matters only while the Cluster is
// paused.
func (r *Reconciler) survey(
	ctx context.Context, reader client.Reader, quoinCluster *infrav1.QuoinCluster, cluster *clusterv1.Cluster,
) (*survey, error) {
	clusters, hosts := &clusterv1.ClusterList{}, &infrav1.QuoinHostList{}
	machines, quoinMachines := &clusterv1.MachineList{}, &infrav1.QuoinMachineList{}
	here := client.InNamespace(quoinCluster.Namespace)
	for _, list := range []struct {
		objects client.ObjectList
		options []client.ListOption
	}{
		{clusters, []client.ListOption{client.UnsafeDisableDeepCopy}},
		{hosts, []client.ListOption{client.UnsafeDisableDeepCopy}},
		{machines, []client.ListOption{here, client.UnsafeDisableDeepCopy}},
		{quoinMachines, []client.ListOption{here, client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
			client.UnsafeDisableDeepCopy}},
	} {
		if err := reader.List(ctx, list.objects, list.options...); err != nil {
			return nil, fmt.Errorf("listing what moves with Cluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
		}
	}
	s := &survey{Site: moving.Site{Namespace: quoinCluster.Namespace}}
	s.addClusters(cluster.Name, clusters.Items)
	s.Cluster.Deleting = s.Cluster.Deleting || !quoinCluster.DeletionTimestamp.IsZero()
	s.addHosts(cluster.Name, hosts.Items, machines.Items)
	s.Objects = append(s.Objects, moving.Object{Name: "QuoinCluster " + quoinCluster.Name, Paused: true, Quiet: true,
		Owner: foreignOwner(quoinCluster)})
	for i := range quoinMachines.Items {
		m := &quoinMachines.Items[i]
		s.Objects = append(s.Objects, moving.Object{Name: "QuoinMachine " + m.Name,
			Paused: conditions.IsTrue(m, clusterv1.PausedCondition), Quiet: true, Owner: foreignOwner(m)})
	}
	controlPlane, err := r.controlPlane(ctx, reader, cluster)
	if err != nil {
		return nil, err
	}
	var backups []string
	if controlPlane != nil {
		backups = controlPlane.Spec.Backup.SecretNames()
	}
	if s.Secrets, err = r.unmovable(ctx, client.ObjectKeyFromObject(quoinCluster), s, backups); err != nil {
		return nil, err
	}
	if controlPlane != nil && s.Cluster.Paused {
		s.addControlPlane(controlPlane)
	}
	return s, nil
}

// addHosts adds the Machines of the Cluster, and the hosts that are in its namespace or are claimed from there.
func (s *survey) addHosts(cluster string, hosts []infrav1.QuoinHost, machines []clusterv1.Machine) {
	clusterOf := map[string]string{}
	for i := range machines {
		m := &machines[i]
		clusterOf[m.Name] = m.Spec.ClusterName
		if m.Spec.ClusterName == cluster {
			s.Machines = append(s.Machines, machineFacts(m))
		}
	}
	for i := range hosts {
		if h := &hosts[i]; h.Namespace == s.Namespace || h.Spec.ConsumerRef != nil &&
			h.Spec.ConsumerRef.Namespace == s.Namespace {
			s.hosts = append(s.hosts, h)
			s.Hosts = append(s.Hosts, hostFacts(h, clusterOf))
		}
	}
}

// addClusters sorts the Clusters of all namespaces into the one that is asked, its neighbors, and who shares a
// ClusterClass.
func (s *survey) addClusters(name string, clusters []clusterv1.Cluster) {
	var own *clusterv1.Cluster
	for i := range clusters {
		c := &clusters[i]
		switch {
		case c.Namespace != s.Namespace:
		case c.Name == name:
			own, s.Cluster = c, clusterFacts(c)
		default:
			s.Neighbors = append(s.Neighbors, clusterFacts(c))
		}
	}
	if own == nil || !own.Spec.Topology.IsDefined() {
		return
	}
	class := own.GetClassKey()
	s.Cluster.Class = class.String()
	if class.Namespace != s.Namespace {
		s.Cluster.SharedWith = "it is in another namespace"
		return
	}
	for i := range clusters {
		if c := &clusters[i]; c.Namespace != s.Namespace && c.Spec.Topology.IsDefined() && c.GetClassKey() == class {
			s.Cluster.SharedWith = fmt.Sprintf("Cluster %s/%s has it too", c.Namespace, c.Name)
			return
		}
	}
}

func clusterFacts(c *clusterv1.Cluster) moving.Cluster {
	return moving.Cluster{
		Name: c.Name, Paused: ptr.Deref(c.Spec.Paused, false), Deleting: !c.DeletionTimestamp.IsZero(),
		// As clusterctl asks.
		Ready: ptr.Deref(c.Status.Initialization.InfrastructureProvisioned, false) &&
			conditions.IsTrue(c, clusterv1.ClusterControlPlaneInitializedCondition),
		Hooks: c.Annotations[runtimev1.PendingHooksAnnotation],
	}
}

func machineFacts(m *clusterv1.Machine) moving.Machine {
	_, ahead := m.Annotations[infrav1.HoldClaimAnnotation]
	return moving.Machine{Name: m.Name, Deleting: !m.DeletionTimestamp.IsZero(), Node: m.Status.NodeRef.IsDefined(),
		Ahead: ahead, Owner: foreignOwner(m)}
}

func hostFacts(h *infrav1.QuoinHost, clusterOf map[string]string) moving.Host {
	_, left := h.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	facts := moving.Host{
		Namespace: h.Namespace, Name: h.Name, UID: string(h.UID), Deleting: !h.DeletionTimestamp.IsZero(), Left: left,
		Paused: conditions.IsTrue(h, clusterv1.PausedCondition), Owner: foreignOwner(h),
	}
	if ref := h.Spec.ConsumerRef; ref != nil {
		facts.Consumer = &moving.Consumer{Namespace: ref.Namespace, Cluster: clusterOf[ref.Machine], Machine: ref.Machine}
	}
	if hold := h.Spec.HeldFor; hold != nil {
		facts.Hold = &moving.Hold{Source: hold.Source, Clusters: hold.Clusters}
	}
	quiet := conditions.Get(h, infrav1.HostQuietCondition)
	switch {
	case quiet == nil || facts.Hold != nil && quiet.ObservedGeneration < h.Generation:
		// It was said of the time before the hold.
	case quiet.Status == metav1.ConditionTrue:
		facts.Quiet = true
	default:
		facts.Note = quiet.Message
	}
	return facts
}

// addControlPlane says whether a control plane of ours has seen the pause and has nothing under way.
func (s *survey) addControlPlane(controlPlane *controlplanev1.QuoinControlPlane) {
	facts := moving.Object{Name: "QuoinControlPlane " + controlPlane.Name,
		Paused: conditions.IsTrue(controlPlane, clusterv1.PausedCondition), Quiet: true, Owner: foreignOwner(controlPlane)}
	c := conditions.Get(controlPlane, controlplanev1.ControlPlaneBackupQuietCondition)
	if controlPlane.Spec.Backup != nil && (c == nil || c.Status != metav1.ConditionTrue) {
		facts.Quiet, facts.Note = false, "whether a snapshot of etcd is being taken is not known yet"
		if c != nil {
			facts.Note = c.Message
		}
	}
	s.Objects = append(s.Objects, facts)
	if wanted := controlPlane.Spec.Recovery; wanted != nil {
		switch controlplane.ReadRecoveryRecord(controlPlane.Annotations[controlplanev1.RecoveryAnnotation], wanted.ID).State {
		case controlplane.RecoveryComplete, controlplane.RecoveryVoid:
		default:
			s.Recovery = wanted.ID
		}
	}
}

// foreignOwner names an owner that clusterctl does not move: the object then stays behind with it.
func foreignOwner(o client.Object) string {
	owner := secretprotection.ForeignOwner(o)
	if owner == nil {
		return ""
	}
	return owner.Kind + " " + owner.Name
}
