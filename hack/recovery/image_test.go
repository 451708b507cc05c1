// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// asEtcdutl has the program of the tests be etcdutl.
const asEtcdutl = "QUOIN_TEST_ETCDUTL"

// standIn is `etcdutl snapshot restore <file>` with the options that it is given here, and no others.
func standIn(args []string) error {
	var c snapshot.RestoreConfig
	var peers string
	flags := flag.NewFlagSet("etcdutl", flag.ContinueOnError)
	flags.BoolVar(&c.SkipHashCheck, "skip-hash-check", false, "")
	flags.StringVar(&c.OutputDataDir, "data-dir", "", "")
	flags.StringVar(&c.Name, "name", "", "")
	flags.StringVar(&c.InitialCluster, "initial-cluster", "", "")
	flags.StringVar(&peers, "initial-advertise-peer-urls", "", "")
	flags.StringVar(&c.InitialClusterToken, "initial-cluster-token", "etcd-cluster", "")
	flags.Uint64Var(&c.RevisionBump, "bump-revision", 0, "")
	flags.BoolVar(&c.MarkCompacted, "mark-compacted", false, "")
	if len(args) < 3 || args[0] != "snapshot" || args[1] != "restore" {
		return errors.New("only snapshot restore is known")
	}
	if err := flags.Parse(args[3:]); err != nil {
		return err
	}
	c.SnapshotPath, c.PeerURLs = args[2], strings.Split(peers, ",")
	return snapshot.NewV3(zap.NewNop()).Restore(c)
}

// image is a directory with etcd's programs, as its image has them beside each other.
var image string

func TestMain(m *testing.M) {
	if os.Getenv(asEtcdutl) != "" {
		if err := standIn(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(withImage(m))
}

func withImage(m *testing.M) int {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return m.Run()
	}
	var err error
	if image, err = makeImage(assets); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(image) }()
	return m.Run()
}

func makeImage(assets string) (string, error) {
	directory, err := os.MkdirTemp("", "etcd-image-")
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(assets, "etcd"))
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	utl := []byte("#!/bin/sh\n" + asEtcdutl + "=1 exec " + self + ` "$@"` + "\n")
	if theirs, err := os.ReadFile(filepath.Join(assets, "etcdutl")); err == nil {
		utl = theirs
	}
	for name, content := range map[string][]byte{"etcd": content, "etcdutl": utl} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o700); err != nil { //nolint:gosec // programs
			return "", err
		}
	}
	return directory, nil
}
