// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight looks whether a Cluster could get another version now. Each check is a function in a file of its
// own: it reads, changes nothing, and returns what it found. Run makes all of them side by side, and one that fails,
// panics or does not answer blocks as one that found something: what was not seen is not in order.
package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// Timeout of one check. They are made side by side, so it is that of all of them too.
	Timeout = 30 * time.Second
	// mostFindings of one check are kept in a result; of what is wrong with a hundred nodes the worst are enough.
	mostFindings = 20
	// mostText bounds what a result says in one field, as the API does.
	mostText = 2048
)

// Subject is what checks look at.
type Subject struct {
	Cluster *clusterv1.Cluster
	// ControlPlane is nil when another provider looks after it, and when it is not there.
	ControlPlane *controlplanev1.QuoinControlPlane
	// Version that the Cluster is to get.
	Version string
	// Via are versions to go by, of the minors between.
	Via []string
	// Workers says which pools are to get the version; all of them when empty.
	Workers quoinv1.UpgradeWorkers
	// Upgraded says that a ClusterUpgrade does what the plan says, so that people do the rest only.
	Upgraded bool
	// Management reads the cluster that holds the Cluster's objects, Workload the Cluster itself; both as they are now.
	// Run has them make each list once, so checks change nothing that they were given.
	Management, Workload client.Reader
	// Metrics are those of one API server of the Cluster, as text.
	Metrics func(ctx context.Context) ([]byte, error)
	// Kubelet asks that of a Node whether it is well, through an API server of the Cluster.
	Kubelet func(ctx context.Context, node string) error
	// Connect returns a connection to a host, which checks ask what it sees. They run nothing there that changes it.
	Connect func(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error)
	Now     time.Time
	// Egress rules which servers of bundles are connected to.
	Egress *egress.Rules
	// BundleKeys are the operator's; see artifacts.Wanted.
	BundleKeys []string
}

// ControlPlaneKey names the QuoinControlPlane that the Cluster refers to, and reports whether it refers to one.
func (s Subject) ControlPlaneKey() (client.ObjectKey, bool) {
	ref := s.Cluster.Spec.ControlPlaneRef
	return client.ObjectKey{Namespace: s.Cluster.Namespace, Name: ref.Name},
		ref.Kind == "QuoinControlPlane" && ref.APIGroup == controlplanev1.GroupVersion.Group
}

// Check is one thing to look at.
type Check struct {
	// Name in results, and in spec.skip of a PreflightCheck.
	Name string
	// Look returns what is wrong, and in a few words what it looked at.
	Look func(ctx context.Context, s Subject) (message string, findings []quoinv1.Finding, err error)
}

// Checks are all there are, by name.
func Checks() []Check {
	return []Check{
		{"Artifacts", lookAtArtifacts},
		{"Backup", lookAtBackup},
		{"Certificates", lookAtCertificates},
		{"Connectivity", lookAtConnectivity},
		{"ControlPlane", lookAtControlPlane},
		{"DeprecatedAPIs", lookAtDeprecatedAPIs},
		{"Disruption", lookAtDisruption},
		{"Etcd", lookAtEtcd},
		{"Management", lookAtManagement},
		{"Network", lookAtNetwork},
		{"Nodes", lookAtNodes},
		{"Supply", lookAtSupply},
		{"VersionPath", lookAtVersionPath},
		{"Volumes", lookAtVolumes},
		{"Webhooks", lookAtWebhooks},
	}
}

// Run makes the checks side by side and returns their results in the same order.
func Run(
	ctx context.Context, checks []Check, s Subject, skip []quoinv1.SkippedCheck, clock clock.PassiveClock,
) []quoinv1.CheckResult {
	s.Management, s.Workload = once(s.Management), once(s.Workload)
	results := make([]quoinv1.CheckResult, len(checks))
	var group sync.WaitGroup
	for i, check := range checks {
		if at := slices.IndexFunc(skip, func(s quoinv1.SkippedCheck) bool { return s.Name == check.Name }); at >= 0 {
			results[i] = quoinv1.CheckResult{Name: check.Name, Verdict: quoinv1.VerdictSkipped, Message: skip[at].Reason}
			continue
		}
		group.Go(func() { results[i] = run(ctx, check, s, clock) })
	}
	group.Wait()
	return results
}

