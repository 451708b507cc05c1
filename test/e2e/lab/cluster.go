// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// ClusterSpec is what a user decides when they generate a cluster.
type ClusterSpec struct {
	// Name of the Cluster.
	Name string
	// Flavor of the template: empty for cluster-template.yaml, "topology" for the one with a ClusterClass.
	Flavor string
	// Version of Kubernetes to begin with.
	Version string
	// VirtualAddress of the API server, RouterID of its VRRP group.
	VirtualAddress string
	RouterID       int
	// ControlPlanes is the number of control-plane Machines; one when 0. Workers is that of workers.
	ControlPlanes, Workers int
	// Bundles is the folder or URL that holds the bundles of all versions; the hosts' own disks when empty.
	Bundles string
}

// Demo is the cluster of the quickstart.
func Demo() ClusterSpec {
	return ClusterSpec{Name: "demo", Version: OldVersion, VirtualAddress: "172.30.0.100", RouterID: 100, Workers: 2}
}

// Trio is a cluster whose control plane survives the loss of any one host. It needs the hosts of Lab.AddRacks.
func Trio() ClusterSpec {
	return ClusterSpec{Name: "trio", Version: OldVersion, VirtualAddress: "172.30.0.102", RouterID: 102, ControlPlanes: 3, Workers: 1}
}

// Home is a cluster that comes to manage itself. It needs the hosts of Lab.AddRacks.
func Home() ClusterSpec {
	return ClusterSpec{Name: "home", Version: OldVersion, VirtualAddress: "172.30.0.103", RouterID: 103, ControlPlanes: 3, Workers: 1}
}

// Climber is a cluster that goes over two minors. It needs the hosts of Lab.AddRacks, and the bundle of EarliestVersion.
func Climber() ClusterSpec {
	return ClusterSpec{Name: "climber", Version: EarliestVersion, VirtualAddress: "172.30.0.104", RouterID: 104, ControlPlanes: 3, Workers: 2}
}

// Crew is a cluster whose workers are replaced in order. It needs the host of Lab.AddWorker.
func Crew() ClusterSpec {
	return ClusterSpec{Name: "crew", Version: NewVersion, VirtualAddress: "172.30.0.105", RouterID: 105, Workers: 3}
}

func (s ClusterSpec) controlPlanes() int { return max(s.ControlPlanes, 1) }

// Cluster is a workload cluster.
type Cluster struct {
	ClusterSpec
	// Client of its API server; set once that answers.
	Client client.Client

	lab *Lab
}

// Kubeconfig of the cluster, written by clusterctl get kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.lab.Path("clusters", c.Name, "kubeconfig") }

// Key of the Cluster.
func (c *Cluster) Key() client.ObjectKey { return client.ObjectKey{Namespace: Namespace, Name: c.Name} }

// Generate prints the manifests of a cluster: what clusterctl makes of our template, with what the test hosts need on top
// of it, as a user's own kustomization would add it.
func (l *Lab) Generate(ctx context.Context, spec ClusterSpec) (string, error) {
	args := []string{"generate", "cluster", spec.Name, "--infrastructure", "quoin", "--target-namespace", Namespace,
		"--kubernetes-version", spec.Version, "--control-plane-machine-count", strconv.Itoa(spec.controlPlanes()), "--worker-machine-count", strconv.Itoa(spec.Workers)}
	if spec.Flavor != "" {
		args = append(args, "--flavor", spec.Flavor)
	}
	generated, err := l.Clusterctl(ctx, spec.variables(), args...)
	if err != nil {
		return "", err
	}
	return l.fitToHosts(spec, generated)
}

