// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

const (
	// HoldTimeout bounds how long HoldAny asks, however many hosts there are.
	HoldTimeout = 5 * time.Second
	// headStart is how long a host is waited for before the next one is asked as well.
	headStart = 500 * time.Millisecond
	// Lease is how long a host that is held keeps to it.
	Lease = owner.Lease
	// releaseWait is how long Release waits for a host, which lets go by itself when its lease is over.
	releaseWait = time.Second
)

// ServesAnother reports whether err says that a host serves another management cluster, or another claim.
func ServesAnother(err error) bool { return owner.ServesAnother(err) }

// Holder is what is used of *Connector to hold hosts.
type Holder interface {
	// HoldHost has the host confirm that it serves this management cluster, and keep to it until release is called or its
	// lease ends.
	HoldHost(ctx context.Context, host *infrav1.QuoinHost) (release func(context.Context) error, err error)
}

// Held is a host that confirmed that it serves this management cluster, and keeps to it.
type Held struct {
	Host *infrav1.QuoinHost
	// Since is when the host was asked: its lease ends no earlier than Lease after that.
	Since time.Time

	release release
}

// heard is what one host answered: it is held, or err says why not.
type heard struct {
	Held
	err error
}

// HoldAny has one of the hosts confirm that it serves this management cluster, and nobody take it over until Release or
// the end of its Lease. The first is asked first; each other one beside those before it, as soon as one of them
// refuses, or has not answered for a moment. So a worker waits for at most HoldTimeout, and hosts that answer are asked
// no more often than is needed.
//
// That one host serves another management cluster or claim is believed for all (ServesAnother), and is the error then.
// Any other error is that of all the hosts.
func HoldAny(ctx context.Context, holder Holder, hosts ...*infrav1.QuoinHost) (*Held, error) {
	if len(hosts) == 0 {
		return nil, errors.New("no host is known that could be asked")
	}
	// Whoever was asked is heard to the end: a host that is cut off while it takes its lock keeps that for its whole
	// Lease.
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), HoldTimeout)
	ctx, cancel := context.WithTimeout(ctx, HoldTimeout)
	answers := make(chan heard, len(hosts))
	var silent []*infrav1.QuoinHost
	defer func() {
		cancel()
		go func() {
			defer stop()
			releaseLate(answers, len(silent))
		}()
	}()
	var failures []error
	for len(hosts) > 0 || len(silent) > 0 {
		if len(hosts) > 0 {
			host := hosts[0]
			go func() { answers <- hold(asking, holder, host) }()
			silent, hosts = append(silent, host), hosts[1:]
		}
		var next <-chan time.Time
		if len(hosts) > 0 {
			next = time.After(headStart)
		}
		select {
		case <-next:
		case <-ctx.Done():
			for _, host := range silent {
				failures = append(failures, refusal(host, ctx.Err()))
			}
			return nil, errors.Join(failures...)
		case said := <-answers:
			silent = slices.DeleteFunc(silent, func(host *infrav1.QuoinHost) bool { return host == said.Host })
			if said.err == nil {
				return &said.Held, nil
			}
			err := refusal(said.Host, said.err)
			if ServesAnother(err) {
				return nil, err
			}
			failures = append(failures, err)
		}
	}
	return nil, errors.Join(failures...)
}

func hold(ctx context.Context, holder Holder, host *infrav1.QuoinHost) heard {
	since := time.Now()
	release, err := holder.HoldHost(ctx, host)
	return heard{Held{Host: host, Since: since, release: release}, err}
}

// refusal is why the host is not held. One whose own question ends with the deadline is as silent as one that is waited
// for until then: both end in the same instant, and which of them is seen first must not change the words.
func refusal(host *infrav1.QuoinHost, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer in time: %w", name(host), err)
	}
	return fmt.Errorf("%s: %w", name(host), err)
}

// releaseLate lets hosts go that confirm when another one has done so already.
func releaseLate(answers <-chan heard, n int) {
	for range n {
		if late := <-answers; late.err == nil {
			late.Release(context.Background())
		}
	}
}

// Release lets the host go. One that does not answer lets go by itself, and is not waited for.
func (h *Held) Release(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), HoldTimeout)
		defer cancel()
		_ = h.release(ctx)
	}()
	select {
	case <-done:
	case <-time.After(releaseWait):
	}
}

// name of a host in a sentence, with the Machine that has it.
func name(host *infrav1.QuoinHost) string {
	text := "host " + client.ObjectKeyFromObject(host).String()
	if ref := host.Spec.ConsumerRef; ref != nil {
		text += " of Machine " + ref.Machine
	}
	return text
}
