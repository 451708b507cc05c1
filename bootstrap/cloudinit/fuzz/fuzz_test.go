// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fuzz throws odd bootstrap data at the parser.
package fuzz

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

var host = cloudinit.InstanceData("node-1", "uid-1", "")

func seeds(f *testing.F) {
	f.Helper()
	for _, name := range []string{"join.yaml", "init.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{
		"a: &a [x,x]\nb: &b [*a,*a]\nruncmd: *b\n", "write_files:\n- {path: /x, encoding: gz+b64, content: " +
			"H4sIAAAAAAAA/ypJrSgBBAAA//+4jV/9BAAAAA==}\n",
		"users: [{name: a, groups: [b, c], sudo: ALL}, default]\n",
		"runcmd: [[kubeadm, join, --config, /x], 'kubeadm init --config=/run/kubeadm/kubeadm.yaml', ~, {a: b}]\n",
		"disk_setup: {/dev/disk/by-id/wwn-1: {layout: [50, [50, 83]], table_type: gpt}}\nfs_setup: [{label: x, filesystem: " +
			"xfs, device: /dev/disk/by-id/wwn-1, partition: auto|any}]\n",
		"mounts: [[sdb1, /x], [LABEL=a, none, swap]]\nhostname: h\nfqdn: h.example\nntp: {enabled: true, pools: [a]}\n",
		"a: &a [*a]\n", "runcmd: &x\n- *x\n",
		"write_files: {path: /x}\n", "runcmd: !!binary aGk=\n", "? [a]\n: b\n", "users:\n- name: \"a\\0\"\n",
	} {
		f.Add([]byte("#cloud-config\n" + text))
		f.Add([]byte("## template: jinja\n#cloud-config\n" + text + "# {{ ds.meta_data.local_hostname }} {{ 'x' }} ${#a} {{"))
	}
}

func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := cloudinit.Parse(data, host)
		if (config == nil) == (err == nil) {
			t.Fatal("either a configuration or an error")
		}
		if err != nil {
			return
		}
		total := 0
		for _, file := range config.Files {
			total += len(file.Content)
			if !strings.HasPrefix(file.Path, "/") || strings.Contains(file.Path, "/../") ||
				strings.HasPrefix(file.Path, "/var/lib/quoin/") {
				t.Fatalf("path %q was let through", file.Path)
			}
		}
		if total > 64<<20 {
			t.Fatalf("%d bytes of input became files of %d", len(data), total)
		}
	})
}

// Whatever is parsed makes a plan that can be run, or an error; never a plan that the host finds wrong.
func FuzzSteps(f *testing.F) {
	seeds(f)
	roles := []cloudinit.DiskRole{{ID: "wwn-1", Role: cloudinit.RoleData}, {ID: "wwn-2", Role: cloudinit.RoleSystem}}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := cloudinit.Parse(data, host)
		if err != nil {
			return
		}
		files, steps, err := config.Steps(cloudinit.Options{Disks: roles, KubeadmArgs: []string{"--v=1"}})
		if err != nil || len(steps) == 0 {
			return
		}
		if err := (run.Plan{ID: "fuzz", Files: files, Steps: steps}).Validate(); err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			if step.Once != (strings.HasPrefix(step.Name, "kubeadm-")) {
				t.Fatalf("step %s", step.Name)
			}
		}
	})
}
