// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/proxytest"
)

// pushing is a host that gets what lies in another directory, which only the manager can read.
func pushing(t *testing.T) (*lab, artifacts.Wanted) {
	t.Helper()
	l := newLab(t)
	t.Cleanup(artifacts.SetRoot(filepath.Join(l.dir, "root")))
	l.bundle(version, nil)
	wanted := l.bundleAt(l.bundles)
	wanted.Bundle.Push = true
	return l, wanted
}

func (l *lab) push(wanted artifacts.Wanted, role artifacts.Role, budget time.Duration) (artifacts.Progress, error) {
	return artifacts.Push(context.Background(), l.host, wanted, role, budget)
}

func TestAPushedBundleIsInstalledFromTheCache(t *testing.T) {
	l, wanted := pushing(t)
	g := l.g
	progress, err := l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(progress.Done).To(BeTrue())
	g.Expect(progress.There).To(Equal(progress.Total))
	g.Expect(l.read("root/cache/" + sumOf("kubeadm "+version))).To(Equal("kubeadm " + version))

	supply, err := l.find(wanted)
	g.Expect(err).NotTo(HaveOccurred())
	// The host itself never reads the location.
	g.Expect(os.Rename(l.bundles, l.bundles+".away")).To(Succeed())
	status := l.run(supply.Plan(artifacts.Worker))
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
	g.Expect(l.read("store/proxy:" + version)).To(ContainSubstring("pinned"))
	g.Expect(os.Rename(l.bundles+".away", l.bundles)).To(Succeed())

	// What is installed is not sent again; what was damaged since is.
	before := len(l.host.Runs())
	progress, err = l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(progress.Done).To(BeTrue())
	g.Expect(l.host.Runs()).To(HaveLen(before + 1))
	l.write("usr/bin/kubeadm", "KUBEADM "+version, 0o755)
	_, err = l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filepath.Join(l.dir, "root/cache", sumOf("kubeadm "+version))).To(BeAnExistingFile())
}

func TestAPushThatIsOutOfTimeGoesOnWhereItWas(t *testing.T) {
	l, wanted := pushing(t)
	g := l.g
	content := strings.Repeat("0123456789abcdef", 20<<10)
	l.bundle(version, func(m *artifacts.Manifest) {
		l.write("bundles/"+version+"/bin/kubeadm", content, 0o644)
		m.Files[0].SHA256, m.Files[0].Size = sumOf(content), int64(len(content))
	})
	// No time at all: each call still makes progress, and none is an error.
	var last int64
	wanted.Vetted = &artifacts.Vetted{}
	for calls := 1; ; calls++ {
		g.Expect(calls).To(BeNumerically("<", 50))
		progress, err := l.push(wanted, artifacts.Worker, 0)
		g.Expect(err).NotTo(HaveOccurred())
		if progress.Done {
			g.Expect(calls).To(BeNumerically(">", 3))
			break
		}
		if progress.Reads != "" {
			g.Expect(progress.String()).To(HaveSuffix("are there; nothing of bin/kubeadm is sent before its checksum is known"))
			continue
		}
		g.Expect(progress.There).To(BeNumerically(">", last))
		last = progress.There
	}
	g.Expect(l.read("root/cache/" + sumOf(content))).To(Equal(content))
}

func TestWhatArrivedDamagedIsSentAgain(t *testing.T) {
	l, wanted := pushing(t)
	l.part("damaged")
	progress, err := l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(progress.Done).To(BeTrue())
	l.g.Expect(l.read("root/cache/" + sumOf("kubeadm "+version))).To(Equal("kubeadm " + version))

	// What is wrong already where it comes from is named, and stays nowhere.
	l, wanted = pushing(t)
	l.write("bundles/"+version+"/bin/kubeadm", "evil123 "+version, 0o644)
	_, err = l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).To(MatchError(And(ContainSubstring("bin/kubeadm is not what manifest.json says"),
		ContainSubstring("copy the bundle again"))))
	left, _ := filepath.Glob(filepath.Join(l.dir, "root/cache/"+sumOf("kubeadm "+version)+"*"))
	l.g.Expect(left).To(BeEmpty())
}

func TestAPushSaysWhatIsMissingWhere(t *testing.T) {
	l, wanted := pushing(t)
	l.g.Expect(os.Remove(filepath.Join(l.bundles, version, "bin/kubeadm"))).To(Succeed())
	_, err := l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).To(MatchError(And(ContainSubstring("bin/kubeadm"), ContainSubstring("manager's container"))))

	l, wanted = pushing(t)
	l.write("bin/df", "#!/bin/sh\nprintf 'Filesystem\\n/dev/sda1 100 99 0 100%% /\\n'\n", 0o755)
	_, err = l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).To(MatchError(And(ContainSubstring("only 0 KiB are free"), ContainSubstring("make room"))))

	// A plan whose files went after they were sent.
	l, wanted = pushing(t)
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Message).To(ContainSubstring("is gone from"))
}

