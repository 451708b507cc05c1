// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// maxBody bounds an answer. The largest resource that is read, a ComputerSystem, has some tens of kilobytes.
const maxBody = 1 << 20

// request is one exchange.
type request struct {
	// action says in an error what the request was for.
	action       string
	method, path string
	body         any
	// token of a session to use instead of what the client would choose; noAuth sends neither.
	token  string
	noAuth bool
}

// response is an answer whose body has been read.
type response struct {
	status int
	header http.Header
	body   []byte
}

// get reads a resource.
func (c *Client) get(ctx context.Context, action, path string) ([]byte, error) {
	answer, err := c.call(ctx, request{action: action, method: http.MethodGet, path: path})
	return answer.body, err
}

// call sends a request with credentials, and turns every status that is not a success into an error.
func (c *Client) call(ctx context.Context, r request) (response, error) {
	c.mu.Lock()
	r.token = c.token
	c.mu.Unlock()
	answer, err := c.send(ctx, r)
	if err != nil {
		return answer, err
	}
	if answer.status == http.StatusUnauthorized && !offersBasic(answer.header) {
		// The session ended, or the service takes sessions only. A service that offers basic authentication and refuses
		// it means the password, and another try would only bring the account nearer to being locked.
		if r.token, err = c.logIn(ctx); err != nil {
			return response{}, err
		}
		if answer, err = c.send(ctx, r); err != nil {
			return answer, err
		}
	}
	return answer, c.judge(r.action, answer)
}

func offersBasic(header http.Header) bool {
	for _, value := range header.Values("WWW-Authenticate") {
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), "basic") {
			return true
		}
	}
	return false
}

// logIn opens a session.
func (c *Client) logIn(ctx context.Context) (string, error) {
	const action = "logging in"
	answer, err := c.send(ctx, request{
		action: action, method: http.MethodPost, path: "/redfish/v1/SessionService/Sessions", noAuth: true,
		body: map[string]string{"UserName": c.target.Credentials.user, "Password": c.target.Credentials.password},
	})
	if err != nil {
		return "", err
	}
	if s := answer.status; s == http.StatusBadRequest || s == http.StatusNotFound || s == http.StatusMethodNotAllowed {
		// Some services call a wrong password a bad request; others have no sessions.
		return "", &AuthenticationError{Address: c.target.Address, Action: action, Status: http.StatusUnauthorized}
	}
	if err := c.judge(action, answer); err != nil {
		return "", err
	}
	token := answer.header.Get("X-Auth-Token")
	if token == "" {
		return "", c.misbehaved(action, "it opened a session without a token")
	}
	// Where the session cannot be told, it is left to time out.
	session := strings.TrimPrefix(answer.header.Get("Location"), c.base.String())
	if checkLink(session) != nil {
		session = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.session = token, session
	return token, nil
}

// send makes one exchange. Its errors are those of the way to the service; every status is an answer.
func (c *Client) send(ctx context.Context, r request) (response, error) {
	requestCtx, cancel := context.WithTimeout(ctx, c.target.RequestTimeout)
	defer cancel()
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return response{}, fmt.Errorf("%s: %w", r.action, err)
		}
		body = bytes.NewReader(data)
	}
	if err := checkLink(r.path); err != nil {
		return response{}, c.misbehaved(r.action, err.Error())
	}
	req, err := http.NewRequestWithContext(requestCtx, r.method, c.base.String()+r.path, body)
	if err != nil {
		return response{}, fmt.Errorf("%s: %w", r.action, err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OData-Version", "4.0")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case r.noAuth:
	case r.token != "":
		req.Header.Set("X-Auth-Token", r.token)
	default:
		req.SetBasicAuth(c.target.Credentials.user, c.target.Credentials.password)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return response{}, c.unreached(ctx, r.action, err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := c.read(ctx, r.action, res.Body)
	if err != nil {
		return response{}, err
	}
	return response{status: res.StatusCode, header: res.Header, body: data}, nil
}

// read takes room for each piece of an answer but the first, and gives it back once the answer is there: a BMC that
// never ends one keeps what it has until the request's time is up.
func (c *Client) read(ctx context.Context, action string, body io.Reader) (data []byte, err error) {
	room, taken := c.target.Output, 0
	defer func() {
		for range taken {
			room.Give(c.target.Owner)
		}
	}()
	answer := bufio.NewReader(io.LimitReader(body, maxBody+1))
	for len(data) <= maxBody {
		if _, err := answer.Peek(1); errors.Is(err, io.EOF) {
			return data, nil
		}
		if len(data) > 0 && room != nil {
			if err := room.Take(c.target.Owner); err != nil {
				return nil, fmt.Errorf("%s: the answer of the BMC at %s was not read: %w", action, c.target.Address, err)
			}
			taken++
		}
		piece, err := io.ReadAll(io.LimitReader(answer, ssh.OutputPiece))
		if err != nil {
			return nil, c.unreached(ctx, action, err)
		}
		data = append(data, piece...)
	}
	return nil, c.misbehaved(action, fmt.Sprintf("its answer is longer than %d bytes", maxBody))
}

// unreached tells a certificate that is not trusted from silence. The caller's own cancellation is neither.
func (c *Client) unreached(ctx context.Context, action string, err error) error {
	if cause := ctx.Err(); errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%s: %w", action, cause)
	}
	if changed := (*CertificateError)(nil); errors.As(err, &changed) {
		return changed
	}
	if verification := (*tls.CertificateVerificationError)(nil); errors.As(err, &verification) {
		return &CertificateError{Address: c.target.Address, Seen: fingerprintOf(verification.UnverifiedCertificates),
			Err: verification.Err}
	}
	return &UnreachableError{Address: c.target.Address, Action: action, Err: err}
}

func fingerprintOf(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return ""
	}
	return Fingerprint(chain[0])
}

// judge turns a status into an error.
func (c *Client) judge(action string, answer response) error {
	message := fmt.Sprintf("HTTP status %d", answer.status)
	if text := parseError(answer.body, c.target.Credentials); text != "" {
		message += ": " + text
	}
	switch {
	case answer.status >= 200 && answer.status < 300:
		return nil
	case answer.status == http.StatusUnauthorized || answer.status == http.StatusForbidden:
		return &AuthenticationError{Address: c.target.Address, Action: action, Status: answer.status}
	case answer.status >= 400 && answer.status < 500:
		return &RefusedError{Address: c.target.Address, Action: action, Problem: message}
	}
	return c.misbehaved(action, message)
}

func (c *Client) misbehaved(action, problem string) error {
	return &MisbehavedError{Address: c.target.Address, Action: action, Problem: c.target.Credentials.strip(problem)}
}
