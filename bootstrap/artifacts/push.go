// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Progress is how far a push came.
type Progress struct {
	// There is what the host has of Total, in bytes; what is installed counts.
	There, Total int64
	// Done says that the host lacks nothing any more: a plan may start.
	Done bool
	// Reads is the file whose checksum is not known yet, so that nothing of it is sent.
	Reads string
	// Later says that there was nothing to do yet, as another push reads that file, or its limit is used up.
	Later bool
}

// String is the progress for people.
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d MiB are there", p.There>>20, (p.Total+1<<20-1)>>20)
	if p.Reads != "" {
		text += "; nothing of " + p.Reads + " is sent before its checksum is known"
	}
	return text
}

//go:embed lacks.sh
var lacksScript string

// hostRoot is replaced by tests alone.
var hostRoot = run.DefaultRoot

// errPause ends the sending when its time is over: no failure, the next call goes on.
var errPause = errors.New("the time of this call is over")

// errReads is errPause before anything was sent.
var errReads = fmt.Errorf("the checksum is not known yet: %w", errPause)

// errLater is errReads where nothing could be read either.
var errLater = fmt.Errorf("it cannot be read yet: %w", errReads)

// Push sends to the host what it lacks of what role needs, for as long as budget says, and tells how far it came. Each
// file is read once before, and nothing of it is sent unless its checksum is right; it comes into the host's cache
// under its checksum and is verified there again. Push may be cut at any byte and called again: it goes on where it
// was, with the same wanted.Vetted before the first byte too. A bundle that is not to be pushed is Done at once.
func Push(ctx context.Context, host ssh.Host, wanted Wanted, role Role, budget time.Duration) (Progress, error) {
	if !wanted.Pushed() {
		return Progress{Done: true}, nil
	}
	supply, err := Find(ctx, host, wanted)
	if err != nil {
		return Progress{}, err
	}
	files := supply.manifest.For(role)
	until := time.Now().Add(budget)
	lacking, progress, err := lacks(ctx, host, files)
	if err != nil || progress.Done {
		return progress, err
	}
	depots := map[string]*depot{}
	defer func() {
		for _, d := range depots {
			d.close()
		}
	}()
	for _, file := range lacking {
		d := depots[file.of(wanted.Version)]
		if d == nil {
			d = openDepot(wanted, supply.location, file.of(wanted.Version))
			depots[file.of(wanted.Version)] = d
		}
		sent, err := pushFile(ctx, host, d, file, wanted, until)
		progress.There += sent
		switch {
		case errors.Is(err, errReads):
			progress.Reads, progress.Later = file.Path, errors.Is(err, errLater)
			return progress, nil
		case errors.Is(err, errPause):
			return progress, nil
		case err != nil:
			return progress, err
		}
	}
	progress.Done = true
	return progress, nil
}

// lack is a file that the host lacks, and how much of it has arrived.
type lack struct {
	File
	there int64
}

// lacksCommand is the question for what a host lacks of files, by their checksums, and what all of them weigh.
func lacksCommand(files []File) (script string, byDigest map[string]File, total int64) {
	var text strings.Builder
	fmt.Fprintf(&text, "QUOIN_ROOT=%s\n%s%s", ssh.Quote(hostRoot), ImageFunctions, lacksScript)
	byDigest = map[string]File{}
	for _, file := range files {
		if _, twice := byDigest[file.SHA256]; !twice {
			total += file.Size
		}
		byDigest[file.SHA256] = file
		if file.Kind == Image {
			fmt.Fprintf(&text, "image %s %d %s\n", file.SHA256, file.Size, strings.Join(quoted(file.Images), " "))
		} else {
			fmt.Fprintf(&text, "file %s %d %s\n", file.SHA256, file.Size, ssh.Quote(file.Install))
		}
	}
	text.WriteString("echo end\n")
	return text.String(), byDigest, total
}