func TestThePushedComesOverHTTPSAndIsSigned(t *testing.T) {
	l, wanted := pushing(t)
	g := l.g
	s := &shelf{l: l}
	s.spoil = once("kubeadm", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "15")
		_, _ = w.Write([]byte("kubeadm"))
	})
	server := httptest.NewTLSServer(s)
	defer server.Close()
	wanted.Bundle.Location = server.URL + "/{{version}}"
	_, err := l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).To(MatchError(And(ContainSubstring("the manager cannot read"), ContainSubstring("certificate"))))
	g.Expect(ssh.IsTransient(err)).To(BeFalse(), "the host is not to blame")
	wanted.Bundle.CertificateAuthorities = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw}))
	wanted.Bundle.PublicKeys = []string{l.newKey("mine")}
	_, err = l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).To(MatchError(ContainSubstring("not signed")))
	l.sign("mine", artifacts.SignatureNamespace)
	g.Expect(filepath.Join(l.dir, "root/cache")).NotTo(BeADirectory(), "the host was not even asked")

	_, err = l.push(wanted, artifacts.Worker, time.Minute)
	var depot *artifacts.DepotError
	g.Expect(errors.As(err, &depot)).To(BeTrue(), "cut in the middle: %v", err)
	g.Expect(l.read("root/cache/"+sumOf("kubeadm "+version)+".part")).To(BeEmpty(), "its checksum is not known")
	progress, err := l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(progress.Done).To(BeTrue())
	g.Expect(l.read("root/cache/" + sumOf("kubeadm "+version))).To(Equal("kubeadm " + version))
}

// large gives the bundle a kubeadm of several pieces.
func (l *lab) large() string {
	l.t.Helper()
	content := strings.Repeat("0123456789abcdef", 40<<10)
	l.bundle(version, func(m *artifacts.Manifest) {
		l.write("bundles/"+version+"/bin/kubeadm", content, 0o644)
		m.Files[0].SHA256, m.Files[0].Size = sumOf(content), int64(len(content))
	})
	return content
}

// Nothing of what a server hands out is on a host before its checksum is right, however the server, or this process,
// ends.
func TestNothingUncheckedComesOntoAHost(t *testing.T) {
	const first = 300 << 10
	for name, spoil := range map[string]func(asks int, content string) (send string, cut bool){
		"wrong":                    func(int, string) (string, bool) { return strings.Repeat("e", 640<<10), false },
		"wrong and cut in between": func(int, string) (string, bool) { return strings.Repeat("e", first), true },
		"wrong at its end": func(_ int, content string) (string, bool) {
			return content[:len(content)-1] + "e", false
		},
		"too short": func(_ int, content string) (string, bool) { return content[:first], false },
		"right when its checksum is computed and wrong later": func(asks int, content string) (string, bool) {
			if asks == 1 {
				return content, false
			}
			return content[:first] + strings.Repeat("e", first), true
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, wanted := pushing(t)
			content, asks := l.large(), 0
			s := &shelf{l: l, spoil: func(w http.ResponseWriter, r *http.Request) bool {
				if filepath.Base(r.URL.Path) != "kubeadm" {
					return false
				}
				asks++
				send, cut := spoil(asks, content)
				if cut {
					w.Header().Set("Content-Length", strconv.Itoa(len(content)))
				}
				_, _ = w.Write([]byte(send))
				return true
			}}
			server := httptest.NewServer(s)
			defer server.Close()
			wanted.Bundle.Location = server.URL + "/{{version}}"
			_, err := l.push(wanted, artifacts.Worker, time.Minute)
			l.g.Expect(err).To(HaveOccurred())
			l.g.Expect(ssh.IsTransient(err)).To(BeFalse(), "the host is not to blame")
			left, _ := filepath.Glob(filepath.Join(l.dir, "root/cache/*"))
			for _, file := range left {
				there, err := os.ReadFile(file)
				l.g.Expect(err).NotTo(HaveOccurred())
				l.g.Expect(strings.HasPrefix(content, string(there))).To(BeTrue(), "%s has bytes that nobody vouches for", file)
			}
			if asks == 1 {
				l.g.Expect(left).To(BeEmpty())
				l.g.Expect(strings.Join(l.host.Runs(), "")).NotTo(ContainSubstring(`cat >>"$f"`), "nothing was ever sent")
			}
		})
	}
}

