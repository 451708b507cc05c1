// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// What containerd remembers lies where it would: images and containers outlive a reboot, tasks do not.
const (
	imagesFile     = "/var/lib/containerd/simulated-images.json"
	containersFile = "/var/lib/containerd/simulated-containers.json"
	tasksFile      = "/run/containerd/simulated-tasks.json"
)

// image of the namespace k8s.io, the only one there is.
type image struct {
	Digest string            `json:"digest"`
	Size   int               `json:"size"`
	Labels map[string]string `json:"labels,omitempty"`
}

func load[T any](p *machine.Process, path string) map[string]T {
	all := map[string]T{}
	if content, err := p.ReadFile(path); err == nil {
		_ = json.Unmarshal(content, &all)
	}
	return all
}

func store[T any](p *machine.Process, path string, all map[string]T) error {
	content, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return put(p, path, string(content), 0o600)
}

func sorted[T any](all map[string]T) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ctr is containerd's own client, as far as the scripts use it.
func (c *Cluster) ctr(_ context.Context, p *machine.Process) int {
	var words, flags []string
	for i := 1; i < len(p.Args); i++ {
		switch arg := p.Args[i]; {
		case arg == "-n" || arg == "--namespace" || arg == "--signal" || arg == "-s" || arg == "--platform":
			i++
		case strings.HasPrefix(arg, "-"):
			flags = append(flags, arg)
		default:
			words = append(words, arg)
		}
	}
	if slices.Contains(flags, "--help") {
		p.Printf("NAME:\n   ctr %s\n", strings.Join(words, " "))
		return 0
	}
	if _, err := p.Stat(containerdSocket); err != nil {
		return p.Fail("cannot access containerd socket %q: no such file or directory", containerdSocket)
	}
	quiet := slices.Contains(flags, "-q") || slices.Contains(flags, "--quiet")
	words = append(words, "", "", "")
	switch words[0] + " " + words[1] {
	case "version ":
		p.Printf("Client:\n  Version:  %[1]s\n\nServer:\n  Version:  %[1]s\n", c.options.Runtime)
		return 0
	case "images ls", "images list", "image ls", "i ls":
		return listImages(p, quiet)
	case "images import", "image import":
		return importImages(p, words[2])
	case "images label", "image label":
		return labelImage(p, words[2], words[3])
	case "images rm", "images remove":
		return drop[image](p, imagesFile, words[2], "image")
	case "containers ls", "containers list", "c ls":
		return list(p, sorted(load[string](p, containersFile)), quiet, "CONTAINER    IMAGE    RUNTIME")
	case "containers delete", "containers rm":
		if load[string](p, tasksFile)[words[2]] != "" {
			return p.Fail("cannot delete a non stopped container: running")
		}
		return drop[string](p, containersFile, words[2], "container")
	case "tasks ls", "tasks list", "t ls":
		return listTasks(p, quiet)
	case "tasks kill":
		return killTask(p, words[2])
	case "tasks delete", "tasks rm":
		killProcess(p, words[2])
		return drop[string](p, tasksFile, words[2], "task")
	case "sandboxes ls", "sandboxes list":
		p.Printf("SANDBOX ID    RUNTIME\n")
		return 0
	}
	return p.Fail("simulated: %q is not known", strings.Join(words[:2], " "))
}

func list(p *machine.Process, names []string, quiet bool, header string) int {
	if !quiet {
		p.Printf("%s\n", header)
	}
	for _, name := range names {
		p.Printf("%s\n", name)
	}
	return 0
}

func drop[T any](p *machine.Process, path, name, kind string) int {
	all := load[T](p, path)
	if _, ok := all[name]; !ok {
		return p.Fail("%s %q: not found", kind, name)
	}
	delete(all, name)
	if err := store(p, path, all); err != nil {
		return p.Fail("%v", err)
	}
	return 0
}

// listTasks shows the processes of those tasks that have one.
func listTasks(p *machine.Process, quiet bool) int {
	all := load[string](p, tasksFile)
	var lines []string
	for _, name := range sorted(all) {
		if pid, err := strconv.Atoi(all[name]); err == nil && !quiet {
			status := "STOPPED"
			if p.Machine.Alive(pid) {
				status = "RUNNING"
			}
			name = fmt.Sprintf("%s    %d    %s", name, pid, status)
		}
		lines = append(lines, name)
	}
	return list(p, lines, quiet, "TASK    PID    STATUS")
}

