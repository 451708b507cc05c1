// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// options are what a person says on the command line.
type options struct {
	target ssh.Target
	// strict: the host key was given, so that nothing is trusted at first use.
	strict bool
	force  bool
	skip   []string
	output string
}

const usage = `Tries whether a machine can serve as a host of Quoin, and prints a report.

  go run ./hack/conformance --host user@address[:port] --key <private key file> [flags]
  make host-conformance HOST=user@address[:port] KEY=<private key file> [...]

The user is root, or may run any command (or just the program of --sudo-command) with sudo and without a password.
Nothing of Kubernetes is installed. All that is put on the machine lies below /var/lib/quoin-conformance and in a few files
of that name below /etc, and is taken back. A machine that carries Kubernetes, or serves as a host already, is refused;
with --force everything but the reset is tried on it.

Code 0: no check failed. 1: a check failed. 2: the machine was not tried.

`

func parseOptions(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	host := flags.String("host", "", "the machine, as `user@address[:port]`")
	key := flags.String("key", "", "`file` with the private SSH key, without a passphrase")
	bastion := flags.String("bastion", "", "jump host, as `user@address[:port]`; the same key logs in there unless --bastion-key is given")
	bastionKey := flags.String("bastion-key", "", "`file` with the private SSH key for the jump host")
	bastionKnown := flags.String("bastion-known-host-key", "", "the jump host's own public `key`, as --known-host-key")
	sudoCommand := flags.String("sudo-command", "", "`path` on the machine of the only program that the user may run with sudo (hack/quoin-run)")
	knownKey := flags.String("known-host-key", "", "the host's own public `key` (\"ssh-ed25519 AAAA...\"): connect to nothing else. Else the key of the first contact is shown and pinned for the run")
	output := flags.String("output", "", "`file` to write the report to: .md for Markdown, .json for JSON")
	skip := flags.String("skip", "", "checks to leave out, by `name`, separated by commas")
	force := flags.Bool("force", false, "try a machine that carries Kubernetes or serves as a host already; it is not reset")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	if *host == "" || *key == "" {
		return options{}, errors.New("give --host user@address[:port] and --key <private key file>; see --help")
	}
	o := options{strict: *knownKey != "", force: *force, output: *output}
	if o.output != "" && !slices.Contains([]string{".md", ".json"}, filepath.Ext(o.output)) {
		return options{}, fmt.Errorf("--output %s: the name must end in .md or .json", o.output)
	}
	for name := range strings.SplitSeq(*skip, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !slices.ContainsFunc(checks(), func(c check) bool { return c.name == name }) {
			return options{}, fmt.Errorf("--skip: there is no check %q", name)
		}
		o.skip = append(o.skip, name)
	}
	var err error
	if o.target, err = parseTarget("--host", *host, *key); err != nil {
		return options{}, err
	}
	if o.target.HostKeys, err = ssh.ParseHostKeys(*knownKey); err != nil {
		return options{}, fmt.Errorf("--known-host-key: %w", err)
	}
	o.target.SudoCommand = *sudoCommand
	if *bastion == "" {
		return o, nil
	}
	jump, err := parseTarget("--bastion", *bastion, cmp.Or(*bastionKey, *key))
	if err != nil {
		return options{}, err
	}
	if jump.HostKeys, err = ssh.ParseHostKeys(*bastionKnown); err != nil {
		return options{}, fmt.Errorf("--bastion-known-host-key: %w", err)
	}
	o.target.Bastion = &jump
	return o, nil
}

// parseTarget reads user@address[:port]; an IPv6 address with a port stands in brackets.
func parseTarget(name, text, keyFile string) (ssh.Target, error) {
	user, address, found := strings.Cut(text, "@")
	if !found || user == "" || address == "" {
		return ssh.Target{}, fmt.Errorf("%s %q: expected user@address[:port]", name, text)
	}
	target := ssh.Target{User: user, Address: strings.Trim(address, "[]")}
	if host, port, err := net.SplitHostPort(address); err == nil {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return ssh.Target{}, fmt.Errorf("%s %q: %q is not a port", name, text, port)
		}
		target.Address, target.Port = host, int(number)
	}
	private, err := os.ReadFile(keyFile)
	if err != nil {
		return ssh.Target{}, fmt.Errorf("the key for %s: %w", name, err)
	}
	signer, err := ssh.ParseSigner(private)
	if err != nil {
		return ssh.Target{}, fmt.Errorf("the key for %s (%s): %w", name, keyFile, err)
	}
	target.Signers = []ssh.Signer{signer}
	return target, nil
}
