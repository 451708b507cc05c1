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
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/origin"
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
	// root is the folder of a location that is a path, once it is open: nothing outside of it is ever read, not by way of
	// a link either, for what a manager can read is not all meant for hosts.
	root *os.Root
}

// DepotError says that this process cannot read the bundle. It is never taken for a failure of the host, so it hides
// what it stems from.
type DepotError struct{ text string }

func (e *DepotError) Error() string { return e.text }

func depotError(at string, err error) error {
	// What a server says may be in it, such as all names of a certificate.
	return &DepotError{text: fmt.Sprintf("the manager cannot read %s: %.500v", at, err)}
}

// blame says what is wrong with a file that was read.
func (d *depot) blame(file File, err error) error {
	var own *DepotError
	at := d.at + "/" + file.Path
	switch {
	case errors.As(err, &own), errors.Is(err, context.Canceled), errors.Is(err, fs.ErrNotExist):
		return err
	case errors.Is(err, errDiffers):
		return fmt.Errorf("%s is not what %s says: expected sha256 %s of %d bytes; copy the bundle again, completely", at,
			manifestName, file.SHA256, file.Size)
	}
	return depotError(at, err)
}

func openDepot(wanted Wanted, location Location, version string) *depot {
	bundle, d := wanted.Bundle, &depot{at: location.At(version)}
	if !location.Remote() {
		return d
	}
	transport := &http.Transport{
		// That of the manager's own environment is not for its users.
		Proxy: nil, DialContext: (&net.Dialer{Timeout: answerTime, ControlContext: wanted.Control}).DialContext,
		ResponseHeaderTimeout: answerTime, TLSHandshakeTimeout: answerTime, MaxResponseHeaderBytes: 64 << 10,
	}
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
		case origin.Of(r.URL) != origin.Of(via[0].URL):
			// As hosts do that fetch a bundle themselves: a location says which server is asked, and a server not.
			return fmt.Errorf("redirected to %s://%.200s, which is not followed; give that as the location, or have the "+
				"server send the files itself", r.URL.Scheme, r.URL.Host)
		}
		return nil
	}}
	return d
}

func (d *depot) close() {
	if d.client != nil {
		d.client.CloseIdleConnections()
	}
	if d.root != nil {
		_ = d.root.Close()
	}
}

// read implements reader.
func (d *depot) read(ctx context.Context, name string) ([]byte, error) {
	file, err := d.open(ctx, name, unknownSize)
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

// unknownSize is that of a file which no manifest speaks of.
const unknownSize = -1

// open returns a file of the bundle, size bytes long.
func (d *depot) open(ctx context.Context, name string, size int64) (io.ReadSeekCloser, error) {
	at := d.at + "/" + name
	if d.client == nil {
		return d.openFile(at, name, size)
	}
	file := &served{ctx: ctx, client: d.client, url: at, size: size}
	// Whether it is there is better known now.
	if err := file.fetch(); err != nil {
		return nil, err
	}
	return file, nil
}

func (d *depot) openFile(at, name string, size int64) (io.ReadSeekCloser, error) {
	refuse := func(err error) (io.ReadSeekCloser, error) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &missingError{at: at, why: "no such file in the manager's container"}
		}
		return nil, depotError(at, err)
	}
	if d.root == nil {
		root, err := os.OpenRoot(d.at)
		if err != nil {
			return refuse(err)
		}
		d.root = root
	}
	// Before it is opened: a pipe would wait for its other end, with no regard for any context.
	info, err := d.root.Stat(name)
	switch {
	case err != nil:
		return refuse(err)
	case !info.Mode().IsRegular():
		return refuse(errors.New("it is no file; copy the bundle again, completely"))
	case size != unknownSize && info.Size() != size:
		return refuse(fmt.Errorf("it has %d bytes, but %s says %d; copy the bundle again, completely", info.Size(),
			manifestName, size))
	}
	file, err := d.root.Open(name)
	if err != nil {
		return refuse(err)
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
	part := response.StatusCode == http.StatusPartialContent && strings.HasPrefix(response.Header.Get("Content-Range"),
		fmt.Sprintf("bytes %d-", s.at))
	// Not in the server's words, which may be many.
	status := strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", http.StatusText(response.StatusCode)))
	switch {
	case response.StatusCode == http.StatusNotFound:
		err = &missingError{at: s.url, why: status}
	case !whole && !part:
		err = depotError(s.url, errors.New(status))
	}
	if err != nil {
		response.Body.Close()
		cancel()
		return err
	}
	s.body, s.cancel = response.Body, cancel
	s.guard = time.AfterFunc(stall, cancel)
	if part || s.at == 0 {
		return nil
	}
	// A server without ranges: what we have already passes by.
	passed := s.at
	s.at = 0
	if _, err := io.CopyN(io.Discard, s, passed); err != nil {
		_ = s.Close()
		s.at = passed
		if errors.Is(err, context.Canceled) {
			return err
		}
		return depotError(s.url,
			fmt.Errorf("its server knows no ranges, and the %d bytes that the host has already did not pass by: %w", passed,
				err))
	}
	return nil
}

func (s *served) failed(err error) error {
	if errors.Is(s.ctx.Err(), context.Canceled) {
		// The caller's own end is nobody's fault. The end of its time is: whoever reads here waits for the server, not for
		// the host.
		return s.ctx.Err()
	}
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("its server sent nothing for %s", stall)
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		// It repeats the address of the last redirect, which may be one that opens a store to whoever knows it.
		err = asked.Err
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
