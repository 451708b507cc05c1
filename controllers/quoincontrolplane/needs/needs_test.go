// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// plane is a control plane of m1, m2 and m3, which are healthy. m1 is being deleted, and was let go to be drained.
type plane struct {
	controlPlane *controlplanev1.QuoinControlPlane
	machines     []*clusterv1.Machine
	// now when it is asked, and whether the order would boot the host of m1.
	now   time.Time
	boots bool
	// hook on the QuoinMachine of m1; it has none when it is empty.
	hook string
}

func newPlane() *plane {
	p := &plane{controlPlane: &controlplanev1.QuoinControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}, now: noon}
	p.controlPlane.Status.Etcd = &controlplanev1.EtcdStatus{Agreed: ptr.To(true), ObservedTime: metav1.NewTime(noon)}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("m%d", i)
		p.controlPlane.Status.Etcd.Members = append(p.controlPlane.Status.Etcd.Members, controlplanev1.EtcdMember{
			Name: fmt.Sprintf("n%d", i), ID: fmt.Sprint(i), Machine: name, Role: "Voter", Healthy: ptr.To(true)})
		p.machines = append(p.machines, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, Finalizers: []string{clusterv1.MachineFinalizer},
			Labels:      map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""},
			Annotations: map[string]string{controlplanev1.PreTerminateHookAnnotation: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: controlplanev1.GroupVersion.String(),
				Kind: "QuoinControlPlane", Name: "cp", UID: "cp", Controller: ptr.To(true)}}},
			Spec: clusterv1.MachineSpec{ClusterName: "c", InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachine", Name: "infra-" + name}}})
	}
	p.machines[0].DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	return p
}

// ill has a member be none of those that are healthy.
func (p *plane) ill(n int) { p.controlPlane.Status.Etcd.Members[n-1].Healthy = ptr.To(false) }

// dead has a member be dead.
func (p *plane) dead(n int) { p.ill(n); p.controlPlane.Status.Etcd.Members[n-1].State = "Dead" }

// deleted has another Machine be deleted too.
func (p *plane) deleted(n int) { p.machines[n-1].DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }

// lost has etcd be without a quorum, for the reason that the control plane gives.
func (p *plane) lost(reason string) {
	p.ill(1)
	p.ill(3)
	p.controlPlane.Status.Etcd.Agreed = ptr.To(false)
	p.controlPlane.Status.Conditions = []metav1.Condition{{Type: controlplanev1.ControlPlaneEtcdClusterHealthyCondition,
		Status: metav1.ConditionFalse, Reason: reason}}
}

// recovers has a recovery be under way that gives m1 and m3 up.
func (p *plane) recovers(state controlplane.RecoveryState) {
	p.controlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r", Machine: "m2", GiveUp: []string{"m1", "m3"}}
	p.controlPlane.Annotations = map[string]string{
		controlplanev1.RecoveryAnnotation: fmt.Sprintf(`{"id":"r","state":%q}`, state)}
}

func (p *plane) client() client.WithWatch {
	builder := fake.NewClientBuilder().WithScheme(clienttest.Scheme(clusterv1.AddToScheme, controlplanev1.AddToScheme,
		infrav1.AddToScheme))
	infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "infra-m1"}}
	if p.hook != "" {
		infra.Spec.LifecycleHooks.PreTerminate = []infrav1.LifecycleHook{{Name: p.hook, Owner: "somebody"}}
	}
	builder = builder.WithObjects(infra)
	for _, machine := range p.machines {
		builder = builder.WithObjects(machine)
	}
	if p.controlPlane != nil {
		builder = builder.WithObjects(p.controlPlane)
	}
	return builder.Build()
}

