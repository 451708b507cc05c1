// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func serviceCIDR(name string, networks ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: networks}}
}

func rules(t *testing.T, allowed ...string) *Rules {
	t.Helper()
	networks, err := Parse(allowed)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return New(networks, fake.NewClientBuilder().WithObjects(serviceCIDR("kubernetes", "10.96.0.0/12", "fd00:96::/108"),
		serviceCIDR("added", "10.200.0.0/16")).Build())
}

func TestRules(t *testing.T) {
	const own, link, many, metadata, service = "the manager's own", "link-local", "no single host's", "metadata service",
		"a Service of the management cluster"
	for name, c := range map[string]struct {
		allowed []string
		serving bool
		refused map[string]string
	}{
		"nothing is said": {refused: map[string]string{
			"127.0.0.1": own, "127.9.9.9": own, "::1": own, "0.0.0.0": own, "0.1.2.3": own, "::": own, "::ffff:127.0.0.1": own,
			"2002:7f00:1::": own, "::7f00:1": own,
			"169.254.169.254": link, "fe80::1": link, "fe80::1%eth0": link, "::ffff:169.254.169.254": link,
			"64:ff9b::a9fe:a9fe": link, "64:ff9b:1::a9fe:a9fe": "an IPv4 address that cannot be known",
			"224.0.0.1": many, "ff02::1": many, "255.255.255.255": many,
			"fd00:ec2::254": metadata, "100.100.100.200": metadata, "168.63.129.16": metadata,
			"10.96.0.1": service, "10.111.255.255": service, "10.200.1.1": service, "fd00:96::1": service,
			"::ffff:10.96.0.1": service, "64:ff9b::a60:1": service,
			"10.0.0.1": "", "192.168.1.1": "", "203.0.113.7": "", "2001:db8::1": "", "64:ff9b::cb00:7107": "", "fd12::1": "",
		}},
		"a network": {allowed: []string{"10.1.0.0/16", "2001:db8::/32", "192.0.2.7"}, refused: map[string]string{
			"10.1.2.3": "", "::ffff:10.1.2.3": "", "64:ff9b::a01:203": "", "2001:db8::7": "", "192.0.2.7": "",
			"10.2.0.1": "in none of the allowed networks, 10.1.0.0/16, 2001:db8::/32, 192.0.2.7/32",
			"fd12::1":  "in none of", "127.0.0.1": own, "10.96.0.1": service,
		}},
		"everything is none of those that are reserved": {allowed: []string{"0.0.0.0/0", "::/0"}, refused: map[string]string{
			"10.2.0.1": "", "fd12::1": "", "127.0.0.1": own, "169.254.1.1": link, "10.96.0.1": service, "::1": own,
		}},
		"what is reserved, by its name": {allowed: []string{"127.0.0.0/8", "169.254.7.0/24", "10.96.3.0/24", "::1"},
			refused: map[string]string{
				"127.0.0.1": "", "169.254.7.9": "", "10.96.3.1": "", "::1": "",
				"169.254.169.254": link, "10.96.4.1": service, "10.2.0.1": "in none of",
			}},
		"what may be a Service": {serving: true, allowed: []string{"10.1.0.0/16"}, refused: map[string]string{
			"10.96.0.1": "", "fd00:96::1": "", "10.1.2.3": "", "10.2.0.1": "in none of", "127.0.0.1": own,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := rules(t, c.allowed...)
			if c.serving {
				r = r.WithServices()
			}
			for address, why := range c.refused {
				err := r.Check(t.Context(), netip.MustParseAddr(address))
				if why == "" {
					g.Expect(err).NotTo(HaveOccurred(), address)
					continue
				}
				g.Expect(err).To(BeAssignableToTypeOf(&RefusedError{}), address)
				g.Expect(err).To(MatchError(And(ContainSubstring(address), ContainSubstring(why),
					ContainSubstring("--allowed-networks"))))
			}
		})
	}
	g := NewWithT(t)
	var none *Rules
	g.Expect(none.Check(t.Context(), netip.MustParseAddr("127.0.0.1"))).To(Succeed())
	g.Expect(none.WithServices()).To(BeNil())
}

func TestParse(t *testing.T) {
	g := NewWithT(t)
	for network, says := range map[string]string{
		"10.1.2.3/16":        "write 10.1.0.0/16, or 10.1.2.3",
		"example.com":        "none such as 10.1.0.0/16",
		"fe80::1%eth0":       "none such as",
		"":                   "none such as",
		"::ffff:10.1.0.0/16": "write the IPv4 network",
	} {
		_, err := Parse([]string{"10.0.0.0/8", network})
		g.Expect(err).To(MatchError(ContainSubstring(says)), network)
	}
}

// The address that is connected to is judged, and not the name: else a name would lead elsewhere after it was judged.
func TestTheAddressOfANameIsJudged(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := func(r *Rules) error {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second, ControlContext: r.Control}).DialContext(t.Context(), "tcp4",
			net.JoinHostPort("localhost", port))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	err = dial(rules(t))
	var refused *RefusedError
	g.Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
	g.Expect(refused.Address.String()).To(Equal("127.0.0.1"))
	g.Expect(dial(rules(t, "127.0.0.1"))).To(Succeed())
}

func TestServicesAreReadNowAndThen(t *testing.T) {
	g := NewWithT(t)
	var fails error
	var lists int
	reader := interceptor.NewClient(fake.NewClientBuilder().WithObjects(serviceCIDR("kubernetes", "10.96.0.0/12")).Build(),
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption,
		) error {
			lists++
			if fails != nil {
				return fails
			}
			return c.List(ctx, list, options...)
		}})
	r, now := New(nil, reader), time.Now()
	r.services.now = func() time.Time { return now }
	at := netip.MustParseAddr
	host, service, added := at("10.1.2.3"), at("10.96.0.1"), at("10.200.0.1")

	fails = errors.New("no answer")
	err := r.Check(t.Context(), host)
	g.Expect(err).To(MatchError(ContainSubstring("those of Services cannot be read: no answer")))
	g.Expect(err).NotTo(BeAssignableToTypeOf(&RefusedError{}), "no flag helps")
	fails = nil
	g.Expect(r.Check(t.Context(), host)).To(Succeed())
	g.Expect(r.Check(t.Context(), service)).NotTo(Succeed())
	g.Expect(lists).To(Equal(2), "what was read is kept")

	g.Expect(reader.Create(t.Context(), serviceCIDR("added", "10.200.0.0/16"))).To(Succeed())
	now, fails = now.Add(serviceRangesKept), errors.New("no answer")
	for range 3 {
		g.Expect(r.Check(t.Context(), service)).NotTo(Succeed(), "what was read is believed when nothing can be read")
		g.Expect(r.Check(t.Context(), added)).To(Succeed())
	}
	g.Expect(lists).To(Equal(3))
	now, fails = now.Add(serviceRangesRetry), nil
	g.Expect(r.Check(t.Context(), added)).NotTo(Succeed())

	// API servers before Kubernetes 1.33 do not serve them.
	old := New(nil, interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewNotFound(schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}, "")
		}}))
	g.Expect(old.Check(t.Context(), service)).To(Succeed())
}
