// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/apiserver"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// sshProvisioner makes the calls to real hosts.
type sshProvisioner struct {
	connector connector
	// secrets of a host, which nobody is told; nil knows none.
	secrets func(context.Context, *infrav1.QuoinHost) *redact.Redactor
	// egress rules which servers of bundles this process connects to.
	egress *egress.Rules
	// bundleKeys of whoever runs the manager; see artifacts.Wanted.
	bundleKeys []string
	// vetted is what was read of bundles that are pushed.
	vetted artifacts.Vetted
	// pushes are the places of hosts that are being sent files.
	pushes *async.Slots
}

// connector is what is used of *hostaccess.Connector.
type connector interface {
	Connect(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error)
	ConnectAgain(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error)
	Identify(ctx context.Context, host *infrav1.QuoinHost) (string, error)
	Used(host *infrav1.QuoinHost) (fingerprint, secretVersion string, ok bool)
	Forget(host *infrav1.QuoinHost)
}

var (
	_ Provisioner = (*sshProvisioner)(nil)
	_ connector   = (*hostaccess.Connector)(nil)
)

// Identify implements Provisioner.
func (o *sshProvisioner) Identify(ctx context.Context, host *infrav1.QuoinHost) (string, error) {
	return o.connector.Identify(ctx, host)
}

// Used implements Provisioner.
func (o *sshProvisioner) Used(host *infrav1.QuoinHost) (fingerprint, secretVersion string, ok bool) {
	return o.connector.Used(host)
}

// secretsOf the host, for who tells what it says.
func (o *sshProvisioner) secretsOf(host *infrav1.QuoinHost) func(context.Context) *redact.Redactor {
	return func(ctx context.Context) *redact.Redactor {
		if o.secrets == nil {
			return nil
		}
		return o.secrets(ctx, host)
	}
}

// Forget implements Provisioner.
func (o *sshProvisioner) Forget(host *infrav1.QuoinHost) { o.connector.Forget(host) }

// Probe implements Provisioner. Thousands of hosts are probed all the time, most by the same few Secrets.
func (o *sshProvisioner) Probe(ctx context.Context, host *infrav1.QuoinHost) (ProbeResult, error) {
	conn, err := o.connector.ConnectAgain(ctx, host)
	if err != nil {
		return ProbeResult{}, err
	}
	known := ""
	if host.Status.Facts != nil {
		known = host.Status.Facts.BootID
	}
	script := "boot=$(cat /proc/sys/kernel/random/boot_id) || exit\nprintf '%s\\n' \"$boot\"\n"
	if known != "" {
		script += "if [ \"$boot\" != " + ssh.Quote(known) + " ]; then\n" + inspect.IdentityScript + "fi\n"
	}
	result, err := conn.Run(ctx, ssh.Command{Script: script + "if [ -e " + run.DefaultRoot +
		"/owner.json ]; then cat " + run.DefaultRoot + "/owner.json; fi\n", Sudo: true})
	if err != nil {
		return ProbeResult{}, fmt.Errorf("reading the boot ID: %w", err)
	}
	boot, raw, _ := strings.Cut(strings.TrimSpace(result.Stdout), "\n")
	probed := ProbeResult{BootID: boot}
	if known != "" && known != boot {
		var identity string
		identity, raw = inspect.SplitIdentity(raw + "\n")
		if probed.Facts, err = inspect.Parse(identity); err != nil {
			return ProbeResult{}, err
		}
	}
	probed.Owner, err = recordOf(strings.TrimSpace(raw))
	return probed, err
}

// Inspect implements Provisioner.
func (o *sshProvisioner) Inspect(ctx context.Context, host *infrav1.QuoinHost) (*inspect.Facts, error) {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return nil, err
	}
	return inspect.Collect(ctx, conn)
}

