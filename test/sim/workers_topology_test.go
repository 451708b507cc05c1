// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	rollouts "github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
)

// addTopology makes the Cluster of the ClusterClass that users get, with the pools of the court, two Machines each. What
// the topology makes has the names that other courts give.
func (c *court) addTopology() {
	c.t.Helper()
	file, err := os.Open(filepath.Join(c.plane.Root(), "templates", "clusterclass-quoin.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	class := ""
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			c.t.Fatal(err)
		}
		object.SetNamespace(c.options.name)
		if object.GetKind() == "ClusterClass" {
			class = object.GetName()
			c.nameAsOthers(object)
		}
		c.create(object)
	}
	c.key = client.ObjectKey{Namespace: c.options.name, Name: "c"}
	host, port := c.cluster.Endpoint()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	cluster.Spec.ClusterNetwork = clusterv1.ClusterNetwork{
		Pods:          clusterv1.NetworkRanges{CIDRBlocks: []string{"10.244.0.0/16"}},
		Services:      clusterv1.NetworkRanges{CIDRBlocks: []string{"10.96.0.0/16"}},
		ServiceDomain: "cluster.local",
	}
	topology := &cluster.Spec.Topology
	topology.ClassRef.Name, topology.Version, topology.ControlPlane.Replicas = class, before, ptr.To(c.options.replicas)
	for _, pool := range c.options.pools {
		topology.Workers.MachineDeployments = append(topology.Workers.MachineDeployments,
			clusterv1.MachineDeploymentTopology{Class: "default-worker", Name: pool, Replicas: ptr.To[int32](2)})
	}
	for name, value := range map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": host, "port": port}, "loadBalancer": "External",
		"bundleLocation": kube.BundleLocation,
	} {
		raw, err := json.Marshal(value)
		if err != nil {
			c.t.Fatal(err)
		}
		topology.Variables = append(topology.Variables,
			clusterv1.ClusterVariable{Name: name, Value: apiextensionsv1.JSON{Raw: raw}})
	}
	// The webhook of Clusters learns of the ClusterClass a moment after that was made.
	c.until("the topology", func() string {
		if err := c.plane.Client.Create(c.t.Context(), cluster.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
	c.until("its control plane", func() string {
		if err := c.plane.Client.Get(c.t.Context(), c.key, cluster); err != nil || !cluster.Spec.ControlPlaneRef.IsDefined() {
			return fmt.Sprintf("%v %v", err, cluster.Status.Conditions)
		}
		return ""
	})
}

// nameAsOthers gives a ClusterClass the names of what is made of it.
func (c *court) nameAsOthers(class *unstructured.Unstructured) {
	c.t.Helper()
	workers, _, err := unstructured.NestedSlice(class.Object, "spec", "workers", "machineDeployments")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, worker := range workers {
		worker.(map[string]any)["naming"] = map[string]any{"template": "{{ .machineDeployment.topologyName }}"}
	}
	for _, err := range []error{
		unstructured.SetNestedField(class.Object, "{{ .cluster.name }}", "spec", "controlPlane", "naming", "template"),
		unstructured.SetNestedSlice(class.Object, workers, "spec", "workers", "machineDeployments"),
	} {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// patchCluster changes it as a user does.
func (c *court) patchCluster(patch string) {
	c.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	if err := c.plane.Client.Patch(c.t.Context(), cluster, client.RawPatch("application/merge-patch+json",
		[]byte(patch))); err != nil {
		c.t.Fatal(err)
	}
}

// orderJudge looks all the time, from outside, that a pool begins when another one is done and not before. It counts the
// looks at which the later one had a Machine that waits.
type orderJudge struct {
	court        *court
	first, later string
	stop         chan struct{}
	ended        sync.WaitGroup
	waits        int
}

func (c *court) judgeOrder(first, later string) *orderJudge {
	j := &orderJudge{court: c, first: first, later: later, stop: make(chan struct{})}
	j.ended.Go(func() {
		for {
			select {
			case <-j.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if early := j.early(); early != "" {
				c.t.Errorf("%s%s", early, c.describeWorkers())
				return
			}
		}
	})
	return j
}

// early is what the later pool did before the first one was done. The later one is listed first: what it did before the
// first was seen to be at work, it did too early.
func (j *orderJudge) early() string {
	later, _ := j.court.workers(j.later, time.Now().Add(time.Hour))
	early, waits := "", false
	for i := range later {
		switch machine := &later[i]; {
		case machine.Spec.Version == before && !machine.DeletionTimestamp.IsZero():
			early = machine.Name + " leaves"
		case machine.Spec.Version == version && (!rollouts.AdmittedAt(machine).IsZero() || j.court.hosted(later[i:i+1]) > 0):
			early = machine.Name + " begins"
		case machine.Spec.Version == version:
			waits = true
		}
	}
	first, _ := j.court.workers(j.first, time.Now().Add(time.Hour))
	done := 0
	for i := range first {
		if machine := &first[i]; machine.Spec.Version == version && !rollouts.AdmittedAt(machine).IsZero() &&
			!rollouts.Gated(machine) {
			done++
		}
	}
	if done >= 2 {
		return ""
	}
	if waits {
		j.waits++
	}
	if early != "" {
		return fmt.Sprintf("%s, and %d Machines of %s are done", early, done, j.first)
	}
	return ""
}

func (j *orderJudge) end() {
	close(j.stop)
	j.ended.Wait()
	if j.waits < 10 {
		j.court.t.Errorf("%s waited for %s at %d looks only", j.later, j.first, j.waits)
	}
}

// A new version of a managed topology goes to the control plane and then to its pools, with Cluster API's own topology
// controller: a policy that orders them otherwise than their list is refused until the topology lets all go at once,
// and then its order is kept, each Machine validated, and the topology comes to its end. It does so in its own order
// when it lets them go one by one from then on, and the policy says that the two contradict each other.
//
// Proves: S1-21, S3-6, S3-7
func TestATopologyIsUpgradedInTheOrderOfAPolicy(t *testing.T) {
	needsTime(t)
	for name, atOnce := range map[string]bool{"topology": true, "topology-one-by-one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upgradeTopology(t, name, atOnce)
		})
	}
}

func upgradeTopology(t *testing.T, name string, atOnce bool) {
	t.Helper()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: name, replicas: 1, hosts: 6, strategy: surge, admission: true, workers: true,
		pools: []string{"amber", "blue"}})
	court.untilWhole("coming up")
	for _, pool := range court.options.pools {
		court.until(pool, func() string { return court.lacksPool(pool, time.Time{}, 2) })
	}

	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "workers"}}
	policy.Spec.ClusterName, policy.Spec.SoakSeconds = court.key.Name, ptr.To[int32](1)
	policy.Spec.Validation = &quoinv1.RolloutValidation{SuccessThreshold: ptr.To[int32](2), IntervalSeconds: ptr.To[int32](1)}
	for _, pool := range []string{"blue", "amber"} {
		policy.Spec.Groups = append(policy.Spec.Groups, quoinv1.RolloutGroup{Name: pool,
			MachineDeployments: quoinv1.RolloutSelector{Names: []string{pool}}})
	}
	g.Expect(court.plane.Client.Create(t.Context(), policy.DeepCopy())).To(MatchError(ContainSubstring(
		"MachineDeployment blue comes before amber here, and after it in the Cluster's topology")))
	court.patchCluster(fmt.Sprintf(`{"metadata":{"annotations":{%q:"2"}}}`, clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation))
	court.until("the policy", func() string { // its webhook learns of the annotation a moment later
		if err := court.plane.Client.Create(t.Context(), policy.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})

	time.Sleep(1100 * time.Millisecond) // the API server counts seconds
	edit := time.Now().Truncate(time.Second)
	versions := []*versionJudge{court.judgeVersions("blue"), court.judgeVersions("amber")}
	endOfOrder, available := func() {}, court.judgePool("blue", 2, 3)
	if atOnce {
		endOfOrder = court.judgeOrder("blue", "amber").end
	} else {
		court.patchCluster(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`,
			clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation))
	}
	court.patchCluster(fmt.Sprintf(`{"spec":{"topology":{"version":%q}}}`, version))
	for _, pool := range []string{"blue", "amber"} {
		court.until(pool, func() string { return court.lacksPool(pool, edit, 2) })
	}
	court.untilWhole("the control plane")
	court.until("the topology's end", court.lacksTopology)
	endOfOrder()
	available.end()
	for _, judge := range versions {
		judge.end()
	}
	for _, pool := range court.options.pools {
		_, young := court.workers(pool, edit)
		for _, worker := range young {
			g.Expect(worker.Spec.Version).To(Equal(version), worker.Name)
			g.Expect(worker.Status.NodeInfo).To(HaveField("KubeletVersion", version), worker.Name)
		}
	}
	g.Expect(conditions.IsTrue(court.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(Equal(!atOnce))
	g.Expect(court.object().Spec.Version).To(Equal(version))
}

// lacksTopology says what a topology waits for, or a policy that it is rolled out by.
func (c *court) lacksTopology() string {
	cluster := &clusterv1.Cluster{}
	if err := c.plane.Client.Get(context.Background(), c.key, cluster); err != nil {
		return err.Error()
	}
	reconciled := conditions.Get(cluster, clusterv1.ClusterTopologyReconciledCondition)
	if reconciled == nil || reconciled.Status != metav1.ConditionTrue || reconciled.ObservedGeneration != cluster.Generation {
		return fmt.Sprintf("%+v", reconciled)
	}
	if reason := conditions.GetReason(c.policy(), quoinv1.RolloutPolicyProgressingCondition); reason != quoinv1.UpToDateReason {
		return reason + c.describeWorkers()
	}
	return ""
}
