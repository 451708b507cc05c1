// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"os"
	"sync"
	"time"
)

// Image is what many machines have in common: files, commands, units. It never changes.
type Image struct {
	root     *node
	programs map[string]Program
	volatile map[string][]entry
}

// executable begins every file that is a Program.
const executable = "\x7fSIM "

// Executable is the content of a file that runs the program of that name, followed by whatever text the program wants to
// find in Process.Image: a version, for example. A script may copy and install it; its checksum is real.
func Executable(name string, text ...string) []byte {
	content := executable + name + "\n"
	for _, t := range text {
		content += t + "\n"
	}
	return []byte(content)
}

// ExecutableText is what stands in an Executable behind the program's name.
func ExecutableText(image []byte) string {
	if !bytes.HasPrefix(image, []byte(executable)) {
		return ""
	}
	_, text, _ := bytes.Cut(image, []byte("\n"))
	return string(text)
}

func programOf(image []byte) string {
	rest, ok := bytes.CutPrefix(image, []byte(executable))
	if !ok {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(name)
}

// DefaultImage is a small Linux distribution with containerd's service, and keepalived, but nothing of Kubernetes.
var DefaultImage = sync.OnceValue(func() *Image { return NewImage(Contents{}) })

// Contents is what an image has besides the default one's.
type Contents struct {
	// Files by absolute path. A unit is a file below /etc/systemd/system; a symlink in multi-user.target.wants enables it.
	Files map[string]File
	// Programs lie below /usr/bin, or at the key when that is an absolute path.
	Programs map[string]Program
	// Installable programs run only where a file with their Executable lies.
	Installable map[string]Program
}

// NewImage makes an image of the default one, with more on top.
func NewImage(c Contents) *Image {
	// A machine that never boots has all that is needed to build a tree.
	m := &Machine{o: Options{Clock: imageTime}, image: &Image{}, inode: 1}
	m.root = m.make(os.ModeDir|0o755, rootCred)
	build(m)
	image := &Image{programs: map[string]Program{}, volatile: map[string][]entry{}}
	for name, program := range c.Installable {
		image.programs[name] = program
	}
	for name, program := range c.Programs {
		path := name
		if name[0] != '/' {
			path = "/usr/bin/" + name
		}
		image.programs[baseName(name)] = program
		m.mustPut(path, File{Mode: 0o755, Content: Executable(baseName(name))})
	}
	for _, path := range sortedKeys(c.Files) {
		m.mustPut(path, c.Files[path])
	}
	for _, path := range []string{"/run", "/tmp"} {
		at, err := m.get(rootCred, path, 0)
		if err != nil {
			panic(err)
		}
		image.volatile[path] = at.n.kids
		at.n.volatile = true
	}
	m.root.freeze()
	image.root = m.root
	return image
}

func (m *Machine) mustPut(path string, file File) {
	if err := m.put(path, file); err != nil {
		panic(path + ": " + err.Error())
	}
}

// tmpfs is what a directory in memory holds after a boot.
func (i *Image) tmpfs(path string) []entry { return append([]entry(nil), i.volatile[path]...) }

func imageTime() time.Time { return time.Unix(1767225600, 0) }
