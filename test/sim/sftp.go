// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// files serves a machine's file tree over SFTP. What was written so far is on the machine after each packet, so that a
// connection that is cut leaves a part behind.
type files struct {
	machine *machine.Machine
	user    string
}

func (f *files) handlers() sftp.Handlers {
	return sftp.Handlers{FileGet: f, FilePut: f, FileCmd: f, FileList: f}
}

// may keeps users that are not root to their own places, as the permissions of the tree would.
func (f *files) may(name string) error {
	if !f.machine.Powered() {
		return sftp.ErrSSHFxConnectionLost
	}
	if f.user == "root" || strings.HasPrefix(name, "/tmp/") || strings.HasPrefix(name, "/home/"+f.user+"/") {
		return nil
	}
	return sftp.ErrSSHFxPermissionDenied
}

// Fileread implements sftp.FileReader.
func (f *files) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	if err := f.may(r.Filepath); err != nil {
		return nil, err
	}
	content, err := f.machine.FS().ReadFile(r.Filepath)
	if err != nil {
		return nil, translate(err)
	}
	return bytes.NewReader(content), nil
}

// Filewrite implements sftp.FileWriter.
func (f *files) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	if err := f.may(r.Filepath); err != nil {
		return nil, err
	}
	if stat, err := f.machine.FS().Lstat(path.Dir(r.Filepath)); err != nil || !stat.Mode.IsDir() {
		return nil, sftp.ErrSSHFxNoSuchFile
	}
	w := &upload{files: f, name: r.Filepath, mode: 0o600}
	flags := r.Pflags()
	if stat, err := f.machine.FS().Lstat(r.Filepath); err == nil {
		w.mode = stat.Mode.Perm()
		if flags.Excl {
			return nil, sftp.ErrSSHFxFailure
		}
		if !flags.Trunc {
			w.content, _ = f.machine.FS().ReadFile(r.Filepath)
		}
	}
	_, err := w.WriteAt(nil, 0)
	return w, err
}

// upload is a file that is being written.
type upload struct {
	files   *files
	name    string
	mode    os.FileMode
	mu      sync.Mutex
	content []byte
}

// WriteAt implements io.WriterAt.
func (u *upload) WriteAt(p []byte, off int64) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.files.may(u.name); err != nil {
		return 0, err
	}
	if off < int64(len(u.content)) {
		// The machine has what was written so far, and keeps it as it was.
		u.content = slices.Clone(u.content)
	}
	// What is appended lies beyond the end of what the machine has: a file costs its size, not the square of it.
	if gap := off + int64(len(p)) - int64(len(u.content)); gap > 0 {
		u.content = append(u.content, make([]byte, gap)...)
	}
	copy(u.content[off:], p)
	if err := u.files.machine.FS().WriteFile(u.name, machine.File{Mode: u.mode, Content: u.content}); err != nil {
		return 0, translate(err)
	}
	return len(p), nil
}

// Filecmd implements sftp.FileCmder.
func (f *files) Filecmd(r *sftp.Request) error {
	if err := f.may(r.Filepath); err != nil {
		return err
	}
	tree := f.machine.FS()
	stat, err := tree.Lstat(r.Filepath)
	if err != nil && r.Method != "Mkdir" {
		return translate(err)
	}
	switch r.Method {
	case "Mkdir":
		return translate(tree.WriteFile(r.Filepath, machine.File{Mode: fs.ModeDir | 0o755}))
	case "Remove", "Rmdir":
		return translate(tree.Remove(r.Filepath))
	case "Rename", "PosixRename":
		if err := f.may(r.Target); err != nil {
			return err
		}
		content, err := tree.ReadFile(r.Filepath)
		if err != nil {
			return translate(err)
		}
		if err := tree.WriteFile(r.Target, machine.File{Mode: stat.Mode.Perm(), Content: content}); err != nil {
			return translate(err)
		}
		return translate(tree.Remove(r.Filepath))
	case "Setstat":
		content, err := tree.ReadFile(r.Filepath)
		if err != nil {
			return translate(err)
		}
		mode := stat.Mode.Perm()
		if r.AttrFlags().Permissions {
			mode = r.Attributes().FileMode().Perm()
		}
		if r.AttrFlags().Size {
			sized := make([]byte, r.Attributes().Size)
			copy(sized, content)
			content = sized
		}
		return translate(tree.WriteFile(r.Filepath, machine.File{Mode: mode, Content: content}))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// Filelist implements sftp.FileLister.
func (f *files) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if err := f.may(r.Filepath); err != nil {
		return nil, err
	}
	stat, err := f.machine.FS().Lstat(r.Filepath)
	if err != nil {
		return nil, translate(err)
	}
	if r.Method != "List" {
		return listing{info{path.Base(r.Filepath), stat}}, nil
	}
	var all listing
	seen := map[string]bool{}
	prefix := strings.TrimSuffix(r.Filepath, "/") + "/"
	for _, name := range f.machine.FS().List(r.Filepath) {
		first, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "/")
		if stat, err := f.machine.FS().Lstat(prefix + first); err == nil && !seen[first] {
			seen[first] = true
			all = append(all, info{first, stat})
		}
	}
	return all, nil
}

type listing []os.FileInfo

// ListAt implements sftp.ListerAt.
func (l listing) ListAt(to []os.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(to, l[offset:])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// info is a file as os.FileInfo.
type info struct {
	name string
	stat machine.Stat
}

// Name implements os.FileInfo.
func (i info) Name() string { return i.name }

// Size implements os.FileInfo.
func (i info) Size() int64 { return i.stat.Size }

// Mode implements os.FileInfo.
func (i info) Mode() os.FileMode { return i.stat.Mode }

// ModTime implements os.FileInfo.
func (i info) ModTime() time.Time { return i.stat.ModTime }

// IsDir implements os.FileInfo.
func (i info) IsDir() bool { return i.stat.Mode.IsDir() }

// Sys implements os.FileInfo.
func (i info) Sys() any { return nil }

func translate(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return sftp.ErrSSHFxNoSuchFile
	}
	return err
}
