// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/origin"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// mostBody of an answer is read.
	mostBody = 1 << 20
	// mostSaid of a server's own words is repeated.
	mostSaid = 256
)

// unwanted is an answer that is not as it should be. What is no answer says nothing about whatever is rolled out.
type unwanted struct{ error }

// ask makes a person's check.
func (s *Subject) ask(ctx context.Context, check *quoinv1.RolloutCheck) (string, error) {
	switch {
	case check.HTTP != nil:
		return s.askHTTP(ctx, check.HTTP)
	case check.Prometheus != nil:
		return s.askPrometheus(ctx, check.Prometheus)
	}
	return "", errors.New("this version of the manager does not know its kind")
}

func (s *Subject) askHTTP(ctx context.Context, check *quoinv1.RolloutHTTPCheck) (string, error) {
	answer, err := s.get(ctx, check.URL, check.SecretName)
	if err != nil {
		return "", err
	}
	if want := int(ptr.Deref(check.ExpectedStatus, http.StatusOK)); answer.status != want {
		return "", unwanted{fmt.Errorf("the status is %d and should be %d", answer.status, want)}
	}
	// What the answer holds is not repeated: whoever reads the policy need not be allowed to read that.
	if !bytes.Contains(answer.body, []byte(check.BodyContains)) {
		return "", unwanted{errors.New("the answer does not contain the text of bodyContains")}
	}
	return fmt.Sprintf("the status is %d", answer.status), nil
}

func (s *Subject) askPrometheus(ctx context.Context, check *quoinv1.RolloutPrometheusCheck) (string, error) {
	to := strings.TrimSuffix(check.URL, "/") + "/api/v1/query?" + url.Values{"query": {check.Query}}.Encode()
	answer, err := s.get(ctx, to, check.SecretName)
	switch {
	case err != nil:
		return "", err
	case !answer.whole:
		return "", errors.New("the answer is longer than 1 MiB: have the query result in one number")
	}
	value, err := answer.number()
	if err != nil {
		return "", err
	}
	said := strconv.FormatFloat(value, 'g', -1, 64)
	for _, limit := range []struct {
		text, fails string
		holds       func(float64) bool
	}{
		{check.Min, "below", func(limit float64) bool { return value >= limit }},
		{check.Max, "above", func(limit float64) bool { return value <= limit }},
	} {
		if limit.text == "" {
			continue
		}
		at, err := strconv.ParseFloat(limit.text, 64)
		switch {
		case err != nil:
			return "", fmt.Errorf("%q is not a number", limit.text)
		case math.IsNaN(value):
			return "", errors.New("the query results in NaN: it divides by nothing, or has no samples")
		case !limit.holds(at):
			return "", unwanted{fmt.Errorf("the number is %s and %s %s", said, limit.fails, limit.text)}
		}
	}
	return "the number is " + said, nil
}

// reply is what a server answered once.
type reply struct {
	status int
	body   []byte
	// whole reports whether the body is.
	whole bool
	// hide takes what the server was shown of a Secret out of its own words.
	hide *redact.Redactor
}

// number that a query results in. See the documentation of Prometheus's HTTP API, which is stable.
func (r reply) number() (float64, error) {
	said := func(words string) string { return text.Shorten(r.hide.Values(words), mostSaid) }
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(r.body, &answer); err != nil || answer.Status == "" {
		return 0, fmt.Errorf("the status is %d, and the answer is none of Prometheus: the url goes up to what comes before "+
			"/api/v1/query", r.status)
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("the query failed: %s", said(cmp.Or(answer.Error, "no reason is given")))
	}
	switch answer.Data.Type {
	case "scalar":
		scalar := model.Scalar{}
		if err := json.Unmarshal(answer.Data.Result, &scalar); err != nil {
			return 0, errors.New("the scalar cannot be read")
		}
		return float64(scalar.Value), nil
	case "vector":
		// Not a model.Vector, whose elements may be nil, and 0 where they have no value.
		var vector []struct {
			Value *model.Scalar `json:"value"`
		}
		if err := json.Unmarshal(answer.Data.Result, &vector); err != nil {
			return 0, errors.New("the vector cannot be read")
		}
		if len(vector) != 1 || vector[0].Value == nil {
			return 0, fmt.Errorf("the query results in %d elements and should in one number: sum() makes one of several, and "+
				"\"or vector(0)\" one of none", len(vector))
		}
		return float64(vector[0].Value.Value), nil
	}
	return 0, fmt.Errorf("the query results in a %s and should in a scalar or a vector of one element",
		said(answer.Data.Type))
}

