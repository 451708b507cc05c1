// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// RoleLabel on a QuoinHost says what the host is for; templates select by it.
const RoleLabel = "role"

// hostLabel names the host on its container.
const hostLabel = Label + ".host"

// bundlesOnHost is where the bundles are mounted on a host.
const bundlesOnHost = "/opt/quoin/bundles"

// kubeadmCalls is a file on a host to which each call of kubeadm adds a line, before anything of ours could count it.
const kubeadmCalls = "/var/log/kubeadm-calls"

// kubeadmCounter stands before the real kubeadm in PATH and counts.
const kubeadmCounter = `#!/bin/sh
echo "$(date +%s) $*" >>` + kubeadmCalls + `
exec /usr/bin/kubeadm "$@"
`

// Host is a bare-metal host: a container with systemd, sshd and a container runtime, and nothing of Kubernetes.
type Host struct {
	// Name of the QuoinHost and of the node it becomes.
	Name string
	// Address on the lab's network.
	Address string
	// Labels of the QuoinHost.
	Labels map[string]string
	// FailureDomain of the QuoinHost.
	FailureDomain string
	// Pinned: its SSH host key is given up front; else the first contact records it.
	Pinned bool
}

// Container is the name of the host's container.
func (h *Host) Container() string { return Name + "-" + h.Name }

// defaultHosts leave one spare for each role, so that replacing by surge has somewhere to go.
func defaultHosts() []*Host {
	role := func(name string) map[string]string { return map[string]string{RoleLabel: name} }
	return []*Host{
		{Name: "host-1", Address: "172.30.0.11", Labels: role("control-plane"), FailureDomain: "rack-a", Pinned: true},
		{Name: "host-2", Address: "172.30.0.12", Labels: role("control-plane"), FailureDomain: "rack-b"},
		{Name: "host-3", Address: "172.30.0.13", Labels: role("worker"), FailureDomain: "rack-a", Pinned: true},
		{Name: "host-4", Address: "172.30.0.14", Labels: role("worker"), FailureDomain: "rack-b", Pinned: true},
		{Name: "host-5", Address: "172.30.0.15", Labels: role("worker"), FailureDomain: "rack-b"},
	}
}

// racks are the hosts that a control plane of three needs besides defaultHosts, with one to spare.
func racks() []*Host {
	return []*Host{
		{Name: "host-6", Address: "172.30.0.17", Labels: map[string]string{RoleLabel: "control-plane"}, FailureDomain: "rack-c", Pinned: true},
		{Name: "host-7", Address: "172.30.0.18", Labels: map[string]string{RoleLabel: "control-plane"}, FailureDomain: "rack-c", Pinned: true},
	}
}

// AddRacks starts and registers the hosts that a control plane of three needs besides those that the lab begins with.
func (l *Lab) AddRacks(ctx context.Context) error { return l.add(ctx, racks()) }

// AddWorker starts and registers a fourth host for workers, so that a pool of three has one to spare.
func (l *Lab) AddWorker(ctx context.Context) error { return l.add(ctx, crewHosts()[:1]) }

// AddSecondWorker does the same with a fifth one, after AddWorker.
func (l *Lab) AddSecondWorker(ctx context.Context) error { return l.add(ctx, crewHosts()[1:]) }

// crewHosts are those of workers that Crew needs besides defaultHosts.
func crewHosts() []*Host {
	role := map[string]string{RoleLabel: "worker"}
	return []*Host{
		{Name: "host-8", Address: "172.30.0.19", Labels: role, FailureDomain: "rack-c", Pinned: true},
		{Name: "host-9", Address: "172.30.0.20", Labels: role, FailureDomain: "rack-c", Pinned: true},
	}
}

// add starts and registers hosts. Those that run already stay as they are: a lab that is taken as it stands may use them.
func (l *Lab) add(ctx context.Context, hosts []*Host) error {
	var started []*Host
	for _, host := range hosts {
		if _, err := l.Host(host.Name); err == nil {
			continue
		}
		if _, err := l.docker(ctx, "inspect", host.Container()); err != nil {
			if err := l.StartHost(ctx, host); err != nil {
				return err
			}
			started = append(started, host)
		}
		l.Hosts = append(l.Hosts, host)
	}
	if len(started) == 0 {
		return nil
	}
	return l.Step(ctx, "Registering further hosts", 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		return l.register(ctx, step, started)
	})
}

// Stranger is a sixth host that is in nobody's inventory until a test puts it there.
func Stranger() *Host {
	return &Host{Name: "stranger", Address: "172.30.0.16", Labels: map[string]string{RoleLabel: "none"}, FailureDomain: "rack-c", Pinned: true}
}

// Host by its name, which is also that of its node.
func (l *Lab) Host(name string) (*Host, error) {
	for _, host := range l.Hosts {
		if host.Name == name {
			return host, nil
		}
	}
	return nil, fmt.Errorf("the lab has no host %q", name)
}

