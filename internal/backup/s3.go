// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

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
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// partSize is how much of an upload is in memory at a time. 10000 parts, the protocol's most, make 156 GiB.
	partSize = 16 << 20
	// defaultRegion is what servers of one region only answer to.
	defaultRegion = "us-east-1"
	// requestAttempts bounds how often one request is tried.
	requestAttempts = 4
	// answerTimeout is how long a server may think before it answers a request.
	answerTimeout = 2 * time.Minute
	// abortTimeout bounds the end of an upload whose own time is over.
	abortTimeout = 30 * time.Second
	// maxSaid bounds what is repeated of a server's words.
	maxSaid = 500
)

// Bucket says where an object store is, and who asks.
type Bucket struct {
	// Endpoint is as ValidateEndpoint wants it.
	Endpoint string
	// Name of the bucket, which exists; Region of it, us-east-1 when empty; Prefix of the objects' names.
	Name, Region, Prefix string
	// AccessKeyID and SecretAccessKey. They appear in no error.
	AccessKeyID, SecretAccessKey string
	// Authority of the endpoint's certificate, PEM encoded; the system's when empty.
	Authority []byte
	// Proxy through which it is reached, http://<host>:<port>; none when empty.
	Proxy string
	// Control is that of net.Dialer: what it refuses is not connected to. Nothing is refused when nil.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// S3 is a Store in a bucket of an object store with the S3 protocol.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
	// hide takes the credentials out of what the server says.
	hide *redact.Redactor
}

var _ Store = (*S3)(nil)

// OpenS3 makes a store of a bucket. It asks the server nothing.
func OpenS3(b Bucket) (*S3, error) {
	endpoint, err := ValidateEndpoint(b.Endpoint)
	if err != nil {
		return nil, err
	}
	if err := ValidateBucket(b.Name, b.Prefix); err != nil {
		return nil, err
	}
	if b.AccessKeyID == "" || b.SecretAccessKey == "" {
		return nil, errors.New("the credentials of the bucket need an access key ID and a secret access key")
	}
	// That of the manager's own environment is not for its users.
	var proxy func(*http.Request) (*url.URL, error)
	if b.Proxy != "" {
		through, err := url.Parse(b.Proxy)
		if err != nil || through.Host == "" {
			return nil, errors.New("the proxy is not of the form http://<host>:<port>")
		}
		proxy = http.ProxyURL(through)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(b.Authority) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(b.Authority) {
			return nil, errors.New("the endpoint's authority holds no PEM encoded certificate")
		}
	}
	region := b.Region
	if region == "" {
		region = defaultRegion
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(b.AccessKeyID, b.SecretAccessKey, ""),
		Secure: endpoint.Scheme == "https",
		// Asking for it would need one more permission.
		Region: region,
		// The client library follows no redirect, so nothing leaves https on the way.
		Transport: &http.Transport{
			Proxy: proxy,
			DialContext: (&net.Dialer{
				Timeout: 15 * time.Second, KeepAlive: 15 * time.Second, ControlContext: b.Control,
			}).DialContext,
			TLSClientConfig:        trust,
			TLSHandshakeTimeout:    15 * time.Second,
			ResponseHeaderTimeout:  answerTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout:        time.Minute,
			MaxIdleConnsPerHost:    4,
			ForceAttemptHTTP2:      true,
			// What is stored is read back as it is.
			DisableCompression: true,
		},
		MaxRetries: requestAttempts,
	})
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", endpoint.Host, err)
	}
	// A user may be named after what everybody reads.
	hide := redact.New(redact.Without([]string{b.AccessKeyID, b.SecretAccessKey}, b.Name, b.Prefix, endpoint.Host)...)
	return &S3{client: client, bucket: b.Name, prefix: b.Prefix, hide: hide}, nil
}

// ValidateEndpoint tells what is wrong with an endpoint: it is an https URL of a host and nothing more. http is for an
// object store on this machine, such as a test's: what is sent there can be read by whoever listens on the way.
func ValidateEndpoint(endpoint string) (*url.URL, error) {
	parsed, err := url.Parse(endpoint)
	if err != nil {
		// The parser's own error repeats the whole URL, which may carry a password.
		return nil, errors.New("it is not a URL, such as https://s3.example.test:9000")
	}
	switch {
	case parsed.User != nil:
		return nil, errors.New("it must not carry credentials: they belong into the Secret")
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		return nil, errors.New("it must begin with https://")
	case parsed.Hostname() == "" || parsed.Opaque != "":
		return nil, errors.New("it names no host, such as in https://s3.example.test:9000")
	case parsed.Path != "" && parsed.Path != "/" || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		return nil, errors.New("it must not have a path, a query or a fragment: a folder in the bucket is the prefix")
	case parsed.Scheme == "http" && !loopback(parsed.Hostname()):
		return nil, errors.New("http is allowed for loopback addresses only: use https, with ca.crt in the Secret when the " +
			"authority is your own")
	}
	return parsed, nil
}