// lacks asks the host, in one exchange that changes nothing, what it lacks of files.
func lacks(ctx context.Context, host ssh.Host, files []File) ([]lack, Progress, error) {
	script, byDigest, total := lacksCommand(files)
	progress := Progress{Total: total}
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return nil, progress, fmt.Errorf("asking which files the host lacks: %w", err)
	}
	progress.There = progress.Total
	var lacking []lack
	free, needed := int64(-1), int64(0)
	whole := false
	for line := range strings.SplitSeq(result.Stdout, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && words[0] == "end":
			whole = true
		case len(words) == 2 && words[0] == "free":
			free, err = strconv.ParseInt(words[1], 10, 64)
		case len(words) == 3 && words[0] == "lacks":
			file, known := byDigest[words[1]]
			if !known {
				continue
			}
			delete(byDigest, words[1])
			l := lack{File: file}
			l.there, err = strconv.ParseInt(words[2], 10, 64)
			if l.there < 0 || l.there > file.Size {
				l.there = 0
			}
			lacking = append(lacking, l)
			progress.There -= file.Size - l.there
			needed += file.Size - l.there
		}
		if err != nil {
			return nil, progress, fmt.Errorf("the host's answer about the files it lacks holds a number that is none: %.100q",
				line)
		}
	}
	if !whole {
		return nil, progress, errors.New("the host's answer about the files it lacks is cut off; it is asked again")
	}
	if free >= 0 && needed>>10 >= free {
		return nil, progress, fmt.Errorf("%d KiB must be sent to the host, but only %d KiB are free below %s; make room "+
			"there", needed>>10, free, hostRoot)
	}
	progress.Done = len(lacking) == 0
	return lacking, progress, nil
}

// pushFile sends one file whose checksum is right, and has the host verify it. What was there before may be what is
// wrong, so a file that arrives damaged is sent once more. It returns how many bytes more the host has now.
func pushFile(
	ctx context.Context, host ssh.Host, d *depot, file lack, wanted Wanted, until time.Time,
) (int64, error) {
	open := func() (io.ReadSeekCloser, error) { return d.open(ctx, file.Path, file.Size) }
	vetted := wanted.Vetted
	if vetted == nil {
		vetted = &Vetted{}
	}
	key := vettedKey{d.at, wanted.Bundle.Proxy, wanted.Bundle.CertificateAuthorities, file.Path, file.SHA256}
	pieces, err := vetted.pieces(ctx, key, file.Size, wanted.Bundle.BytesPerSecond, until, open)
	switch {
	case errors.Is(err, errLater):
		return 0, err
	case errors.Is(err, errPause):
		return 0, errReads
	case err != nil:
		return 0, d.blame(file.File, err)
	}
	source, err := open()
	if err != nil {
		return 0, err
	}
	defer source.Close()
	content := &metered{ReadSeeker: &checked{source: source, size: file.Size, pieces: pieces}, until: until}
	send := func() error {
		return ssh.PushVerified(ctx, host, path.Join(hostRoot, "cache", file.SHA256), file.SHA256, content, file.Size,
			wanted.Bundle.BytesPerSecond)
	}
	err = send()
	if errors.Is(err, ssh.ErrDamaged) && file.there > 0 {
		file.there = 0
		err = send()
	}
	switch {
	case err == nil:
		return file.Size - file.there, nil
	case errors.Is(err, ssh.ErrDamaged):
		return 0, fmt.Errorf("%s/%s has sha256 %s, but what the host keeps of it has another; check the host's disk of %s",
			d.at, file.Path, file.SHA256, hostRoot)
	case errors.Is(err, errDiffers):
		return 0, d.blame(file.File, err)
	}
	return min(content.read, file.Size-file.there), fmt.Errorf("sending %s: %w", file.Path, err)
}

// metered counts what is read, and ends the reading when its time is over. That way the connection outlives it.
type metered struct {
	io.ReadSeeker
	until time.Time
	read  int64
}

func (m *metered) Read(p []byte) (int, error) {
	// Not before the first byte: each call makes progress.
	if m.read > 0 && time.Now().After(m.until) {
		return 0, errPause
	}
	n, err := m.ReadSeeker.Read(p)
	m.read += int64(n)
	return n, err
}
