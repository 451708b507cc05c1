// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/proxytest"
)

const secretKey = "correct-horse-battery-staple"

// objectStore is an S3 server of this process.
type objectStore struct {
	Bucket
	server *httptest.Server
	// before, when set, may answer a request itself and then returns true.
	before func(http.ResponseWriter, *http.Request) bool
}

func newObjectStore(t *testing.T) *objectStore {
	t.Helper()
	backend := s3mem.New()
	NewWithT(t).Expect(backend.CreateBucket("snapshots")).To(Succeed())
	o := &objectStore{}
	handler := gofakes3.New(backend).Server()
	o.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.before == nil || !o.before(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	o.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	o.server.StartTLS()
	t.Cleanup(o.server.Close)
	o.Bucket = Bucket{Endpoint: o.server.URL, Name: "snapshots", Prefix: "prod/etcd", AccessKeyID: "AKIAQUOIN",
		SecretAccessKey: secretKey,
		Authority:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.server.Certificate().Raw})}
	return o
}

func newS3(t *testing.T) *S3 {
	t.Helper()
	store, err := OpenS3(newObjectStore(t).Bucket)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return store
}

func newVolume(t *testing.T) *Volume {
	t.Helper()
	store, err := OpenVolume(t.TempDir(), "clusters/prod")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// inStores runs a test with each kind of store.
func inStores(t *testing.T, test func(*testing.T, Store)) {
	t.Run("volume", func(t *testing.T) { test(t, newVolume(t)) })
	t.Run("s3", func(t *testing.T) { test(t, newS3(t)) })
}

func content(t *testing.T, store Store, name string) []byte {
	t.Helper()
	g := NewWithT(t)
	file, err := store.Open(t.Context(), name)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	raw, err := io.ReadAll(file)
	g.Expect(err).NotTo(HaveOccurred())
	return raw
}

func names(t *testing.T, store Store, directory string) []string {
	t.Helper()
	files, err := store.List(t.Context(), directory)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, file := range files {
		found = append(found, file.Name)
	}
	return found
}

func TestStore(t *testing.T) {
	inStores(t, func(t *testing.T, store Store) {
		t.Run("keeps what it is given", func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(store.List(t.Context(), "ns/a")).To(BeEmpty())
			g.Expect(store.Put(t.Context(), "ns/a/one", strings.NewReader("1"))).To(Succeed())
			g.Expect(store.Put(t.Context(), "ns/a/one", strings.NewReader("first"))).To(Succeed())
			g.Expect(store.Put(t.Context(), "ns/a/deeper/two", strings.NewReader("second"))).To(Succeed())
			g.Expect(store.Put(t.Context(), "ns/ab/three", strings.NewReader(""))).To(Succeed())
			g.Expect(store.List(t.Context(), "ns/a")).To(ConsistOf(File{Name: "one", Size: 5}))
			g.Expect(store.List(t.Context(), "ns/ab")).To(ConsistOf(File{Name: "three"}))
			g.Expect(content(t, store, "ns/a/one")).To(BeEquivalentTo("first"))
			g.Expect(store.Delete(t.Context(), "ns/a/one")).To(Succeed())
			g.Expect(store.Delete(t.Context(), "ns/a/one")).To(Succeed())
			g.Expect(store.List(t.Context(), "ns/a")).To(BeEmpty())
			g.Expect(content(t, store, "ns/a/deeper/two")).To(BeEquivalentTo("second"))
		})
		t.Run("knows what is not there", func(t *testing.T) {
			g := NewWithT(t)
			file, err := store.Open(t.Context(), "ns/a/nothing")
			if err == nil {
				_, err = file.Read(make([]byte, 1))
			}
			g.Expect(err).To(MatchError(fs.ErrNotExist))
		})
		t.Run("takes more than one part", func(t *testing.T) {
			g := NewWithT(t)
			data := bytes.Repeat([]byte("0123456789abcdef"), 2*partSize/16+1)
			// Of a reader that does not tell its length.
			g.Expect(store.Put(t.Context(), "ns/parts/large", io.MultiReader(bytes.NewReader(data)))).To(Succeed())
			g.Expect(bytes.Equal(content(t, store, "ns/parts/large"), data)).To(BeTrue())
		})
		t.Run("shows nothing of what was not finished", func(t *testing.T) {
			g := NewWithT(t)
			cut := errors.New("cut")
			for _, length := range []int{0, 10, 2*partSize + 1} {
				source := io.MultiReader(bytes.NewReader(make([]byte, length)), iotest.ErrReader(cut))
				g.Expect(store.Put(t.Context(), "ns/cut/data", source)).To(MatchError(cut))
				g.Expect(names(t, store, "ns/cut")).To(BeEmpty(), "after %d bytes", length)
			}
			ctx, cancel := context.WithCancel(t.Context())
			endless := io.MultiReader(bytes.NewReader(make([]byte, partSize+1)), readerFunc(func(p []byte) (int, error) {
				cancel()
				return len(p), nil
			}))
			g.Expect(store.Put(ctx, "ns/cut/data", endless)).To(MatchError(context.Canceled))
			g.Expect(names(t, store, "ns/cut")).To(BeEmpty())
		})
		t.Run("cannot be left by a name", func(t *testing.T) {
			for _, name := range []string{"", ".", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "a/.hidden", `a\b`,
				"a\x00b", ".quoin-partial-x"} {
				g := NewWithT(t)
				g.Expect(store.Put(t.Context(), name, strings.NewReader("x"))).To(MatchError(errName), "%q", name)
				g.Expect(store.Delete(t.Context(), name)).To(MatchError(errName), "%q", name)
				_, err := store.Open(t.Context(), name)
				g.Expect(err).To(MatchError(errName), "%q", name)
				_, err = store.List(t.Context(), name)
				g.Expect(err).To(MatchError(errName), "%q", name)
				g.Expect(store.Sweep(t.Context(), name, time.Now())).To(MatchError(errName), "%q", name)
			}
		})
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestVolumeIsNotLeft(t *testing.T) {
	g := NewWithT(t)
	directory, elsewhere := t.TempDir(), t.TempDir()
	g.Expect(os.Symlink(elsewhere, filepath.Join(directory, "link"))).To(Succeed())
	_, err := OpenVolume(directory, "link")
	g.Expect(err).To(MatchError(ContainSubstring("escapes")))
	for _, below := range []string{"..", "a/../..", "/tmp", "", "a/.b"} {
		_, err := OpenVolume(directory, below)
		g.Expect(err).To(MatchError(errName), "%q", below)
	}
	_, err = OpenVolume(filepath.Join(directory, "unmounted"), "a")
	g.Expect(err).To(MatchError(fs.ErrNotExist))

	store, err := OpenVolume(directory, "in")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = store.Close() }()
	g.Expect(os.Symlink(elsewhere, filepath.Join(directory, "in", "out"))).To(Succeed())
	g.Expect(store.Put(t.Context(), "out/x", strings.NewReader("x"))).To(MatchError(ContainSubstring("escapes")))
	g.Expect(os.ReadDir(elsewhere)).To(BeEmpty())
}

func TestVolumeHidesFromOthers(t *testing.T) {
	g := NewWithT(t)
	directory := t.TempDir()
	store, err := OpenVolume(directory, "a/b")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = store.Close() }()
	g.Expect(store.Put(t.Context(), "ns/cp/x", strings.NewReader("x"))).To(Succeed())
	for path, mode := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/ns": 0o700, "a/b/ns/cp": 0o700,
		"a/b/ns/cp/x": 0o600} {
		info, err := os.Stat(filepath.Join(directory, path))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(mode), path)
	}
}

