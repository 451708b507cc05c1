// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// manifests is where kubeadm puts the static pods.
const manifests = etcKubernetes + "/manifests"

// staticPrefix marks the containers of static pods among those of the runtime.
const staticPrefix = "static_"

// staticPods are what a kubelet runs from manifests. It is used by the kubelet's own goroutine alone.
type staticPods struct {
	plane *ControlPlane
	// parsed are pods by the content of their manifest.
	parsed map[string]*corev1.Pod
	runs   map[string]*staticRun
	// none of them was there when it looked last, and none was left.
	none bool
}

// staticRun is one static pod in the kubelet's memory.
type staticRun struct {
	pod      *corev1.Pod
	hash     string
	restarts int32
	// failures since it last ran for a while.
	failures int
	began    time.Time
	again    time.Time
	alive    bool
	// mounted says that the kubelet has set the volumes up, which it does once for each pod.
	mounted bool
}

// settled is how long a container runs before its failures are forgotten.
const settled = 5 * time.Second

// sync starts, restarts and ends containers as the manifests say. Containers outlive the kubelet: one that comes back
// finds them by what the runtime knows.
func (s *staticPods) sync(p *machine.Process) {
	wanted := s.read(p)
	if s.none && len(wanted) == 0 {
		return // as on every worker, of which there are hundreds
	}
	containers, tasks := load[string](p, containersFile), load[string](p, tasksFile)
	changed := false
	seen := map[string]bool{}
	for key, manifest := range wanted {
		seen[key] = true
		pid, _ := strconv.Atoi(tasks[key])
		run := s.runs[key]
		if run == nil {
			run = &staticRun{began: time.Now()}
			s.runs[key] = run
		}
		run.pod = manifest.pod
		running := p.Machine.Alive(pid)
		if running && containers[key] != manifest.hash {
			p.Machine.Kill(pid, "TERM")
			continue
		}
		if run.alive && !running {
			run.restarts++
			if time.Since(run.began) > settled {
				run.failures = 0
			}
			run.again = time.Now().Add(min(50*time.Millisecond<<min(run.failures, 10), 2*time.Second))
			run.failures++
		}
		run.mounted = run.mounted && run.hash == manifest.hash
		run.hash, run.alive = manifest.hash, running
		if running || time.Now().Before(run.again) {
			continue
		}
		if err := run.mount(p); err != nil {
			fmt.Fprintf(p.Stderr, "kubelet: \"Error syncing pod, skipping\" err=%q\n", err)
			run.again = time.Now().Add(200 * time.Millisecond)
			continue
		}
		run.alive, run.began = true, time.Now()
		command := manifest.pod.Spec.Containers[0].Command
		tasks[key] = strconv.Itoa(p.Daemon(s.plane.program(manifest.pod.Spec.Containers[0].Name, command), command...))
		containers[key] = manifest.hash
		changed = true
	}
	for key, pid := range tasks {
		if strings.HasPrefix(key, staticPrefix) && !seen[key] {
			number, _ := strconv.Atoi(pid)
			p.Machine.Kill(number, "TERM")
			delete(tasks, key)
			delete(containers, key)
			changed = true
		}
	}
	for key := range s.runs {
		if !seen[key] {
			delete(s.runs, key)
		}
	}
	s.none = len(wanted) == 0
	if changed {
		_ = store(p, containersFile, containers)
		_ = store(p, tasksFile, tasks)
	}
}

// mount makes what the container mounts ready.
func (r *staticRun) mount(p *machine.Process) error {
	if !r.mounted {
		if err := setUp(p, r.pod); err != nil {
			return err
		}
		r.mounted = true
	}
	return bind(p, r.pod)
}

type manifest struct {
	pod  *corev1.Pod
	hash string
}

// read parses the manifests. One that cannot be read is not there.
func (s *staticPods) read(p *machine.Process) map[string]manifest {
	found := map[string]manifest{}
	names, err := p.ReadDir(manifests)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".yaml") || strings.HasPrefix(name, ".") {
			continue
		}
		content, err := p.ReadFile(manifests + "/" + name)
		if err != nil {
			continue
		}
		pod := s.parsed[string(content)]
		if pod == nil {
			pod = &corev1.Pod{}
			if err := yaml.Unmarshal(content, pod); err != nil || len(pod.Spec.Containers) == 0 || len(pod.Spec.Containers[0].Command) == 0 {
				continue
			}
			s.parsed[string(content)] = pod
		}
		found[staticPrefix+pod.Name] = manifest{pod, fmt.Sprintf("%x", sha256.Sum256(content))[:32]}
	}
	return found
}

// program is what a container of a static pod does.
func (c *ControlPlane) program(name string, command []string) machine.Program {
	switch name {
	case "etcd":
		return c.etcd(command)
	case "kube-apiserver":
		return c.kubeAPIServer(command)
	}
	return func(ctx context.Context, _ *machine.Process) int {
		<-ctx.Done()
		return 0
	}
}

// ready is what the readiness probe of a static pod's container would say.
func (c *ControlPlane) ready(m *machine.Machine, name string) bool {
	switch name {
	case "etcd":
		member := c.Etcd(m)
		return member != nil && member.Ready()
	case "kube-apiserver":
		return c.serves(m)
	}
	return true
}
