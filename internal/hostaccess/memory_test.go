// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// One in ten can be connected to. Who connects once, or only through a host, does not hear that it is gone.
func TestNothingIsRememberedOfHostsThatAreGone(t *testing.T) {
	g, server, host, before := setup(t)
	host.Spec.HostKeys = []string{ssh.FormatHostKey(server.HostKey())}
	credentials, client := &corev1.Secret{}, clienttest.Unmanaged(clientgoscheme.Scheme).Build()
	g.Expect(before.reader.Get(t.Context(), types.NamespacedName{Namespace: "hosts", Name: "ssh"}, credentials)).
		To(Succeed())
	ticks := clocktesting.NewFakeClock(time.Now())
	var refuses atomic.Bool
	c := New(client, ssh.PoolOptions{Clock: ticks, IdleTimeout: time.Minute,
		Control: func(context.Context, string, string, syscall.RawConn) error {
			if refuses.Load() {
				return errors.New("it is nobody's")
			}
			return nil
		}})
	t.Cleanup(c.Close)
	c.recent.now = ticks.Now
	most := map[string]int{}
	for i := range memorytest.Lives {
		own := credentials.DeepCopy()
		own.Name, own.ResourceVersion = fmt.Sprintf("ssh-%d", i), ""
		g.Expect(client.Create(t.Context(), own)).To(Succeed())
		host.Name, host.UID, host.Spec.CredentialsRef.Name = fmt.Sprintf("h%d", i), types.UID(own.Name), own.Name
		refuses.Store(i%10 > 0)
		_, err := c.ConnectAgain(t.Context(), host)
		g.Expect(err != nil).To(Equal(refuses.Load()), "%v", err)
		for path, n := range memorytest.Entries(c) {
			most[path] = max(most[path], n)
		}
		c.Forget(host)
		if i%100 == 0 {
			host.UID += "-once"
			_, err = c.ConnectOnce(t.Context(), host)
			g.Expect(err).NotTo(HaveOccurred())
		}
		ticks.SetTime(ticks.Now().Add(lasting / 2))
	}
	g.Expect(most).To(HaveKeyWithValue(".used", 1))
	g.Expect(most[".recent.read"]).To(BeNumerically("<=", 5), memorytest.Text(most))
	g.Eventually(func() string {
		ticks.Step(time.Minute)
		return memorytest.Text(memorytest.Entries(c))
	}).WithTimeout(time.Minute).Should(BeEmpty())
}
