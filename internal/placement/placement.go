// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement picks a host for a machine. It is pure: the same request and hosts, in any order, give the same
// result.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// StateAvailable is the state of a host that may be claimed.
const StateAvailable = "Available"

// AnyNamespace in Host.ConsumerNamespaces offers the host to every namespace, and in Request.HostNamespaces accepts
// hosts of every one.
const AnyNamespace = "*"

// How long a host that failed a machine is taken only when there is no other. Its own pool asks for the same thing that
// failed, so it stays away longer; the short time for all keeps a broken host from eating every replacement in turn.
const (
	AvoidForSamePool = time.Hour
	AvoidForAll      = 10 * time.Minute
)

// Request is what a machine asks for.
type Request struct {
	// Namespace of the machine.
	Namespace string
	// HostNamespaces whose hosts the machine accepts; those of its own one when empty.
	HostNamespaces []string
	// Selector over the hosts' labels; nil selects every host.
	Selector labels.Selector
	// Worker says that the machine is none of a control plane, for which hosts may be reserved.
	Worker bool
	// FailureDomain the host must be in; empty for any.
	FailureDomain string
	// Members counts, by failure domain, the hosts that the machine's peers have. Without a wanted failure domain the
	// emptiest one comes first, so that members share no fate.
	Members map[string]int
	// Taken are the identities of the hosts that the Cluster has, none of which another host of it may have.
	Taken []Identity
	// Version of the machine's kubelet, which a host's container runtime may be too old for; empty when that is not known.
	Version string
	// FailCgroupV1 says that nothing tells the machine's kubelet to start on a host with cgroup v1.
	FailCgroupV1 bool
	// Pool of the machine, as Pool makes it.
	Pool string
	// PreferFormer prefers, within a failure domain, a host that a machine of the same pool had last.
	PreferFormer bool
	// Now is what the hosts' failures are old against; no failure counts when zero.
	Now time.Time
}

// Host is what placement needs to know of a host.
type Host struct {
	Namespace, Name string
	Labels          map[string]string
	// State of the host, StateAvailable among others.
	State string
	// Ready says that the host is reachable and trusted.
	Ready bool
	// Preparing says that the host is being reset or inspected and answers: it will be available, or quarantined.
	Preparing bool
	// Serving says that the host is a machine's or becomes one, and answers.
	Serving bool
	// InUse says that the host has a consumer.
	InUse bool
	// Leaving says that the host is being deleted or is paused.
	Leaving bool
	// Held says that the host is kept as it is while objects move to another management cluster.
	Held bool
	// Detached says that nobody may connect to the host.
	Detached bool
	// Maintenance says that nothing new may be started on the host.
	Maintenance   bool
	FailureDomain string
	// ConsumerNamespaces that may claim the host; its own one when empty.
	ConsumerNamespaces []string
	// Identities that must be the host's own in its Cluster.
	Identities []Identity
	// Runtime is the container runtime and its version ("containerd://2.2.0"); empty when that is not known.
	Runtime string
	// Cgroup is the version of the host's control groups; 0 when that is not known, and where the host has its kubelet
	// start whatever it is.
	Cgroup int32
	// FormerPool is the pool of the machine that had the host last.
	FormerPool string
	// Staged is what was brought to the host ahead.
	Staged []infrav1.StagedArtifacts
	// FailedAt is when a claim of FailedPool last ended in failure on the host; zero when none did.
	FailedAt   time.Time
	FailedPool string
}

// Reason says in a few words why a host was not chosen. It reads well after a count: "2 in use".
type Reason string

// Reasons that are not a state's name.
const (
	InUse         Reason = "in use"
	Leaving       Reason = "being deleted or paused"
	Held          Reason = "held for a move"
	Detached      Reason = "detached"
	InMaintenance Reason = "in maintenance"
	NotReady      Reason = "not ready"
	NotRegistered Reason = "not registered yet"
	NoAnswer      Reason = "without an answer"
	Reserved      Reason = "reserved for control planes"
	NotAccepted   Reason = "in a namespace that spec.hostNamespaces does not name"
	Duplicate     Reason = "with the hostname, machine-id or product UUID of another host of the Cluster (its condition " +
		"Unique says which)"
)

// Result is the outcome of Select.
type Result struct {
	// Chosen host; nil when none is free.
	Chosen *Host
	// Reasons why the other hosts were not eligible. A host counts once, under the reason that is the hardest to change.
	Reasons map[Reason]int
	// Avoided counts the eligible hosts that failed lately and come last for that.
	Avoided int
	// LastResort says that the chosen host is one of them, because there is no other.
	LastResort bool

	order []Reason
}

