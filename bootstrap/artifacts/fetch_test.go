// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// shelf serves the bundles and remembers what was asked for. spoil may answer a request in another way.
type shelf struct {
	l     *lab
	spoil func(w http.ResponseWriter, r *http.Request) bool

	mu   sync.Mutex
	asks []string
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asks = append(s.asks, strings.TrimSpace(filepath.Base(r.URL.Path)+" "+r.Header.Get("Range")))
	s.mu.Unlock()
	if s.spoil != nil && s.spoil(w, r) {
		return
	}
	http.FileServer(http.Dir(s.l.bundles)).ServeHTTP(w, r)
}

func (s *shelf) asked(file string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asks []string
	for _, ask := range s.asks {
		if name, byteRange, _ := strings.Cut(ask, " "); name == file {
			asks = append(asks, byteRange)
		}
	}
	return asks
}

func serve(t *testing.T, spoil func(http.ResponseWriter, *http.Request) bool) (*lab, *shelf, artifacts.Wanted) {
	t.Helper()
	programtest.Need(t, "curl")
	l := newLab(t)
	l.bundle(version, nil)
	s := &shelf{l: l, spoil: spoil}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	wanted := l.bundleAt(server.URL)
	return l, s, wanted
}

// once spoils the first request for a file.
func once(
	file string, spoil func(w http.ResponseWriter, r *http.Request),
) func(http.ResponseWriter, *http.Request) bool {
	var done atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) bool {
		if filepath.Base(r.URL.Path) != file || done.Swap(true) {
			return false
		}
		spoil(w, r)
		return true
	}
}

func TestADownloadThatWasCutGoesOnWhereItEnded(t *testing.T) {
	l, s, wanted := serve(t, once("kubeadm", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "15")
		_, _ = io.WriteString(w, "kubeadm")
	}))
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
	l.g.Expect(s.asked("kubeadm")).To(Equal([]string{"", "bytes=7-"}))
}

// Hosts follow a server of bundles where this process does, and nowhere else.
func TestAHostFollowsARedirectWithinItsOriginOnly(t *testing.T) {
	for name, c := range map[string]struct {
		file string // that is elsewhere
		part string // that the host has of it
	}{
		"the manifest":           {file: "manifest.json"},
		"a file":                 {file: "kubeadm"},
		"a file that goes on at": {file: "kubeadm", part: "kubea"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
			defer elsewhere.Close()
			l, s, wanted := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				switch base := filepath.Base(r.URL.Path); {
				case base == c.file && strings.HasPrefix(r.URL.Path, "/away/"):
					http.Redirect(w, r, elsewhere.URL+r.URL.Path+"?signature=hunter2", http.StatusFound)
				case strings.HasPrefix(r.URL.Path, "/away/"):
					http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/away"), http.StatusMovedPermanently)
				case strings.HasPrefix(r.URL.Path, "/old/"):
					http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/old"), http.StatusTemporaryRedirect)
				case strings.HasPrefix(r.URL.Path, "/round/"):
					http.Redirect(w, r, r.URL.Path, http.StatusFound)
				default:
					return false
				}
				return true
			})
			if c.part != "" {
				l.part(c.part)
			}
			at := func(folder string) artifacts.Wanted {
				there := wanted
				bundle := *wanted.Bundle
				bundle.Location = strings.Replace(bundle.Location, "/{{", folder+"{{", 1)
				there.Bundle = &bundle
				return there
			}
			var message string
			if supply, err := l.find(at("/away/")); err != nil {
				message = err.Error()
			} else {
				status := l.run(supply.Plan(artifacts.Worker))
				l.g.Expect(status.Phase).To(Equal(run.Failed))
				message = status.Message
			}
			l.g.Expect(message).To(And(ContainSubstring("is redirected to "+elsewhere.URL+", which is not followed; give that "+
				"as the location"), Not(ContainSubstring("hunter2"))))
			l.g.Expect(asked).To(BeZero())
			if c.file == "manifest.json" {
				_, err := l.find(at("/round/"))
				l.g.Expect(err).To(MatchError(ContainSubstring("redirected once more, after ten times")))
				return
			}
			status := l.install(at("/old/"), artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
			if c.part != "" {
				asks := s.asked("kubeadm")
				l.g.Expect(asks[len(asks)-1]).To(Equal("bytes=5-"))
			}
		})
	}
}