func (l *Lab) startHosts(ctx context.Context, step *progress.Step) error {
	if err := l.makeKeys(); err != nil {
		return err
	}
	group, starting := errgroup.WithContext(ctx)
	for _, host := range l.Hosts {
		group.Go(func() error { return l.startHost(starting, host) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return l.awaitSSH(ctx, step, l.Hosts...)
}

// StartHost starts a host beyond those that the lab begins with, and waits for its sshd.
func (l *Lab) StartHost(ctx context.Context, host *Host) error {
	return l.Step(ctx, "Starting host "+host.Name, time.Minute, func(ctx context.Context, step *progress.Step) error {
		if err := l.startHost(ctx, host); err != nil {
			return err
		}
		return l.awaitSSH(ctx, step, host)
	})
}

func (l *Lab) startHost(ctx context.Context, host *Host) error {
	args := append([]string{"create", "--name", host.Container(), "--hostname", host.Name,
		// systemctl reboot ends the container with an error; then it boots again.
		"--restart", "on-failure", "--network", Name, "--ip", host.Address, "--label", Label + "=" + Name, "--label", hostLabel + "=" + host.Name,
		"--volume", filepath.Join(l.Cache, "bundles") + ":" + bundlesOnHost + ":ro"}, l.engine.runFlags...)
	if os.Getenv("QUOIN_E2E_ETCD_IN_MEMORY") != "" {
		args = append(args, "--tmpfs", "/var/lib/etcd:size=512m")
	}
	if _, err := l.docker(ctx, append(args, l.tools.hostImage)...); err != nil {
		return fmt.Errorf("host %s: %w", host.Name, err)
	}
	if err := l.copyInto(ctx, host, "/etc/quoin-test/authorized_keys", l.keys.authorized, 0o644); err != nil {
		return err
	}
	if err := l.copyInto(ctx, host, "/usr/local/bin/kubeadm", []byte(kubeadmCounter), 0o755); err != nil {
		return err
	}
	_, err := l.docker(ctx, "start", host.Container())
	return err
}

// copyInto puts a file onto a host that need not run.
func (l *Lab) copyInto(ctx context.Context, host *Host, path string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(l.State, ".copy-")
	if err != nil {
		return fmt.Errorf("copying to host %s: %w", host.Name, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, writeErr := file.Write(content)
	if err := file.Close(); err != nil || writeErr != nil {
		return fmt.Errorf("copying to host %s: %w", host.Name, firstError(writeErr, err))
	}
	if err := os.Chmod(file.Name(), mode); err != nil {
		return fmt.Errorf("copying to host %s: %w", host.Name, err)
	}
	_, err = l.docker(ctx, "cp", file.Name(), host.Container()+":"+path)
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitSSH waits until the hosts take the lab's key.
func (l *Lab) awaitSSH(ctx context.Context, step *progress.Step, hosts ...*Host) error {
	return step.Poll(ctx, time.Second, func(ctx context.Context) (bool, []string, error) {
		var waiting []string
		for _, host := range hosts {
			if _, err := l.OnHost(ctx, host, "true"); err != nil {
				waiting = append(waiting, fmt.Sprintf("sshd of %s: %v", host.Name, err))
			}
		}
		return len(waiting) == 0, waiting, nil
	})
}

// Reboot ends everything that runs on a host, orderly, and boots it again; its disk stays.
func (l *Lab) Reboot(ctx context.Context, host *Host) error {
	return l.Step(ctx, "Rebooting "+host.Name, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		if _, err := l.docker(ctx, "restart", "--time", "30", host.Container()); err != nil {
			return err
		}
		return l.awaitSSH(ctx, step, host)
	})
}

// PowerCycle ends everything that runs on a host at once, as a power cut does, and boots it again; its disk stays.
func (l *Lab) PowerCycle(ctx context.Context, host *Host) error {
	return l.Step(ctx, "Cutting the power of "+host.Name, 3*time.Minute, func(ctx context.Context, step *progress.Step) error {
		for _, verb := range []string{"kill", "start"} {
			if _, err := l.docker(ctx, verb, host.Container()); err != nil {
				return err
			}
		}
		return l.awaitSSH(ctx, step, host)
	})
}

// Console runs a script on a host without SSH, as somebody at its console would: it works when sshd does not.
func (l *Lab) Console(ctx context.Context, container, script string) (string, error) {
	return l.run(ctx, command{name: l.engine.client, args: []string{"exec", container, "/bin/sh", "-c", script}})
}

// KubeadmCalls counts the calls of a kubeadm subcommand on a host, since it was started first.
func (l *Lab) KubeadmCalls(ctx context.Context, host *Host, subcommand string) (int, error) {
	out, err := l.OnHost(ctx, host, "cat "+kubeadmCalls+" 2>/dev/null || true")
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[1] == subcommand {
			count++
		}
	}
	return count, nil
}