func TestSweepRemovesWhatIsOld(t *testing.T) {
	t.Run("volume", func(t *testing.T) {
		g := NewWithT(t)
		directory := t.TempDir()
		store, err := OpenVolume(directory, "a")
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = store.Close() }()
		g.Expect(store.Put(t.Context(), "cp/mine", strings.NewReader("x"))).To(Succeed())
		for _, name := range []string{partialPrefix + "x", ".other", "foreign"} {
			g.Expect(os.WriteFile(filepath.Join(directory, "a/cp", name), []byte("x"), 0o600)).To(Succeed())
		}
		g.Expect(names(t, store, "cp")).To(ConsistOf("mine", "foreign"))
		g.Expect(store.Sweep(t.Context(), "cp", time.Now().Add(-time.Hour))).To(Succeed())
		g.Expect(filepath.Join(directory, "a/cp", partialPrefix+"x")).To(BeAnExistingFile())
		g.Expect(store.Sweep(t.Context(), "cp", time.Now().Add(time.Hour))).To(Succeed())
		g.Expect(filepath.Join(directory, "a/cp", partialPrefix+"x")).NotTo(BeAnExistingFile())
		g.Expect(filepath.Join(directory, "a/cp", ".other")).To(BeAnExistingFile())
		g.Expect(names(t, store, "cp")).To(ConsistOf("mine", "foreign"))
	})
	t.Run("s3", func(t *testing.T) {
		g := NewWithT(t)
		server := newObjectStore(t)
		store, err := OpenS3(server.Bucket)
		g.Expect(err).NotTo(HaveOccurred())
		// The server stops answering in the middle of the upload, also to its abort.
		server.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete || r.URL.Query().Get("partNumber") == "2" {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		}
		name := newName(time.Now(), false)
		g.Expect(store.Put(t.Context(), "cp/"+name, io.MultiReader(bytes.NewReader(make([]byte, 2*partSize))))).
			NotTo(Succeed())
		server.before = nil
		uploads := func() (found []string) {
			for upload := range store.client.ListIncompleteUploads(t.Context(), "snapshots", "prod/etcd/cp/", true) {
				g.Expect(upload.Err).NotTo(HaveOccurred())
				found = append(found, upload.Key)
			}
			return found
		}
		g.Expect(uploads()).To(ConsistOf("prod/etcd/cp/" + name))
		g.Expect(names(t, store, "cp")).To(BeEmpty())
		g.Expect(store.Sweep(t.Context(), "cp", time.Now().Add(-time.Hour))).To(Succeed())
		g.Expect(uploads()).To(HaveLen(1))
		g.Expect(store.Sweep(t.Context(), "cp", time.Now().Add(time.Hour))).To(Succeed())
		g.Expect(uploads()).To(BeEmpty())
	})
}

