// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// auditPolicy records who asked for what, and whether it was allowed, for ServiceAccounts alone: those are the managers.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// controllers of the controller manager without which a management plane does not work: owned objects would stay,
// namespaces would not end, and the core manager's aggregated role would be empty.
const controllers = "garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller,serviceaccount-controller"

// patience bounds each start of a process: a machine that has just begun reads every binary from its disk, beside a
// compiler on every core.
const patience = 5 * time.Minute

func (r *Rig) startAPIServer(context.Context) error {
	policy := filepath.Join(r.reaper.scratch, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	r.environment = &envtest.Environment{
		ControlPlaneStartTimeout: patience,
		ControlPlaneStopTimeout:  3 * time.Second,
	}
	server := r.environment.ControlPlane.GetAPIServer()
	server.Configure().
		Append("audit-policy-file", policy).
		Append("audit-log-path", r.auditLog())
	// In the scratch folder, or the data would stay behind when the test is killed.
	etcd := &envtest.Etcd{DataDir: filepath.Join(r.reaper.scratch, "etcd-data")}
	r.environment.ControlPlane.Etcd = etcd
	server.CertDir = filepath.Join(r.reaper.scratch, "kube-apiserver-certs")
	for _, dir := range []string{etcd.DataDir, server.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("starting the API server: %w", err)
		}
	}
	var err error
	if etcd.Path, err = r.reaper.wrap(filepath.Join(r.assets, "etcd")); err != nil {
		return err
	}
	if server.Path, err = r.reaper.wrap(filepath.Join(r.assets, "kube-apiserver")); err != nil {
		return err
	}
	r.environment.ControlPlane.KubectlPath = filepath.Join(r.assets, "kubectl")
	if etcd.Out, err = os.Create(filepath.Join(r.Dir, "etcd.log")); err != nil {
		return err
	}
	if server.Out, err = os.Create(filepath.Join(r.Dir, "kube-apiserver.log")); err != nil {
		return err
	}
	etcd.Err, server.Err = etcd.Out, server.Out

	if r.Config, err = r.environment.Start(); err != nil {
		return fmt.Errorf("starting the API server: %w\n%s", err, tail(filepath.Join(r.Dir, "kube-apiserver.log"), 20))
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme,
		infrav1.AddToScheme, controlplanev1.AddToScheme, quoinv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("building the scheme: %w", err)
		}
	}
	if r.Client, err = client.New(r.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("building the client: %w", err)
	}
	r.Kubeconfig = filepath.Join(r.Dir, "admin.kubeconfig")
	if err := os.WriteFile(r.Kubeconfig, r.environment.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return r.Client.Get(context.Background(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{})
}

func (r *Rig) startControllerManager(ctx context.Context) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	r.kcm, err = r.startProcess("kube-controller-manager", os.Environ(), filepath.Join(r.assets, "kube-controller-manager"),
		"--kubeconfig="+r.Kubeconfig, "--authentication-kubeconfig="+r.Kubeconfig, "--authorization-kubeconfig="+r.Kubeconfig,
		"--authentication-skip-lookup", "--leader-elect=false", "--controllers="+controllers,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]), "--cert-dir="+r.reaper.scratch)
	if err != nil {
		return err
	}
	// Its certificate is its own, made at start, and the answer is only a status code.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return r.kcm.waitFor(ctx, insecure, fmt.Sprintf("https://127.0.0.1:%d/healthz", ports[0]))
}
