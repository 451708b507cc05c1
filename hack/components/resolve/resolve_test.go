// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const components = `
- apiVersion: cert-manager.io/v1
  kind: Issuer
  metadata: {name: selfsigned, namespace: system}
- apiVersion: cert-manager.io/v1
  kind: Certificate
  metadata: {name: serving, namespace: system, labels: {a: b}}
  spec: {secretName: webhook-cert, dnsNames: [webhook.system.svc]}
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: validating, annotations: {cert-manager.io/inject-ca-from: system/serving, other: stays}}
  webhooks:
  - name: a.example.test
    clientConfig: {service: {name: webhook, namespace: system, path: /validate}}
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: converted, annotations: {cert-manager.io/inject-ca-from: system/serving}}
  spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: webhook, namespace: system, path: /convert}}}}}
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: plain, annotations: {cert-manager.io/inject-ca-from: system/serving}}
  spec: {}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: controller-manager}
  spec:
    replicas: 1
    template:
      spec:
        containers:
        - {name: manager, image: upstream:main, imagePullPolicy: Always}
        - {name: sidecar, image: sidecar:main}
`

func parse(g Gomega) []*unstructured.Unstructured {
	var maps []map[string]any
	g.Expect(yaml.Unmarshal([]byte(components), &maps)).To(Succeed())
	objects := make([]*unstructured.Unstructured, 0, len(maps))
	for _, content := range maps {
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects
}

func TestCertificatesBecomeSecretsThatTheAuthorityVouchesFor(t *testing.T) {
	g := NewWithT(t)
	authority, err := NewAuthority(time.Now())
	g.Expect(err).NotTo(HaveOccurred())

	objects, made, err := Certificates(parse(g), authority, net.IPv4(127, 0, 0, 1))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made).To(HaveKey("webhook-cert"))
	for _, object := range objects {
		g.Expect(object.GroupVersionKind().Group).NotTo(Equal(certManagerGroup))
	}
	secret := objects[0]
	g.Expect(secret.GetKind()).To(Equal("Secret"))
	g.Expect(secret.GetNamespace()).To(Equal("system"))
	g.Expect(secret.GetLabels()).To(HaveKeyWithValue("a", "b"))

	pair, err := tls.X509KeyPair(made["webhook-cert"].Certificate, made["webhook-cert"].Key)
	g.Expect(err).NotTo(HaveOccurred())
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(authority.PEM())).To(BeTrue())
	for _, name := range []string{"webhook.system.svc", "127.0.0.1"} {
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		g.Expect(err).NotTo(HaveOccurred(), name)
	}
}

func TestAnUnknownKindOfCertManagerIsRefused(t *testing.T) {
	g := NewWithT(t)
	authority, err := NewAuthority(time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	request := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest"}}
	_, _, err = Certificates([]*unstructured.Unstructured{request}, authority)
	g.Expect(err).To(MatchError(ContainSubstring("CertificateRequest")))
}

func TestWebhooksTrustTheAuthorityAndMoveToLoopback(t *testing.T) {
	g := NewWithT(t)
	authority, err := NewAuthority(time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	objects := parse(g)
	g.Expect(TrustWebhooks(objects, authority)).To(Succeed())
	g.Expect(LocalWebhooks(objects, 9443)).To(Succeed())

	bundle := base64.StdEncoding.EncodeToString(authority.PEM())
	webhook := objects[2].Object["webhooks"].([]any)[0].(map[string]any)["clientConfig"]
	g.Expect(webhook).To(Equal(map[string]any{"caBundle": bundle, "url": "https://127.0.0.1:9443/validate"}))
	g.Expect(conversionConfig(objects[3])).To(Equal(map[string]any{"caBundle": bundle, "url": "https://127.0.0.1:9443/convert"}))
	g.Expect(conversionConfig(objects[4])).To(BeNil())
	g.Expect(objects[2].GetAnnotations()).To(Equal(map[string]string{"other": "stays"}))
	g.Expect(objects[4].GetAnnotations()).To(BeEmpty())
}

func TestOnlyTheManagersImageIsReplaced(t *testing.T) {
	g := NewWithT(t)
	objects := parse(g)
	g.Expect(ManagerImage(objects, "quoin.test/manager:dev")).To(Succeed())
	g.Expect(ScaleToZero(objects)).To(Succeed())

	deployment := objects[5]
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(containers).To(Equal([]any{
		map[string]any{"name": "manager", "image": "quoin.test/manager:dev", "imagePullPolicy": "IfNotPresent"},
		map[string]any{"name": "sidecar", "image": "sidecar:main"},
	}))
	replicas, _, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(replicas).To(BeZero())

	g.Expect(ManagerImage(objects[:5], "x")).To(MatchError(ContainSubstring("no Deployment")))
}
