// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// behind is the API server behind a door that is open.
func behind(t *testing.T, r *rig.Rig) (*rig.Door, *rig.Rig) {
	t.Helper()
	d, err := rig.NewDoor(r.Kubeconfig, t.TempDir(), func(err error) { t.Error(err) })
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(d.Close)
	return d, &rig.Rig{Kubeconfig: d.Kubeconfig}
}

// moments of a pivot, each of which begins with a write; released is whether something was deleted on the source before.
var moments = map[string]func(w Write, released bool) bool{
	"the journal":        func(w Write, _ bool) bool { return w.String() == "target create ConfigMap "+JournalName },
	"the pause":          func(w Write, _ bool) bool { return w.String() == "source patch Cluster c" },
	"the first copy":     func(w Write, _ bool) bool { return w.String() == "target create Cluster c" },
	"the last copy":      func(w Write, _ bool) bool { return w.String() == "target create QuoinMachine m" },
	"the first deletion": func(w Write, _ bool) bool { return w.Side == "source" && w.Verb == "delete" },
	"the last deletion":  func(w Write, _ bool) bool { return w.String() == "source delete Cluster c" },
	"the resumption":     func(w Write, released bool) bool { return released && w.String() == "target patch Cluster c" },
}

// at does something once, before the write with which a moment begins.
func at(moment string, do func()) (func(int, Write) error, *bool) {
	came, released := new(bool), false
	return func(_ int, w Write) error {
		if !*came && moments[moment](w, released) {
			*came = true
			do()
		}
		released = released || w.Side == "source" && w.Verb == "delete"
		return nil
	}, came
}

// One of the API servers stops in the middle and comes back, with answers lost or without: the command waits, and finishes.
func TestAPivotOutlastsAnAPIServerThatStops(t *testing.T) {
	const silence = time.Second
	long, number := os.Getenv("QUOIN_SIM_LONG") != "", 0
	for _, side := range []string{"source", "target"} {
		for _, moment := range slices.Sorted(maps.Keys(moments)) {
			for _, how := range []string{"stops", "loses an answer"} {
				namespace := fmt.Sprintf("silent-%d", number)
				number++
				if !long && number%3 != 0 {
					continue // Each side, moment and way is left in some pair.
				}
				t.Run(side+" "+how+" at "+moment, func(t *testing.T) {
					t.Parallel()
					s := newSite(t, namespace)
					source, target := s.source, s.target
					var d *rig.Door
					if side == "source" {
						d, source = behind(t, source)
					} else {
						d, target = behind(t, target)
					}
					before, came := at(moment, func() {
						switch {
						case how != "stops":
							d.Lose(silence)
						case long:
							d.Stop(time.Minute)
						default:
							d.Stop(silence)
						}
					})
					_, err := s.run(source, target, pivot.Wish{}, before)
					s.g.Expect(*came).To(BeTrue())
					s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
					s.g.Expect(s.lines).To(ContainElement(ContainSubstring("the " + side + " does not answer")))
					s.rests(s.target, s.source)
				})
			}
		}
	}
}

// An API server that is away for longer ends the command, which says what is paused. Once it is back the same command
// finishes, or goes on undoing what it had begun to undo.
func TestAPivotOfAnAPIServerThatIsAwayForLong(t *testing.T) {
	for i, moment := range slices.Sorted(maps.Keys(moments)) {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, fmt.Sprintf("away-%d", i))
			s.patience = time.Second
			d, target := behind(t, s.target)
			before, came := at(moment, d.Close)
			_, err := s.run(s.source, target, pivot.Wish{}, before)
			t.Log(err)
			s.g.Expect(*came).To(BeTrue())
			s.g.Expect(err).To(MatchError(Or(ContainSubstring("connection refused"), ContainSubstring("has not answered"))))
			s.g.Expect(err.Error()).NotTo(ContainSubstring("attempts"), "clusterctl went on asking")
			s.sound()
			if !s.acts(s.source) {
				s.g.Expect(err).To(MatchError(ContainSubstring("run the same command again")))
			}
			d.Open()
			_, err = s.run(s.source, target, pivot.Wish{}, nil)
			if errors.Is(err, ErrUndone) {
				s.rests(s.source, s.target)
				return
			}
			s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
			s.rests(s.target, s.source)
		})
	}
}

