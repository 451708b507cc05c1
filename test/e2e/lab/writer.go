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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writerNamespace holds what a Writer writes.
const writerNamespace = "writer"

// Writer writes to a cluster for as long as it runs, and remembers what the API server acknowledged. It reads as often: a
// write needs a quorum of etcd, and so does such a read. A watch that does nothing but listen, on a
// connection that stays, hears of each write.
type Writer struct {
	cluster *Cluster
	client  client.Client
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu           sync.Mutex
	acknowledged []string
	writes       gaps
	reads        gaps
	// unheard are when writes were acknowledged of which the watch has not heard yet; early is what it heard of before that.
	// deaf is the longest time in which it did not, which ended at deafAt.
	unheard map[string]time.Time
	early   map[string]bool
	deaf    time.Duration
	deafAt  time.Time
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
	listening := rest.CopyConfig(config)
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", c.Name, err)
	}
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}}
	config.TLSClientConfig = rest.TLSClientConfig{}
	w := &Writer{cluster: c, unheard: map[string]time.Time{}, early: map[string]bool{}}
	if w.client, err = client.New(config, client.Options{HTTPClient: own, Scheme: c.Client.Scheme(), Mapper: c.Client.RESTMapper()}); err != nil {
		return nil, fmt.Errorf("a client for %s: %w", c.Name, err)
	}
	err = w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: writerNamespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("namespace of the writer: %w", err)
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := w.listen(ctx, listening); err != nil {
		w.stop()
		return nil, err
	}
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
			if !w.early[name] {
				w.unheard[name] = time.Now()
			}
			delete(w.early, name)
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

// listen follows what is written by a watch, which goes on from where it broke off.
func (w *Writer) listen(ctx context.Context, config *rest.Config) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("a client that listens: %w", err)
	}
	maps := clients.CoreV1().ConfigMaps(writerNamespace)
	list, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("what is there before the writer: %w", err)
	}
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion,
		&cache.ListWatch{WatchFuncWithContext: maps.Watch})
	if err != nil {
		return fmt.Errorf("listening to what is written: %w", err)
	}
	w.done.Go(func() {
		for event := range events.ResultChan() {
			if written, ok := event.Object.(*corev1.ConfigMap); ok && event.Type == watch.Added {
				w.heard(written.Name)
			}
		}
	})
	return nil
}

func (w *Writer) heard(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, acknowledged := w.unheard[name]
	if !acknowledged {
		w.early[name] = true
		return
	}
	delete(w.unheard, name)
	w.waited(at)
}

// waited notes for how long the watch did not hear of a write.
func (w *Writer) waited(since time.Time) {
	if now := time.Now(); now.Sub(since) > w.deaf {
		w.deaf, w.deafAt = now.Sub(since), now
	}
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

// Stop ends the writing. Of what was written until then the watch has not heard since.
func (w *Writer) Stop() {
	w.stop()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.unheard {
		w.waited(at)
	}
	clear(w.unheard)
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

// Deaf is the longest time after the answer to a write in which the watch had not heard of it.
func (w *Writer) Deaf() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf
}

// Report says how much was acknowledged and how long the longest gaps were.
func (w *Writer) Report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d keys acknowledged; longest gap between writes %s, between reads %s, until a watch heard of a write %s (at %s)",
		len(w.acknowledged), w.writes, w.reads, w.deaf.Round(time.Millisecond), w.deafAt.Format(time.TimeOnly))
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
