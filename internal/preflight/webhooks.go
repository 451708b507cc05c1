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

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// lookAtWebhooks looks for admission webhooks that would not see objects of a new version of a resource: those whose
// rules list versions, and that do not ask for equivalent ones (S1-18). Only what Kubernetes itself serves gets new
// versions by an upgrade.
func lookAtWebhooks(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	validating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := s.Workload.List(ctx, validating); err != nil {
		return "", nil, fmt.Errorf("list the ValidatingWebhookConfigurations: %w", err)
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if err := s.Workload.List(ctx, mutating); err != nil {
		return "", nil, fmt.Errorf("list the MutatingWebhookConfigurations: %w", err)
	}
	var findings []quoinv1.Finding
	count := 0
	judge := func(object, name string, match *admissionregistrationv1.MatchPolicyType,
		rules []admissionregistrationv1.RuleWithOperations) {
		count++
		if match == nil || *match != admissionregistrationv1.Exact {
			return
		}
		for _, rule := range rules {
			if slices.Contains(rule.APIVersions, "*") || !slices.ContainsFunc(rule.APIGroups, builtIn) {
				continue
			}
			findings = append(findings, warns(object, "ListsVersions", fmt.Sprintf(
				"webhook %s asks for exactly %s of %s, and would not see what is written through a version that %s adds (S1-18)",
				name, strings.Join(rule.APIVersions, ", "), strings.Join(rule.Resources, ", "), s.Version),
				"set matchPolicy: Equivalent"))
			return
		}
	}
	for _, configuration := range validating.Items {
		for _, hook := range configuration.Webhooks {
			judge("ValidatingWebhookConfiguration "+configuration.Name, hook.Name, hook.MatchPolicy, hook.Rules)
		}
	}
	for _, configuration := range mutating.Items {
		for _, hook := range configuration.Webhooks {
			judge("MutatingWebhookConfiguration "+configuration.Name, hook.Name, hook.MatchPolicy, hook.Rules)
		}
	}
	return fmt.Sprintf("%d admission webhooks", count), findings, nil
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
