// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// deprecatedMetric is a gauge that an API server sets for each deprecated version of a resource that somebody asked
// for since it started. Its label removed_release is the minor that does not serve it any more.
const deprecatedMetric = "apiserver_requested_deprecated_apis"

// lookAtDeprecatedAPIs looks for versions of resources that are in use and that the version no longer serves. An API
// server knows only of what it was asked itself.
func lookAtDeprecatedAPIs(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	target, err := skew.Parse(s.Version)
	if err != nil {
		return "", nil, err
	}
	text, err := s.Metrics(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("read the metrics of an API server: %w", err)
	}
	uses, err := deprecatedUses(text)
	if err != nil {
		return "", nil, err
	}
	var findings []quoinv1.Finding
	for _, use := range uses {
		finding := blocks(use.resource, "Removed",
			fmt.Sprintf("is in use, and v%s does not serve it any more", use.removed.Original()),
			"have those who ask for it use a later version; the audit log's annotation k8s.io/deprecated names them. "+
				"An API server forgets what it was asked for only when it restarts")
		if cmp.Or(cmp.Compare(use.removed.Major(), target.Major()), cmp.Compare(use.removed.Minor(), target.Minor())) > 0 {
			finding.Verdict, finding.Reason = quoinv1.VerdictWarn, "Deprecated"
		}
		findings = append(findings, finding)
	}
	return fmt.Sprintf("what an API server was asked for since it started: %d deprecated", len(uses)), findings, nil
}

// deprecatedUse is a version of a resource that somebody asked for.
type deprecatedUse struct {
	resource string
	removed  *semver.Version
}

// deprecatedUses are those with a known end. Of megabytes of metrics only the lines of one are parsed.
func deprecatedUses(metrics []byte) ([]deprecatedUse, error) {
	var ours bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(deprecatedMetric+"{")) {
			ours.Write(lines.Bytes())
			ours.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the metrics of an API server: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&ours)
	if err != nil {
		return nil, fmt.Errorf("parse metric %s: %w", deprecatedMetric, err)
	}
	var uses []deprecatedUse
	for _, metric := range families[deprecatedMetric].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		removed, err := semver.NewVersion(labels["removed_release"])
		if err != nil {
			continue // deprecated, and nobody said until when
		}
		named := []string{labels["group"], labels["version"], labels["resource"], labels["subresource"]}
		named = slices.DeleteFunc(named, func(part string) bool { return part == "" })
		uses = append(uses, deprecatedUse{resource: strings.Join(named, "/"), removed: removed})
	}
	return uses, nil
}