func TestAnEndpointThatIsRefusedIsNotConnectedTo(t *testing.T) {
	g := NewWithT(t)
	server := newObjectStore(t)
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	b := server.Bucket
	b.Control = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if strings.HasSuffix(proxy.URL, address) {
			return nil
		}
		return errors.New("it is the manager's own")
	}
	store, err := OpenS3(b)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = store.List(t.Context(), "cp")
	g.Expect(err).To(MatchError(ContainSubstring("it is the manager's own")))

	b.Proxy = proxy.URL
	store, err = OpenS3(b)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(store.List(t.Context(), "cp")).Error().To(HaveOccurred())
	g.Expect(asked).NotTo(BeZero())
}

func TestS3KeepsItsSecrets(t *testing.T) {
	g := NewWithT(t)
	server := newObjectStore(t)
	var failures []error
	attempt := func(b Bucket) {
		store, err := OpenS3(b)
		g.Expect(err).NotTo(HaveOccurred())
		failures = append(failures, store.Put(t.Context(), "cp/x", strings.NewReader("x")), store.Delete(t.Context(), "cp/x"))
		_, err = store.List(t.Context(), "cp")
		failures = append(failures, err)
	}
	// Nobody vouches for the server.
	stranger := server.Bucket
	stranger.Authority = nil
	attempt(stranger)
	absent := server.Bucket
	absent.Name = "absent"
	attempt(absent)
	// The server sends the client away to where everybody can listen.
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, "http://s3.example.test/snapshots/", http.StatusTemporaryRedirect)
		return true
	}
	attempt(server.Bucket)
	// The server quotes what it was sent, and what it made of that.
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>InvalidAccessKeyId</Code><Message>no such key: %s of %s</Message></Error>", secretKey,
			r.Header.Get("Authorization"))
		return true
	}
	attempt(server.Bucket)
	g.Expect(failures[9]).To(MatchError(ContainSubstring("no such key: ")))
	for _, failure := range failures {
		if failure == nil {
			continue
		}
		g.Expect(failure.Error()).NotTo(ContainSubstring(secretKey))
		g.Expect(failure.Error()).NotTo(ContainSubstring("AKIAQUOIN"))
	}
	g.Expect(failures[0]).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
	g.Expect(failures[3]).To(MatchError(ContainSubstring("bucket absent")))
	g.Expect(failures[6:]).To(HaveEach(HaveOccurred()))
	g.Expect(failures[8]).To(MatchError(ContainSubstring("307")))
}

