// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is read from can be read and nothing else.
func TestAReaderCannotWrite(t *testing.T) {
	g := NewWithT(t)
	full := cluster().Build()
	read := ReadOnly(full)
	_, writes := read.(interface {
		Delete(context.Context, client.Object, ...client.DeleteOption) error
	})
	g.Expect(writes).To(BeFalse())
	g.Expect(read.Get(t.Context(), client.ObjectKey{Name: "n-a"}, &corev1.Node{})).To(Succeed())
}

func TestWhatASubjectSays(t *testing.T) {
	g, s := NewWithT(t), &joined().Subject
	g.Expect(s.Replicas()).To(Equal(1), "what admission writes where there is nothing")
	s.ControlPlane.Spec.Replicas = ptr.To[int32](3)
	g.Expect(s.Replicas()).To(Equal(3))
	g.Expect(s.Deleting()).To(BeFalse())
	s.Cluster.DeletionTimestamp = ptr.To(metav1.Now())
	g.Expect(s.Deleting()).To(BeTrue())
	s = &joined().Subject
	s.ControlPlane.DeletionTimestamp = ptr.To(metav1.Now())
	g.Expect(s.Deleting()).To(BeTrue())
}
