// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// A BMC knows no generation, and a host that is silent cannot refuse. So its power is changed only on the word of
// another host of the Cluster that this management cluster is the one it serves, or on that of a person where no other
// host can tell.

const (
	// mostAsked hosts are asked, all at once, each for askFor.
	mostAsked = 5
	askFor    = 20 * time.Second
)

// voice is another host of the Cluster, and what it said of this management cluster.
type voice struct {
	host *infrav1.QuoinHost
	// confirmed: it showed exactly our owner record within Timings.Vouch. denied: the last that it showed was somebody
	// else's.
	confirmed, denied bool
	// asked: it was asked for this order, so its silence is an answer.
	asked bool
	// answer is why it did not confirm.
	answer error
}

// verdict is what follows from the words of others for an order to a BMC.
type verdict string

const (
	proceed  verdict = "proceed"
	askPeers verdict = "ask"
	// needsWord: only a person can know.
	needsWord verdict = "needs a word"
	// refuse: another management cluster has the Cluster, whatever a person says here.
	refuse verdict = "refuse"
)

// vouched judges whether the power of a silent host may be changed; word is that of a person.
func vouched(peers []voice, word bool) verdict {
	has := func(is func(voice) bool) bool { return slices.ContainsFunc(peers, is) }
	switch {
	case has(func(p voice) bool { return p.denied }):
		return refuse
	case has(func(p voice) bool { return p.confirmed }):
		return proceed
	case has(func(p voice) bool { return !p.asked }):
		return askPeers
	case word:
		return proceed
	}
	return needsWord
}

// unvouchedError says that the power of a host was left as it is.
type unvouchedError struct {
	verdict verdict
	peers   []voice
}

func (e *unvouchedError) Error() string {
	var said []string
	for _, p := range e.peers {
		switch {
		case p.denied && p.answer == nil:
			said = append(said, fmt.Sprintf("%s says that it serves another management cluster or claim",
				client.ObjectKeyFromObject(p.host)))
		case p.answer != nil && p.denied == (e.verdict == refuse):
			said = append(said, fmt.Sprintf("%s: %v", client.ObjectKeyFromObject(p.host), p.answer))
		}
	}
	if len(said) == 0 {
		return "it has no other"
	}
	return strings.Join(said, "; ")
}

// peers are the other hosts of the Cluster that may be asked, and all that deny this management cluster.
func (r *reconciliation) peers(ctx context.Context) ([]voice, error) {
	cluster, ref := r.clusterName(), r.host.Spec.ConsumerRef
	if cluster == "" || ref == nil {
		return nil, nil
	}
	neighbors, err := hostaccess.Neighbors(ctx, r.controller.Client, client.ObjectKey{Namespace: ref.Namespace,
		Name: cluster}, r.host)
	if err != nil {
		return nil, fmt.Errorf("looking for hosts that may vouch for this management cluster: %w", err)
	}
	var peers []voice
	for _, neighbor := range neighbors {
		h := neighbor.Host
		key := client.ObjectKeyFromObject(h)
		p := voice{host: h, confirmed: r.controller.pace.of(key, r.now).since(confirmed) <= r.timings().Vouch,
			denied: servesAnother(h)}
		if p.denied || !isDetached(h) && !annotations.HasPaused(h) && trusted(h) {
			peers = append(peers, p)
		}
	}
	// Those first that have most to say.
	slices.SortFunc(peers, func(a, b voice) int {
		return cmp.Or(first(a.denied, b.denied), first(a.confirmed, b.confirmed),
			first(a.host.Status.UnreachableSince == nil, b.host.Status.UnreachableSince == nil), cmp.Compare(a.host.Name,
				b.host.Name))
	})
	peers = peers[:min(len(peers), mostAsked)]
	for i := range peers {
		peers[i].host = peers[i].host.DeepCopy() // it outlives this reconcile
	}
	return peers, nil
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// servesAnother reports whether the last that the host said is that it serves another management cluster, or another
// claim.
func servesAnother(host *infrav1.QuoinHost) bool {
	return slices.ContainsFunc(host.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type != infrav1.HostFencedCondition && c.Status == metav1.ConditionFalse && usurps(c.Reason)
	})
}

// clusterName is the Cluster of the claim; empty when nothing that is left tells.
func (r *reconciliation) clusterName() string {
	if r.claim.machine != nil {
		return r.claim.machine.Spec.ClusterName
	}
	if r.claim.quoinMachine != nil {
		return r.claim.quoinMachine.Labels[clusterv1.ClusterNameLabel]
	}
	return ""
}

// vouch asks the peers, unless that is needless, and returns nil when the power of a host may be changed; else
// *unvouchedError.
func (r *Reconciler) vouch(ctx context.Context, peers []voice, word bool) error {
	if vouched(peers, word) == askPeers {
		ctx, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		var all sync.WaitGroup
		for i := range peers {
			all.Go(func() { peers[i].ask(ctx, r.Provisioner) })
		}
		all.Wait()
	}
	if v := vouched(peers, word); v != proceed {
		return &unvouchedError{verdict: v, peers: peers}
	}
	return nil
}

func (p *voice) ask(ctx context.Context, provisioner Provisioner) {
	p.asked = true
	probed, err := provisioner.Probe(ctx, p.host)
	if err == nil {
		err = owner.Confirm(hostaccess.OwnerRecord(p.host), probed.Owner)
	}
	p.answer, p.confirmed, p.denied = err, err == nil, owner.ServesAnother(err)
}

