// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
)

// providerLabel is set by clusterctl on everything it installs for a provider.
const providerLabel = "cluster.x-k8s.io/provider"

// Manager is one provider's manager, run as a process the way its Deployment would run it.
type Manager struct {
	// Label of the provider.
	Label string
	// User is the name by which the API server knows it.
	User string
	// Log is the path of its output.
	Log string
	// Diagnostics is the base URL of its metrics.
	Diagnostics string

	certDir     string
	webhookPort int
	ready       string
	deployment  *appsv1.Deployment
	process     *process

	// replica is its number among those that elect a leader; 0 of one that is alone.
	replica int
}

// StartManagers starts every installed manager and waits until all are ready.
func (r *Rig) StartManagers(ctx context.Context) error {
	for _, manager := range r.Managers {
		if err := r.startManager(ctx, manager); err != nil {
			return err
		}
	}
	for _, manager := range r.Managers {
		if err := manager.process.waitFor(ctx, http.DefaultClient, manager.ready); err != nil {
			return err
		}
	}
	return nil
}

// RestartManager kills a manager without grace, as a lost node would, and starts it again.
func (r *Rig) RestartManager(ctx context.Context, label string) error {
	manager, ok := r.Managers[label]
	if !ok {
		return fmt.Errorf("no manager %s", label)
	}
	if err := manager.process.command.Process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", label, err)
	}
	<-manager.process.done
	if err := r.startManager(ctx, manager); err != nil {
		return err
	}
	return manager.process.waitFor(ctx, http.DefaultClient, manager.ready)
}

func (r *Rig) startManager(ctx context.Context, manager *Manager) error {
	deployments := &appsv1.DeploymentList{}
	if err := r.Client.List(ctx, deployments, client.MatchingLabels{providerLabel: manager.Label}); err != nil {
		return fmt.Errorf("manager %s: %w", manager.Label, err)
	}
	if len(deployments.Items) != 1 {
		return fmt.Errorf("manager %s: %d Deployments are installed, expected one", manager.Label, len(deployments.Items))
	}
	manager.deployment = &deployments.Items[0]
	pod := manager.deployment.Spec.Template.Spec
	manager.User = "system:serviceaccount:" + manager.deployment.Namespace + ":" + pod.ServiceAccountName
	kubeconfig, err := r.serviceAccountKubeconfig(ctx, manager.Label, manager.deployment.Namespace, pod.ServiceAccountName)
	if err != nil {
		return fmt.Errorf("manager %s: %w", manager.Label, err)
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	manager.ready = fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[0])
	manager.Diagnostics = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	// The shipped arguments come first, so that they are tested too; of a flag given twice the last one counts.
	args := append([]string{}, pod.Containers[0].Args...)
	args = append(args,
		"--kubeconfig="+kubeconfig,
		fmt.Sprintf("--leader-elect=%t", manager.replica > 0),
		fmt.Sprintf("--webhook-port=%d", manager.webhookPort),
		"--webhook-cert-dir="+manager.certDir,
		fmt.Sprintf("--health-addr=127.0.0.1:%d", ports[0]),
		fmt.Sprintf("--diagnostics-address=127.0.0.1:%d", ports[1]),
		"--insecure-diagnostics=true",
	)
	if manager.Label == repository.ControlPlaneLabel || manager.Label == repository.InfrastructureLabel {
		// Test hosts and servers are on loopback addresses.
		args = append(args, "--"+egress.Flag+"=0.0.0.0/0,::/0,127.0.0.0/8,::1/128")
	}
	name := manager.Label
	if manager.replica > 0 {
		name = fmt.Sprintf("%s-%d", manager.Label, manager.replica)
	}
	manager.process, err = r.startProcess(name, podEnvironment(manager.deployment), r.tools.managers[manager.Label], args...)
	if err != nil {
		return err
	}
	manager.Log = manager.process.log
	return nil
}

// podEnvironment is what the manager's container would see.
func podEnvironment(deployment *appsv1.Deployment) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		value := variable.Value
		if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
			switch variable.ValueFrom.FieldRef.FieldPath {
			case "metadata.namespace":
				value = deployment.Namespace
			case "metadata.name":
				value = deployment.Name + "-0"
			case "metadata.uid":
				value = string(deployment.UID)
			case "status.podIP":
				value = "127.0.0.1"
			}
		}
		env = append(env, variable.Name+"="+value)
	}
	return env
}

// serviceAccountKubeconfig writes a kubeconfig with a token of the ServiceAccount, asked for as a kubelet asks.
func (r *Rig) serviceAccountKubeconfig(ctx context.Context, label, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, account); err != nil {
		return "", fmt.Errorf("ServiceAccount of the manager: %w", err)
	}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)},
	}
	if err := r.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "rig",
		"contexts": []any{map[string]any{"name": "rig", "context": map[string]any{"cluster": "rig", "user": "rig"}}},
		"users":    []any{map[string]any{"name": "rig", "user": map[string]any{"token": request.Status.Token}}},
		"clusters": []any{map[string]any{"name": "rig", "cluster": map[string]any{
			"server":                     r.Config.Host,
			"certificate-authority-data": base64.StdEncoding.EncodeToString(r.Config.CAData),
		}}},
	})
	if err != nil {
		return "", fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	path := filepath.Join(r.Dir, label+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}
