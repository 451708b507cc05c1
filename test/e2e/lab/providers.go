// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// providerLabel tells which provider a manager's pod belongs to.
const providerLabel = "cluster.x-k8s.io/provider"

func (l *Lab) clusterctlConfig() string { return l.Path("repository", "clusterctl.yaml") }

func (l *Lab) loadManagers(ctx context.Context, step *progress.Step) error {
	// Two providers are one image.
	images := slices.Compact(slices.Sorted(maps.Values(l.tools.managers)))
	args := append([]string{"load", "docker-image", "--name", Name}, images...)
	return l.kind(ctx, func(line string) { step.Waiting(line) }, args...)
}

// initProviders does what a user does: a clusterctl.yaml that names our repository, and clusterctl init.
func (l *Lab) initProviders(ctx context.Context, step *progress.Step) error {
	return l.initInto(ctx, step, l.Kubeconfig())
}

func (l *Lab) initInto(ctx context.Context, step *progress.Step, kubeconfig string) error {
	if err := os.MkdirAll(l.Path("home"), 0o700); err != nil {
		return fmt.Errorf("home of clusterctl: %w", err)
	}
	_, err := repository.Write(repository.Options{
		Root: l.Root, Base: l.Path("repository"), Mode: repository.Resolved, Images: l.tools.managers,
		// ClusterClass is behind a gate.
		Variables: map[string]string{"CLUSTER_TOPOLOGY": "true"},
	})
	if err != nil {
		return err
	}
	_, err = l.run(ctx, command{
		name: l.tools.clusterctl,
		args: []string{"init", "--core", "cluster-api", "--bootstrap", "kubeadm", "--control-plane", "quoin", "--infrastructure", "quoin",
			"--config", l.clusterctlConfig(), "--kubeconfig", kubeconfig, "--wait-providers", "--wait-provider-timeout", "180"},
		env:  l.privateHome(),
		line: func(line string) { step.Waiting(line) },
	})
	return err
}

// Manager is the manager of a provider that leads.
type Manager struct {
	Pod *corev1.Pod
	// PID is the id of its process, as the node sees it.
	PID string
	// lease is what it leads by.
	lease *coordinationv1.Lease
}

// Pods are those of a provider's managers that are not on their way out, by a label like repository.InfrastructureLabel.
func (l *Lab) Pods(ctx context.Context, provider string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := l.Management.List(ctx, pods, client.MatchingLabels{providerLabel: provider}); err != nil {
		return nil, fmt.Errorf("pods of %s: %w", provider, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }), nil
}

// leader is the manager of a provider that holds its lease, without its process; nil while nobody does. For a minute
// after it was killed that is still the one that was.
func (l *Lab) leader(ctx context.Context, provider string) (*Manager, error) {
	pods, err := l.Pods(ctx, provider)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		leases := &coordinationv1.LeaseList{}
		if err := l.Management.List(ctx, leases, client.InNamespace(pods[i].Namespace)); err != nil {
			return nil, fmt.Errorf("leases of %s: %w", provider, err)
		}
		for j := range leases.Items {
			// A process has the name of its pod, and what tells it from the process before.
			if strings.HasPrefix(ptr.Deref(leases.Items[j].Spec.HolderIdentity, ""), pods[i].Name+"_") {
				return &Manager{Pod: &pods[i], lease: &leases.Items[j]}, nil
			}
		}
	}
	return nil, nil
}

// DrainLeader drains the node that the leading manager of a provider runs on, as a person does, and lets Pods there again.
func (l *Lab) DrainLeader(ctx context.Context, cluster *Cluster, provider string) error {
	return l.Step(ctx, "Draining the node of the leading manager", 5*time.Minute, func(ctx context.Context, step *progress.Step) error {
		leader, err := l.awaitLeader(ctx, step, provider, func(m *Manager) bool { return m.Pod.Spec.NodeName != "" })
		if err != nil {
			return err
		}
		node := leader.Pod.Spec.NodeName
		if _, err := l.Kubectl(ctx, cluster.Kubeconfig(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
			"--timeout=2m"); err != nil {
			return err
		}
		if _, err = l.awaitLeader(ctx, step, provider, func(m *Manager) bool { return m.Pod.UID != leader.Pod.UID }); err != nil {
			return err
		}
		// It may have been replaced meanwhile.
		_, err = l.Kubectl(ctx, cluster.Kubeconfig(), "uncordon", node)
		if err != nil && strings.Contains(err.Error(), "not found") {
			return nil
		}
		return err
	})
}

// awaitLeader waits for a manager that leads, and that somebody accepts.
func (l *Lab) awaitLeader(
	ctx context.Context, step *progress.Step, provider string, accept func(*Manager) bool,
) (leader *Manager, err error) {
	err = step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
		found, err := l.leader(ctx, provider)
		if err != nil || found == nil || !podReady(found.Pod) || !accept(found) {
			return false, []string{"a manager of " + provider + " that leads"}, err
		}
		leader = found
		return true, nil, nil
	})
	return leader, err
}

