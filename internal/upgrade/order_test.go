// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

func TestTheOrderOfTheUpgradesOfACluster(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	made := func(name string, minute int, begunFor ...string) *quoinv1.ClusterUpgrade {
		u := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{},
			CreationTimestamp: metav1.NewTime(at.Add(time.Duration(minute) * time.Minute))},
			Spec: quoinv1.ClusterUpgradeSpec{Version: "v1.36.3"}}
		for _, version := range begunFor {
			of := u.DeepCopy()
			of.Spec.Version = version
			u.Annotations[quoinv1.ClusterUpgradeBegunAnnotation] = Mark(of, at)
		}
		return u
	}
	for name, c := range map[string]struct {
		a, b *quoinv1.ClusterUpgrade
		want int
	}{
		"made first":                          {made("b", 1), made("a", 2), -1},
		"made at once, by name":               {made("a", 1), made("b", 1), -1},
		"begun, though made later":            {made("b", 2, "v1.36.3"), made("a", 1), -1},
		"both begun, made first":              {made("b", 1, "v1.36.3"), made("a", 2, "v1.36.3"), -1},
		"begun for another version, is not":   {made("b", 2, "v1.35.4"), made("a", 1), 1},
		"itself":                              {made("a", 1), made("a", 1), 0},
		"itself, which one has seen to begin": {made("a", 1, "v1.36.3"), made("a", 1), -1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Order(c.a, c.b)).To(Equal(c.want))
			g.Expect(Order(c.b, c.a)).To(Equal(-c.want))
		})
	}
}