func (l *lab) part(content string) {
	l.t.Helper()
	l.write("root/cache/"+sumOf("kubeadm "+version)+".part", content, 0o600)
}

func TestWhatAnEarlierPlanFetchedIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		part string
		asks []string
	}{
		"the beginning":       {"kubea", []string{"bytes=5-"}},
		"everything":          {"kubeadm " + version, nil},
		"a damaged beginning": {"damag", []string{"bytes=5-", ""}},
		"as much but damaged": {strings.Repeat("x", len("kubeadm "+version)), []string{""}},
		"more than there is":  {strings.Repeat("x", 100), []string{""}},
		"an empty file":       {"", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			l, s, wanted := serve(t, nil)
			l.part(c.part)
			status := l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
			l.g.Expect(s.asked("kubeadm")).To(Equal(c.asks))
		})
	}
}

func TestAServerWithoutRangesIsAskedFromTheBeginning(t *testing.T) {
	for name, code := range map[string]int{"ignores ranges": http.StatusOK,
		"refuses ranges": http.StatusRequestedRangeNotSatisfiable} {
		t.Run(name, func(t *testing.T) {
			l, _, wanted := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				if filepath.Base(r.URL.Path) == "kubeadm" && r.Header.Get("Range") != "" {
					w.WriteHeader(code)
					_, _ = io.WriteString(w, "kubeadm "+version)
					return true
				}
				return false
			})
			l.part("kubea")
			status := l.install(wanted, artifacts.Worker)
			l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
			l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
		})
	}
}

func TestAFileThatIsNotServedIsAskedForOnce(t *testing.T) {
	l, s, wanted := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if filepath.Base(r.URL.Path) != "kubeadm" {
			return false
		}
		http.NotFound(w, r)
		return true
	})
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Message).To(ContainSubstring("could not be fetched"))
	l.g.Expect(s.asked("kubeadm")).To(HaveLen(1))
}

// Nobody signed what fills the disk.
func TestNoMoreIsFetchedThanTheManifestSays(t *testing.T) {
	l, s, wanted := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if filepath.Base(r.URL.Path) != "kubeadm" {
			return false
		}
		w.Header().Set("Content-Length", "50000000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000000))
		return true
	})
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Message).To(ContainSubstring("has more than the 15 bytes that manifest.json says"))
	l.g.Expect(s.asked("kubeadm")).To(HaveLen(1))
	info, err := os.Stat(filepath.Join(l.dir, "root/cache/"+sumOf("kubeadm "+version)+".part"))
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(info.Size()).To(BeZero())
}

func TestBundlesComeThroughAProxyAndFromAServerOfAPrivateAuthority(t *testing.T) {
	l, s, wanted := serve(t, nil)
	// A proxy is asked for whole URLs; this one knows every address.
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "bundles.invalid" {
			http.Error(w, "not by way of the proxy", http.StatusBadGateway)
			return
		}
		s.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	wanted.Bundle.Location, wanted.Bundle.Proxy = "http://bundles.invalid/{{version}}", proxy.URL
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(s.asked("kubeadm")).To(HaveLen(1))

	secure := httptest.NewTLSServer(s)
	defer secure.Close()
	l = newLab(t)
	l.bundle(version, nil)
	s.l = l
	wanted = l.bundleAt(secure.URL)
	_, err := l.find(wanted)
	l.g.Expect(err).To(MatchError(ContainSubstring("certificate")), "nobody vouches for it")
	wanted.Bundle.CertificateAuthorities = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: secure.Certificate().Raw}))
	status = l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(l.read("usr/bin/kubeadm")).To(Equal("kubeadm " + version))
}

