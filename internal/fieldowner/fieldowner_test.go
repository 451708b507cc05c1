// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldowner

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestWhoWroteAField(t *testing.T) {
	g := NewWithT(t)
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string, minute int,
	) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields),
			Time: ptr.To(metav1.NewTime(time.Date(2026, 11, 23, 8, minute, 0, 0, time.UTC)))}
	}
	managed := []metav1.ManagedFieldsEntry{
		entry("flux", metav1.ManagedFieldsOperationApply, `{"f:spec":{"f:version":{}}}`, 1),
		entry("quoin", metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:version":{},"f:ref":{"f:name":{}}}}`, 2),
		entry("argocd-controller", metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:domain":{}}}`, 3),
		entry("kubectl", metav1.ManagedFieldsOperationUpdate, `{"f:metadata":{"f:version":{}}}`, 4),
		{Manager: "broken", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`[`)},
		{Manager: "empty", Operation: metav1.ManagedFieldsOperationApply},
	}
	g.Expect(Last(managed, "spec", "version")).To(Equal("quoin (Update)"))
	g.Expect(Applying(managed, "spec", "version")).To(Equal("flux (Apply)"))
	g.Expect(Applying(managed, "spec", "ref")).To(BeEmpty())
	g.Expect(Applying(managed, "spec", "domain")).To(Equal("argocd-controller (Update)"))
	g.Expect(Last(managed, "spec", "none")).To(BeEmpty())
	managed[0].Subresource = "status"
	g.Expect(Applying(managed, "spec", "version")).To(BeEmpty())
}
