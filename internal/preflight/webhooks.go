// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// lookAtWebhooks looks for admission webhooks that would not see objects of a new version of a resource: those whose
// rules list versions, and that do not ask for equivalent ones (S1-18), and for those that would refuse what they
// cannot handle. Only what Kubernetes itself serves gets new versions by an upgrade.
func lookAtWebhooks(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	validating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := s.Workload.List(ctx, validating); err != nil {
		return "", nil, fmt.Errorf("list the ValidatingWebhookConfigurations: %w", err)
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if err := s.Workload.List(ctx, mutating); err != nil {
		return "", nil, fmt.Errorf("list the MutatingWebhookConfigurations: %w", err)
	}
	var hooks []webhook
	for _, configuration := range validating.Items {
		for _, hook := range configuration.Webhooks {
			hooks = append(hooks, webhook{"ValidatingWebhookConfiguration " + configuration.Name, hook.Name, hook.MatchPolicy,
				hook.FailurePolicy, hook.Rules})
		}
	}
	for _, configuration := range mutating.Items {
		for _, hook := range configuration.Webhooks {
			hooks = append(hooks, webhook{"MutatingWebhookConfiguration " + configuration.Name, hook.Name, hook.MatchPolicy,
				hook.FailurePolicy, hook.Rules})
		}
	}
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	findings := s.askAbout(hooks, machines)
	for _, hook := range hooks {
		findings = append(findings, hook.judge(s.Version)...)
	}
	return fmt.Sprintf("%d admission webhooks", len(hooks)), findings, nil
}

// webhook is one of either kind.
type webhook struct {
	object, name string
	match        *admissionregistrationv1.MatchPolicyType
	failure      *admissionregistrationv1.FailurePolicyType
	rules        []admissionregistrationv1.RuleWithOperations
}

// judge finds a rule that would not see what is written through a version of a resource that is new.
func (h webhook) judge(version string) []quoinv1.Finding {
	if ptr.Deref(h.match, admissionregistrationv1.Equivalent) != admissionregistrationv1.Exact {
		return nil
	}
	for _, rule := range h.rules {
		if slices.Contains(rule.APIVersions, "*") || !slices.ContainsFunc(rule.APIGroups, builtIn) {
			continue
		}
		return []quoinv1.Finding{warns(h.object, "ListsVersions", fmt.Sprintf(
			"webhook %s asks for exactly %s of %s, and would not see what is written through a version that %s adds (S1-18)",
			h.name, strings.Join(rule.APIVersions, ", "), strings.Join(rule.Resources, ", "), version),
			"set matchPolicy: Equivalent")}
	}
	return nil
}

// refuses reports whether what the webhook cannot handle, of what Kubernetes itself serves, is refused.
func (h webhook) refuses() bool {
	return ptr.Deref(h.failure, admissionregistrationv1.Fail) == admissionregistrationv1.Fail &&
		slices.ContainsFunc(h.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, "") || slices.ContainsFunc(rule.APIGroups, builtIn)
		})
}

// mostNamed is how many webhooks one finding names.
const mostNamed = 10

// askAbout asks a person whether webhooks can handle what a further minor adds to the resources that they see: no
// object tells (S1-19). A patch adds nothing.
func (s Subject) askAbout(hooks []webhook, machines []clusterv1.Machine) []quoinv1.Finding {
	target, err := skew.Parse(s.Version)
	adds := slices.ContainsFunc(skew.WorldOf(machines).APIServers, func(version string) bool {
		from, unread := skew.Parse(version)
		return unread == nil && err == nil && from.Minor() != target.Minor()
	})
	var strict []string
	for _, hook := range hooks {
		if adds && hook.refuses() {
			strict = append(strict, hook.name)
		}
	}
	if len(strict) == 0 {
		return nil
	}
	slices.Sort(strict)
	named := strings.Join(strict[:min(len(strict), mostNamed)], ", ")
	if more := len(strict) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return []quoinv1.Finding{warns("", "AskTheirMakers", fmt.Sprintf("what %s adds to resources of Kubernetes these "+
		"webhooks see, and what one of them cannot handle is refused (S1-19): %s", s.Version, named), fmt.Sprintf(
		"see that their releases support v%d.%d; name Webhooks in spec.skip with that as the reason", target.Major(),
		target.Minor()))}
}

// served are the groups that Kubernetes itself serves. Others of the project's, such as snapshot.storage.k8s.io, are
// made of CustomResourceDefinitions.
var served = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	return scheme
}()

// builtIn reports whether the group, or one of all groups, may get a further version by an upgrade. The core group has
// had v1 only since Kubernetes 1.0.
func builtIn(group string) bool {
	return group == "*" || group != "" && served.IsGroupRegistered(group)
}