func run(ctx context.Context, check Check, s Subject, clock clock.PassiveClock) quoinv1.CheckResult {
	began := clock.Now()
	message, findings, err := look(ctx, check, s)
	if err != nil {
		findings = append(findings, blocks("", "CheckFailed", fmt.Sprintf("it is not known whether all is well: %v", err),
			fmt.Sprintf("make another PreflightCheck, or name %s in spec.skip with the reason why that is right", check.Name)))
	}
	// By all that they say: what a check gathers in a map has no order, and a result is to be the same from look to look.
	slices.SortFunc(findings, func(a, b quoinv1.Finding) int {
		return cmp.Or(severity(b.Verdict)-severity(a.Verdict), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Fix, b.Fix))
	})
	result := quoinv1.CheckResult{Name: check.Name, Verdict: quoinv1.VerdictPass, Message: text.Shorten(message, mostText),
		DurationMilliseconds: ptr.To(clock.Since(began).Milliseconds())}
	if len(findings) > 0 {
		result.Verdict = findings[0].Verdict
	}
	if more := len(findings) - mostFindings; more > 0 {
		result.Omitted, findings = ptr.To(int32(min(more, 1<<30))), findings[:mostFindings]
	}
	for i := range findings {
		finding := &findings[i]
		finding.Object, finding.Message, finding.Fix = text.Shorten(finding.Object, mostText/4),
			text.Shorten(finding.Message, mostText), text.Shorten(finding.Fix, mostText/2)
	}
	result.Findings = findings
	return result
}

// look bounds a check by Timeout, also one that does not heed it, and takes a panic for an error.
func look(ctx context.Context, check Check, s Subject) (string, []quoinv1.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	type answer struct {
		message  string
		findings []quoinv1.Finding
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		var given answer
		defer func() {
			if r := recover(); r != nil {
				given = answer{err: fmt.Errorf("the check panicked: %v", r)}
			}
			answers <- given
		}()
		given.message, given.findings, given.err = check.Look(ctx, s)
	}()
	select {
	case given := <-answers:
		return given.message, given.findings, given.err
	case <-ctx.Done():
		return "", nil, fmt.Errorf("no answer within %s: %w", Timeout, ctx.Err())
	}
}

// blocks is a finding that forbids to begin. The object is empty where it is about the Cluster as a whole.
func blocks(object, reason, message, fix string) quoinv1.Finding {
	return quoinv1.Finding{Verdict: quoinv1.VerdictBlock, Object: object, Reason: reason, Message: message, Fix: fix}
}

// warns is a finding that forbids nothing.
func warns(object, reason, message, fix string) quoinv1.Finding {
	return quoinv1.Finding{Verdict: quoinv1.VerdictWarn, Object: object, Reason: reason, Message: message, Fix: fix}
}

// notLookedAt is said of what only a QuoinControlPlane tells: nobody is to take it for something that is in order.
func notLookedAt(what string) []quoinv1.Finding {
	return []quoinv1.Finding{warns("", "NotLookedAt",
		what+" is not known, since there is no QuoinControlPlane that tells it",
		"check it with the tools of the control plane's provider")}
}

// Verdict merges those of the results: the worst of them.
func Verdict(results []quoinv1.CheckResult) quoinv1.Verdict {
	worst := quoinv1.VerdictPass
	for _, result := range results {
		if severity(result.Verdict) > severity(worst) {
			worst = result.Verdict
		}
	}
	return worst
}

// severity orders verdicts. One that was skipped is nobody's concern any more.
func severity(v quoinv1.Verdict) int {
	return slices.Index([]quoinv1.Verdict{quoinv1.VerdictSkipped, quoinv1.VerdictPass, quoinv1.VerdictWarn,
		quoinv1.VerdictBlock}, v)
}

// Summary is what stands in the way, or is better seen to, in one sentence: the first finding of each check that has
// the verdict of all. Skipped checks are named.
func Summary(results []quoinv1.CheckResult) string {
	verdict := Verdict(results)
	var said, skipped []string
	for _, result := range results {
		switch {
		case result.Verdict == quoinv1.VerdictSkipped:
			skipped = append(skipped, result.Name)
		case result.Verdict == verdict && len(result.Findings) > 0:
			first := result.Findings[0]
			one := result.Name + ": " + about(first) + first.Message
			if more := len(result.Findings) - 1 + int(ptr.Deref(result.Omitted, 0)); more > 0 {
				one += fmt.Sprintf(" (and %d more)", more)
			}
			said = append(said, one)
		}
	}
	summary := strings.Join(said, "; ")
	if summary == "" {
		summary = fmt.Sprintf("all of %d checks passed", len(results)-len(skipped))
	}
	if len(skipped) > 0 {
		summary += "; skipped: " + strings.Join(skipped, ", ")
	}
	return text.Shorten(summary, mostText)
}

func about(f quoinv1.Finding) string {
	if f.Object == "" {
		return ""
	}
	return f.Object + ": "
}
