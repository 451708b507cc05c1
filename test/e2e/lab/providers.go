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
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab/progress"
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

// Manager is a manager's pod with the id of its process, as the node sees it.
type Manager struct {
	Pod *corev1.Pod
	PID string
}

// Manager finds the leading manager of a provider, like repository.InfrastructureLabel.
func (l *Lab) Manager(ctx context.Context, provider string) (*Manager, error) {
	pod, err := l.pod(ctx, provider)
	if err != nil {
		return nil, err
	}
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return nil, fmt.Errorf("the manager of %s does not run", provider)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	out, err := l.Console(ctx, kindNode, "ctr --namespace k8s.io task ls | awk '$1 == \""+id+"\" { print $2 }'")
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(out) == "" {
		return nil, fmt.Errorf("the manager of %s has no process", provider)
	}
	return &Manager{Pod: pod, PID: strings.TrimSpace(out)}, nil
}

// pod is the only pod of a provider's manager, or the one that leads. After the leader was killed nobody may lead for a
// minute.
func (l *Lab) pod(ctx context.Context, provider string) (*corev1.Pod, error) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		pods, leases := &corev1.PodList{}, &coordinationv1.LeaseList{}
		if err := l.Management.List(ctx, pods, client.MatchingLabels{providerLabel: provider}); err != nil {
			return nil, fmt.Errorf("pods of %s: %w", provider, err)
		}
		if len(pods.Items) == 1 {
			return &pods.Items[0], nil
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if err := l.Management.List(ctx, leases, client.InNamespace(pod.Namespace)); err != nil {
				return nil, fmt.Errorf("leases of %s: %w", provider, err)
			}
			for _, lease := range leases.Items {
				if strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), pod.Name+"_") {
					return pod, nil
				}
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("none of %d pods of %s leads", len(pods.Items), provider)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
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

// Restart replaces a manager's pod and waits for the new one, so that nothing it knew only in its memory is left.
func (l *Lab) Restart(ctx context.Context, provider string) error {
	return l.replace(ctx, "Restarting the manager of "+provider, provider)
}

// ForceDelete removes a manager's pod as one does when its node is believed dead, and kills its process, which could else
// live on beside the new one for a moment; then it waits for the new pod.
func (l *Lab) ForceDelete(ctx context.Context, provider string) error {
	manager, err := l.Manager(ctx, provider)
	if err != nil {
		return err
	}
	if err := l.Kill(ctx, manager); err != nil {
		return err
	}
	return l.replace(ctx, "Deleting the pod of "+provider+" by force", provider, client.GracePeriodSeconds(0))
}

func (l *Lab) replace(ctx context.Context, title, provider string, how ...client.DeleteOption) error {
	return l.Step(ctx, title, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		old, err := l.pod(ctx, provider)
		if err != nil {
			return err
		}
		if err := l.Management.Delete(ctx, old, how...); err != nil {
			return fmt.Errorf("deleting pod %s: %w", old.Name, err)
		}
		return l.pollManager(ctx, step, provider, func(pod *corev1.Pod) bool { return pod.UID != old.UID })
	})
}

// AwaitManager waits until a provider's manager is ready after it was killed.
func (l *Lab) AwaitManager(ctx context.Context, provider string, restartsBefore int32) error {
	return l.Step(ctx, "Waiting for the manager of "+provider, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return l.pollManager(ctx, step, provider, func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > restartsBefore
		})
	})
}

// AwaitLeader waits until a provider's manager leads that came to do so later than that: whoever was killed leaves a
// lease that has to run out first. It returns when that was.
func (l *Lab) AwaitLeader(ctx context.Context, provider string, since time.Time) (led time.Time, err error) {
	title := "Waiting until the manager of " + provider + " leads"
	err = l.Step(ctx, title, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
			pods, leases := &corev1.PodList{}, &coordinationv1.LeaseList{}
			if err := l.Management.List(ctx, pods, client.MatchingLabels{providerLabel: provider}); err != nil {
				return false, nil, fmt.Errorf("pods of %s: %w", provider, err)
			}
			if len(pods.Items) == 0 {
				return false, []string{"a pod of " + provider}, nil
			}
			if err := l.Management.List(ctx, leases, client.InNamespace(pods.Items[0].Namespace)); err != nil {
				return false, nil, fmt.Errorf("leases of %s: %w", provider, err)
			}
			for _, lease := range leases.Items {
				if lease.Spec.AcquireTime != nil && lease.Spec.AcquireTime.After(since) {
					led = lease.Spec.AcquireTime.Time
				}
			}
			return !led.IsZero(), []string{"a lease that began after " + since.Format(time.TimeOnly)}, nil
		})
	})
	return led, err
}

func (l *Lab) pollManager(ctx context.Context, step *progress.Step, provider string, accept func(*corev1.Pod) bool) error {
	return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
		pods := &corev1.PodList{}
		if err := l.Management.List(ctx, pods, client.MatchingLabels{providerLabel: provider}); err != nil {
			return false, nil, fmt.Errorf("pods of %s: %w", provider, err)
		}
		for _, pod := range pods.Items {
			if accept(&pod) && podReady(&pod) {
				return true, nil, nil
			}
		}
		return false, []string{"a ready pod of " + provider}, nil
	})
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
