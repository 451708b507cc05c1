//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/resolve"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// site is what the page leaves to its reader: the files that it names, a cert-manager, copies of Cluster API's releases.
type site struct {
	lab   *lab.Lab
	desk  *lab.Desk
	image string
}

// files are those that the reader writes.
func (s *site) files() error {
	nodes := s.lab.Hosts[hosts-1].Address
	inventory := ""
	for _, host := range s.lab.Hosts {
		inventory += host.Name + " " + host.Address + "\n"
	}
	plugin, err := os.ReadFile(filepath.Join(s.lab.Root, "test", "hostimage", "testnet", "testnet.yaml"))
	if err != nil {
		return err
	}
	texts := map[string]string{
		"site.env": fmt.Sprintf(`IMAGE=%s
SSH_USER=%s
SSH_KEY=%s
CONTROL_PLANE_ENDPOINT_HOST=%s
KEEPALIVED_VIRTUAL_ROUTER_ID=%d
QUOIN_BUNDLE_LOCATION=/opt/quoin/bundles
KIND_CLUSTER=%s
NODES=%s
IMAGE_PULL_POLICY=Never
`, s.image, lab.SSHUser, s.lab.SSHKey(), lab.Demo().VirtualAddress, lab.Demo().RouterID, lab.Name, nodes),
		"hosts.txt":           inventory,
		"network-plugin.yaml": string(plugin),
		// Hosts that are containers have wishes of their own.
		"site/kustomization.yaml": `resources:
- cluster.yaml
patches:
- {path: control-plane.yaml, target: {kind: QuoinControlPlane}}
- {path: workers.yaml, target: {kind: KubeadmConfigTemplate}}
`,
	}
	for _, patch := range []string{"control-plane.yaml", "workers.yaml"} {
		content, err := os.ReadFile(filepath.Join(s.lab.Root, "test", "e2e", "data", "site", patch))
		if err != nil {
			return err
		}
		texts["site/"+patch] = string(content)
	}
	for path, content := range texts {
		if err := s.desk.Write(path, content); err != nil {
			return err
		}
	}
	return nil
}

// mirrorClusterAPI adds copies of Cluster API's own providers to the reader's clusterctl.yaml, as one does where their
// release pages cannot be reached, and loads their images.
func (s *site) mirrorClusterAPI(ctx context.Context) error {
	copies, err := s.lab.WriteRepository(ctx, repository.CoreLabel, repository.BootstrapLabel)
	if err != nil {
		return err
	}
	path := filepath.Join(s.desk.Home(), ".config", "cluster-api", "clusterctl.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config struct {
		Providers []map[string]string `json:"providers"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return err
	}
	for _, provider := range copies.Providers {
		name, kind := repository.NameAndType(provider.Label)
		config.Providers = append(config.Providers, map[string]string{"name": name, "type": kind, "url": provider.Components})
	}
	if content, err = yaml.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// certManager provides cert-manager.yaml: its own CRDs, and a Deployment that stands for its programs, which cannot be
// built from Go's module proxy. What they would do is done from here until the test ends.
func (s *site) certManager(ctx context.Context) error {
	found, err := filepath.Glob(s.lab.Path("repository", "cert-manager", "*", "cert-manager.yaml"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%d manifests of cert-manager instead of one: %w", len(found), err)
	}
	crds, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	authority, err := resolve.NewAuthority(time.Now())
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			if err := s.issue(ctx, authority); err != nil && ctx.Err() == nil {
				s.lab.Printf("   in place of cert-manager: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return s.desk.Write("cert-manager.yaml", string(crds)+standIn)
}

// standIn is a Deployment of a pause, for `kubectl wait` to find.
const standIn = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cert-manager, namespace: cert-manager}
spec:
  selector: {matchLabels: {app: cert-manager}}
  template:
    metadata: {labels: {app: cert-manager}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: pause, image: "quoin.test/pause:3.10.1", imagePullPolicy: Never}]
`

const injectAnnotation = "cert-manager.io/inject-ca-from"

// issue makes the Secret of each Certificate, and gives the authority to webhooks that ask for it.
func (s *site) issue(ctx context.Context, authority *resolve.Authority) error {
	certificates := &unstructured.UnstructuredList{}
	certificates.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"})
	if err := s.lab.Management.List(ctx, certificates); err != nil {
		return client.IgnoreNotFound(ignoreNoMatch(err))
	}
	for i := range certificates.Items {
		if err := s.issueOne(ctx, authority, &certificates.Items[i]); err != nil {
			return err
		}
	}
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		configurations := &unstructured.UnstructuredList{}
		configurations.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind + "List"})
		if err := s.lab.Management.List(ctx, configurations); err != nil {
			return err
		}
		for i := range configurations.Items {
			if err := s.inject(ctx, authority, &configurations.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) issueOne(ctx context.Context, authority *resolve.Authority, certificate *unstructured.Unstructured) error {
	name, _, err := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if err != nil {
		return err
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name, secret.Type = certificate.GetNamespace(), name, corev1.SecretTypeTLS
	switch err := s.lab.Management.Get(ctx, client.ObjectKeyFromObject(secret), secret); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	names, _, err := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	if err != nil {
		return err
	}
	serving, err := authority.Serve(names, nil)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{"ca.crt": authority.PEM(), "tls.crt": serving.Certificate, "tls.key": serving.Key}
	return s.lab.Management.Create(ctx, secret)
}

func (s *site) inject(ctx context.Context, authority *resolve.Authority, configuration *unstructured.Unstructured) error {
	if configuration.GetAnnotations()[injectAnnotation] == "" {
		return nil
	}
	bundle := base64.StdEncoding.EncodeToString(authority.PEM())
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	changed := false
	for i := range webhooks {
		webhook, _ := webhooks[i].(map[string]any)
		if has, _, _ := unstructured.NestedString(webhook, "clientConfig", "caBundle"); has == bundle {
			continue
		}
		if err := unstructured.SetNestedField(webhook, bundle, "clientConfig", "caBundle"); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
		return err
	}
	return s.lab.Management.Update(ctx, configuration)
}

// ignoreNoMatch takes the time before the CRDs are there as nothing to do.
func ignoreNoMatch(err error) error {
	if err != nil && strings.Contains(err.Error(), "no matches for kind") {
		return nil
	}
	return err
}