func TestASilentHostKeepsItsPowerWhileEtcdMayNeedItsVote(t *testing.T) {
	for why, c := range map[string]struct {
		set   func(*plane)
		keeps bool
	}{
		"the others are a quorum":                   {func(*plane) {}, false},
		"another one is ill":                        {func(p *plane) { p.ill(3) }, true},
		"another one is ill, and nobody reaches it": {func(p *plane) { p.ill(1); p.ill(3) }, true},
		"it is ill, and no other":                   {func(p *plane) { p.ill(1) }, false},
		"no quorum confirms the list":               {func(p *plane) { p.controlPlane.Status.Etcd.Agreed = ptr.To(false) }, true},
		"nobody says whether one does":              {func(p *plane) { p.controlPlane.Status.Etcd.Agreed = nil }, true},
		"nobody has looked at all":                  {func(p *plane) { p.controlPlane.Status.Etcd = nil }, true},
		"nobody has looked for three minutes":       {func(p *plane) { p.now = noon.Add(controlplane.ReadingMaxAge) }, false},
		"nobody has looked for longer":              {func(p *plane) { p.now = noon.Add(controlplane.ReadingMaxAge + 1) }, true},
		"somebody looks in an hour":                 {func(p *plane) { p.now = noon.Add(-time.Hour) }, true},
		"another one was let go with it":            {func(p *plane) { p.deleted(2) }, true},
		"another one is deleted, and held": {func(p *plane) {
			p.deleted(2)
			p.machines[1].Annotations[controlplanev1.PreDrainHookAnnotation] = ""
		}, false},
		"another one was let go, and it is dead": {func(p *plane) { p.deleted(2); p.dead(1) }, false},
		"the Machine of another one is gone":     {func(p *plane) { p.machines = append(p.machines[:1], p.machines[2]) }, true},
		"that of another cluster is one more": {func(p *plane) {
			p.machines[1].Labels[clusterv1.ClusterNameLabel], p.machines[1].Spec.ClusterName = "d", "d"
		}, true},
		"a worker of its name is none": {func(p *plane) { delete(p.machines[1].Labels, clusterv1.MachineControlPlaneLabel) }, true},
		"another one is ill, and it is out of the list": {func(p *plane) {
			p.ill(3)
			p.machines[0].Annotations = nil
		}, false},
		"another one is ill, and somebody took the annotations off": {func(p *plane) {
			p.ill(3)
			p.machines[0].Annotations, p.hook = nil, controlplanev1.HookName
		}, true},
		"another one is ill, it is out of the list, and others hold its host": {func(p *plane) {
			p.ill(3)
			p.machines[0].Annotations, p.hook = nil, "backup"
		}, false},
		"another one is ill, it is out of the list, and its QuoinMachine is gone": {func(p *plane) {
			p.ill(3)
			p.machines[0].Annotations, p.machines[0].Spec.InfrastructureRef.Name = nil, "gone"
		}, false},
		"nobody has looked, and etcd is elsewhere": {func(p *plane) {
			p.controlPlane.Status.Etcd = nil
			p.controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.Endpoints = []string{"https://e"}
		}, false},
		"another one is ill, and it is given up in a recovery": {func(p *plane) {
			p.ill(3)
			p.recovers(controlplane.RecoveryBegun)
		}, false},
		"it is given up in a recovery that has not begun": {func(p *plane) {
			p.ill(3)
			p.recovers(controlplane.RecoveryFetching)
		}, true},
		"it survives a recovery": {func(p *plane) {
			p.ill(3)
			p.recovers(controlplane.RecoveryBegun)
			p.controlPlane.Spec.Recovery.GiveUp = []string{"m3"}
		}, true},
		"a boot, and the quorum is lost":  {func(p *plane) { p.boots = true; p.lost(controlplanev1.QuorumLostReason) }, false},
		"a boot, and a leader is elected": {func(p *plane) { p.boots = true; p.lost("Electing") }, true},
		"a boot, and the quorum was lost": {func(p *plane) {
			p.boots = true
			p.ill(3)
			p.lost(controlplanev1.QuorumLostReason)
			p.controlPlane.Status.Etcd.Agreed = ptr.To(true)
		}, true},
		"a boot, and nobody has looked since": {func(p *plane) {
			p.boots, p.now = true, noon.Add(time.Hour)
			p.lost(controlplanev1.QuorumLostReason)
		}, true},
		"off for good, and the quorum is lost": {func(p *plane) { p.lost(controlplanev1.QuorumLostReason) }, true},
		"the Machine is gone":                  {func(p *plane) { p.ill(3); p.machines = p.machines[1:] }, false},
		"the control plane is gone":            {func(p *plane) { p.controlPlane = nil }, false},
		"the control plane is of another provider": {func(p *plane) {
			p.ill(3)
			p.machines[0].OwnerReferences[0].Kind = "KubeadmControlPlane"
		}, false},
		"nobody has made the Machine": {func(p *plane) { p.ill(3); p.machines[0].OwnerReferences = nil }, false},
	} {
		t.Run(why, func(t *testing.T) {
			g, p := NewWithT(t), newPlane()
			of := p.machines[0]
			c.set(p)
			text, err := Hosts{Reader: p.client()}.Power(t.Context(), of, p.boots, p.now)
			g.Expect(err).NotTo(HaveOccurred())
			if !c.keeps {
				g.Expect(text).To(BeEmpty())
				return
			}
			read := "read it at 2026-11-30T12:00:00Z"
			if p.controlPlane.Status.Etcd == nil {
				read = "has not read it yet"
			}
			g.Expect(text).To(And(ContainSubstring("QuoinControlPlane team/cp "+read), ContainSubstring("bring this host back")))
		})
	}
}

