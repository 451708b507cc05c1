// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// way is how a host is reached, with what is to be known of the credentials.
type way struct {
	target        ssh.Target
	secretVersion string
	// notes and bastionNotes say which credentials were left out, and why.
	notes, bastionNotes []string
}

// annotate adds to a refused login which credentials were not even tried.
func (w *way) annotate(err error) error {
	var auth *ssh.AuthError
	if !errors.As(err, &auth) {
		return err
	}
	notes := w.notes
	if auth.Bastion {
		notes = w.bastionNotes
	}
	if len(notes) == 0 {
		return err
	}
	return fmt.Errorf("%w (not tried: %s)", err, strings.Join(notes, "; "))
}

// readWay reads what the spec and its Secrets say.
func readWay(ctx context.Context, secrets client.Reader, host *infrav1.QuoinHost) (*way, error) {
	own, err := readKeyring(ctx, secrets, host.Namespace, host.Spec.CredentialsRef.Name)
	if err != nil {
		return nil, err
	}
	about := func(field string, err error) error {
		return fmt.Errorf("spec.%s of QuoinHost %s/%s: %w", field, host.Namespace, host.Name, err)
	}
	keys, err := pinned(host.Spec.HostKeys)
	if err != nil {
		return nil, about("hostKeys", err)
	}
	authorities, err := pinned(host.Spec.HostCertificateAuthorities)
	if err != nil {
		return nil, about("hostCertificateAuthorities", err)
	}
	user := host.Spec.User
	if user == "" {
		user = "root"
	}
	w := &way{secretVersion: own.version, notes: own.notes, bastionNotes: own.notes, target: ssh.Target{
		Address: host.Spec.Address, Port: int(host.Spec.Port), User: user, SudoCommand: host.Spec.SudoCommand,
		Signers: own.signers, HostKeys: keys, HostAuthorities: authorities, Names: []string{host.Name},
		Owner: host.Namespace,
	}}
	if bastion := host.Spec.Bastion; bastion != nil {
		theirs := own
		if bastion.CredentialsRef != nil && bastion.CredentialsRef.Name != host.Spec.CredentialsRef.Name {
			if theirs, err = readKeyring(ctx, secrets, host.Namespace, bastion.CredentialsRef.Name); err != nil {
				return nil, err
			}
			w.bastionNotes = theirs.notes
		}
		jump, err := pinned(bastion.HostKeys)
		if err != nil {
			return nil, about("bastion.hostKeys", err)
		}
		w.target.Bastion = &ssh.Target{
			Address: bastion.Address, Port: int(bastion.Port), User: bastion.User, Signers: theirs.signers, HostKeys: jump,
		}
	}
	return w, nil
}

// pinned reads keys of a spec. Lines that hold none are an error: a target without any key takes every key.
func pinned(lines []string) ([]ssh.PublicKey, error) {
	keys, err := ssh.ParseHostKeys(strings.Join(lines, "\n"))
	if err == nil && len(lines) > 0 && len(keys) == 0 {
		err = errors.New("it holds no key; give a line such as that of /etc/ssh/ssh_host_ed25519_key.pub, or remove the " +
			"field")
	}
	return keys, err
}
