// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

const (
	// Format of the metadata that is written and understood.
	Format = 1
	// sidecarSuffix follows the name of the data in that of its metadata.
	sidecarSuffix = ".json"
	// pendingSuffix follows the name of data that is being written or deleted.
	pendingSuffix = ".pending"
	// maxSidecar bounds what is read of a file that may be anything.
	maxSidecar = 64 << 10
	// stampLayout is the time in names.
	stampLayout = "20060102T150405Z"
)

// dataName is what the data of snapshots is called: the time at which it was begun, in UTC, and some random bytes.
var dataName = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}\.db(\.age)?$`)

func newName(began time.Time, encrypted bool) string {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // it never fails
	name := began.UTC().Format(stampLayout) + "-" + hex.EncodeToString(random) + ".db"
	if encrypted {
		name += ".age"
	}
	return name
}

// ours reports whether a file has one of the names that are given here. Files of other names are never touched.
func ours(name string) bool {
	return dataName.MatchString(strings.TrimSuffix(strings.TrimSuffix(name, pendingSuffix), sidecarSuffix))
}

// Metadata of a good snapshot, as its sidecar tells it.
type Metadata struct {
	// Format is 1.
	Format int `json:"format"`
	// Name of the data, which lies in the same directory.
	Name string `json:"name"`
	// Authority is the SHA-256 of the certificate of etcd's authority, in hexadecimal: it tells clusters of the same name
	// apart, and stays the same when the management cluster changes.
	Authority string `json:"authority"`
	// Time at which the snapshot was begun, in full seconds: what was written before is in it.
	Time time.Time `json:"time"`
	// Node whose member sent it, and etcd's version there.
	Node        string `json:"node,omitempty"`
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// Revision of etcd's data, and how many revisions of keys it holds.
	Revision int64 `json:"revision"`
	Entries  int64 `json:"entries"`
	// Size in bytes, and SHA256, of the snapshot as etcd sent it.
	Size           int64  `json:"size"`
	SnapshotSHA256 string `json:"snapshotSHA256"`
	// StoredSize and SHA256 of the data as it is stored: the same when it is not encrypted.
	StoredSize int64  `json:"storedSize"`
	SHA256     string `json:"sha256"`
	// Recipients that it is encrypted to; none when it is not encrypted.
	Recipients []string `json:"recipients,omitempty"`
	// Signature is the HMAC-SHA256 of all of the above, in hexadecimal; none when there was no key.
	Signature string `json:"signature,omitempty"`
}

// Encrypted reports whether an identity of a recipient is needed to read the data.
func (m Metadata) Encrypted() bool { return strings.HasSuffix(m.Name, ".age") }

// errMetadata is what every refusal of ParseMetadata is.
var errMetadata = errors.New("not the metadata of a snapshot")

// ParseMetadata reads a sidecar. Unknown fields are left for later versions of the same format to add.
func ParseMetadata(raw []byte) (Metadata, error) {
	var m Metadata
	if len(raw) > maxSidecar {
		return Metadata{}, fmt.Errorf("%w: longer than %d bytes", errMetadata, maxSidecar)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if err := decoder.Decode(&m); err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", errMetadata, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Metadata{}, fmt.Errorf("%w: something follows it", errMetadata)
	}
	if err := m.validate(); err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", errMetadata, err)
	}
	m.Time = m.Time.UTC()
	return m, nil
}

func (m Metadata) validate() error {
	switch {
	case m.Format != Format:
		return fmt.Errorf("format %d is not %d", m.Format, Format)
	case !dataName.MatchString(m.Name):
		return fmt.Errorf("name %q", m.Name)
	case m.Time.Nanosecond() != 0 || !strings.HasPrefix(m.Name, m.Time.UTC().Format(stampLayout)+"-"):
		return fmt.Errorf("time %s is not that of name %s", m.Time.UTC().Format(time.RFC3339Nano), m.Name)
	case m.Revision < 1 || m.Entries < 0:
		return fmt.Errorf("revision %d with %d entries", m.Revision, m.Entries)
	case m.Size < 1 || m.StoredSize < m.Size:
		return fmt.Errorf("size %d, stored in %d", m.Size, m.StoredSize)
	case m.Encrypted() != (len(m.Recipients) > 0):
		return fmt.Errorf("%d recipients for name %s", len(m.Recipients), m.Name)
	case !m.Encrypted() && (m.StoredSize != m.Size || m.SHA256 != m.SnapshotSHA256):
		return errors.New("what is stored is not what etcd sent")
	}
	for _, digest := range []string{m.Authority, m.SnapshotSHA256, m.SHA256} {
		if decoded, err := hex.DecodeString(digest); err != nil || len(decoded) != 32 || strings.ToLower(digest) != digest {
			return fmt.Errorf("digest %q", digest)
		}
	}
	return nil
}

func (m Metadata) marshal() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errMetadata, err)
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	return append(raw, '\n'), err
}
