// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// door is where the API server finds the webhooks of all managers: each under a path of its own. Behind it a manager can
// end and another one begin without a port that is in use; while there is none, callers are cut off.
type door struct {
	listener    net.Listener
	certificate []byte

	mu      sync.Mutex
	servers map[string]*server
}

func openDoor() (*door, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the webhooks' key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the webhooks' certificate: %w", err)
	}
	d := &door{servers: map[string]*server{}, certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	d.listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		return nil, fmt.Errorf("listening for webhooks: %w", err)
	}
	serving := &http.Server{Handler: d, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = serving.Serve(d.listener) }()
	return d, nil
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	for _, name := range strings.Split(strings.Trim(request.URL.Path, "/"), "/")[:1] {
		d.mu.Lock()
		behind := d.servers[name]
		d.mu.Unlock()
		if behind != nil && !behind.dead() {
			http.StripPrefix("/"+name, behind.mux).ServeHTTP(w, request)
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// place is a server for a manager's webhooks, in place of the one that had the name before.
func (d *door) place(name string, dead func() bool) webhook.Server {
	s := &server{mux: http.NewServeMux(), dead: dead}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers[name] = s
	return s
}

// server is a webhook.Server that somebody else listens for.
type server struct {
	mux  *http.ServeMux
	dead func() bool
}

// NeedLeaderElection implements webhook.Server.
func (s *server) NeedLeaderElection() bool { return false }

// Register implements webhook.Server.
func (s *server) Register(path string, hook http.Handler) { s.mux.Handle(path, hook) }

// Start implements webhook.Server.
func (s *server) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StartedChecker implements webhook.Server.
func (s *server) StartedChecker() healthz.Checker { return func(*http.Request) error { return nil } }

// WebhookMux implements webhook.Server.
func (s *server) WebhookMux() *http.ServeMux { return s.mux }

// admit makes the API server ask the named place about objects of a namespace, as the given configurations say.
func (p *Plane) admit(ctx context.Context, namespace, name string, configurations []byte) error {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	ask := func(hook *admissionregistrationv1.WebhookClientConfig) error {
		if hook.Service == nil || hook.Service.Path == nil {
			return fmt.Errorf("a webhook of %s names no path of a service", name)
		}
		url := fmt.Sprintf("https://%s/%s%s", p.door.listener.Addr(), name, *hook.Service.Path)
		*hook = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: p.door.certificate}
		return nil
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(configurations), 4096)
	for number := 1; ; number++ {
		// Both kinds have the same fields, as far as they are read here.
		raw := &struct {
			metav1.TypeMeta `json:",inline"`
			Webhooks        []admissionregistrationv1.MutatingWebhook `json:"webhooks"`
		}{}
		if err := decoder.Decode(raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the webhooks of %s: %w", name, err)
		}
		var object client.Object
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, number)}
		switch raw.Kind {
		case "MutatingWebhookConfiguration":
			mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
			for _, hook := range raw.Webhooks {
				if err := ask(&hook.ClientConfig); err != nil {
					return err
				}
				hook.NamespaceSelector = selector
				mutating.Webhooks = append(mutating.Webhooks, hook)
			}
			object = mutating
		case "ValidatingWebhookConfiguration":
			validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
			for _, hook := range raw.Webhooks {
				if err := ask(&hook.ClientConfig); err != nil {
					return err
				}
				validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
					Name: hook.Name, ClientConfig: hook.ClientConfig, Rules: hook.Rules, FailurePolicy: hook.FailurePolicy,
					MatchPolicy: hook.MatchPolicy, NamespaceSelector: selector, ObjectSelector: hook.ObjectSelector,
					SideEffects: hook.SideEffects, TimeoutSeconds: ptr.To(ptr.Deref(hook.TimeoutSeconds, 10)),
					AdmissionReviewVersions: hook.AdmissionReviewVersions, MatchConditions: hook.MatchConditions,
				})
			}
			object = validating
		default:
			continue
		}
		if err := p.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("registering the webhooks of %s: %w", name, err)
		}
	}
}

// ownWebhooks are the configurations that our components bring.
func (p *Plane) ownWebhooks() ([]byte, error) {
	var all [][]byte
	for _, overlay := range []string{"infrastructure-quoin", "control-plane-quoin"} {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(p.rig.Root, "config", overlay))
		if err != nil {
			return nil, fmt.Errorf("rendering config/%s: %w", overlay, err)
		}
		rendered, err := resources.AsYaml()
		if err != nil {
			return nil, fmt.Errorf("rendering config/%s: %w", overlay, err)
		}
		all = append(all, rendered)
	}
	return bytes.Join(all, []byte("\n---\n")), nil
}

// upstreamWebhooks are the configurations of one of Cluster API's managers.
func (p *Plane) upstreamWebhooks(manager ...string) ([]byte, error) {
	path := filepath.Join(append(append([]string{p.rig.ClusterAPI}, manager...), "config", "webhook", "manifests.yaml")...)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading Cluster API's webhooks: %w", err)
	}
	return content, nil
}
