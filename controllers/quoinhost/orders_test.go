// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// A manager that dies between the two writes of a reconcile must not have taken the order away without carrying it out.
func TestAPersonsOrderIsThereUntilWhatItCausedIsWritten(t *testing.T) {
	for _, order := range []string{infrav1.AbandonAnnotation, infrav1.RetryAnnotation} {
		t.Run(order, func(t *testing.T) {
			w := silentWorld(t, nothing)
			deleteMachine(w)
			word := ""
			if order == infrav1.AbandonAnnotation {
				word = w.host().ProviderID()
			}
			w.annotate(order, word)
			whole := w.r.Client
			died := errors.New("the manager died")
			w.r.Client = interceptor.NewClient(w.watching(), interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
					...client.SubResourcePatchOption) error {
					return died
				},
			})
			_, err := w.r.Reconcile(context.Background(), request(w))
			w.g.Expect(err).To(MatchError(ContainSubstring(died.Error())))
			w.g.Expect(w.host().Annotations).To(HaveKey(order))

			w.r.Client = whole
			w.linger(3)
			w.g.Expect(w.host().Annotations).NotTo(HaveKey(order))
			w.g.Expect(w.host().GivenUp()).To(Equal(order == infrav1.AbandonAnnotation))
		})
	}
}

// A manifest that is applied again and again holds the word for ever, and what is freed under a host that runs is
// damaged.
func TestAHostIsNotGivenUpAtAWordThatIsNotTrueOfIt(t *testing.T) {
	for name, c := range map[string]struct {
		fails error
		word  func(*infrav1.QuoinHost) string
		why   string
	}{
		"it answers": {nil, (*infrav1.QuoinHost).ProviderID, "the host answers"},
		"it refuses our key": {&ssh.AuthError{Endpoint: "192.0.2.11:22", User: "root"}, (*infrav1.QuoinHost).ProviderID,
			"the host answers"},
		"another claim": {errNoRoute, func(*infrav1.QuoinHost) string { return "quoin://hosts/h1/ffffffff" },
			"the claim of the host is"},
		"no claim": {errNoRoute, func(*infrav1.QuoinHost) string { return "" }, "the claim of the host is"},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.untilState(infrav1.HostStateProvisioned)
			w.room.set(func() { w.room.err = c.fails })
			w.linger(5)
			recorder := events.NewFakeRecorder(100)
			w.r.Recorder = recorder
			w.annotate(infrav1.AbandonAnnotation, c.word(w.host()))
			w.linger(3)
			host := w.host()
			w.g.Expect(host.Fenced()).To(BeFalse())
			w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioned))
			w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.AbandonAnnotation))
			w.g.Expect(told(recorder)).To(And(ContainSubstring("WordTakenBack"), ContainSubstring(c.why)))
		})
	}
}

// Whoever has no claim names none, and what shows another key is not known to be the host.
func TestAHostWithoutAClaimIsGivenUpAtAnEmptyWord(t *testing.T) {
	host := newHost()
	host.Spec.HostKeys = []string{keyA}
	w := newWorld(t, host)
	w.untilState(infrav1.HostStateAvailable)
	w.room.set(func() { w.room.err = &ssh.HostKeyChangedError{Endpoint: "192.0.2.11:22", Got: "SHA256:other"} })
	w.untilReason(infrav1.HostReachableCondition, infrav1.HostKeyChangedReason)
	w.annotate(infrav1.AbandonAnnotation, "")
	w.until("given up", (*infrav1.QuoinHost).Abandoned)
}
