// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"net/netip"
	"time"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// Provisioner is all that the controller does to a host. Each method is one bounded conversation that may be repeated
// after any error, so a manager may die in the middle of it.
type Provisioner interface {
	// Identify makes the first contact and returns the key that the host presents.
	Identify(ctx context.Context, host *infrav1.QuoinHost) (string, error)
	// Probe asks a host, as root, for the little that tells whether anything has changed. It only reads.
	Probe(ctx context.Context, host *infrav1.QuoinHost) (ProbeResult, error)
	// Inspect reads the facts.
	Inspect(ctx context.Context, host *infrav1.QuoinHost) (*inspect.Facts, error)
	// Follow reads where a plan stands, once there is news of it. A plan that nothing runs any more, because the host
	// rebooted, is taken up again where the order says so, if its owner is that of the host. That a host knows no plan is
	// said only to the newest generation: to any other it is an *owner.StaleError, because the plan may have been cleaned
	// away by the one that took over.
	Follow(ctx context.Context, host *infrav1.QuoinHost, order FollowOrder) (run.Status, error)
	// StopPlan ends a plan with everything that it started, unless it has ended.
	StopPlan(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record, id string) error
	// AcquireToken tells the host of a newer generation of the claim that it serves.
	AcquireToken(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record) error
	// Push sends to the host what it lacks of a version that is not fetched, and tells how far it came. It ends in time
	// and is called until everything is there.
	Push(ctx context.Context, host *infrav1.QuoinHost, order PushOrder) (Pushed, error)
	// Provision starts the plan that makes a node of the host.
	Provision(ctx context.Context, host *infrav1.QuoinHost, order ProvisionOrder) error
	// Stage starts the plan that brings to a free host what it may need next.
	Stage(ctx context.Context, host *infrav1.QuoinHost, order StageOrder) error
	// Addons starts the plan that brings the add-on images of a version.
	Addons(ctx context.Context, host *infrav1.QuoinHost, order AddonsOrder) error
	// Recover starts the plan of the host's part in a recovery of etcd.
	Recover(ctx context.Context, host *infrav1.QuoinHost, order RecoverOrder) error
	// HandOver has a host whose Machine leaves the control plane give the virtual addresses to another one. held says that
	// it had one of them.
	HandOver(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record, addresses []netip.Prefix) (held bool,
		err error)
	// StopAPIServer has a host that leaves the control plane end its API server, and returns when that has ended.
	StopAPIServer(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record) error
	// Clean stops whatever plan runs, and starts the reset.
	Clean(ctx context.Context, host *infrav1.QuoinHost, order CleanOrder) error
	// Verify reads back what the reset left. When that is nothing, the owner record goes as well.
	Verify(ctx context.Context, host *infrav1.QuoinHost, order CleanOrder) (reset.Verification, error)
	// Isolate writes into the owner record of the host why nobody may use it.
	Isolate(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record, why owner.Quarantine) error
	// Used says which key the host accepted last, and the resourceVersion of the Secret that held it; not ok before it
	// did.
	Used(host *infrav1.QuoinHost) (fingerprint, secretVersion string, ok bool)
	// Reboot boots a host that is to be clean, unless it has booted since it told bootID, and returns its boot ID. With an
	// empty bootID it only asks.
	Reboot(ctx context.Context, host *infrav1.QuoinHost, order CleanOrder, bootID string) (string, error)
	// Forget drops the connection to the host.
	Forget(host *infrav1.QuoinHost)
}

// ProbeResult is what a probe reads.
type ProbeResult struct {
	BootID string
	// Facts of a host that booted since its facts were read: its identity and its disks alone; else nil.
	Facts *inspect.Facts
	// Owner record; nil when there is none.
	Owner *owner.Record
}

// FollowOrder is which plan is followed, and what is waited for.
type FollowOrder struct {
	// ID of the plan.
	ID string
	// Owner whose plan it is.
	Owner owner.Record
	// Resume takes the plan up again when nothing runs it.
	Resume bool
	// Within bounds the wait for the end of the plan; 0 asks where it stands now.
	Within time.Duration
	// Step ends the wait as well once the plan comes to it; empty for none.
	Step string
}

// ProvisionOrder is what makes a node of a host.
type ProvisionOrder struct {
	ID    string
	Owner owner.Record
	// Artifacts say which version, and where it comes from.
	Artifacts artifacts.Wanted
	Role      artifacts.Role
	// ProviderID and NodeAddresses are given to the kubelet before it registers.
	ProviderID    string
	NodeAddresses []string
	// VirtualAddress is nil unless the host takes part in one.
	VirtualAddress *keepalived.Config
	// ClaimedByUs says that a member of this very cluster may hold the virtual address already.
	ClaimedByUs bool
	Bootstrap   *cloudinit.Config
	// Disks that have a role; the bootstrap data may set up no other.
	Disks []cloudinit.DiskRole
}

// AddonsOrder is what brings the add-on images of a version.
type AddonsOrder struct {
	ID        string
	Owner     owner.Record
	Artifacts artifacts.Wanted
}

// StageOrder is what brings a version to a free host.
type StageOrder struct {
	ID        string
	Owner     owner.Record
	Artifacts artifacts.Wanted
	Role      artifacts.Role
}

// CleanOrder is what makes a host clean.
type CleanOrder struct {
	ID string
	// Owner of the claim that ended. Without a claim (Owner.UID is empty) only a host whose owner record is absent,
	// released, or names this very QuoinHost is touched. A newer generation than Owner's is never touched.
	Owner            owner.Record
	VirtualAddresses []netip.Prefix
	ControlPlanePort int
	// WipeDisks are the IDs of the disks that belonged to the claim, DataDisks of those whose content stays.
	WipeDisks, DataDisks []string
	// Baseline is what was on the host before the claim; empty where nobody knows.
	Baseline string
	// IgnoreChanges lets pass what is not in it.
	IgnoreChanges bool
	// RebootFollows keeps the owner record at the verification, because another one comes after a boot.
	RebootFollows bool
}

// EndpointInUseError says that something else answers at the control-plane endpoint.
type EndpointInUseError struct {
	// Address of the endpoint, and the sentence that says who answers there.
	Address, Answer string
}

func (e *EndpointInUseError) Error() string {
	return "the control-plane endpoint " + e.Address + " is in use already: " + e.Answer +
		"; free the address, or create the cluster with another controlPlaneEndpoint"
}

// ArtifactsError says that a version cannot be had from its source, or that the source is not what it says it is.
type ArtifactsError struct {
	// Place where the version was looked for.
	Place string
	Err   error
}

func (e *ArtifactsError) Error() string {
	return "Kubernetes cannot be taken from " + e.Place + ": " + e.Err.Error() +
		"; the place is named by spec.artifacts of the machine template: to name another, make a new template and let the " +
		"MachineDeployment or control plane refer to it; add-on images come from there for the Machines that exist, too"
}

func (e *ArtifactsError) Unwrap() error { return e.Err }

// LacksError says that the host lacks a program that this machine needs.
type LacksError struct{ What, Why string }

func (e *LacksError) Error() string {
	return e.What + " is not installed on the host, but " + e.Why + "; install it there"
}