// Manager finds the leading manager of a provider and its process, whenever there is one.
func (l *Lab) Manager(ctx context.Context, provider string) (manager *Manager, err error) {
	title := "Looking for the manager of " + provider + " that leads"
	err = l.Step(ctx, title, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		manager, err = l.awaitLeader(ctx, step, provider, func(*Manager) bool { return true })
		if err != nil {
			return err
		}
		_, id, _ := strings.Cut(manager.Pod.Status.ContainerStatuses[0].ContainerID, "://")
		out, err := l.Console(ctx, kindNode, "ctr --namespace k8s.io task ls | awk '$1 == \""+id+"\" { print $2 }'")
		if manager.PID = strings.TrimSpace(out); err == nil && manager.PID == "" {
			err = fmt.Errorf("pod %s has no process", manager.Pod.Name)
		}
		return err
	})
	return manager, err
}

// Kill ends managers with SIGKILL, at one instant: they have no moment to finish anything.
func (l *Lab) Kill(ctx context.Context, managers ...*Manager) error {
	script := "kill -KILL"
	for _, manager := range managers {
		script += " " + manager.PID
	}
	_, err := l.Console(ctx, kindNode, script)
	return err
}

// Restart deletes the pod of the manager that leads, and waits until another one does, so that nothing it knew only in
// its memory is left.
func (l *Lab) Restart(ctx context.Context, provider string) error {
	manager, err := l.Manager(ctx, provider)
	if err != nil {
		return err
	}
	return l.replace(ctx, "Restarting the manager of "+provider, provider, manager)
}

// ForceDelete removes the pod of the manager that leads as one does when its node is believed dead, and kills its
// process, which could else live on beside the others for a moment; then it waits until another one leads.
func (l *Lab) ForceDelete(ctx context.Context, provider string) error {
	manager, err := l.Manager(ctx, provider)
	if err != nil {
		return err
	}
	if err := l.Kill(ctx, manager); err != nil {
		return err
	}
	return l.replace(ctx, "Deleting the pod of "+provider+" by force", provider, manager, client.GracePeriodSeconds(0))
}

func (l *Lab) replace(ctx context.Context, title, provider string, old *Manager, how ...client.DeleteOption) error {
	return l.Step(ctx, title, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		if err := l.Management.Delete(ctx, old.Pod, how...); err != nil {
			return fmt.Errorf("deleting pod %s: %w", old.Pod.Name, err)
		}
		_, err := l.awaitLeader(ctx, step, provider, func(now *Manager) bool { return now.Pod.UID != old.Pod.UID })
		return err
	})
}

// AwaitManager waits until the process of a manager that was killed was started again, and is ready.
func (l *Lab) AwaitManager(ctx context.Context, killed *Manager) error {
	title := "Waiting for the manager in pod " + killed.Pod.Name
	return l.Step(ctx, title, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
			pod := &corev1.Pod{}
			if err := l.Management.Get(ctx, client.ObjectKeyFromObject(killed.Pod), pod); err != nil {
				return false, nil, fmt.Errorf("pod %s: %w", killed.Pod.Name, err)
			}
			return restarts(pod) > restarts(killed.Pod) && podReady(pod), []string{"pod " + pod.Name}, nil
		})
	})
}

// AwaitLeader waits until a provider's manager leads that came to do so later than that: whoever was killed leaves a
// lease that has to run out first. It returns when that was.
func (l *Lab) AwaitLeader(ctx context.Context, provider string, since time.Time) (led time.Time, err error) {
	title := "Waiting until a manager of " + provider + " leads"
	err = l.Step(ctx, title, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		leader, err := l.awaitLeader(ctx, step, provider, func(now *Manager) bool {
			return now.lease.Spec.AcquireTime != nil && now.lease.Spec.AcquireTime.After(since)
		})
		if err == nil {
			led = leader.lease.Spec.AcquireTime.Time
		}
		return err
	})
	return led, err
}

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && len(pod.Status.ContainerStatuses) > 0
		}
	}
	return false
}
