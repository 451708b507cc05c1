// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// hostRoot is replaced by tests alone.
var hostRoot = run.DefaultRoot

// File of a member's data directory.
type File struct {
	// Name is its path below the data directory, such as member/snap/db.
	Name string
	// Content is Size bytes long and has the SHA256, in hexadecimal.
	Content io.ReadSeeker
	Size    int64
	SHA256  string
}

// Delivery is the data that a member is to begin with. They lie in a directory of their own on its host, which root
// alone may read, until the plan ID puts them in place.
type Delivery struct {
	// ID of the plan.
	ID    string
	Files []File
}

// list of the files with their checksums, as sha256sum writes it.
func (d Delivery) list() string {
	var list strings.Builder
	for _, file := range d.Files {
		fmt.Fprintf(&list, "%s  %s\n", file.SHA256, file.Name)
	}
	return list.String()
}

// Snapshot is what the host is to find.
func (d Delivery) Snapshot() Snapshot {
	sum := sha256.Sum256([]byte(d.list()))
	result := Snapshot{SHA256: hex.EncodeToString(sum[:])}
	for _, file := range d.Files {
		result.Size += file.Size
	}
	return result
}

// Directory is where the data lie on a host that Deliver brings for the plan ID.
func Directory(id string) string { return path.Join(hostRoot, "recovery", "snapshot-"+id) }

// Deliver brings the data to the host, which verifies each file. It may be cut at any byte and called again, also with
// other data: it goes on where it was, and removes what belongs to other data. The list of the files comes last.
func Deliver(ctx context.Context, host ssh.Host, d Delivery) error {
	there, err := prepare(ctx, host, d)
	if err != nil {
		return err
	}
	for _, file := range d.Files {
		if there[file.SHA256] {
			continue
		}
		if err := deliver(ctx, host, Directory(d.ID), file); err != nil {
			return err
		}
	}
	if err := host.Upload(ctx, Directory(d.ID)+"/sums", 0o600, []byte(d.list())); err != nil {
		return fmt.Errorf("writing the list of the data: %w", err)
	}
	return nil
}

// prepare makes the directory and says which files are there.
func prepare(ctx context.Context, host ssh.Host, d Delivery) (map[string]bool, error) {
	keep := " "
	for _, file := range d.Files {
		keep += file.SHA256 + " " + file.SHA256 + ".part "
	}
	need := d.Snapshot().Size >> 10
	result, err := host.Run(ctx, ssh.Command{Sudo: true, Script: fmt.Sprintf(`set -eu
umask 077
root=%[1]s
d=%[2]s
[ -d "$root" ] || { echo "$root does not exist: this host was reset" >&2; exit 1; }
mkdir -p "$d"
chmod 0700 "$root/recovery" "$d"
for f in "$d"/*; do
	case %[3]s in
	*" ${f##*/} "*) ;;
	*) rm -rf "$f" ;;
	esac
done
used=$(du -sk "$d")
free=$(df -Pk "$d" | awk 'END { print $4 }')
[ $((free + ${used%%%%[!0-9]*})) -gt %[4]d ] || { echo "$d has $free KiB free, and %[4]d are needed: make room there" >&2; exit 1; }
for f in "$d"/*; do
	if [ -e "$f" ]; then echo "${f##*/}"; fi
done
`, ssh.Quote(hostRoot), ssh.Quote(Directory(d.ID)), ssh.Quote(keep), need)})
	if err != nil {
		return nil, fmt.Errorf("making room for the data of a snapshot: %w", err)
	}
	there := map[string]bool{}
	for name := range strings.FieldsSeq(result.Stdout) {
		there[name] = true
	}
	return there, nil
}

// deliver sends one file and has the host verify it. What was there before may be what is wrong, so a file that turns
// out damaged is sent once more.
func deliver(ctx context.Context, host ssh.Host, directory string, file File) error {
	send := func() error {
		return ssh.PushVerified(ctx, host, path.Join(directory, file.SHA256), file.SHA256, file.Content, file.Size, 0)
	}
	err := send()
	if errors.Is(err, ssh.ErrDamaged) {
		err = send()
	}
	if err != nil {
		return fmt.Errorf("sending %s: %w", file.Name, err)
	}
	return nil
}

// Discard removes what Deliver brought.
func Discard(ctx context.Context, host ssh.Host, id string) error {
	if _, err := host.Run(ctx, ssh.Command{Sudo: true, Script: "rm -rf " + ssh.Quote(Directory(id)) + "\n"}); err != nil {
		return fmt.Errorf("removing the data of a snapshot: %w", err)
	}
	return nil
}

// Peer is an etcd member as its peers know it.
type Peer struct{ Name, URL string }

// ReadPeer reads from the manifest of etcd which member is on the host, whether it runs or a recovery has stopped it.
func ReadPeer(ctx context.Context, host ssh.Host) (Peer, error) {
	result, err := host.Run(ctx, ssh.Command{Sudo: true, Script: fmt.Sprintf(`for f in /etc/kubernetes/manifests/etcd.yaml %s/recovery/etcd.yaml; do
	[ -s "$f" ] || continue
	sed -n -e 's/^ *- --name=/name /p' -e 's/^ *- --initial-advertise-peer-urls=/url /p' "$f"
	break
done
`, ssh.Quote(hostRoot))})
	if err != nil {
		return Peer{}, fmt.Errorf("reading the manifest of etcd: %w", err)
	}
	var peer Peer
	for line := range strings.Lines(result.Stdout) {
		switch word, value, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "name":
			peer.Name = value
		case "url":
			peer.URL, _, _ = strings.Cut(value, ",")
		}
	}
	if peer.Name == "" || peer.URL == "" {
		return Peer{}, errors.New("the host has no manifest of etcd that names the member (--name, " +
			"--initial-advertise-peer-urls): none was ever started there")
	}
	return peer, nil
}
