// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reach answers, within a management cluster, what is reached from there. It logs in nowhere.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// atOnce is how many looks are made at a time: each waits, and hosts that are silent wait longest.
const atOnce = 500

// whyBytes is what may be said of one look; a host may have chosen some of it.
const whyBytes = 200

// Bounds of time.
type Bounds struct {
	// Each look ends after so long, and All of them.
	Each, All time.Duration
}

// Usual bounds: a host that takes longer is not worked on either.
var Usual = Bounds{Each: 10 * time.Second, All: 45 * time.Second}

// Run answers the arguments of a question into a file, as a manager that is allowed these networks.
func Run(ctx context.Context, arguments, allowed []string, into string) error {
	q, err := pivot.ParseQuestion(arguments)
	if err != nil {
		return err
	}
	answer, err := Ask(ctx, q, allowed, Usual)
	if err != nil {
		return err
	}
	message, err := answer.Message()
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if err := os.WriteFile(into, message, 0o600); err != nil {
		return fmt.Errorf("leaving the answer: %w", err)
	}
	return nil
}

// Ask looks at everything at once. Addresses are judged as the manager judges them (package egress).
func Ask(ctx context.Context, q pivot.Question, allowed []string, bounds Bounds) (pivot.Answer, error) {
	networks, err := egress.Parse(allowed)
	if err != nil {
		return pivot.Answer{}, fmt.Errorf("--%s: %w", egress.Flag, err)
	}
	services, err := egress.Parse(q.Services)
	if err != nil {
		return pivot.Answer{}, fmt.Errorf("ranges of Services: %w", err)
	}
	rules := egress.NewKnowing(networks, services)
	ctx, cancel := context.WithTimeout(ctx, bounds.All)
	defer cancel()
	why := make([]string, len(q.Looks))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, one := range q.Looks {
		group.Go(func() error {
			if ctx.Err() != nil {
				why[i] = fmt.Sprintf("the %s for all were over before it was asked", bounds.All)
				return nil
			}
			within, cancel := context.WithTimeout(ctx, bounds.Each)
			defer cancel()
			why[i] = because(look(within, one, rules), bounds.Each)
			return nil
		})
	}
	_ = group.Wait()
	return pivot.NewAnswer(why), nil
}

// look is nil where what is looked for is there.
func look(ctx context.Context, one pivot.Look, rules *egress.Rules) error {
	if one.Service {
		rules = rules.WithServices()
	}
	if !one.SSH {
		dialer := &net.Dialer{ControlContext: rules.Control}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(one.Address, strconv.Itoa(one.Port)))
		if err == nil {
			_ = conn.Close()
		}
		return err //nolint:wrapcheck // because makes a sentence of it
	}
	target := ssh.Target{Address: one.Address, Port: one.Port, Names: []string{one.Name}}
	for _, keys := range []struct {
		into  *[]ssh.PublicKey
		lines []string
	}{{&target.HostKeys, one.HostKeys}, {&target.HostAuthorities, one.Authorities}} {
		parsed, err := ssh.ParseHostKeys(strings.Join(keys.lines, "\n"))
		if err != nil {
			return err
		}
		*keys.into = parsed
	}
	deadline, _ := ctx.Deadline()
	return ssh.Recognize(ctx, target, ssh.PoolOptions{DialTimeout: time.Until(deadline), Control: rules.Control})
}

// because is why a look failed, without its address, so that many failures of one kind have room.
func because(err error, each time.Duration) string {
	var refused *egress.RefusedError
	var key *ssh.HostKeyChangedError
	var name *net.DNSError
	var number syscall.Errno
	var network net.Error
	var unreachable *ssh.UnreachableError
	var said string
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		said = fmt.Sprintf("the manager's --%s refuse the address: %s", egress.Flag, refused.Why)
	case errors.As(err, &key):
		said = "it presents another host key: " + key.Seen()
	case errors.As(err, &name):
		said = "its name is not resolved"
	case errors.As(err, &number):
		said = number.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		said = fmt.Sprintf("no answer within %s", each)
	case errors.As(err, &unreachable):
		said = unreachable.Err.Error()
	default:
		said = err.Error()
	}
	return text.Shorten(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, said), whyBytes)
}