// get asks for a page once. It follows no redirect.
func (s *Subject) get(ctx context.Context, to, secret string) (answered reply, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil || request.URL.User != nil || !slices.Contains([]string{"http", "https"}, request.URL.Scheme) {
		// The parser's own error repeats the whole URL.
		return reply{}, errors.New("the url is none such as https://shop.example.com/healthz")
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if secret != "" {
		if answered.hide, err = s.authorize(ctx, request, trust, secret); err != nil {
			return reply{}, fmt.Errorf("secret %s: %w", secret, err)
		}
	}
	transport := &http.Transport{
		// A proxy would ask for what is refused here.
		Proxy:                  nil,
		DialContext:            (&net.Dialer{Timeout: Timeout, ControlContext: s.Egress.Control}).DialContext,
		TLSClientConfig:        trust,
		TLSHandshakeTimeout:    Timeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
	}
	defer transport.CloseIdleConnections()
	asks := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	request.Header.Set("User-Agent", "quoin-rollout-check")
	answer, err := asks.Do(request)
	if err != nil {
		var about *url.Error
		if errors.As(err, &about) {
			err = about.Err // the URL may hold more than everybody is to read
		}
		return reply{}, fmt.Errorf("%s does not answer: %w", request.URL.Host, answered.hide.Error(err))
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostBody+1))
	if err != nil {
		return reply{}, fmt.Errorf("the answer of %s breaks off: %w", request.URL.Host, answered.hide.Error(err))
	}
	answered.status, answered.body = answer.StatusCode, body[:min(len(body), mostBody)]
	answered.whole = len(body) <= mostBody
	return answered, nil
}

// authorize adds what the Secret holds. The Secret names the origin that it is for: else whoever may write a policy and
// not read Secrets could have any of them sent to a server of their own. What is sent is to be hidden.
func (s *Subject) authorize(
	ctx context.Context, request *http.Request, trust *tls.Config, name string,
) (*redact.Redactor, error) {
	secret := &corev1.Secret{}
	if err := s.Management.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	value := func(key string) string { return strings.TrimSpace(string(secret.Data[key])) }
	meant, err := url.Parse(value("origin"))
	to := request.URL.Scheme + "://" + request.URL.Host
	switch {
	case request.URL.Scheme != "https":
		return nil, errors.New("what it holds is sent to https:// only")
	case value("origin") == "":
		return nil, fmt.Errorf("it is not meant for checks: one that is has the key origin, here with %s", to)
	case err != nil || strings.Trim(meant.RequestURI(), "/") != "" || origin.Of(meant) != origin.Of(request.URL):
		return nil, fmt.Errorf("it is for another origin than %s", to)
	}
	if authority := secret.Data["ca.crt"]; len(authority) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("ca.crt holds no PEM encoded certificate")
		}
	}
	switch {
	case value("token") != "":
		request.Header.Set("Authorization", "Bearer "+value("token"))
	case value("username") != "" || value("password") != "":
		request.SetBasicAuth(value("username"), string(secret.Data["password"]))
	}
	// The name of a user is in logs of servers, and encoded with the password in what is sent.
	basic := value("username") + ":" + string(secret.Data["password"])
	return redact.New(value("token"), value("username"), value("password"), basic), nil
}