// A webhook of one side is missing, before a pivot begins or from the middle of it on. What moves is back on the source, or
// wholly on the target once the webhook is there.
func TestAPivotWithoutAWebhook(t *testing.T) {
	const again = "run the same command again"
	for name, row := range map[string]struct {
		side, moment, message string
		// moves reports whether all is on the target in the end.
		moves bool
	}{
		"target from the beginning":   {"target", "", "no-such-webhook", false},
		"target at the first copy":    {"target", "the first copy", "the target refuses", false},
		"source at the pause":         {"source", "the pause", "no-such-webhook", false},
		"source at the last copy":     {"source", "the last copy", again, true},
		"source at the last deletion": {"source", "the last deletion", again, true},
		"target at its resumption":    {"target", "the resumption", again, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := "webhook-" + strings.ReplaceAll(name, " ", "-")
			s := newSite(t, namespace)
			r := map[string]*rig.Rig{"source": s.source, "target": s.target}[row.side]
			missing := rig.MissingWebhook(namespace)
			appears := func() {
				s.g.Expect(r.Client.Create(t.Context(), missing.DeepCopy())).To(Succeed())
				s.g.Eventually(func() error { return s.tries(r) }).WithTimeout(time.Minute).
					Should(MatchError(ContainSubstring("no-such-webhook")), "the API server heeds it after a moment")
			}
			t.Cleanup(func() { _ = r.Client.Delete(t.Context(), missing.DeepCopy()) })
			var before func(int, Write) error
			if row.moment == "" {
				appears()
			} else {
				before, _ = at(row.moment, appears)
			}
			_, err := s.run(s.source, s.target, pivot.Wish{}, before)
			t.Log(err)
			s.g.Expect(err).To(MatchError(ContainSubstring(row.message)))
			s.sound()
			s.g.Expect(r.Client.Delete(t.Context(), missing.DeepCopy())).To(Succeed())
			s.g.Eventually(func() error { return s.tries(r) }).WithTimeout(time.Minute).Should(Succeed())
			// What is undone or refused is over. Undoing writes, too, which may wait for the webhook.
			if !errors.Is(err, ErrUndone) && !errors.Is(err, ErrRefused) {
				s.g.Expect(err).To(MatchError(ContainSubstring(again)))
				_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
			}
			if row.moves {
				s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
				s.rests(s.target, s.source)
				return
			}
			s.g.Expect(err).To(Or(MatchError(ErrUndone), MatchError(ErrRefused)), strings.Join(s.lines, "\n"))
			s.rests(s.source, s.target)
		})
	}
}

// No request ends before patience does: clusterctl gives each 30 seconds.
func TestARequestMayTakeAsLongAsPatience(t *testing.T) {
	g, given := NewWithT(t), &rest.Config{Timeout: 30 * time.Second}
	g.Expect((&patient{}).configure(given).Timeout).To(BeNumerically(">", patience))
	g.Expect(given.Timeout).To(Equal(30*time.Second), "it is clusterctl's own")
}

// A request whose content cannot be had a second time is not sent again without it.
func TestARequestIsSentAgainWholeOrNotAtAll(t *testing.T) {
	for name, row := range map[string]struct {
		again bool
		times int
	}{"whole": {true, 2}, "not at all": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var sent []string
			p := &patient{side: "target", next: transport(func(r *http.Request) (*http.Response, error) {
				content, err := io.ReadAll(r.Body)
				g.Expect(err).NotTo(HaveOccurred())
				if sent = append(sent, string(content)); len(sent) == 1 {
					return nil, io.EOF
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			p.grant(time.Minute, func(string) {})
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://target/", strings.NewReader("whole"))
			g.Expect(err).NotTo(HaveOccurred())
			if !row.again {
				request.GetBody = nil
			}
			response, err := p.RoundTrip(request)
			if row.again {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(response.Body.Close()).To(Succeed())
			} else {
				g.Expect(err).To(MatchError(io.EOF))
			}
			g.Expect(sent).To(HaveLen(row.times))
			g.Expect(sent).To(HaveEach("whole"))
		})
	}
}

// transport is a function that sends requests.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// tries whether the API server would take another host, and makes none.
func (s *site) tries(r *rig.Rig) error {
	ctx := s.t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := r.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return r.Client.Create(ctx, &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "tried"},
		Spec: infrav1.QuoinHostSpec{Address: "0.0.0.11", User: "ops", CredentialsRef: infrav1.SecretReference{Name: "ssh"}}},
		client.DryRunAll)
}
