// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

// Door is a way to an API server. Closed, it is as if the API server had stopped; who knows another way finds it
// running.
type Door struct {
	// Kubeconfig leads through the door.
	Kubeconfig string

	address, to string
	failed      func(error)
	// deaf loses what the API server answers.
	deaf atomic.Bool

	mu       sync.Mutex
	listener net.Listener
	through  map[net.Conn]bool
}

// NewDoor opens a door to the API server of a kubeconfig, and writes another one in the directory. What goes wrong when
// it is opened again is given to failed.
func NewDoor(kubeconfig, directory string, failed func(error)) (*Door, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	d := &Door{Kubeconfig: filepath.Join(directory, "kubeconfig"), address: "127.0.0.1:0", failed: failed,
		through: map[net.Conn]bool{}}
	at, err := url.Parse(config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	d.to = at.Host
	if d.listener, err = net.Listen("tcp", d.address); err != nil {
		return nil, fmt.Errorf("opening a door: %w", err)
	}
	d.address = d.listener.Addr().String()
	go d.accept(d.listener)
	for _, to := range config.Clusters {
		to.Server = "https://" + d.address
	}
	if err := clientcmd.WriteToFile(*config, d.Kubeconfig); err != nil {
		return nil, fmt.Errorf("writing %s: %w", d.Kubeconfig, err)
	}
	return d, nil
}

// Open the door again.
func (d *Door) Open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	listener, err := net.Listen("tcp", d.address)
	for try := 0; err != nil && try < 100; try++ {
		// Meanwhile another process may have been given the port for a moment.
		time.Sleep(50 * time.Millisecond)
		listener, err = net.Listen("tcp", d.address)
	}
	if err != nil {
		d.failed(err)
		return
	}
	d.deaf.Store(false)
	d.listener = listener
	go d.accept(listener)
}

func (d *Door) accept(listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", d.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		d.mu.Lock()
		d.through[from], d.through[to] = true, true
		d.mu.Unlock()
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		go func() { _, _ = io.Copy(hears{d, from}, to); _ = from.Close() }()
	}
}

// hears is the side of the door where answers come out.
type hears struct {
	door *Door
	net.Conn
}

// Write implements io.Writer.
func (h hears) Write(answer []byte) (int, error) {
	if h.door.deaf.Load() {
		return len(answer), nil
	}
	return h.Conn.Write(answer)
}

// Close the door: connections end, and new ones are refused.
func (d *Door) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.listener.Close()
	for connection := range d.through {
		_ = connection.Close()
	}
	clear(d.through)
}

// Stop has the API server end now and answer again a while later.
func (d *Door) Stop(within time.Duration) {
	d.Close()
	time.AfterFunc(within, d.Open)
}

// Lose has the API server carry out what it is asked next, and end before it answers.
func (d *Door) Lose(within time.Duration) {
	d.deaf.Store(true)
	time.AfterFunc(300*time.Millisecond, func() { d.Stop(within) })
}

// MissingWebhook is asked about what Cluster API and its providers keep in the namespace, and never answers.
func MissingWebhook(namespace string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "no-such-webhook.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule: admissionv1.Rule{APIGroups: []string{"cluster.x-k8s.io",
					"infrastructure.cluster.x-k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
		}}}
}