// What was read for one host counts for the next, and what was cut goes on.
func TestAChecksumIsComputedOnce(t *testing.T) {
	l, wanted := pushing(t)
	g := l.g
	content := l.large()
	s := &shelf{l: l}
	s.spoil = once("kubeadm", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write([]byte(content[:300<<10]))
	})
	server := httptest.NewServer(s)
	defer server.Close()
	wanted.Bundle.Location, wanted.Vetted = server.URL+"/{{version}}", &artifacts.Vetted{}
	_, err := l.push(wanted, artifacts.Worker, time.Minute)
	g.Expect(err).To(HaveOccurred())
	for range 2 {
		_, err = l.push(wanted, artifacts.Worker, time.Minute)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(l.read("root/cache/" + sumOf(content))).To(Equal(content))
		g.Expect(os.RemoveAll(filepath.Join(l.dir, "root/cache"))).To(Succeed())
	}
	g.Expect(s.asked("kubeadm")).To(Equal([]string{"", "", "bytes=262144-", "", ""}), "read once, and sent twice")
}

// A host whose file is read for another one returns at once, and the one for which it is read keeps to the limit.
func TestReadingForAChecksumHoldsUpNobody(t *testing.T) {
	l, wanted := pushing(t)
	l.large()
	wanted.Vetted, wanted.Bundle.BytesPerSecond = &artifacts.Vetted{}, 1<<18
	begun, read := time.Now(), make(chan error, 1)
	go func() {
		for {
			progress, err := l.push(wanted, artifacts.Worker, time.Minute)
			if err != nil || progress.Done {
				read <- err
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	l.g.Eventually(func() bool {
		waits, err := l.push(wanted, artifacts.Worker, -time.Minute)
		return err == nil && waits.Later && waits.Reads == "bin/kubeadm"
	}).WithTimeout(time.Minute).Should(BeTrue())
	l.g.Expect(<-read).To(Succeed())
	l.g.Expect(time.Since(begun)).To(BeNumerically(">", 4*time.Second), "640 KiB are read and sent, each at 256 KiB a second")

	// A piece for which there is no time yet is later, too.
	wanted.Vetted, wanted.Bundle.BytesPerSecond = &artifacts.Vetted{}, 1<<10
	l.g.Expect(os.RemoveAll(filepath.Join(l.dir, "root/cache"))).To(Succeed())
	for _, later := range []bool{false, true} {
		progress, err := l.push(wanted, artifacts.Worker, time.Second)
		l.g.Expect(err).NotTo(HaveOccurred())
		l.g.Expect(progress.Reads).To(Equal("bin/kubeadm"))
		l.g.Expect(progress.Later).To(Equal(later))
	}
}

// What the manager can read is not all meant for hosts: its own token, say.
func TestOnlyWhatLiesInTheBundleIsPushed(t *testing.T) {
	for name, c := range map[string]struct {
		place func(l *lab, at string) error
		says  string
	}{
		"a link that leads out": {func(l *lab, at string) error {
			l.write("token", "kubeadm "+version, 0o600)
			return os.Symlink(filepath.Join(l.dir, "token"), at)
		}, "escapes"},
		"a pipe": {func(_ *lab, at string) error { return syscall.Mkfifo(at, 0o600) }, "it is no file"},
		"a file that is too long": {func(_ *lab, at string) error {
			return os.WriteFile(at, []byte("kubeadm "+version+" and more"), 0o600)
		}, "manifest.json says 15"},
		"a link within": {func(_ *lab, at string) error {
			return errors.Join(os.WriteFile(at+".real", []byte("kubeadm "+version), 0o600), os.Symlink("kubeadm.real", at))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, wanted := pushing(t)
			at := filepath.Join(l.bundles, version, "bin/kubeadm")
			l.g.Expect(os.Remove(at)).To(Succeed())
			l.g.Expect(c.place(l, at)).To(Succeed())
			_, err := l.push(wanted, artifacts.Worker, time.Minute)
			if c.says == "" {
				l.g.Expect(err).NotTo(HaveOccurred())
				return
			}
			var depot *artifacts.DepotError
			l.g.Expect(errors.As(err, &depot)).To(BeTrue(), "%v", err)
			l.g.Expect(err).To(MatchError(And(ContainSubstring(at), ContainSubstring(c.says))))
			l.g.Expect(l.dir + "/root/cache/" + sumOf("kubeadm "+version)).NotTo(BeAnExistingFile())
		})
	}
}

// Whoever names a bundle may not have this process ask what only it can reach.
func TestARedirectIsFollowedWithinItsOriginOnly(t *testing.T) {
	l, wanted := pushing(t)
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/x?signature=hunter2", http.StatusFound))
	defer server.Close()
	wanted.Bundle.Location = server.URL + "/{{version}}"
	_, err := l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).To(MatchError(And(ContainSubstring("redirected to "+elsewhere.URL), Not(ContainSubstring("hunter2")),
		ContainSubstring("give that as the location"))))
	l.g.Expect(asked).To(BeZero())

	// The same origin may lead to another folder, however it writes its own name.
	shelf := &shelf{l: l}
	moved := http.NewServeMux()
	moved.Handle("/old/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "HTTP://"+strings.ToUpper(r.Host)+strings.TrimPrefix(r.URL.Path, "/old"), http.StatusFound)
	}))
	moved.Handle("/", shelf)
	same := httptest.NewServer(moved)
	defer same.Close()
	wanted.Bundle.Location = strings.Replace(same.URL, "127.0.0.1", "localhost", 1) + "/old/{{version}}"
	progress, err := l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(progress).NotTo(BeZero())
}

