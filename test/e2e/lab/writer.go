// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writerNamespace holds what a Writer writes.
const writerNamespace = "writer"

// Writer writes to a cluster for as long as it runs, and remembers what the API server acknowledged. It reads as often: a
// write needs a quorum of etcd, and so does such a read.
type Writer struct {
	cluster *Cluster
	client  client.Client
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu           sync.Mutex
	acknowledged []string
	writes       gaps
	reads        gaps
}

// gaps measures the time between successes.
type gaps struct {
	last    time.Time
	longest time.Duration
	at      time.Time
	failure string
	pending string
}

func (g *gaps) succeeded(now time.Time) {
	if gap := now.Sub(g.last); !g.last.IsZero() && gap > g.longest {
		g.longest, g.at, g.failure = gap, now, g.pending
	}
	g.last, g.pending = now, ""
}

// String says how long the longest gap was, when it ended, and how an attempt in it failed.
func (g gaps) String() string {
	if g.failure == "" {
		return g.longest.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%s (until %s: %s)", g.longest.Round(time.Millisecond), g.at.Format(time.TimeOnly), g.failure)
}

// Write starts a Writer. Each attempt has a connection of its own and two seconds, so that a gap is one of the cluster and
// not of a client that holds on to a connection that leads nowhere.
func (c *Cluster) Write(ctx context.Context) (*Writer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", c.Name, err)
	}
	config.QPS = -1
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", c.Name, err)
	}
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}}
	config.TLSClientConfig = rest.TLSClientConfig{}
	w := &Writer{cluster: c}
	if w.client, err = client.New(config, client.Options{HTTPClient: own, Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()}); err != nil {
		return nil, fmt.Errorf("a client for %s: %w", c.Name, err)
	}
	err = w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: writerNamespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("namespace of the writer: %w", err)
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	run := time.Now().UnixNano()
	w.done.Go(func() {
		w.every(ctx, 50*time.Millisecond, &w.writes, func(ctx context.Context, n int) error {
			name := fmt.Sprintf("key-%d-%06d", run, n)
			if err := w.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: writerNamespace, Name: name}}); err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.acknowledged = append(w.acknowledged, name)
			return nil
		})
	})
	w.done.Go(func() {
		w.every(ctx, 500*time.Millisecond, &w.reads, func(ctx context.Context, _ int) error {
			return w.client.Get(ctx, client.ObjectKey{Name: writerNamespace}, &corev1.Namespace{})
		})
	})
	return w, nil
}

func (w *Writer) every(ctx context.Context, period time.Duration, g *gaps, attempt func(context.Context, int) error) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := attempt(try, n)
		cancel()
		w.mu.Lock()
		if err == nil {
			g.succeeded(time.Now())
		} else {
			g.pending = err.Error()
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Stop ends the writing.
func (w *Writer) Stop() {
	w.stop()
	w.done.Wait()
}

// Acknowledged are the keys of all writes that succeeded.
func (w *Writer) Acknowledged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acknowledged)
}

// Longest is the longest time between two writes, or two reads, that were answered.
func (w *Writer) Longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.writes.longest, w.reads.longest)
}

// Report says how much was acknowledged and how long the longest gaps were.
func (w *Writer) Report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d keys acknowledged; longest gap between writes %s, between reads %s", len(w.acknowledged), w.writes, w.reads)
}

// Lost are the keys that were acknowledged and are not there.
func (w *Writer) Lost(ctx context.Context) ([]string, error) {
	list := &corev1.ConfigMapList{}
	if err := w.cluster.Client.List(ctx, list, client.InNamespace(writerNamespace)); err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	there := map[string]bool{}
	for i := range list.Items {
		there[list.Items[i].Name] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var lost []string
	for _, name := range w.acknowledged {
		if !there[name] {
			lost = append(lost, name)
		}
	}
	return lost, nil
}