// Follow implements Provisioner.
func (o *sshProvisioner) Follow(
	ctx context.Context, host *infrav1.QuoinHost, order FollowOrder,
) (run.Status, error) {
	id, ours := order.ID, order.Owner
	conn, err := o.connector.ConnectAgain(ctx, host)
	if err != nil {
		return run.Status{}, err
	}
	status, err := run.Runner{Secrets: o.secretsOf(host)}.Await(ctx, conn, id, order.Step, order.Within)
	if err != nil || !status.Lost && status.Phase != run.NotStarted {
		return status, err
	}
	record, err := owner.Read(ctx, conn)
	if err != nil {
		return status, err
	}
	if record != nil && asStale(owner.Check(ours, *record)) != nil {
		return status, &owner.StaleError{Ours: ours, Holder: *record}
	}
	if !status.Lost || !order.Resume {
		return status, nil
	}
	// Taking up a plan changes the host, which only its owner may.
	guard, err := mayChange(ctx, conn, host, ours)
	if err != nil {
		return status, err
	}
	runner := run.Runner{Guard: guard.Script(), Starter: starterOf(id), Secrets: o.secretsOf(host)}
	if err := guard.Explain(ctx, conn, runner.Resume(ctx, conn, id)); err != nil {
		return status, fmt.Errorf("taking up plan %s again: %w", id, err)
	}
	return runner.Poll(ctx, conn, id)
}

// StopPlan implements Provisioner.
func (o *sshProvisioner) StopPlan(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record, id string) error {
	conn, guard, err := o.connectAs(ctx, host, ours)
	if err != nil {
		return err
	}
	return guard.Explain(ctx, conn, run.Runner{Guard: guard.Script()}.Stop(ctx, conn, id))
}

// starterOf leaves processors and disks to others where nobody waits for the plan, or the node serves meanwhile and may
// have a member of etcd: at its start, and when it is taken up again.
func starterOf(id string) run.Systemd {
	return run.Systemd{Idle: isStaging(id) || strings.HasPrefix(id, addonsPrefix)}
}

// AcquireToken implements Provisioner. A host that serves nobody is not taken: whatever starts on it does that.
func (o *sshProvisioner) AcquireToken(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record) error {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return err
	}
	record, err := owner.Read(ctx, conn)
	if err != nil || record == nil || record.Released() && record.Generation <= ours.Generation {
		return err
	}
	return owner.Acquire(ctx, conn, ours)
}

// Provision implements Provisioner.
func (o *sshProvisioner) Provision(ctx context.Context, host *infrav1.QuoinHost, order ProvisionOrder) error {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return err
	}
	// Everything that only reads comes before anything that changes the host.
	if order.VirtualAddress != nil {
		if err := needs(ctx, conn, "keepalived", "the virtual address of the control plane needs it"); err != nil {
			return err
		}
		if !order.ClaimedByUs {
			if err := addressFree(ctx, conn, *order.VirtualAddress); err != nil {
				return err
			}
		}
	}
	supply, err := o.supplyOf(ctx, conn, order.Artifacts)
	if err != nil {
		return err
	}
	plan, err := provisionPlan(order, supply)
	if err != nil {
		return err
	}
	guard, err := acquired(ctx, conn, order.Owner)
	if err != nil {
		return err
	}
	// What was staged until now is used; what is still being staged would stand in the way.
	return guard.Explain(ctx, conn, run.Runner{Guard: guard.Script(), Alone: true}.Start(ctx, conn, plan))
}

// Stage implements Provisioner.
func (o *sshProvisioner) Stage(ctx context.Context, host *infrav1.QuoinHost, order StageOrder) error {
	conn, plan, err := o.planned(ctx, host, order.ID, order.Artifacts, order.Role, (*artifacts.Supply).Stage)
	if err != nil {
		return err
	}
	guard, err := mayChange(ctx, conn, host, order.Owner)
	if err != nil {
		return err
	}
	runner := run.Runner{Guard: guard.Script(), Starter: starterOf(order.ID)}
	return guard.Explain(ctx, conn, runner.Start(ctx, conn, plan))
}

// Addons implements Provisioner.
func (o *sshProvisioner) Addons(ctx context.Context, host *infrav1.QuoinHost, order AddonsOrder) error {
	conn, plan, err := o.planned(ctx, host, order.ID, order.Artifacts, artifacts.Addon, (*artifacts.Supply).Plan)
	if err != nil {
		return err
	}
	guard, err := acquired(ctx, conn, order.Owner)
	if err != nil {
		return err
	}
	runner := run.Runner{Guard: guard.Script(), Starter: starterOf(order.ID)}
	return guard.Explain(ctx, conn, runner.Start(ctx, conn, plan))
}

