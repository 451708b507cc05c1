// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

func init() {
	simple("curl", "fsSLo:kIH:X:x:C:w:m:ORq", map[string]string{"fail": "f", "silent": "s", "show-error": "S", "location": "L", "retry": "r1:", "retry-delay": "r2:",
		"retry-all-errors": "r3", "retry-connrefused": "r4", "connect-timeout": "c:", "speed-limit": "y:", "speed-time": "Y:", "output": "o:", "noproxy": "np:", "insecure": "k", "max-time": "m:",
		"cacert": "ca:", "capath": "cp:", "proxy": "x:", "limit-rate": "lr:", "continue-at": "C:", "write-out": "w:", "head": "I", "header": "H:", "request": "X:", "max-filesize": "mf:",
		"max-redirs": "mr:", "proto": "pr:", "proto-redir": "pd:", "create-dirs": "cd", "range": "rg:", "config": "K:", "user-agent": "A:", "remote-time": "R", "proxy-cacert": "pc:", "tlsv1.2": "tl", "disable": "q", "globoff": "g"}, curlCommand)
	// No other host of the network answers.
	simple("ping", "c:W:qw:I:46", nil, func(*Process, options, []string) int { return 1 })
}

// curlCommand asks Options.Web. It resumes, and tries again what may pass, as curl does with these flags.
func curlCommand(p *Process, o options, args []string) int {
	if o.on("K") {
		return p.unknown("a configuration file")
	}
	if len(args) != 1 {
		return p.unknown("several addresses, or none")
	}
	retries, _ := strconv.Atoi(o.last("r1"))
	for try := 0; ; try++ {
		code, again := p.fetch(o, args[0])
		if code == 0 || !again || try >= retries {
			return code
		}
		delay, _ := strconv.Atoi(o.last("r2"))
		p.Sleep(time.Duration(delay) * time.Second)
	}
}

// web is what answers at an address: the machine itself, or Options.Web.
func (m *Machine) web(address string, insecure bool) http.RoundTripper {
	if parsed, err := url.Parse(address); err != nil || parsed.Hostname() != "127.0.0.1" {
		return m.o.Web
	}
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure}, DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		return m.Dial(port)
	}}
}

func (p *Process) fetch(o options, address string) (code int, again bool) {
	say := func(code int, format string, args ...any) int {
		if !o.on("s") || o.on("S") {
			p.Fail("("+strconv.Itoa(code)+") "+format, args...)
		}
		return code
	}
	web := p.Machine.web(address, o.on("k"))
	if web == nil {
		return say(7, "Failed to connect to %s: Connection refused", address), false
	}
	method := http.MethodGet
	if o.on("I") {
		method = http.MethodHead
	}
	request, err := http.NewRequestWithContext(p.Context(), method, address, nil)
	if err != nil {
		return say(3, "URL rejected: %v", err), false
	}
	for _, header := range o["H"] {
		name, value, _ := strings.Cut(header, ":")
		request.Header.Set(name, strings.TrimSpace(value))
	}
	name, from := o.last("o"), int64(0)
	if o.on("C") && name != "" {
		if st, err := p.Stat(name); err == nil && st.Size > 0 {
			from = st.Size
			request.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
		}
	}
	if o.on("rg") {
		request.Header.Set("Range", "bytes="+o.last("rg"))
	}
	response, err := web.RoundTrip(request)
	for hops := 0; err == nil && o.on("L") && response.StatusCode/100 == 3 && response.Header.Get("Location") != "" && hops < 10; hops++ {
		_ = response.Body.Close()
		next, bad := request.URL.Parse(response.Header.Get("Location"))
		if bad != nil {
			return say(3, "URL rejected: %v", bad), false
		}
		request = request.Clone(p.Context())
		request.URL, request.Host = next, next.Host
		response, err = web.RoundTrip(request)
	}
	p.check()
	if err != nil {
		return say(7, "Failed to connect to %s: %v", address, err), true
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 && o.on("f") {
		if from > 0 && response.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			// It was complete already.
			return say(22, "The requested URL returned error: 416"), false
		}
		again = response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusRequestTimeout
		return say(22, "The requested URL returned error: %d", response.StatusCode), again
	}
	said := func() {
		redirect := ""
		if to := response.Header.Get("Location"); response.StatusCode/100 == 3 && to != "" {
			if next, err := request.URL.Parse(to); err == nil {
				redirect = next.String()
			}
		}
		code := strconv.Itoa(response.StatusCode)
		text, _ := unescape(strings.NewReplacer("%{http_code}", code, "%{response_code}", code, "%{redirect_url}", redirect).
			Replace(o.last("w")), false)
		p.say(text)
	}
	if from > 0 && response.StatusCode != http.StatusPartialContent {
		said()
		return say(33, "HTTP server does not seem to support byte ranges. Cannot resume."), false
	}
	out := p.Stdout
	if name != "" && name != "/dev/null" {
		flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		if from > 0 {
			flags = os.O_WRONLY | os.O_APPEND
		}
		f, err := p.open(name, flags, 0o666)
		if err != nil {
			return say(23, "Failure writing output to destination: %s", errText(err)), false
		}
		out = fileWriter{p, f}
	} else if name == "/dev/null" {
		out = io.Discard
	}
	_, err = io.Copy(out, response.Body)
	p.check()
	var failed *writeError
	if errors.As(err, &failed) {
		return say(23, "Failure writing output to destination: %s", errText(failed.err)), false
	}
	if err != nil {
		return say(18, "transfer closed with bytes remaining to read: %v", err), true
	}
	said()
	return 0, false
}

type fileWriter struct {
	p *Process
	f *file
}

type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

func (w fileWriter) Write(b []byte) (int, error) {
	n, err := w.f.write(w.p, b)
	if err != nil {
		err = &writeError{err}
	}
	return n, err
}
