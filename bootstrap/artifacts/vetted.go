// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"
)

const (
	// pieceSize is how much of a file is read and compared before any of it is sent.
	pieceSize = 256 << 10
	// vettedFor is how long the pieces of a file are remembered after the last push that asked for them.
	vettedFor = 10 * time.Minute
)

// errDiffers says that a file of a bundle is not the one of its manifest.
var errDiffers = errors.New("another checksum than that of manifest.json")

// Vetted remembers the digest of each piece of the files that this process has read whole, and whose checksum was
// right. A push reads a file once for that and once more to send it, and sends no piece that differs: so nothing comes
// onto a host before its checksum is known, although files are larger than this process's memory and it has no disk of
// its own to keep them on. What was read for one host counts for the others, and over many calls. The zero value is
// empty and ready.
type Vetted struct {
	mu    sync.Mutex
	files map[vettedKey]*vetting
}

// vettedKey is a file by the way in which it is read: what one server answers says nothing about another.
type vettedKey struct{ at, proxy, authorities, path, sha256 string }

// vetting is a file that was read, as far as it was.
type vetting struct {
	// whole is pieces once all of them were read and the checksum was right. The mutex of Vetted is for it and used.
	whole [][sha256.Size]byte
	used  time.Time

	// reads is held by whoever reads.
	reads  sync.Mutex
	digest hash.Hash
	pieces [][sha256.Size]byte
	// next is when the limit of whoever read last allows the next piece.
	next time.Time
}

// of returns what is known of a file, and its pieces when it was read whole. It forgets what nobody asked for in a
// while.
func (v *Vetted) of(key vettedKey) (file *vetting, whole [][sha256.Size]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	for other, file := range v.files {
		if now.Sub(file.used) > vettedFor {
			delete(v.files, other)
		}
	}
	if v.files == nil {
		v.files = map[vettedKey]*vetting{}
	}
	file = v.files[key]
	if file == nil {
		file = &vetting{digest: sha256.New()}
		v.files[key] = file
	}
	file.used = now
	return file, file.whole
}

// pieces returns the digests of the pieces of a file, which it opens and reads unless they are known, at so many bytes
// per second, or without a bound when that is 0. It ends with errPause when its time is over, and goes on there with
// the next call; with errLater where it could do nothing, as another one reads the file, or the limit leaves no time
// for a piece: so whoever waits holds nothing meanwhile that others wait for. What differs is errDiffers, and is read
// anew then.
func (v *Vetted) pieces(
	ctx context.Context, key vettedKey, size, bytesPerSecond int64, until time.Time,
	open func() (io.ReadSeekCloser, error),
) ([][sha256.Size]byte, error) {
	file, whole := v.of(key)
	switch {
	case whole != nil:
		return whole, nil
	case !file.reads.TryLock():
		return nil, errLater
	}
	defer file.reads.Unlock()
	if int64(len(file.pieces))*pieceSize < size {
		if file.next.After(until) && file.next.After(time.Now()) {
			return nil, errLater
		}
		source, err := open()
		if err != nil {
			return nil, err
		}
		defer source.Close()
		if err := file.read(ctx, source, size, bytesPerSecond, until); err != nil {
			return nil, err
		}
	}
	if hex.EncodeToString(file.digest.Sum(nil)) != key.sha256 {
		file.digest, file.pieces = sha256.New(), nil
		return nil, errDiffers
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	file.whole = file.pieces
	return file.whole, nil
}

// read goes on until the file was read whole, or the time is over.
func (f *vetting) read(
	ctx context.Context, source io.ReadSeeker, size, bytesPerSecond int64, until time.Time,
) error {
	at := int64(len(f.pieces)) * pieceSize
	if _, err := source.Seek(at, io.SeekStart); err != nil {
		return err
	}
	buffer := make([]byte, min(pieceSize, size))
	for first := true; at < size; first = false {
		now := time.Now()
		// Not before the first piece: each call makes progress.
		if !first && (now.After(until) || f.next.After(until)) {
			return errPause
		}
		if f.next.After(now) {
			select {
			case <-time.After(f.next.Sub(now)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		next := buffer[:min(pieceSize, size-at)]
		if _, err := io.ReadFull(source, next); err != nil {
			return short(err, at, size)
		}
		if bytesPerSecond > 0 {
			f.next = time.Now().Add(time.Duration(float64(len(next)) / float64(bytesPerSecond) * float64(time.Second)))
		}
		_, _ = f.digest.Write(next)
		f.pieces = append(f.pieces, sha256.Sum256(next))
		at += int64(len(next))
	}
	return nil
}

// short says what it means that a file ends early.
func short(err error, at, size int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ends after byte %d, but manifest.json says %d; copy the bundle again, completely", at, size)
	}
	return err
}

// checked reads source and hands out what its pieces have the digests of, and nothing else.
type checked struct {
	source io.ReadSeeker
	size   int64
	pieces [][sha256.Size]byte

	at int64
	// have is the piece in which at lies, once it was read.
	have  []byte
	index int64
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	index := c.at / pieceSize
	if c.have == nil || c.index != index {
		if err := c.load(index); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.have[c.at-index*pieceSize:])
	c.at += int64(n)
	return n, nil
}

func (c *checked) load(index int64) error {
	begin := index * pieceSize
	buffer := c.have
	if buffer == nil {
		buffer = make([]byte, 0, min(pieceSize, c.size))
	}
	c.have = nil
	next := buffer[:min(pieceSize, c.size-begin)]
	if _, err := c.source.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.source, next); err != nil {
		return short(err, begin, c.size)
	}
	if sha256.Sum256(next) != c.pieces[index] {
		return errDiffers
	}
	c.have, c.index = next, index
	return nil
}

// Seek implements io.Seeker, from the beginning alone: nobody here seeks otherwise.
func (c *checked) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart || offset < 0 {
		return c.at, errors.New("a checked file is read from its beginning")
	}
	c.at = offset
	return offset, nil
}
