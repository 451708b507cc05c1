// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// The lab's network. Dynamic addresses (kind's node) lie in the upper half, hosts and virtual addresses below.
const (
	subnet       = "172.30.0.0/24"
	dynamicRange = "172.30.0.128/25"
	// Gateway is this machine's own address on the network.
	Gateway = "172.30.0.1"
)

// engine is the container engine as hack/engine/ensure.sh found it.
type engine struct {
	// client of the engine; `docker` in PATH may be something else.
	client string
	// runFlags are what `run` needs for a host.
	runFlags []string
}

// ensureEngine makes sure of an engine, which may mean to install and start it.
func (l *Lab) ensureEngine(ctx context.Context, step *progress.Step) error {
	_, err := l.run(ctx, command{name: l.file("hack", "engine", "ensure.sh"), line: func(line string) { step.Waiting(line) }})
	if err != nil {
		return err
	}
	return l.readEngine()
}

// readEngine reads what ensure.sh wrote.
func (l *Lab) readEngine() error {
	dir := filepath.Join(l.Cache, "engine")
	client, err := os.ReadFile(filepath.Join(dir, "client"))
	if err != nil {
		return fmt.Errorf("no container engine was set up: %w", err)
	}
	flags, err := os.ReadFile(filepath.Join(dir, "run-flags"))
	if err != nil {
		return fmt.Errorf("no container engine was set up: %w", err)
	}
	l.engine = engine{
		client:   strings.TrimSpace(string(client)),
		runFlags: slices.DeleteFunc(strings.Split(string(flags), "\n"), func(flag string) bool { return flag == "" }),
	}
	return nil
}

// docker runs the engine's client.
func (l *Lab) docker(ctx context.Context, args ...string) (string, error) {
	return l.run(ctx, command{name: l.engine.client, args: args})
}

// inspect reads one engine object into out; found is false when there is none.
func (l *Lab) inspect(ctx context.Context, kind, name string, out any) (found bool, err error) {
	text, err := l.run(ctx, command{name: l.engine.client, args: []string{kind, "inspect", name}, quiet: true})
	if err != nil {
		if strings.Contains(strings.ToLower(err.Error()), "no such "+kind) || strings.Contains(err.Error(), "No such") ||
			strings.Contains(err.Error(), "not found") {
			return false, nil
		}
		return false, err
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return false, fmt.Errorf("reading what the engine says of %s %s: %w", kind, name, err)
	}
	return true, nil
}

// makeNetwork makes the network. The rule that keeps everything inside comes first: a Service address that kube-proxy does
// not serve yet would otherwise be looked for outside, and what answers there misleads.
func (l *Lab) makeNetwork(ctx context.Context, _ *progress.Step) error {
	if err := l.fence(ctx, true); err != nil {
		return err
	}
	var found []struct{ Labels map[string]string }
	exists, err := l.inspect(ctx, "network", Name, &found)
	if err != nil {
		return err
	}
	if exists {
		if len(found) == 1 && found[0].Labels[Label] == Name {
			return nil
		}
		return fmt.Errorf("the engine has a network %s that is not the lab's; remove it or rename it: %s network rm %s", Name, l.engine.client, Name)
	}
	_, err = l.docker(ctx, "network", "create", "--driver", "bridge", "--subnet", subnet, "--ip-range", dynamicRange,
		"--gateway", Gateway, "--label", Label+"="+Name,
		"--opt", "com.docker.network.bridge.name="+Name, Name)
	return err
}

// fence adds or removes the rule that rejects whatever the lab's bridge wants to send to another interface.
func (l *Lab) fence(ctx context.Context, want bool) error {
	rule := []string{"-i", Name, "!", "-o", Name, "-m", "comment", "--comment", Label + "=" + Name, "-j", "REJECT"}
	iptables := func(verb string) error {
		_, err := l.run(ctx, command{name: "iptables", args: append([]string{"--wait", verb, "DOCKER-USER"}, rule...)})
		return err
	}
	if want {
		if iptables("-C") == nil {
			return nil
		}
		if err := iptables("-I"); err != nil {
			return fmt.Errorf("the lab's network must not reach beyond this machine, and the rule for it could not be set: %w", err)
		}
		return nil
	}
	// A run that was killed between check and insert may have left it twice.
	gone := false
	for range 10 {
		if gone = iptables("-D") != nil; gone {
			break
		}
	}
	if !gone {
		return fmt.Errorf("the rule that fences the lab's network in could not be removed; see: iptables -S DOCKER-USER")
	}
	return nil
}
