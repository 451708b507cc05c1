// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// Push writes content, which is size bytes long, to path on the host, as root; only root may read the file. It goes on
// where an earlier Push of the same content stopped: what is there already is taken for the beginning, a file that is
// too long is written anew. So path should be named after the content (a checksum), and the caller verifies the
// checksum before it uses or renames the file. The folder must exist. bytesPerSecond bounds the rate; 0 means no bound.
//
// When the connection or the context ends before the content does, the error is transient (IsTransient), and calling
// again with the same arguments continues. A user other than root cannot reach root's folders over SFTP; then, and
// where sshd has no SFTP subsystem, the content goes through the standard input of a script.
func Push(ctx context.Context, host Host, path string, content io.ReadSeeker, size, bytesPerSecond int64) error {
	limiter := newLimiter(bytesPerSecond)
	bare := host
	if guarded, ok := host.(Guarded); ok {
		// SFTP asks no guard.
		if _, err := host.Run(ctx, Command{Script: ":\n", Sudo: true}); err != nil {
			return pushing(path, err)
		}
		bare = guarded.Unguarded()
	}
	if conn, ok := bare.(*Conn); ok && conn.user == "root" {
		err := conn.pushSFTP(ctx, path, content, size, limiter)
		var ours *contentError
		if err == nil || IsTransient(err) || ctx.Err() != nil || errors.As(err, &ours) {
			return pushing(path, err)
		}
		// A status of SFTP does not tell a full disk from a missing folder; the script does, or succeeds.
	}
	return pushing(path, pushByScript(ctx, host, path, content, size, limiter))
}

// ErrDamaged says that what lies on the host now does not have the checksum that it should have.
var ErrDamaged = errors.New("what arrived has another checksum")

// damaged is the exit code that says so.
const damaged = 65

// PushVerified is Push to path + ".part", which the host then verifies, and renames to path when it has the SHA256, in
// hexadecimal. What is damaged is removed, and the error is ErrDamaged: if an earlier, other content was taken for the
// beginning, calling again puts it right.
func PushVerified(
	ctx context.Context, host Host, path, sha256 string, content io.ReadSeeker, size, bytesPerSecond int64,
) error {
	if err := Push(ctx, host, path+".part", content, size, bytesPerSecond); err != nil {
		return err
	}
	_, err := host.Run(ctx, Command{Sudo: true, Script: fmt.Sprintf(`part=%[1]s.part
sum=$(sha256sum <"$part") || exit 1
if [ "${sum%%%% *}" != %[2]s ]; then rm -f "$part"; exit %[3]d; fi
sync "$part" && mv -f "$part" %[1]s
`, Quote(path), sha256, damaged)})
	var exit *ExitError
	if errors.As(err, &exit) && exit.Code == damaged {
		err = ErrDamaged
	}
	if err != nil {
		return fmt.Errorf("verifying %s: %w", path, err)
	}
	return nil
}

func pushing(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pushing %s: %w", path, err)
}

// moved is the exit code that says: the file is not as long as it was when its size was asked for.
const moved = 75

func pushByScript(
	ctx context.Context, host Host, path string, content io.ReadSeeker, size int64, limiter *rate.Limiter,
) error {
	var err error
	// What an earlier, broken connection had still in its pipes may arrive between the question and the answer.
	for range 3 {
		var there int64
		there, err = lengthOf(ctx, host, path)
		if err != nil {
			return err
		}
		if there == size && size > 0 {
			return nil
		}
		if there > size {
			there = 0
		}
		rest, seekErr := newPaced(ctx, content, there, size, limiter)
		if seekErr != nil {
			return seekErr
		}
		_, err = host.Run(ctx, Command{Script: appendScript(path, there, size), Stdin: rest, Sudo: true})
		if readErr := rest.stop(); readErr != nil {
			return readErr
		}
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != moved {
			return err
		}
	}
	return err
}

func lengthOf(ctx context.Context, host Host, path string) (int64, error) {
	result, err := host.Run(ctx, Command{Script: fmt.Sprintf("f=%s\nif [ -e \"$f\" ]; then wc -c <\"$f\"; else echo 0; "+
		"fi\n", Quote(path)), Sudo: true})
	if err != nil {
		return 0, err
	}
	length, err := strconv.ParseInt(strings.TrimSpace(result.Stdout), 10, 64)
	if err != nil || length < 0 {
		return 0, fmt.Errorf("the host's answer to the question for the length is no number: %.100q", result.Stdout)
	}
	return length, nil
}

func appendScript(path string, there, size int64) string {
	begin := `: >"$f"`
	if there > 0 {
		begin = fmt.Sprintf(`[ "$(wc -c <"$f")" -eq %d ] || { echo "the file grew or shrank meanwhile" >&2; exit %d; }`,
			there, moved)
	}
	return fmt.Sprintf(`set -eu
umask 077
f=%s
%s
cat >>"$f"
[ "$(wc -c <"$f")" -eq %d ] || { echo "the content arrived in part only" >&2; exit 1; }
sync "$f"
`, Quote(path), begin, size)
}

// burst is what may be sent at once. Small beside any sensible rate, large beside a packet.
const burst = 64 << 10

func newLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return rate.NewLimiter(rate.Inf, burst)
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), burst)
}

// paced reads a part of content no faster than allowed. After stop nothing reads content any more, although what was
// sending it may still hang on a dead connection: the caller may seek and begin anew.
type paced struct {
	cancel context.CancelFunc
	// wait returns when so many bytes may be sent.
	wait func(n int) error

	mu      sync.Mutex
	content io.Reader
	left    int64
	err     error
}

func newPaced(ctx context.Context, content io.ReadSeeker, from, to int64, limiter *rate.Limiter) (*paced, error) {
	if _, err := content.Seek(from, io.SeekStart); err != nil {
		return nil, fmt.Errorf("finding byte %d of the content: %w", from, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	wait := func(n int) error {
		err := limiter.WaitN(ctx, n)
		if err != nil && ctx.Err() == nil {
			// The limiter sees that the deadline would pass before its turn, and says so in words of its own.
			return context.DeadlineExceeded
		}
		return err
	}
	return &paced{cancel: cancel, wait: wait, content: content, left: to - from}, nil
}

// contentError says that the content itself cannot be read: another way to the host changes nothing about it.
type contentError struct{ err error }

func (e *contentError) Error() string { return "reading the content: " + e.err.Error() }

func (e *contentError) Unwrap() error { return e.err }

// Read implements io.Reader.
func (p *paced) Read(buf []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return 0, io.EOF
	}
	if p.err != nil {
		return 0, p.err
	}
	buf = buf[:min(int64(len(buf)), p.left, burst)]
	if err := p.wait(len(buf)); err != nil {
		p.err = fmt.Errorf("not done in time: %w", err)
		return 0, p.err
	}
	n, err := p.content.Read(buf)
	p.left -= int64(n)
	if err != nil && p.left > 0 {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		p.err = &contentError{err}
		return n, p.err
	}
	return n, nil
}

// stop ends the reading, waits for a read that is under way, and returns what went wrong on our side.
func (p *paced) stop() error {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.err, context.Canceled) {
		// Said better by whoever saw the caller's context end.
		return nil
	}
	return p.err
}