// Count is how many hosts were not eligible for one reason.
type Count struct {
	Reason Reason
	Hosts  int
}

// Select picks the host for request. Among the eligible ones come first those that did not fail lately, then those of
// the emptiest failure domain, then a former host of the pool if the machine wants one, then those that have the
// machine's version already, then by namespace (the machine's own first) and name.
func Select(request Request, hosts []Host) Result {
	result := Result{Reasons: map[Reason]int{}}
	var free []Host
	for _, h := range hosts {
		if reason, rank := obstacle(request, h); reason != "" {
			result.count(reason, rank)
			continue
		}
		free = append(free, h)
		if avoided(request, h) {
			result.Avoided++
		}
	}
	result.sortReasons()
	if len(free) == 0 {
		return result
	}
	chosen := slices.MinFunc(free, func(a, b Host) int {
		return cmp.Or(
			cmpBool(avoided(request, a), avoided(request, b)),
			cmp.Compare(request.Members[a.FailureDomain], request.Members[b.FailureDomain]),
			-cmpBool(former(request, a), former(request, b)),
			-cmpBool(staged(request, a), staged(request, b)),
			-cmpBool(a.Namespace == request.Namespace, b.Namespace == request.Namespace),
			strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name),
		)
	})
	result.Chosen, result.LastResort = &chosen, avoided(request, chosen)
	return result
}

// avoided says that the host failed so lately that it comes last. Last, and not never: a fleet of one broken and no
// other host may have been broken by something that is mended by now.
func avoided(request Request, h Host) bool {
	if request.Now.IsZero() {
		return false
	}
	age := request.Now.Sub(h.FailedAt) // ages, where none ever failed
	return age < AvoidForAll || (age < AvoidForSamePool && h.FailedPool != "" && h.FailedPool == request.Pool)
}

func former(request Request, h Host) bool {
	return request.PreferFormer && request.Pool != "" && h.FormerPool == request.Pool
}

// staged reports whether the host has what a machine of that version and role is made of. From where it came does not
// matter: files and images are known by their checksums.
func staged(request Request, h Host) bool {
	role := infrav1.StageRoleControlPlane
	if request.Worker {
		role = infrav1.StageRoleWorker
	}
	return slices.ContainsFunc(h.Staged, func(has infrav1.StagedArtifacts) bool {
		return has.Version == request.Version && has.Role == role
	})
}

// NamespaceAllowed reports whether the host is offered to machines of namespace. That is the host's consent to a claim,
// and NamespaceAccepted the machine's: a claim needs both.
func NamespaceAllowed(h Host, namespace string) bool {
	return names(h.ConsumerNamespaces, h.Namespace, namespace)
}

// NamespaceAccepted reports whether a machine of namespace accepts hosts of the namespace of, when it names
// hostNamespaces. Whoever registers a host says by himself to whom it is offered, and a host is given its machine's
// bootstrap data.
func NamespaceAccepted(hostNamespaces []string, namespace, of string) bool {
	return names(hostNamespaces, namespace, of)
}

// AcceptedByAny reports whether a machine of one of the templates, all of namespace, accepts hosts of the namespace of.
// Without a template, machines are taken to accept what they do by default.
func AcceptedByAny(templates []infrav1.QuoinMachineTemplate, namespace, of string) bool {
	if len(templates) == 0 {
		return NamespaceAccepted(nil, namespace, of)
	}
	return slices.ContainsFunc(templates, func(template infrav1.QuoinMachineTemplate) bool {
		return NamespaceAccepted(template.Spec.Template.Spec.HostNamespaces, namespace, of)
	})
}

// names reports whether the list names the namespace; an empty one names its owner's own.
func names(list []string, own, namespace string) bool {
	if len(list) == 0 {
		return namespace == own
	}
	return slices.Contains(list, namespace) || slices.Contains(list, AnyNamespace)
}

// Ranks order the reasons in a message: what frees itself first comes first.
const (
	rankInUse = iota
	rankState
	rankReady
	rankDuplicate
	rankRuntime
	rankDomain
	rankSelector
	rankAccepted
	rankNamespace
)

