// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// stall is how long a server may be silent in the middle of a file.
	stall = 30 * time.Second
	// answerTime is how long it may take to begin.
	answerTime = 30 * time.Second
)

// depot is a version's bundle as this process reads it, to push it to hosts.
type depot struct {
	at     string
	client *http.Client
}

// DepotError says that this process cannot read the bundle. It is never taken for a failure of the host, so it hides what
// it stems from.
type DepotError struct{ text string }

func (e *DepotError) Error() string { return e.text }

func depotError(at string, err error) error {
	return &DepotError{text: fmt.Sprintf("the manager cannot read %s: %v", at, err)}
}

func openDepot(bundle *Bundle, location Location, version string) *depot {
	d := &depot{at: location.At(version)}
	if !location.Remote() {
		return d
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: answerTime, TLSHandshakeTimeout: answerTime}
	if bundle.Proxy != "" {
		proxy, _ := url.Parse(bundle.Proxy) // was checked
		transport.Proxy = http.ProxyURL(proxy)
	}
	if bundle.CertificateAuthorities != "" {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(bundle.CertificateAuthorities))
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	d.client = &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case len(via) > 10:
			return errors.New("redirected more than ten times")
		case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
			return errors.New("redirected from HTTPS to something weaker")
		}
		return nil
	}}
	return d
}

func (d *depot) close() {
	if d.client != nil {
		d.client.CloseIdleConnections()
	}
}

// read implements reader.
func (d *depot) read(ctx context.Context, name string) ([]byte, error) {
	file, err := d.open(ctx, name, maxManifest)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		return nil, depotError(d.at+"/"+name, fmt.Errorf("it has more than %d bytes; make the bundle again", maxManifest))
	}
	return data, err
}

// open returns a file of the bundle, size bytes long.
func (d *depot) open(ctx context.Context, name string, size int64) (io.ReadSeekCloser, error) {
	at := d.at + "/" + name
	if d.client == nil {
		file, err := os.Open(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &missingError{at: at, why: "no such file in the manager's container"}
		case err != nil:
			return nil, depotError(at, err)
		}
		return file, nil
	}
	file := &served{ctx: ctx, client: d.client, url: at, size: size}
	// Whether it is there is better known now.
	if err := file.fetch(); err != nil {
		return nil, err
	}
	return file, nil
}

// served is a file on an HTTP server that can be read from any place.
type served struct {
	ctx    context.Context //nolint:containedctx // io.Reader has none
	client *http.Client
	url    string
	size   int64

	at     int64
	body   io.ReadCloser
	cancel context.CancelFunc
	guard  *time.Timer
}

// fetch asks for the file from where we are.
func (s *served) fetch() error {
	ctx, cancel := context.WithCancel(s.ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		cancel()
		return depotError(s.url, err)
	}
	if s.at > 0 {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(s.at, 10)+"-")
	}
	response, err := s.client.Do(request)
	if err != nil {
		cancel()
		return s.failed(err)
	}
	whole := response.StatusCode == http.StatusOK
	part := response.StatusCode == http.StatusPartialContent && strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", s.at))
	switch {
	case response.StatusCode == http.StatusNotFound:
		err = &missingError{at: s.url, why: response.Status}
	case !whole && !part:
		err = depotError(s.url, errors.New(response.Status))
	case whole && s.at > 0:
		// A server without ranges: what we have already passes by.
		if _, err = io.CopyN(io.Discard, response.Body, s.at); err != nil {
			err = s.failed(err)
		}
	}
	if err != nil {
		response.Body.Close()
		cancel()
		return err
	}
	s.body, s.cancel = response.Body, cancel
	s.guard = time.AfterFunc(stall, cancel)
	return nil
}

func (s *served) failed(err error) error {
	if s.ctx.Err() != nil {
		// The caller's own end is nobody's fault.
		return s.ctx.Err()
	}
	return depotError(s.url, err)
}

// Read implements io.Reader.
func (s *served) Read(p []byte) (int, error) {
	if s.body == nil {
		if err := s.fetch(); err != nil {
			return 0, err
		}
	}
	s.guard.Reset(stall)
	n, err := s.body.Read(p)
	s.guard.Stop()
	s.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.failed(err)
	}
	return n, err
}

// Seek implements io.Seeker.
func (s *served) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return s.at, errors.New("before the beginning of the file")
	}
	if offset != s.at {
		_ = s.Close()
		s.at = offset
	}
	return s.at, nil
}

// Close implements io.Closer.
func (s *served) Close() error {
	if s.body == nil {
		return nil
	}
	s.guard.Stop()
	s.cancel()
	err := s.body.Close()
	s.body = nil
	return err
}