// ValidateBucket tells what is wrong with the name of a bucket, or with the prefix of the objects in it, which may be
// empty.
func ValidateBucket(name, prefix string) error {
	if err := s3utils.CheckValidBucketNameStrict(name); err != nil {
		return fmt.Errorf("bucket %q: %w", name, err)
	}
	if prefix == "" {
		return nil
	}
	if err := validName(prefix); err != nil {
		return fmt.Errorf("prefix %w", err)
	}
	return nil
}

func loopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

func (s *S3) key(name string) string { return path.Join(s.prefix, name) }

// problem names what was being done, and keeps an absent object recognizable.
func (s *S3) problem(action, name string, err error) error {
	response := minio.ToErrorResponse(err)
	if response.Code == minio.NoSuchKey {
		return fmt.Errorf("%s %s: %w", action, name, fs.ErrNotExist)
	}
	err = s.hide.Error(err)
	code := text.Shorten(s.hide.Values(response.Code), maxSaid)
	if len(err.Error()) > maxSaid {
		err = errors.New(text.Shorten(err.Error(), maxSaid))
	}
	if code != "" && !strings.Contains(err.Error(), code) {
		return fmt.Errorf("%s %s in bucket %s: %w (%s)", action, name, s.bucket, err, code)
	}
	return fmt.Errorf("%s %s in bucket %s: %w", action, name, s.bucket, err)
}

// Put uploads in parts, which become an object all at once.
func (s *S3) Put(ctx context.Context, name string, r io.Reader) error {
	if err := validName(name); err != nil {
		return err
	}
	size := int64(-1)
	if known, ok := r.(interface{ Len() int }); ok {
		size = int64(known.Len())
	}
	_, err := s.client.PutObject(ctx, s.bucket, s.key(name), withContext(ctx, r), size, minio.PutObjectOptions{
		ContentType: "application/octet-stream",
		PartSize:    partSize,
		// Buckets with locked objects want it, and every server knows it.
		SendContentMd5: true,
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		// The client library aborts the upload with the context that ended it.
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		_ = s.client.RemoveIncompleteUpload(abort, s.bucket, s.key(name))
	}
	return s.problem("storing", name, err)
}

// List lists the objects of a directory.
func (s *S3) List(ctx context.Context, directory string) ([]File, error) {
	if err := validName(directory); err != nil {
		return nil, err
	}
	// The channel is fed until its context ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := s.key(directory) + "/"
	var files []File
	for object := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if object.Err != nil {
			return nil, s.problem("listing", directory, object.Err)
		}
		name := strings.TrimPrefix(object.Key, prefix)
		if name == "" || strings.Contains(name, "/") || strings.HasPrefix(name, ".") {
			continue
		}
		files = append(files, File{Name: name, Size: object.Size})
	}
	return files, nil
}

// Open reads an object.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	object, err := s.client.GetObject(ctx, s.bucket, s.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, s.problem("reading", name, err)
	}
	return &opened{Object: object, store: s, name: name}, nil
}

// opened is an object whose first request is made by the first Read.
type opened struct {
	*minio.Object
	store *S3
	name  string
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.Object.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.store.problem("reading", o.name, err)
	}
	return n, err
}

// Delete removes an object.
func (s *S3) Delete(ctx context.Context, name string) error {
	if err := validName(name); err != nil {
		return err
	}
	if err := s.client.RemoveObject(ctx, s.bucket, s.key(name), minio.RemoveObjectOptions{}); err != nil {
		if err = s.problem("deleting", name, err); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Sweep aborts uploads.
func (s *S3) Sweep(ctx context.Context, directory string, before time.Time) error {
	if err := validName(directory); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := s.key(directory) + "/"
	for upload := range s.client.ListIncompleteUploads(ctx, s.bucket, prefix, true) {
		if upload.Err != nil {
			return s.problem("listing uploads of", directory, upload.Err)
		}
		name := strings.TrimPrefix(upload.Key, prefix)
		if !ours(name) || !upload.Initiated.Before(before) {
			continue
		}
		if err := s.client.RemoveIncompleteUpload(ctx, s.bucket, upload.Key); err != nil {
			return s.problem("aborting the upload of", name, err)
		}
	}
	return nil
}