// fitToHosts adds the site's patches by kustomize, in a folder that stays for a look.
func (l *Lab) fitToHosts(spec ClusterSpec, generated string) (string, error) {
	folder := l.Path("clusters", spec.Name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("folder of cluster %s: %w", spec.Name, err)
	}
	site := "site"
	if spec.Flavor != "" {
		site += "-" + spec.Flavor
	}
	from := l.file("test", "e2e", "data", site)
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", fmt.Errorf("patches of the test hosts: %w", err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return "", fmt.Errorf("patches of the test hosts: %w", err)
		}
		if err := os.WriteFile(filepath.Join(folder, entry.Name()), content, 0o600); err != nil {
			return "", fmt.Errorf("patches of the test hosts: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "cluster.yaml"), []byte(generated), 0o600); err != nil {
		return "", fmt.Errorf("manifests of cluster %s: %w", spec.Name, err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return "", fmt.Errorf("kustomize build %s: %w", folder, err)
	}
	manifests, err := resources.AsYaml()
	if err != nil {
		return "", fmt.Errorf("kustomize build %s: %w", folder, err)
	}
	return string(manifests), nil
}

// Create applies the manifests of a cluster and returns at once.
func (l *Lab) Create(ctx context.Context, spec ClusterSpec) (*Cluster, error) {
	cluster := &Cluster{ClusterSpec: spec, lab: l}
	err := l.Step(ctx, fmt.Sprintf("Creating cluster %s at %s: control planes %d, workers %d", spec.Name, spec.Version, spec.controlPlanes(), spec.Workers), time.Minute,
		func(ctx context.Context, step *progress.Step) error {
			manifests, err := l.Generate(ctx, spec)
			if err != nil {
				return err
			}
			// The caches of the webhooks learn of a ClusterClass a moment after it was applied: what a user would do is apply again.
			return step.Poll(ctx, 2*time.Second, func(ctx context.Context) (bool, []string, error) {
				err := l.Apply(ctx, l.Kubeconfig(), manifests)
				return err == nil, nil, err
			})
		})
	return cluster, err
}

// Open makes a handle to a cluster that is there.
func (l *Lab) Open(ctx context.Context, spec ClusterSpec) (*Cluster, error) {
	cluster := &Cluster{ClusterSpec: spec, lab: l}
	err := cluster.connect(ctx)
	return cluster, err
}

// AwaitAPI waits until the cluster's API server answers to the kubeconfig that clusterctl hands out.
func (c *Cluster) AwaitAPI(ctx context.Context) error {
	return c.lab.Step(ctx, "Waiting for the API server of "+c.Name, 6*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
			waiting := c.pending(ctx)
			plane, err := c.ControlPlane(ctx)
			if err != nil {
				return false, waiting, err
			}
			if plane.Status.Initialization.ControlPlaneInitialized == nil || !*plane.Status.Initialization.ControlPlaneInitialized {
				return false, waiting, nil
			}
			return true, nil, c.connect(ctx)
		})
	})
}

// connect gets the kubeconfig and makes a client of it.
func (c *Cluster) connect(ctx context.Context) error {
	kubeconfig, err := c.lab.Clusterctl(ctx, nil, "get", "kubeconfig", c.Name, "--namespace", Namespace, "--kubeconfig", c.lab.Kubeconfig())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.Kubeconfig()), 0o700); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", c.Name, err)
	}
	if err := os.WriteFile(c.Kubeconfig(), []byte(kubeconfig), 0o600); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", c.Name, err)
	}
	c.Client, err = clientFor(c.Kubeconfig())
	return err
}

// ApplyNetwork applies the pod network, as a user would.
func (c *Cluster) ApplyNetwork(ctx context.Context) error {
	return c.lab.Step(ctx, "Applying the pod network to "+c.Name, time.Minute, func(ctx context.Context, step *progress.Step) error {
		manifest, err := os.ReadFile(c.lab.file("test", "hostimage", "testnet", "testnet.yaml"))
		if err != nil {
			return fmt.Errorf("pod network: %w", err)
		}
		return step.Poll(ctx, 2*time.Second, func(ctx context.Context) (bool, []string, error) {
			err := c.lab.Apply(ctx, c.Kubeconfig(), string(manifest))
			return err == nil, nil, err
		})
	})
}

// ControlPlane is the cluster's QuoinControlPlane, found by the Cluster's reference, as its name is not ours to know.
func (c *Cluster) ControlPlane(ctx context.Context) (*controlplanev1.QuoinControlPlane, error) {
	cluster := &clusterv1.Cluster{}
	if err := c.lab.Management.Get(ctx, c.Key(), cluster); err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", c.Name, err)
	}
	if cluster.Spec.ControlPlaneRef.Name == "" {
		return nil, fmt.Errorf("cluster %s has no control plane yet", c.Name)
	}
	plane := &controlplanev1.QuoinControlPlane{}
	key := types.NamespacedName{Namespace: Namespace, Name: cluster.Spec.ControlPlaneRef.Name}
	if err := c.lab.Management.Get(ctx, key, plane); err != nil {
		return nil, fmt.Errorf("reading control plane %s: %w", key.Name, err)
	}
	return plane, nil
}

// WorkerDeployment is the cluster's MachineDeployment.
func (c *Cluster) WorkerDeployment(ctx context.Context) (*clusterv1.MachineDeployment, error) {
	list := &clusterv1.MachineDeploymentList{}
	if err := c.lab.Management.List(ctx, list, client.InNamespace(Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}); err != nil {
		return nil, fmt.Errorf("machine deployments of %s: %w", c.Name, err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("cluster %s has %d machine deployments instead of one", c.Name, len(list.Items))
	}
	return &list.Items[0], nil
}

// Machines of the cluster.
func (c *Cluster) Machines(ctx context.Context) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := c.lab.Management.List(ctx, list, client.InNamespace(Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}); err != nil {
		return nil, fmt.Errorf("machines of %s: %w", c.Name, err)
	}
	return list.Items, nil
}