// What cannot be read is no leave.
func TestNobodyHasLeaveFromAnAPIServerThatDoesNotAnswer(t *testing.T) {
	g, p := NewWithT(t), newPlane()
	fails := func(of client.Object) client.Reader {
		return interceptor.NewClient(p.client(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
				options ...client.GetOption,
			) error {
				if fmt.Sprintf("%T", object) == fmt.Sprintf("%T", of) {
					return errors.New("no answer")
				}
				return c.Get(ctx, key, object, options...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if of == nil {
					return errors.New("no answer")
				}
				return c.List(ctx, list, options...)
			},
		})
	}
	for _, of := range []client.Object{nil, &clusterv1.Machine{}, &controlplanev1.QuoinControlPlane{}} {
		_, err := Hosts{Reader: fails(of)}.Power(t.Context(), p.machines[0], true, noon)
		g.Expect(err).To(MatchError(ContainSubstring("no answer")), "%T", of)
	}
	p.machines[0].Annotations = nil
	_, err := Hosts{Reader: fails(&infrav1.QuoinMachine{})}.Power(t.Context(), p.machines[0], true, noon)
	g.Expect(err).To(MatchError(ContainSubstring("reading QuoinMachine team/infra-m1: no answer")))
	_, err = Hosts{Reader: fails(&controlplanev1.QuoinControlPlane{})}.Claim(t.Context(), p.machines[0])
	g.Expect(err).To(MatchError(ContainSubstring("reading QuoinControlPlane team/cp")))
}

func TestNobodyClaimsAHostWhileEtcdIsRecovered(t *testing.T) {
	for why, c := range map[string]struct {
		set     func(*plane)
		because string
	}{
		"no recovery":               {func(*plane) {}, ""},
		"one that has not begun":    {func(p *plane) { p.recovers(controlplane.RecoveryFetching) }, ""},
		"one that has begun":        {func(p *plane) { p.recovers(controlplane.RecoveryBegun) }, "recovery r of etcd is under way"},
		"one that is over":          {func(p *plane) { p.recovers(controlplane.RecoveryComplete) }, ""},
		"one that nobody asks for":  {func(p *plane) { p.recovers(controlplane.RecoveryBegun); p.controlPlane.Spec.Recovery = nil }, ""},
		"the control plane is gone": {func(p *plane) { p.controlPlane = nil }, ""},
	} {
		t.Run(why, func(t *testing.T) {
			g, p := NewWithT(t), newPlane()
			c.set(p)
			text, err := Hosts{Reader: p.client()}.Claim(t.Context(), p.machines[0])
			g.Expect(err).NotTo(HaveOccurred())
			if c.because == "" {
				g.Expect(text).To(BeEmpty())
				return
			}
			g.Expect(text).To(And(ContainSubstring(c.because), ContainSubstring("QuoinControlPlane team/cp")))
		})
	}
}