// planned makes a plan of artifacts alone, for which it only reads.
func (o *sshProvisioner) planned(
	ctx context.Context, host *infrav1.QuoinHost, id string, wanted artifacts.Wanted, role artifacts.Role,
	stepsOf func(*artifacts.Supply, artifacts.Role) ([]run.Step, []run.File, error),
) (ssh.Host, run.Plan, error) {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return nil, run.Plan{}, err
	}
	supply, err := o.supplyOf(ctx, conn, wanted)
	if err != nil {
		return nil, run.Plan{}, err
	}
	steps, files, err := stepsOf(supply, role)
	if err != nil {
		return nil, run.Plan{}, &ArtifactsError{Place: wanted.Place(), Err: err}
	}
	return conn, run.Plan{ID: id, Steps: steps, Files: files}, nil
}

// Recover implements Provisioner. The plan of another recovery may be in a step in which etcd is down, and would start
// it again whatever this one finds: it ends first.
func (o *sshProvisioner) Recover(ctx context.Context, host *infrav1.QuoinHost, order RecoverOrder) error {
	conn, guard, err := o.connectAs(ctx, host, order.Owner)
	if err != nil {
		return err
	}
	runner := run.Runner{Guard: guard.Script(), Alone: true}
	return guard.Explain(ctx, conn, runner.Start(ctx, conn, recovery.Plan(order.Order)))
}

// HandOver implements Provisioner.
func (o *sshProvisioner) HandOver(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record,
	addresses []netip.Prefix) (bool, error) {
	conn, guard, err := o.connectAs(ctx, host, ours)
	if err != nil {
		return false, err
	}
	return keepalived.HandOver(ctx, guard.On(conn), addresses)
}

// StopAPIServer implements Provisioner.
func (o *sshProvisioner) StopAPIServer(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record) error {
	conn, guard, err := o.connectAs(ctx, host, ours)
	if err != nil {
		return err
	}
	return apiserver.Stop(ctx, guard.On(conn))
}

// Clean implements Provisioner.
func (o *sshProvisioner) Clean(ctx context.Context, host *infrav1.QuoinHost, order CleanOrder) error {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return err
	}
	guard, err := mayChange(ctx, conn, host, order.Owner)
	if err != nil {
		return err
	}
	runner := run.Runner{Guard: guard.Script()}
	if err := runner.StopOthers(ctx, conn, order.ID); err != nil {
		return fmt.Errorf("stopping what still runs on the host: %w", guard.Explain(ctx, conn, err))
	}
	return guard.Explain(ctx, conn, runner.Start(ctx, conn, reset.Plan(order.ID, order.options())))
}

// Verify implements Provisioner.
func (o *sshProvisioner) Verify(ctx context.Context, host *infrav1.QuoinHost,
	order CleanOrder) (reset.Verification, error) {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return reset.Verification{}, err
	}
	options := order.options()
	options.OwnKey, _, _ = o.connector.Used(host)
	verified, err := reset.Verify(ctx, conn, options)
	if len(verified.Findings)+len(verified.Skipped) > 0 {
		// Sentences of ours, with names in them: to the patterns, the IDs of containers are keys.
		secrets := o.secretsOf(host)(ctx)
		for i, f := range verified.Findings {
			verified.Findings[i] = reset.Finding{What: secrets.Values(f.What), Fix: secrets.Values(f.Fix)}
		}
		for i, skipped := range verified.Skipped {
			verified.Skipped[i] = secrets.Values(skipped)
		}
	}
	if err != nil || len(verified.Findings) > 0 || order.RebootFollows {
		return verified, err
	}
	record := order.Owner
	if record.UID == "" {
		left, err := ownLeftover(ctx, conn, host, record)
		if err != nil || left == nil || left.Released() && left.Quarantine.Reason == "" {
			return verified, err
		}
		record.Machine, record.UID, record.ManagementCluster = left.Machine, left.UID, left.ManagementCluster
	}
	return verified, owner.Release(ctx, conn, record)
}

// Isolate implements Provisioner.
func (o *sshProvisioner) Isolate(ctx context.Context, host *infrav1.QuoinHost, ours owner.Record,
	why owner.Quarantine) error {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return err
	}
	if ours.UID == "" {
		left, err := ownLeftover(ctx, conn, host, ours)
		if err != nil {
			return err
		}
		if left != nil {
			ours.Machine, ours.UID, ours.ManagementCluster = left.Machine, left.UID, left.ManagementCluster
		}
	}
	return owner.Isolate(ctx, conn, ours, why)
}