func obstacle(request Request, h Host) (Reason, int) {
	switch {
	case !NamespaceAllowed(h, request.Namespace):
		return Reason("not offered to namespace " + request.Namespace), rankNamespace
	case !NamespaceAccepted(request.HostNamespaces, request.Namespace, h.Namespace):
		return NotAccepted, rankAccepted
	case request.Selector != nil && !request.Selector.Matches(labels.Set(h.Labels)):
		return Reason("not selected by " + request.Selector.String()), rankSelector
	case request.Worker && h.Labels[infrav1.ReservedForLabel] == infrav1.ReservedForControlPlane:
		return Reserved, rankSelector
	case request.FailureDomain != "" && h.FailureDomain != request.FailureDomain:
		return Reason("not in failure domain " + request.FailureDomain), rankDomain
	}
	if reason, rank := unavailable(h); reason != "" {
		return reason, rank
	}
	if Common(h.Identities, request.Taken) != "" {
		return Duplicate, rankDuplicate
	}
	if ended := skew.RuntimeEnded(h.Runtime, request.Version); ended != "" {
		return Reason(ended), rankRuntime
	}
	if request.FailCgroupV1 {
		if ended := skew.CgroupEnded(h.Cgroup, request.Version); ended != "" {
			return Reason(ended), rankRuntime
		}
	}
	return "", 0
}

// Pending says whether the host could be claimed for the request if what prepares it ends well.
func Pending(request Request, h Host) bool { return h.Preparing && onceReset(request, h) == "" }

// Returning says whether the host could be claimed for the request once the machine that leaves it has left, if its
// reset ends well.
func Returning(request Request, h Host) bool { return NoReturn(request, h) == "" }

// NoReturn says why the host could not be claimed for the request once the machine that leaves it has left; empty when
// it could, if its reset ends well.
func NoReturn(request Request, h Host) Reason {
	if !h.Preparing && !h.Serving {
		return NoAnswer
	}
	return onceReset(request, h)
}

// onceReset is what keeps the host from the request when it was reset.
func onceReset(request Request, h Host) Reason {
	if h.InUse {
		// What is taken may be its own.
		request.Taken = nil
	}
	h.State, h.Ready, h.InUse = StateAvailable, true, false
	reason, _ := obstacle(request, h)
	return reason
}

// Free says whether the host could be claimed now, by some machine that it is offered to.
func Free(h Host) bool {
	reason, _ := unavailable(h)
	return reason == ""
}

// unavailable is what keeps the host from every machine.
func unavailable(h Host) (Reason, int) {
	switch {
	case h.InUse:
		return InUse, rankInUse
	case h.Leaving:
		return Leaving, rankState
	case h.Held:
		return Held, rankState
	case h.Detached:
		return Detached, rankState
	case h.Maintenance:
		return InMaintenance, rankState
	case h.State == "":
		return NotRegistered, rankState
	case h.State != StateAvailable:
		return Reason(h.State), rankState
	case !h.Ready:
		return NotReady, rankReady
	}
	return "", 0
}

func (r *Result) count(reason Reason, rank int) {
	if r.Reasons[reason] == 0 {
		// The rank travels in front of the reason while sorting, so that equal ranks come in the order of their text.
		r.order = append(r.order, Reason(fmt.Sprintf("%d%s", rank, reason)))
	}
	r.Reasons[reason]++
}

func (r *Result) sortReasons() {
	slices.Sort(r.order)
	for i := range r.order {
		r.order[i] = r.order[i][1:]
	}
}

// Counts are the reasons in the order of Message: what frees itself first comes first.
func (r Result) Counts() []Count {
	counts := make([]Count, 0, len(r.order))
	for _, reason := range r.order {
		counts = append(counts, Count{Reason: reason, Hosts: r.Reasons[reason]})
	}
	return counts
}

// Note says what a person should know about the choice; empty when nothing is special about it.
func (r Result) Note() string {
	switch {
	case r.LastResort:
		return fmt.Sprintf("its last claim failed at %s, and no other host is free", r.Chosen.FailedAt.UTC().
			Format(time.RFC3339))
	case r.Chosen != nil && r.Avoided > 0:
		return fmt.Sprintf("free hosts passed over because their last claims failed lately: %d", r.Avoided)
	}
	return ""
}

// Message is a sentence for people, such as "no free host matches: 2 in use, 1 Quarantined, 3 not selected by
// role=worker". Empty when a host was chosen.
func (r Result) Message() string {
	if r.Chosen != nil {
		return ""
	}
	if len(r.order) == 0 {
		return "no free host matches: there are no QuoinHosts; register one"
	}
	parts := make([]string, 0, len(r.order))
	for _, count := range r.Counts() {
		parts = append(parts, fmt.Sprintf("%d %s", count.Hosts, count.Reason))
	}
	return "no free host matches: " + strings.Join(parts, ", ")
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