// killProcess ends the process of a task, if it has one.
func killProcess(p *machine.Process, name string) {
	if pid, err := strconv.Atoi(load[string](p, tasksFile)[name]); err == nil {
		p.Machine.Kill(pid, "KILL")
	}
}

// killTask ends the task; what it was is known until it is deleted.
func killTask(p *machine.Process, name string) int {
	all := load[string](p, tasksFile)
	if _, ok := all[name]; !ok {
		return p.Fail("no running task found: task %s not found: not found", name)
	}
	killProcess(p, name)
	return drop[string](p, tasksFile, name, "task")
}

func listImages(p *machine.Process, quiet bool) int {
	all := load[image](p, imagesFile)
	if !quiet {
		p.Printf("REF TYPE DIGEST SIZE PLATFORMS LABELS\n")
	}
	for _, name := range sorted(all) {
		if quiet {
			p.Printf("%s\n", name)
			continue
		}
		labels := []string{"io.cri-containerd.image=managed"}
		for _, key := range sorted(all[name].Labels) {
			labels = append(labels, key+"="+all[name].Labels[key])
		}
		p.Printf("%s application/vnd.docker.distribution.manifest.v2+json %s %.1f KiB linux/amd64 %s\n", name, all[name].Digest, float64(all[name].Size)/1024, strings.Join(labels, ","))
	}
	return 0
}

func importImages(p *machine.Process, path string) int {
	content, err := p.ReadFile(path)
	if err != nil {
		return p.Fail("%v", err)
	}
	names, err := imagesIn(content)
	if err != nil {
		return p.Fail("%v", err)
	}
	all := load[image](p, imagesFile)
	for _, name := range names {
		// A name that is imported again loses its labels, as with the real one.
		all[name] = image{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(content)), Size: len(content)}
		p.Printf("%s saved\n", name)
	}
	if err := store(p, imagesFile, all); err != nil {
		return p.Fail("%v", err)
	}
	return 0
}

func labelImage(p *machine.Process, name, label string) int {
	all := load[image](p, imagesFile)
	found, ok := all[name]
	if !ok {
		return p.Fail("image %q: not found", name)
	}
	if found.Labels == nil {
		found.Labels = map[string]string{}
	}
	key, value, _ := strings.Cut(label, "=")
	found.Labels[key] = value
	all[name] = found
	if err := store(p, imagesFile, all); err != nil {
		return p.Fail("%v", err)
	}
	p.Printf("%s=%s\n", key, value)
	return 0
}

// crictl knows what kubeadm's and a person's scripts ask first.
func (c *Cluster) crictl(_ context.Context, p *machine.Process) int {
	args := p.Args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if !strings.Contains(args[0], "=") {
			args = args[1:]
		}
		if len(args) > 0 {
			args = args[1:]
		}
	}
	args = append(args, "")
	switch args[0] {
	case "version", "--version":
		p.Printf("RuntimeName:  containerd\nRuntimeVersion:  %s\n", c.options.Runtime)
		return 0
	case "info":
		p.Printf("{}\n")
		return 0
	case "images":
		for _, name := range sorted(load[image](p, imagesFile)) {
			p.Printf("%s\n", name)
		}
		return 0
	case "pods", "ps":
		for _, name := range sorted(load[string](p, containersFile)) {
			p.Printf("%s\n", name)
		}
		return 0
	}
	return p.Fail("simulated: %q is not known", args[0])
}

// RunsPod reports whether a machine has a pod by that name, which is the last that its kubelet leaves there by itself.
func RunsPod(m *machine.Machine, name string) bool {
	return strings.Contains(m.FS().Text(tasksFile), `"`+name+`"`)
}

// addPod leaves what a pod of a DaemonSet leaves: a container with a task.
func addPod(p *machine.Process, name string) error {
	for _, file := range []string{containersFile, tasksFile} {
		all := load[string](p, file)
		all[name] = "running"
		if err := store(p, file, all); err != nil {
			return err
		}
	}
	return nil
}

// removeContainers is what kubeadm reset asks the runtime for.
func (c *Cluster) removeContainers(p *machine.Process) {
	for name := range load[string](p, tasksFile) {
		killProcess(p, name)
	}
	for _, file := range []string{tasksFile, containersFile} {
		if _, err := p.Stat(file); err == nil {
			_ = store(p, file, map[string]string{})
		}
	}
}
