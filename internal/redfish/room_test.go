// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/redfishtest"
)

var errNoRoom = errors.New("there is no room")

// room has so many pieces, all for one owner.
type room struct {
	t                   *testing.T
	pieces, taken, most int
}

func (r *room) Take(owner string) error {
	if owner != "tenant" {
		r.t.Errorf("room is taken for %q", owner)
	}
	if r.taken == r.pieces {
		return errNoRoom
	}
	r.taken++
	r.most = max(r.most, r.taken)
	return nil
}

func (r *room) Give(string) { r.taken-- }

// What little a BMC says of its computer needs no room, and what it says beyond that is given back with each answer.
func TestLongAnswersTakeRoomThatIsGivenBack(t *testing.T) {
	const kib = 1 << 10
	for name, c := range map[string]struct {
		padding, pieces, most int
		fails                 error
	}{
		"short":            {padding: 60 * kib},
		"long":             {padding: 4*64*kib - 2*kib, pieces: 3, most: 3},
		"without room":     {padding: 4*64*kib - 2*kib, pieces: 2, most: 2, fails: errNoRoom},
		"beyond any bound": {padding: 2048 * kib, pieces: 20, most: 16, fails: &redfish.MisbehavedError{}},
	} {
		t.Run(name, func(t *testing.T) {
			room := &room{t: t, pieces: c.pieces}
			w := newWorld(t, redfishtest.Options{}, func(target *redfish.Target) { target.Output, target.Owner = room, "tenant" })
			w.bmc.Misbehave(redfishtest.Faults{Padding: c.padding})
			state, err := w.c.State(t.Context())
			w.g.Expect(room.taken).To(BeZero())
			w.g.Expect(room.most).To(Equal(c.most))
			switch {
			case c.fails == nil:
				w.g.Expect(err).NotTo(HaveOccurred())
				w.g.Expect(state).To(Equal(redfish.On))
			case errors.Is(c.fails, errNoRoom):
				w.g.Expect(err).To(MatchError(And(ContainSubstring(w.bmc.Address()), ContainSubstring("there is no room"))))
				w.g.Expect(errors.As(err, new(*redfish.MisbehavedError))).To(BeFalse(), "the BMC cannot help it")
			default:
				w.g.Expect(err).To(BeAssignableToTypeOf(c.fails))
			}
		})
	}
}