// Debian's curl, for one, is built with --with-ca-path: --cacert then adds to the system's authorities, and replaces
// none.
func TestNobodyButTheGivenAuthoritiesVouchesForAServer(t *testing.T) {
	l, _, wanted := serve(t, nil)
	curl, err := exec.LookPath("curl")
	l.g.Expect(err).NotTo(HaveOccurred())
	l.write("bin/curl", `#!/bin/sh
for word in "$@"; do
	[ "$before" != --capath ] || [ -n "$(ls -A "$word")" ] || echo "an empty folder" >>`+l.dir+`/curl.log
	before=$word
done
exec `+curl+` "$@"
`, 0o755)
	secure := httptest.NewTLSServer(&shelf{l: l})
	defer secure.Close()
	wanted.Bundle.Location = secure.URL + "/{{version}}"
	wanted.Bundle.CertificateAuthorities = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: secure.Certificate().Raw}))
	_, err = l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(l.read("curl.log")).To(Equal("an empty folder\n"), "the manifest")
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	l.g.Expect(strings.Count(l.read("curl.log"), "\n")).To(BeNumerically(">", 3), "and each file")
}

func TestTheRateIsCurlsToKeepAndTheStepHasTheTime(t *testing.T) {
	l, _, wanted := serve(t, nil)
	curl, err := exec.LookPath("curl")
	l.g.Expect(err).NotTo(HaveOccurred())
	l.write("bin/curl", "#!/bin/sh\necho \"$*\" >>"+l.dir+"/curl.log\nexec "+curl+" \"$@\"\n", 0o755)
	wanted.Bundle.BytesPerSecond = 2000
	supply, err := l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	steps, files, err := supply.Plan(artifacts.Worker)
	for _, step := range steps {
		if step.Name == "install-kubeadm" {
			l.g.Expect(step.Timeout).To(BeNumerically(">=", run.DefaultTimeout))
		}
	}
	l.g.Expect(l.run(steps, files, err).Phase).To(Equal(run.Succeeded))
	for line := range strings.SplitSeq(strings.TrimSpace(l.read("curl.log")), "\n") {
		l.g.Expect(line).To(And(ContainSubstring("--limit-rate 2000"), ContainSubstring("--speed-limit 500")))
	}
}

func TestAFullDiskIsToldBeforeAnythingIsFetched(t *testing.T) {
	l, s, wanted := serve(t, nil)
	l.write("bin/df", `#!/bin/sh
echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'
echo "/dev/sda1 100 99 1 99% /"
`, 0o755)
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Failed))
	l.g.Expect(status.Step).To(Equal("check-room"))
	l.g.Expect(status.Message).To(And(ContainSubstring("file system of /"), ContainSubstring("only 1 KiB are free"),
		ContainSubstring("make room")))
	l.g.Expect(s.asked("kubeadm")).To(BeEmpty())
	// What is installed needs no room.
	l = newLab(t)
	l.bundle(version, nil)
	l.g.Expect(l.install(l.bundleAt(l.bundles), artifacts.Worker).Phase).To(Equal(run.Succeeded))
	l.write("bin/df", "#!/bin/sh\nprintf 'Filesystem\\n/dev/sda1 100 99 0 100%% /\\n'\n", 0o755)
	status = l.install(l.bundleAt(l.bundles), artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
}

