// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func hooks(preDrain, preTerminate []infrav1.LifecycleHook) machineChange {
	return func(s *infrav1.QuoinMachineSpec) {
		s.LifecycleHooks = infrav1.LifecycleHooks{PreDrain: preDrain, PreTerminate: preTerminate}
	}
}

func hook(name, owner string) []infrav1.LifecycleHook {
	return []infrav1.LifecycleHook{{Name: name, Owner: owner}}
}

// Users' hooks may be in machines and in templates; the control plane's own only where a control plane put it.
//
// Proves: S2-3, S2-21, S2-22, S2-23, S2-36
func TestHooksOfUsersAndOfControlPlanes(t *testing.T) {
	const machineName, templateName = "spec.lifecycleHooks", "spec.template.spec.lifecycleHooks"
	own := "QuoinControlPlane/prod"
	for name, c := range map[string]struct {
		change              machineChange
		controlPlane        bool
		refusal, inTemplate string
	}{
		"one before the drain": {hooks(hook("MigrateImportantApp", "my-app-migration-controller"), nil), false, "", ""},
		"both points": {hooks(hook("MigrateImportantApp", "my-app-migration-controller"),
			hook("BackupFileSystem", "my-backup-controller")), false, "", ""},
		"two of one owner": {hooks(nil, append(hook("CloudProviderSpecialCase", "my-custom-storage-detach-controller"),
			hook("WaitForStorageDetach", "my-custom-storage-detach-controller")...)), false, "", ""},
		"an etcd operator's": {hooks(hook("EtcdQuorumOperator", "clusteroperator/etcd"), nil), true, "", ""},
		"the control plane's": {hooks(nil, hook("quoin", own)), true, "", templateName +
			".preTerminate[0].name"},
		"the control plane's, on a worker": {hooks(nil, hook("quoin", own)), false, machineName + ".preTerminate[0].name",
			templateName + ".preTerminate[0].name"},
		"the control plane's, of a person": {hooks(nil, hook("quoin", "me")), true, machineName + ".preTerminate[0].name",
			templateName + ".preTerminate[0].name"},
		"the control plane's, at the drain": {hooks(hook("quoin", own), nil), true, machineName + ".preDrain[0].name",
			templateName + ".preDrain[0].name"},
		"the control plane's, after another": {hooks(nil, append(hook("a", "b"), hook("quoin", "me")...)), true, machineName +
			".preTerminate[1].name", templateName + ".preTerminate[1].name"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(c.change)
			if c.controlPlane {
				m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
			}
			_, err := (&MachineWebhook{}).ValidateCreate(t.Context(), m)
			expectRefusal(t, err, c.refusal)
			before := machine()
			_, err = (&MachineWebhook{}).ValidateUpdate(t.Context(), before, m)
			expectRefusal(t, err, c.refusal)
			template := &infrav1.QuoinMachineTemplate{}
			template.Spec.Template.Spec = m.Spec
			_, err = machineTemplates.ValidateCreate(t.Context(), template)
			expectRefusal(t, err, c.inTemplate)
		})
	}
}

func TestNoHookIsAddedOnceTheDeletionHasBegun(t *testing.T) {
	now := metav1.Now()
	drained := func(reason string) func(*infrav1.QuoinMachine) {
		return func(m *infrav1.QuoinMachine) {
			conditions.Set(m, metav1.Condition{Type: infrav1.MachineDrainedCondition, Status: metav1.ConditionFalse,
				Reason: reason})
		}
	}
	deleted := func(m *infrav1.QuoinMachine) { m.DeletionTimestamp = &now }
	wanted := func(*infrav1.QuoinMachine) {}
	none, one, two := hooks(nil, nil), hooks(hook("a", "x"), nil), hooks(hook("a", "x"), hook("b", "x"))
	for name, c := range map[string]struct {
		state         func(*infrav1.QuoinMachine)
		before, after machineChange
		refusal       string
	}{
		"added while it is wanted":             {wanted, one, two, ""},
		"added while it is known to be wanted": {drained(infrav1.MachineNotDeletingReason), one, two, ""},
		"added to one in deletion":             {deleted, one, two, "hook b would come too late"},
		"added while its Machine is drained": {drained(infrav1.MachineDrainingReason), one, two,
			"spec.lifecycleHooks.preTerminate[0]"},
		"added before the drain":              {deleted, none, one, "spec.lifecycleHooks.preDrain[0]"},
		"taken away in deletion":              {deleted, two, one, ""},
		"the last one taken away":             {drained(infrav1.MachineDrainingReason), one, none, ""},
		"handed to another owner in deletion": {deleted, one, hooks(hook("a", "y"), nil), ""},
		"moved to the other point, which is another": {deleted, one, hooks(nil, hook("a", "x")),
			"spec.lifecycleHooks.preTerminate[0]"},
		"replaced by another, which is added as well": {deleted, one, hooks(hook("c", "x"), nil),
			"hook c would come too late"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := machine(c.before), machine(c.after)
			c.state(before)
			c.state(after)
			_, err := (&MachineWebhook{}).ValidateUpdate(t.Context(), before, after)
			expectRefusal(t, err, c.refusal)
		})
	}
}