// noteVoice remembers what a host showed of its owner record, for those of its Cluster that fall silent.
func (r *reconciliation) noteVoice(record *owner.Record) {
	r.noteHeard(record)
	if owner.Confirm(r.ownerRecord(), record) == nil {
		r.pace().mark(confirmed)
	} else {
		r.pace().unmark(confirmed)
	}
}

// changePower is a powerOrder that changes the power of a silent host, after another host vouched for this management
// cluster. Right before the order the host is looked at again: it was agreed minutes ago, and longer where it waited.
func (r *reconciliation) changePower(ctx context.Context, op string,
	fn func(context.Context, *infrav1.QuoinHost, func(context.Context) error) error,
) (state string, done bool, err error) {
	peers, err := r.peers(ctx)
	if err != nil {
		return "", true, err
	}
	word, machine := r.mayPowerOff(), r.claim.machine.DeepCopy() // it outlives this reconcile
	return r.powerOrder(op, func(ctx context.Context, host *infrav1.QuoinHost) error {
		if err := r.controller.vouch(ctx, peers, word); err != nil {
			return err
		}
		return fn(ctx, host, func(ctx context.Context) error {
			if err := r.controller.powerDue(ctx, host); err != nil {
				return err
			}
			return r.controller.powerNeeded(ctx, machine, op == orderCycle)
		})
	})
}

// withheldError says why an order to a BMC was not given although it had been agreed. lasts: that may stay so.
type withheldError struct {
	why   string
	lasts bool
}

func (e *withheldError) Error() string { return e.why }

// powerDue returns *withheldError unless the QuoinHost is as it was when an order for its power was agreed: this
// claim, this silence, this BMC, and nobody who keeps it as it is. It asks the API server itself.
func (r *Reconciler) powerDue(ctx context.Context, agreed *infrav1.QuoinHost) error {
	live := &infrav1.QuoinHost{}
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(agreed), live)
	var why string
	switch {
	case err != nil:
		why = fmt.Sprintf("it could not be looked at once more before the order: %v", err)
	case live.UID != agreed.UID, live.Spec.ClaimGeneration != agreed.Spec.ClaimGeneration,
		live.Spec.ManagedBy != agreed.Spec.ManagedBy,
		!equality.Semantic.DeepEqual(live.Spec.ConsumerRef, agreed.Spec.ConsumerRef):
		why = "its claim is another one since the order was agreed"
	case !live.Status.UnreachableSince.Equal(agreed.Status.UnreachableSince):
		why = "it has answered since the order was agreed"
	case computerOf(live.Spec.BMC) != computerOf(agreed.Spec.BMC):
		why = "spec.bmc was changed since the order was agreed"
	case live.Spec.Maintenance != nil, live.Spec.HeldFor != nil, annotations.HasPaused(live), isDetached(live):
		why = "it is in maintenance, paused, held or detached since the order was agreed"
	default:
		return nil
	}
	return &withheldError{why: why}
}

// powerNeeded returns *withheldError while whoever has hooks on the Machine needs its host to run.
func (r *Reconciler) powerNeeded(ctx context.Context, machine *clusterv1.Machine, boots bool) error {
	if machine == nil || r.NeedsPower == nil {
		return nil
	}
	why, err := r.NeedsPower(ctx, machine, boots, r.Clock.Now())
	switch {
	case err != nil:
		return &withheldError{why: fmt.Sprintf("nobody knows whether it is needed: %v", err)}
	case why != "":
		return &withheldError{why: why, lasts: true}
	}
	return nil
}

// mayPowerOff reports whether a person said of this very claim that its host may be powered off from here.
func (r *reconciliation) mayPowerOff() bool {
	id := r.host.ProviderID()
	return id != "" && r.host.Annotations[infrav1.PowerOffAnnotation] == id
}

// powerWithheld says why the power stays as it is; ok is false when err says something else.
func (r *reconciliation) powerWithheld(err error) (res result, ok bool) {
	if withheld, isWithheld := errors.AsType[*withheldError](err); isWithheld {
		// No BMC failed. What is due now, the next look decides.
		if withheld.lasts {
			r.pace().mark(powerFailed)
			r.notFenced(infrav1.HostPowerNeededReason, fmt.Sprintf("%s; its power is left as it is, because %v", r.silent(),
				withheld)+r.wayOut())
			return after(r.timings().Power), true
		}
		r.notFenced(infrav1.HostPoweringReason, fmt.Sprintf("%s; its power is left as it is, because %v", r.silent(),
			withheld))
		return after(r.timings().Next), true
	}
	var unvouched *unvouchedError
	if !errors.As(err, &unvouched) {
		return result{}, false
	}
	r.pace().mark(powerFailed)
	again := "; asked again at " + stamp(r.now.Add(r.timings().Power))
	cluster := r.clusterName()
	if unvouched.verdict == refuse {
		r.notFenced(infrav1.HostContradictedReason, fmt.Sprintf("%s; its power is left as it is, because another "+
			"management cluster has Cluster %s/%s: %v%s. Look at the Cluster there",
			r.silent(), r.host.Spec.ConsumerRef.Namespace, cluster, unvouched, again)+r.wayOut())
		return after(r.timings().Power), true
	}
	r.notFenced(infrav1.HostUnconfirmedReason, fmt.Sprintf("%s; its power is left as it is, because no other host of "+
		"Cluster %s/%s confirms that it serves this management cluster (%v)%s. If no other management cluster has the "+
		"Cluster, have the host cycled and powered off: %s", r.silent(), r.host.Spec.ConsumerRef.Namespace, cluster,
		unvouched, again, annotate(r.host, infrav1.PowerOffAnnotation, r.host.ProviderID()))+r.wayOut())
	return after(r.timings().Power), true
}