func TestWhatOtherVersionsLeftIsRemoved(t *testing.T) {
	l := newLab(t)
	g := l.g
	at := func(v string) artifacts.Wanted {
		l.bundle(v, nil)
		wanted := l.bundleAt(l.bundles)
		wanted.Version = v
		return wanted
	}
	g.Expect(l.install(at("v1.34.1"), artifacts.ControlPlane).Phase).To(Equal(run.Succeeded))
	g.Expect(l.install(at("v1.35.2"), artifacts.Addon).Phase).To(Equal(run.Succeeded))
	l.write("store/foreign:1", "", 0o644)
	l.write("root/cache/"+strings.Repeat("0", 64)+".part", "left", 0o600)
	g.Expect(filepath.Join(l.dir, "store/apiserver:v1.34.1")).To(BeAnExistingFile(), "bringing add-ons removes nothing")

	wanted := at(version)
	wanted.AddonVersions = []string{"v1.35.2"}
	status := l.install(wanted, artifacts.Worker)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	entries, err := os.ReadDir(filepath.Join(l.dir, "store"))
	g.Expect(err).NotTo(HaveOccurred())
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	g.Expect(left).To(ConsistOf("proxy:v1.35.2", "proxy:"+version, "foreign:1"))
	marks, err := os.ReadDir(filepath.Join(l.dir, "root/images"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(marks).To(HaveLen(2))
	g.Expect(filepath.Join(l.dir, "root/cache")).NotTo(BeADirectory())

	// What the add-ons brought is not fetched again when its version is installed; what went comes back.
	imports := strings.Count(l.read("ctr.log"), "import")
	g.Expect(l.install(at("v1.35.2"), artifacts.Worker).Phase).To(Equal(run.Succeeded))
	g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(imports))
	g.Expect(l.install(at(version), artifacts.Worker).Phase).To(Equal(run.Succeeded))
	g.Expect(strings.Count(l.read("ctr.log"), "import")).To(Equal(imports + 1))
	g.Expect(fmt.Sprint(l.read("store/proxy:" + version))).To(ContainSubstring("pinned"))
}

// An image whose tag does not move with the version belongs to both.
func TestAnImageOfTwoVersionsStays(t *testing.T) {
	l := newLab(t)
	shared := func(m *artifacts.Manifest) { m.Files[2].Images = []string{"x/proxy:same"} }
	for _, v := range []string{"v1.35.2", version} {
		l.bundle(v, shared)
		l.write("bundles/"+v+"/images/proxy.tar", "x/proxy:same\n", 0o644)
		l.bundle(v, func(m *artifacts.Manifest) {
			shared(m)
			m.Files[2].SHA256, m.Files[2].Size = sumOf("x/proxy:same\n"), 13
		})
		l.write("bundles/"+v+"/images/proxy.tar", "x/proxy:same\n", 0o644)
		wanted := l.bundleAt(l.bundles)
		wanted.Version = v
		status := l.install(wanted, artifacts.Worker)
		l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	}
	l.g.Expect(filepath.Join(l.dir, "store/proxy:same")).To(BeAnExistingFile())
}

// What came of a manifest before its server stalled is no part of what the next attempt brings.
func TestAManifestThatIsFetchedTwiceIsReadOnce(t *testing.T) {
	stall := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"kubernetesVersion":`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	l, s, wanted := serve(t, once("manifest.json", stall))
	// A second instead of the half minute that a host waits.
	curl, err := exec.LookPath("curl")
	l.g.Expect(err).NotTo(HaveOccurred())
	l.write("impatient/curl", "#!/bin/sh\nshift\nexec "+curl+" -q --max-time 1 \"$@\"\n", 0o755)
	l.host.Env = append(l.host.Env, "PATH="+filepath.Join(l.dir, "impatient")+":"+os.Getenv("PATH"))
	_, err = l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	l.g.Expect(s.asked("manifest.json")).To(HaveLen(2))
}

// Whoever had the host before may have left a file there by which curl asks him instead.
func TestNoFileOfTheHostSteersWhatIsFetched(t *testing.T) {
	l, _, wanted := serve(t, nil)
	l.write("curl/.curlrc", "proxy = http://127.0.0.1:1\ninsecure\n", 0o600)
	l.host.Env = append(l.host.Env, "CURL_HOME="+filepath.Join(l.dir, "curl"))
	_, err := l.find(wanted)
	l.g.Expect(err).NotTo(HaveOccurred())
	status := l.install(wanted, artifacts.Worker)
	l.g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
}

// -q counts as the first word alone.
func TestEachCurlOnAHostReadsNoFile(t *testing.T) {
	g := NewWithT(t)
	calls := regexp.MustCompile(`\bcurl (-\S+)`)
	found := 0
	g.Expect(filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sh") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, call := range calls.FindAllStringSubmatch(string(content), -1) {
			found++
			g.Expect(call[1]).To(Equal("-q"), path)
		}
		return err
	})).To(Succeed())
	g.Expect(found).To(BeNumerically(">=", 4))
}
