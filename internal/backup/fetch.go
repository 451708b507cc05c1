// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"filippo.io/age"
)

// ErrIdentity says that an encrypted snapshot was asked for without an identity.
var ErrIdentity = errors.New("the snapshot is encrypted: the identity of one of its recipients is needed")

// Fetch writes a snapshot as etcd sent it into an empty file, which package restore or `etcdutl snapshot restore` can
// use, and checks it as Take did: the bytes of the store, the digest of etcd, the database. On an error the file is
// worth nothing. An encrypted snapshot needs the identity of one of its recipients.
func Fetch(
	ctx context.Context, from Store, directory string, metadata Metadata, to *os.File, identities ...age.Identity,
) error {
	ctx, progress, stop := watch(ctx, StallTimeout)
	defer stop()
	stored, err := from.Open(ctx, path.Join(directory, metadata.Name))
	if err != nil {
		return err
	}
	defer func() { _ = stored.Close() }()
	digest := sha256.New()
	var counted counter
	raw := io.TeeReader(progress.reader(withContext(ctx, stored)), io.MultiWriter(digest, &counted))
	data := raw
	if metadata.Encrypted() {
		if len(identities) == 0 {
			return ErrIdentity
		}
		if data, err = age.Decrypt(raw, identities...); err != nil {
			return fmt.Errorf("decrypting %s: %w", metadata.Name, err)
		}
	}
	plain := sha256.New()
	size, err := io.Copy(io.MultiWriter(to, plain), data)
	if err != nil {
		return fmt.Errorf("fetching %s: %w", metadata.Name, err)
	}
	// Decryption ends where the encrypted data does; what follows it counts as well.
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return fmt.Errorf("fetching %s: %w", metadata.Name, err)
	}
	if err := metadata.matches(int64(counted), digest); err != nil {
		return err
	}
	if size != metadata.Size || hex.EncodeToString(plain.Sum(nil)) != metadata.SnapshotSHA256 {
		return fmt.Errorf("%w: %s does not hold what etcd sent", ErrDamaged, metadata.Name)
	}
	if _, err := verify(to, size, progress); err != nil {
		return err
	}
	return to.Sync()
}
