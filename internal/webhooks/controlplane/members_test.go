// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func TestMembersAreRemovedByTheirIDs(t *testing.T) {
	given := func(value string) change {
		return func(c *controlplanev1.QuoinControlPlane) {
			c.Annotations = map[string]string{controlplanev1.RemoveEtcdMemberAnnotation: value}
			c.Status.Etcd = &controlplanev1.EtcdStatus{Members: []controlplanev1.EtcdMember{
				{ID: "8e9e05c52164694d", Name: "n-1", Machine: "cp-1"}, {ID: "1f", Name: "n-2"}}}
		}
	}
	for name, test := range map[string]struct {
		before, after []change
		want          string
	}{
		"a member without a Machine": {nil, []change{given("1f")}, ""},
		"one that nobody has seen":   {nil, []change{given("abc")}, ""},
		"one of a Machine":           {nil, []change{given("1f,8e9e05c52164694d")}, "delete the Machine"},
		"a name":                     {nil, []change{given("n-2")}, "by their ids"},
		"a name, before etcd was read": {nil, []change{given("n-2"), func(c *controlplanev1.QuoinControlPlane) {
			c.Status.Etcd = nil
		}}, "by their ids"},
		"another edit leaves it be":   {[]change{given("n-2")}, []change{given("n-2"), version("v1.35.5")}, ""},
		"the annotation is taken off": {[]change{given("n-2")}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(test.before...),
				controlPlane(test.after...))
			if test.want == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
}