func TestTheProxyOfTheEnvironmentIsNotAsked(t *testing.T) {
	proxytest.NotAsked(t, func() {
		g := NewWithT(t)
		store, err := OpenS3(Bucket{Endpoint: "https://s3.invalid", Name: "snapshots", AccessKeyID: "AKIAQUOIN",
			SecretAccessKey: secretKey})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(store.List(t.Context(), "cp")).Error().To(HaveOccurred())
	})
}

// Whoever names a bucket may have a server that says a lot.
func TestWhatAnObjectStoreSaysIsBounded(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		says   string
	}{
		"its headers": {func(w http.ResponseWriter) { w.Header().Set("X", long) }, "exceeded 65536 bytes"},
		"a message": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, "<Error><Code>AKIAQUOIN%s</Code><Message>%s</Message></Error>", long, long)
		}, "xxx..."},
		"a status": {func(w http.ResponseWriter) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("HTTP/1.1 400 AKIAQUOIN" + long[:60000] + "\r\nContent-Length: 0\r\n\r\n"))
				_ = conn.Close()
			}
		}, "xxx..."},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := newObjectStore(t)
			store, err := OpenS3(server.Bucket)
			g.Expect(err).NotTo(HaveOccurred())
			server.before = func(w http.ResponseWriter, _ *http.Request) bool { c.answer(w); return true }
			_, err = store.List(t.Context(), "cp")
			g.Expect(err).To(MatchError(ContainSubstring(c.says)))
			g.Expect(len(err.Error())).To(BeNumerically("<", 2000))
			g.Expect(err.Error()).NotTo(ContainSubstring("AKIAQUOIN"))
		})
	}
}

func TestValidateEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://s3.example.test":             "",
		"https://s3.example.test:9000/":       "",
		"https://[2001:db8::1]:9000":          "",
		"http://127.0.0.1:9000":               "",
		"http://[::1]:9000":                   "",
		"http://localhost:9000":               "",
		"http://s3.example.test":              "http is allowed for loopback addresses only",
		"http://10.0.0.1":                     "http is allowed for loopback addresses only",
		"http://127.0.0.1.example.test":       "http is allowed for loopback addresses only",
		"https://user:geheim@s3.example.test": "must not carry credentials",
		"https://s3.example.test/bucket":      "must not have a path",
		"https://s3.example.test/?a=b":        "must not have a path",
		"https://s3.example.test?":            "must not have a path",
		"https://s3.example.test#a":           "must not have a path",
		"https://":                            "names no host",
		"s3.example.test":                     "must begin with https",
		"s3.example.test:9000":                "must begin with https",
		"ftp://s3.example.test":               "must begin with https",
		"https://geheim:\x7f@s3":              "is not a URL",
	} {
		g := NewWithT(t)
		_, err := ValidateEndpoint(endpoint)
		if want == "" {
			g.Expect(err).NotTo(HaveOccurred(), endpoint)
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(want)), endpoint)
		g.Expect(err.Error()).NotTo(ContainSubstring("geheim"))
	}
	g := NewWithT(t)
	g.Expect(ValidateBucket("snapshots", "prod/etcd")).To(Succeed())
	g.Expect(ValidateBucket("Snapshots", "")).NotTo(Succeed())
	g.Expect(ValidateBucket("snapshots", "/prod")).To(MatchError(errName))
	g.Expect(ValidateBucket("snapshots", "a/../b")).To(MatchError(errName))
}
