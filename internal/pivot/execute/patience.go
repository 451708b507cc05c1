// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

const (
	// patience is how long an API server may answer nothing before a request to it fails. It is longer than one takes to
	// start again, and so short that no other run takes over while this one, whose renewal may be due, waits.
	patience = pivot.Lease - renewal - 10*time.Second
	// silenceInterval is how often it is asked meanwhile.
	silenceInterval = 500 * time.Millisecond
)

// patient sends requests again that an API server does not answer. It may have carried one of them out whose answer was
// lost: clusterctl finds an object that is there or gone, and a journal is read again where its write conflicts.
type patient struct {
	next http.RoundTripper
	side string

	mu sync.Mutex
	// within is how long; nothing is sent again while it is zero. waiting is called when an API server falls silent.
	within  time.Duration
	waiting func(what string)
	// since when nothing was answered; zero while something is.
	since time.Time
	// lost is called when it was too long.
	lost func(error)
}

// configure returns a configuration whose requests are sent again. In all they may take longer than patience:
// clusterctl's limit of 30 seconds would end them before it. An API server that hangs is noticed by the connection.
func (p *patient) configure(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Timeout += patience
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		p.next = next
		return p
	})
	return config
}

// grant has requests sent again from here on.
func (p *patient) grant(within time.Duration, waiting func(string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.within, p.waiting, p.since = within, waiting, time.Time{}
}

// whenLost has the function called when the side has not answered for too long, until what it returns is called.
func (p *patient) whenLost(do func(error)) (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	former := p.lost
	p.lost = do
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lost = former
	}
}

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, body := request.Context(), request.GetBody
	for again := request; ; {
		response, err := p.next.RoundTrip(again)
		// A transport reads and closes the body, whatever comes of it.
		if !p.waits(ctx, err) || body == nil && request.Body != nil {
			return response, err //nolint:wrapcheck // it is the transport's
		}
		select {
		case <-ctx.Done():
			return nil, err //nolint:wrapcheck // it is the transport's
		case <-time.After(silenceInterval):
		}
		again = request.Clone(ctx)
		if body != nil {
			if again.Body, err = body(); err != nil {
				return nil, fmt.Errorf("sending a request to the %s again: %w", p.side, err)
			}
		}
	}
}

// Unanswered reports whether an API server gave no answer, or not the whole of it, where another try may get one. One
// that ends the connection in the words of TLS has answered.
func Unanswered(err error) bool {
	var network *net.OpError
	return err != nil && (errors.As(err, &network) && network.Op != "remote error" || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err))
}

// waits reports whether a request that ended so is sent again.
func (p *patient) waits(ctx context.Context, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	unanswered := ctx.Err() == nil && Unanswered(err)
	switch {
	case !unanswered:
		p.since = time.Time{}
		return false
	case p.since.IsZero() && p.within > 0:
		p.since = time.Now()
		p.waiting(fmt.Sprintf("the %s does not answer, and is asked again for %s", p.side, p.within))
	}
	if time.Since(p.since) < p.within {
		return true
	}
	if p.within > 0 && p.lost != nil {
		p.lost(finding(fmt.Sprintf("the %s has not answered for %s", p.side, p.within)))
	}
	return false
}
