// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane has the words in which control planes are spoken of: State is everything that a decision rests
// on, Step is what comes next, and Outcome what became of it. Package plan decides; nothing here does.
package controlplane

import (
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// State is everything that a decision rests on.
type State struct {
	// Name of the QuoinControlPlane, as a person writes it to kubectl.
	Name string
	// Replicas and Version are what the user wants.
	Replicas int
	Version  string
	// StackedEtcd says that each Machine runs an etcd member; else etcd is somebody else's and is left alone.
	StackedEtcd bool

	// Deleting: the control plane is being deleted. Workers counts the Machines that must go before it.
	Deleting bool
	Workers  int
	// ClusterDeleting: the Cluster is being deleted, and with it, soon, the control plane.
	ClusterDeleting bool

	// Certificates exist.
	Certificates bool
	// Initialized: kubeadm init succeeded once.
	Initialized bool
	// Unanswered: the workload cluster's API has not answered yet, as far as the objects know. They forget it in a move or
	// a restore.
	Unanswered bool
	// Reachable: the workload cluster's API answers.
	Reachable bool
	// ConfigVersion is the Kubernetes version in the kubeadm-config ConfigMap, which decides what a join installs.
	ConfigVersion string

	Machines []Machine
	// PreCreated are not among Machines; oldest first.
	PreCreated []PreCreatedMachine
	// Etcd is the membership as last read; who departs is to be added with HeldBy before it is judged.
	Etcd quorum.Membership
	// RemoveMembers are ids of members that a person wants to be removed although they work and no Machine runs them.
	RemoveMembers []uint64
	// DeadMemberTimeout is how long a voter must have been silent until it counts as dead, and not as one that a reading
	// missed.
	DeadMemberTimeout time.Duration
	// OrphanedMemberTimeout is how long a voter without a Machine must have been silent until it is removed. Nobody asks
	// its host, which may be starting again.
	OrphanedMemberTimeout time.Duration
	// ElectionGrace is how long a quorum of etcd that is away is waited for until it is said to be lost, or a recovery
	// begins, because etcd may be electing a leader; zero once it was away for so long, or is said to be lost. Where etcd
	// cannot be read, it is away from the first reading that showed none.
	ElectionGrace time.Duration
	// DrainInGrace: a drain looks skipped, and Cluster API may yet say that it was none.
	DrainInGrace bool
	// LeftBehind says which kubelets of workers an API server of Version would leave behind, and what else keeps the first
	// Machine of that from being made; empty when nothing does.
	LeftBehind string
	// EtcdBehind says which members of etcd may not become what the next Machine would bring, whatever API servers run;
	// empty when all may.
	EtcdBehind string
	// AwaitedVersion says which version the Cluster's topology has yet to hand down: what is made before would be replaced
	// again at once. Empty when it has handed down all.
	AwaitedVersion string
	// Window says why it is not the time to begin a replacement, and what to do about it; empty when it is.
	Window string
	// Hosts of all Machines of the Cluster, workers included.
	Hosts []Host
	// StaleHosts are those of the control plane's Machines that serve a newer generation of their claim.
	StaleHosts []StaleHost
	// OrphanNodes are Nodes of control-plane Machines that are gone with their hosts, and whose kubelet has stopped.
	OrphanNodes []string
	// AddonsCurrent: CoreDNS and kube-proxy have the images of Version, or are not ours to change.
	AddonsCurrent bool
	// ProxyHeld: policies keep kube-proxy from Version now. It then counts for current.
	ProxyHeld bool
	// AddonsProblem says why AddonsCurrent is not known; empty when it is.
	AddonsProblem string
	// AddonsVersion is the Kubernetes version whose images CoreDNS and kube-proxy have now; empty when it is not known.
	AddonsVersion string
	// Remediation is what the replacement of unhealthy Machines depends on.
	Remediation Remediation

	// Recovery that a person asked for; nil when nobody did.
	Recovery *Recovery

	// Strategy says in which order a Machine and its replacement come and go; Auto when empty.
	Strategy Strategy
	// Spare is what is known of hosts that a further Machine could have.
	Spare Spare
	// Domains are the failure domains of control planes, those without hosts included.
	Domains []FailureDomain
	// Backup is what is known of etcd's snapshots.
	Backup Backup
	// InFlight is the operation that was in flight at the last reconcile, and the Machine that it was about.
	InFlight InFlight
}

// Strategy is an order in which a Machine and its replacement come and go.
type Strategy string

const (
	// Auto surges while a matching host is free, else removes first where the quorum allows it, else waits.
	Auto Strategy = "Auto"
	// Surge lets the replacement vote before the old member goes.
	Surge Strategy = "Surge"
	// RemoveFirst lets the old member go first; its replacement takes the host that becomes free.
	RemoveFirst Strategy = "RemoveFirst"
)

// Spare counts the hosts that a further Machine could claim now.
type Spare struct {
	// Free hosts that match.
	Free int
	// Pending are hosts that match and are being reset or inspected: each is free soon, or quarantined, and then no longer
	// one of them.
	Pending int
	// Returning are hosts that match, and that Machines of this control plane have just left: each is reset next, and then
	// one of those that are pending.
	Returning int
	// Kind names the hosts that would match, such as "hosts that role=control-plane selects".
	Kind string
	// Why says what keeps the others from being one, such as "3 in use, 1 Quarantined".
	Why string
}

// FailureDomain is where hosts stand that may be lost together.
type FailureDomain struct {
	Name string
	// Free counts its hosts that a further Machine could claim now, Pending those that will be free soon.
	Free, Pending int
}

// Backup is what a rollout needs to know of etcd's snapshots.
type Backup struct {
	// Wanted: the user wants a recent one before each replacement.
	Wanted bool
	// Recent: the last good one is not older than the user wants, or took longer than that, and came no longer ago to who
	// waited for it. Requested: a newer one was asked for.
	Recent, Requested bool
	// Last says which one is the last good one, as the end of a sentence.
	Last string
}

// InFlight is an operation in flight.
type InFlight struct {
	Operation Operation
	Machine   string
}

// Machine of the control plane.
type Machine struct {
	Name          string
	Version       string
	FailureDomain string
	// Created orders Machines by age; smaller is older.
	Created int64
	// HostClaimed: a host was taken for it at some time.
	HostClaimed bool
	// NoHost: none of the hosts that are free or pending could be claimed for it, as those of its failure domain are all
	// gone.
	NoHost bool
	// Bootstrapped: the bootstrap data ran to its end on the host.
	Bootstrapped bool
	// Joining: its bootstrap data runs on the host now, so it may become an etcd member at any moment. Joined: that ran to
	// its end. Both as read before etcd was.
	Joining, Joined bool
	// KubeadmBegan: of the bootstrap data, kubeadm join runs, and began a short while ago.
	KubeadmBegan bool
	// PreCreationBackoff: making the next Machine failed a short while ago, while this one left or joined.
	PreCreationBackoff bool
	// Returns: the next Machine could have its host, once that is reset. NoReturn says why not, where that is known.
	Returns  bool
	NoReturn string
	// Node is the name of its node; empty until it registered.
	Node string
	// Kubelet is the version that the node's kubelet runs.
	Kubelet string
	// UpToDate: made from the present spec.
	UpToDate bool
	// CertificatesExpire: its certificates expire within a day. CertificatesEnded is when they did; empty before.
	CertificatesExpire bool
	CertificatesEnded  string
	// Healthy: the Node is Ready and so are the static pods. Problem says what is not.
	Healthy bool
	Problem string
	// Health shows whether it has to be replaced.
	Health Health
	// Serving: the static pods are ready, though the Node may not be, as before a network plugin runs.
	Serving bool
	// Preferred: a user marked it to go first.
	Preferred bool

	// Deleting: it has a deletion timestamp. DeletedAt orders those; smaller is earlier.
	Deleting  bool
	DeletedAt int64
	// DrainHook: our pre-drain hook is on it. On a Machine that is being deleted it means that its drain was not approved
	// yet: the removal of the hook is the record of the approval, also where Cluster API skips the hook.
	DrainHook bool
	// Hook: its host is kept until its etcd member is gone, by our pre-terminate hook or by the same hook on its
	// infrastructure machine. OtherHooks are pre-terminate hooks of others.
	Hook       bool
	OtherHooks []string
	// Undrained: Cluster API went past the drain of its Node without ending it, and nobody did it since. Until that is
	// certain, it is not AtTermination either.
	Undrained bool
	// Registered: its Node exists in the workload cluster, and is not being deleted.
	Registered bool
	// AtTermination: drained, and held only by pre-terminate hooks.
	AtTermination bool
	// APIServer is how far that of a Machine in deletion has left, and APIServerProblem why it stays.
	APIServer        APIServer
	APIServerProblem string
}

// Gone reports whether nothing is left of the Machine but its object, which has no host and no hook of ours. Others may
// have some: their hooks and finalizers keep it as long as they like.
func (m Machine) Gone() bool { return m.Deleting && !m.HostClaimed && !m.Hooked() }

// Hooked reports whether one of our deletion hooks is on the Machine.
func (m Machine) Hooked() bool { return m.Hook || m.DrainHook }

// APIServer is how far the API server of a Machine that is being deleted has left. Empty when nothing is known to serve
// there: the Machine never became a part of the control plane, or its host is gone.
type APIServer string

// How far an API server has left.
const (
	// APIServerServing: nobody has asked for its end.
	APIServerServing APIServer = "Serving"
	// APIServerLeaving: its host is to end it, and has not said that it did.
	APIServerLeaving APIServer = "Leaving"
	// APIServerLeft: it ended.
	APIServerLeft APIServer = "Left"
	// APIServerStays: its host could not end it, or did not for so long that nobody waits for it any more.
	APIServerStays APIServer = "Stays"
)

// Host of a Machine, as far as the images of CoreDNS and kube-proxy go.
type Host struct {
	// Name of the infrastructure machine.
	Name string
	// Version that it was or will be provisioned with.
	Version string
	// Provisioned: it is a node, so CoreDNS and kube-proxy may run there.
	Provisioned bool
	// Requested: it was asked to hold the images of State.Version. Present: it does.
	Requested, Present bool
	// Unfit says why it cannot take images now, such as "in maintenance": nobody waits for it, and it gets them before
	// anything else when it can. Empty when it can.
	Unfit string
	// Machine of the control plane that it is of; empty for a worker's.
	Machine string
	// RequestedRunning and PresentRunning are the same for State.AddonsVersion.
	RequestedRunning, PresentRunning bool
}

// PreCreatedMachine is one that was made ahead of its time: it gets its bootstrap data but claims no host until that is
// allowed. Until then it is no part of the control plane, and whatever becomes of it matters to nobody.
type PreCreatedMachine struct {
	Name string
	// Unfit says why it will never be allowed a host, as the end of a sentence; empty when it can be.
	Unfit string
}

// StaleHost is a host that serves another management cluster.
type StaleHost struct {
	// Name of the host, as namespace/name.
	Name string
	// Message has both generations and the way out.
	Message string
}

// FewestToRemoveFirst is the number of Machines from which on one may leave before its replacement comes: of three, two
// still are a quorum.
const FewestToRemoveFirst = 3
