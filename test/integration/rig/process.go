// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is a child in a process group of its own, with its output in a file.
type process struct {
	name    string
	log     string
	command *exec.Cmd
	done    chan struct{}
	exit    error
}

// startProcess runs a program with the reaper's mark added to env.
func (r *Rig) startProcess(name string, env []string, program string, args ...string) (*process, error) {
	log := filepath.Join(r.Dir, name+".log")
	// Appended to, so that a restart keeps what came before.
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = output.Close() }()
	command := exec.Command(program, args...)
	command.Env = slices.Concat(env, []string{r.reaper.mark})
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, log: log, command: command, done: make(chan struct{})}
	go func() {
		p.exit = command.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop asks the process group to end and kills it after the grace period.
func (p *process) stop(grace time.Duration) error {
	group := -p.command.Process.Pid
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.done:
			return nil
		default:
		}
		if err := syscall.Kill(group, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping %s: %w", p.name, err)
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(grace):
		}
	}
	return fmt.Errorf("%s does not end", p.name)
}

// waitFor polls a URL until it answers 200, as long as patience lasts. It gives up early when the process has ended.
func (p *process) waitFor(ctx context.Context, httpClient *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		status, err := get(ctx, httpClient, url)
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.name, p.exit, tail(p.log, 20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: status %d: %w\n%s",
				p.name, patience, status, errors.Join(ctx.Err(), err), tail(p.log, 20))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, httpClient *http.Client, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

// tail is the end of a log, for error messages.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return path + ":\n" + strings.Join(all[max(0, len(all)-lines):], "\n")
}

// firstPort and lastPort bound the ports that are looked at: the kernel gives none below 32768 to whoever asks for any
// (ip_local_port_range).
const firstPort, lastPort = 20000, 32000

// freePorts finds n ports, all held until the last is known so that none comes twice. None of them is taken by whoever
// asks the kernel for any: a manager that is started again listens where it did before, and other tests run meanwhile.
func freePorts(n int) ([]int, error) {
	listeners := make([]net.Listener, 0, n)
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		switch {
		case err == nil:
			listeners, ports = append(listeners, listener), append(ports, port)
		case tries > 100:
			return nil, fmt.Errorf("looking for free ports: %w", err)
		}
	}
	return ports, nil
}