func TestTheServerOfABundleIsConnectedToByTheRules(t *testing.T) {
	l, wanted := pushing(t)
	server := httptest.NewServer(&shelf{l: l})
	defer server.Close()
	wanted.Bundle.Location = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/{{version}}"
	var judged []string
	refusal := errors.New("it is the manager's own")
	wanted.Control = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		judged = append(judged, address)
		return refusal
	}
	_, err := l.push(wanted, artifacts.Worker, time.Minute)
	var depot *artifacts.DepotError
	l.g.Expect(errors.As(err, &depot)).To(BeTrue(), "%v", err)
	l.g.Expect(err).To(MatchError(ContainSubstring("it is the manager's own")))
	l.g.Expect(judged).To(ContainElement(strings.TrimPrefix(server.URL, "http://")))
	refusal = nil
	_, err = l.push(wanted, artifacts.Worker, time.Minute)
	l.g.Expect(err).NotTo(HaveOccurred())
}

// A proxy that the manager's environment names would be asked in place of what is judged.
func TestTheProxyOfTheEnvironmentIsNotAsked(t *testing.T) {
	proxytest.NotAsked(t, func() {
		for _, scheme := range []string{"http", "https"} {
			l, wanted := pushing(t)
			wanted.Bundle.Location = scheme + "://bundles.invalid/{{version}}"
			_, err := l.push(wanted, artifacts.Worker, time.Minute)
			l.g.Expect(err).To(HaveOccurred())
		}
	})
}

// Whoever names a bundle may have a server that says a lot.
func TestWhatAServerSaysBesideTheFileIsBounded(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct{ answer, says string }{
		"its headers":      {"HTTP/1.1 200 OK\r\nX: " + long, "exceeded 65536 bytes"},
		"a refusal":        {"HTTP/1.1 500 " + long[:60000], "500 Internal Server Error"},
		"a file not there": {"HTTP/1.1 404 " + long[:60000], "404 Not Found"},
		"what is no HTTP":  {"HTTPS " + long[:60000], "malformed HTTP"},
		"a redirect":       {"HTTP/1.1 302 Found\r\nLocation: http://" + long[:60000] + "/", "give that as the location"},
	} {
		t.Run(name, func(t *testing.T) {
			l, wanted := pushing(t)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_, _ = conn.Write([]byte(c.answer + "\r\nContent-Length: 0\r\n\r\n"))
					_ = conn.Close()
				}
			}))
			defer server.Close()
			wanted.Bundle.Location = server.URL + "/{{version}}"
			_, err := l.push(wanted, artifacts.Worker, time.Minute)
			l.g.Expect(err).To(MatchError(ContainSubstring(c.says)))
			l.g.Expect(len(err.Error())).To(BeNumerically("<", 1000))
		})
	}
}

// A server that stalls is no host that does not answer: hosts are given up for that.
func TestAServerThatTakesAllTheTimeIsNotTheHostsFault(t *testing.T) {
	l, wanted := pushing(t)
	content := l.large()
	s := &shelf{l: l, spoil: func(w http.ResponseWriter, r *http.Request) bool {
		if filepath.Base(r.URL.Path) != "kubeadm" || r.Header.Get("Range") == "" {
			return false
		}
		// No ranges, and less than the host has.
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write([]byte("01"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}}
	server := httptest.NewServer(s)
	defer server.Close()
	l.write("root/cache/"+sumOf(content)+".part", content[:300<<10], 0o600)
	wanted.Bundle.Location = server.URL + "/{{version}}"
	limited, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	_, err := artifacts.Push(limited, l.host, wanted, artifacts.Worker, time.Minute)
	l.g.Expect(ssh.IsTransient(err)).To(BeFalse(), "%v", err)
	l.g.Expect(err).To(MatchError(ContainSubstring("knows no ranges")))
}
