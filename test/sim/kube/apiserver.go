// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// apiServer is the one real API server of a control plane. It stands for those of all machines, outlives each of them, and
// is reached only through one that serves.
type apiServer struct {
	address string
	// ca is the authority of the cluster that it serves.
	ca []byte
	// files are those of the machine that started it.
	files   map[string][]byte
	admin   *rest.Config
	client  kubernetes.Interface
	process *exec.Cmd
	done    chan struct{}
}

func (s *apiServer) stop() {
	_ = s.process.Process.Kill()
	<-s.done
}

func (s *apiServer) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// kubeAPIServer is the container of the static pod: it makes the machine a backend while the machine's own etcd is ready.
func (c *ControlPlane) kubeAPIServer(command []string) machine.Program {
	return func(ctx context.Context, p *machine.Process) int {
		defer c.apiServerRuns(p.Machine)()
		flags := flagsOf(command)
		files, err := serverFiles(p, flags)
		if err != nil {
			return p.Fail("%v", err)
		}
		ready := func() bool {
			member := c.Etcd(p.Machine)
			return member != nil && member.Ready()
		}
		for !ready() {
			p.Sleep(20 * time.Millisecond)
		}
		server, err := c.ensureServer(ctx, flags, files)
		if err != nil {
			return p.Fail("%v", err)
		}
		port, err := strconv.Atoi(flags["secure-port"])
		if err != nil {
			return p.Fail("--secure-port: %v", err)
		}
		listener, err := p.Listen(port)
		if err != nil {
			return p.Fail("%v", err)
		}
		go serve(listener, func(conn net.Conn) {
			far, err := net.Dial("tcp", server.address)
			if err != nil {
				_ = conn.Close()
				return
			}
			splice(conn, far)
		})
		return c.serveFor(ctx, p.Machine, server, ready)
	}
}

// serveFor keeps the machine behind the load balancer while its etcd is ready. It ends with the process or the server.
func (c *ControlPlane) serveFor(ctx context.Context, m *machine.Machine, server *apiServer, ready func() bool) int {
	var b *backend
	defer func() {
		if b != nil {
			c.removeBackend(b)
		}
	}()
	for {
		switch is := ready(); {
		case is && b == nil:
			var err error
			if b, err = c.addBackend(m); err != nil {
				return 1
			}
		case !is && b != nil:
			c.removeBackend(b)
			b = nil
		}
		select {
		case <-ctx.Done():
			return 0
		case <-server.done:
			return 1
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serverFiles are the files that the API server of the machine would read, by their flag.
func serverFiles(p *machine.Process, flags map[string]string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{"client-ca-file", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "proxy-client-cert-file", "proxy-client-key-file",
		"requestheader-client-ca-file", "service-account-key-file", "service-account-signing-key-file", "tls-cert-file", "tls-private-key-file"} {
		content, err := p.ReadFile(flags[name])
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	caKey, err := p.ReadFile(path.Dir(flags["client-ca-file"]) + "/ca.key")
	if err != nil {
		return nil, err
	}
	files["ca-key"] = caKey
	return files, nil
}

// ensureServer starts the real API server unless it runs already. The one of another cluster ends first.
func (c *ControlPlane) ensureServer(ctx context.Context, flags map[string]string, files map[string][]byte) (*apiServer, error) {
	c.starting.Lock()
	defer c.starting.Unlock()
	c.mu.Lock()
	server, others, closed := c.server, len(c.backends), c.closed
	c.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if server != nil {
		same := bytes.Equal(server.ca, files["client-ca-file"])
		switch {
		case same && !server.ended():
			return server, nil
		case !same && others > 0:
			return nil, errors.New("simulated: this machine has the authority of another cluster than the machines that serve already")
		}
		server.stop()
	}
	server, err := c.startServer(ctx, flags, files)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		server.stop()
		return nil, net.ErrClosed
	}
	c.server = server
	return server, nil
}

func (c *ControlPlane) startServer(ctx context.Context, flags map[string]string, files map[string][]byte) (*apiServer, error) {
	host := c.prefix + "253"
	server := &apiServer{address: net.JoinHostPort(host, strconv.Itoa(apiPort)), ca: files["client-ca-file"], files: files, done: make(chan struct{})}
	dir, err := os.MkdirTemp(c.scratch(), "kube-apiserver-")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind-address=" + host, "--secure-port=" + strconv.Itoa(apiPort), "--etcd-servers=https://" + c.store.Addr().String(),
		"--cert-dir=" + dir, "--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1",
		// There is no controller manager that would make service accounts.
		"--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true", "--authorization-mode=Node,RBAC", "--enable-bootstrap-token-auth=true", "--profiling=false",
	}
	for _, name := range []string{"requestheader-allowed-names", "requestheader-extra-headers-prefix", "requestheader-group-headers",
		"requestheader-username-headers", "service-account-issuer", "service-cluster-ip-range"} {
		args = append(args, "--"+name+"="+flags[name])
	}
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, err
		}
		if name != "ca-key" {
			args = append(args, "--"+name+"="+file)
		}
	}
	log, err := os.OpenFile(c.scratch("kube-apiserver.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	if err := server.credentials(c.endpoint(), files); err != nil {
		return nil, err
	}
	server.process = exec.Command(filepath.Join(c.options.Assets, "kube-apiserver"), args...)
	server.process.Env = []string{c.reaper.Mark()}
	server.process.Stdout, server.process.Stderr = log, log
	server.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := server.process.Start(); err != nil {
		return nil, fmt.Errorf("starting kube-apiserver: %w", err)
	}
	go func() {
		_ = server.process.Wait()
		close(server.done)
	}()
	if err := server.wait(ctx); err != nil {
		server.stop()
		return nil, fmt.Errorf("%w\n%s", err, c.ServerLog())
	}
	return server, nil
}

// credentials makes an administrator.
func (s *apiServer) credentials(endpoint string, files map[string][]byte) error {
	ca, err := parseAuthority(files["client-ca-file"], files["ca-key"])
	if err != nil {
		return err
	}
	cert, key, err := ca.issue(subject{name: "simulation", organization: []string{"system:masters"}, client: true})
	if err != nil {
		return err
	}
	s.admin = &rest.Config{
		Host: "https://" + endpoint, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.pem, CertData: cert, KeyData: key},
	}
	s.client, err = kubernetes.NewForConfig(s.admin)
	return err
}

// wait until the server is ready.
func (s *apiServer) wait(ctx context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // only the status counts
	}}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return errors.New("kube-apiserver ended")
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return errors.New("kube-apiserver does not become ready")
		}
	}
}

// ServerLog is the end of what the API server has written.
func (c *ControlPlane) ServerLog() string {
	content, _ := os.ReadFile(c.scratch("kube-apiserver.log"))
	return string(content[max(0, len(content)-4000):])
}