// Reboot implements Provisioner.
func (o *sshProvisioner) Reboot(ctx context.Context, host *infrav1.QuoinHost, order CleanOrder,
	bootID string) (string, error) {
	probed, err := o.Probe(ctx, host)
	if err != nil || bootID == "" || probed.BootID != bootID {
		return probed.BootID, err
	}
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return "", err
	}
	guard, err := mayChange(ctx, conn, host, order.Owner)
	if err != nil {
		return "", err
	}
	return bootID, reset.Reboot(ctx, guard.On(conn), bootID)
}

func (c CleanOrder) options() reset.Options {
	return reset.Options{VirtualAddresses: c.VirtualAddresses, ControlPlanePort: c.ControlPlanePort,
		WipeDisks: c.WipeDisks, DataDisks: c.DataDisks, Baseline: c.Baseline, IgnoreChanges: c.IgnoreChanges}
}

// mayChange takes the host for its owner. Without a claim it only looks whether somebody else has the host. What
// follows is tied to what the host said.
func mayChange(ctx context.Context, conn ssh.Host, host *infrav1.QuoinHost, record owner.Record) (owner.Guard, error) {
	if record.UID != "" {
		return acquired(ctx, conn, record)
	}
	left, err := ownLeftover(ctx, conn, host, record)
	if err != nil {
		return owner.Guard{}, err
	}
	if left != nil {
		record.Machine, record.UID, record.ManagementCluster = left.Machine, left.UID, left.ManagementCluster
	}
	return owner.Store{}.Guard(ctx, conn, record)
}

// acquired takes the host for its owner, and ties to that what follows.
func acquired(ctx context.Context, conn ssh.Host, record owner.Record) (owner.Guard, error) {
	if err := owner.Acquire(ctx, conn, record); err != nil {
		return owner.Guard{}, err
	}
	return owner.Store{}.Guard(ctx, conn, record)
}

// connectAs connects with a host, and takes it for its owner.
func (o *sshProvisioner) connectAs(
	ctx context.Context, host *infrav1.QuoinHost, ours owner.Record,
) (ssh.Host, owner.Guard, error) {
	conn, err := o.connector.Connect(ctx, host)
	if err != nil {
		return nil, owner.Guard{}, err
	}
	guard, err := acquired(ctx, conn, ours)
	return conn, guard, err
}

// ownLeftover returns the owner record that an earlier claim of this QuoinHost left, or that was released; nil when
// there is none. A record that names another QuoinHost is somebody else's host, under another address or in another
// management cluster; one of a newer generation is that of whoever took over.
func ownLeftover(ctx context.Context, conn ssh.Host, host *infrav1.QuoinHost,
	ours owner.Record) (*owner.Record, error) {
	record, err := owner.Read(ctx, conn)
	if err != nil || record == nil {
		return nil, err
	}
	if stale := asStale(owner.Check(ours, *record)); stale != nil {
		return nil, stale
	}
	if record.Released() {
		return record, nil
	}
	if record.Namespace != host.Namespace || record.Host != host.Name {
		return nil, &owner.HeldError{Holder: *record}
	}
	return record, nil
}

func needs(ctx context.Context, conn ssh.Host, program, why string) error {
	result, err := conn.Run(ctx, ssh.Command{Script: "PATH=$PATH:/usr/sbin:/sbin; command -v " + program + " || true",
		Sudo: true})
	if err != nil {
		return fmt.Errorf("looking for %s: %w", program, err)
	}
	if strings.TrimSpace(result.Stdout) == "" {
		return &LacksError{What: program, Why: why}
	}
	return nil
}

func addressFree(ctx context.Context, conn ssh.Host, c keepalived.Config) error {
	for _, address := range c.Addresses {
		answer, err := keepalived.Probe(ctx, conn, c.Interface, address.Addr(), c.Port)
		if err != nil {
			return fmt.Errorf("asking whether %s is free: %w", address.Addr(), err)
		}
		if answer != "" {
			return &EndpointInUseError{Address: address.Addr().String(), Answer: answer}
		}
	}
	return nil
}

// supplyOf looks at the source of a version. What cannot be read because the connection failed is no fault of the
// source.
func (o *sshProvisioner) supplyOf(
	ctx context.Context, conn ssh.Host, wanted artifacts.Wanted,
) (*artifacts.Supply, error) {
	if wanted.Fetched() {
		if err := needs(ctx, conn, "curl", "the bundle is fetched from "+wanted.Place()); err != nil {
			return nil, err
		}
	}
	wanted.Control, wanted.OperatorKeys = o.egress.Control, o.bundleKeys
	supply, err := artifacts.Find(ctx, conn, wanted)
	return supply, sourceError(wanted, err)
}
