// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Look is what is asked of one address: whether it is reached, and whether an sshd there has one of the keys. It has no
// secret.
type Look struct {
	// Address is an IP address or a name.
	Address string `json:"address"`
	Port    int    `json:"port"`
	// SSH is answered there.
	SSH bool `json:"ssh,omitempty"`
	// HostKeys that are pinned, and Authorities that sign host certificates, as in a QuoinHost; any key does when both
	// are empty. Name is one that a certificate may be made out to as well.
	HostKeys    []string `json:"hostKeys,omitempty"`
	Authorities []string `json:"authorities,omitempty"`
	Name        string   `json:"name,omitempty"`
	// Service says that it may be one of the management cluster.
	Service bool `json:"service,omitempty"`
}

// Way is one address that managers connect to for the sake of what moves.
type Way struct {
	Look
	// To are the objects that are behind it.
	To []string
	// Host says that it leads to hosts: to one, or to a bastion. Answers says that the source reaches one of them, or does
	// not say that it reaches none.
	Host, Answers bool
}

// Ways are those of all that moves, each once, hosts first. Hosts behind a bastion are the bastion's to reach.
func Ways(
	hosts []infrav1.QuoinHost, planes []controlplanev1.QuoinControlPlane, templates []infrav1.QuoinMachineTemplate,
) []Way {
	var w ways
	for i := range hosts {
		host := &hosts[i]
		to := Way{Host: true, Answers: answers(host), To: []string{"QuoinHost " + host.Name}, Look: Look{SSH: true,
			Address: host.Spec.Address, Port: sshPort(host.Spec.Port), HostKeys: host.Spec.HostKeys,
			Authorities: host.Spec.HostCertificateAuthorities}}
		if len(to.Authorities) > 0 {
			to.Name = host.Name
		}
		if bastion := host.Spec.Bastion; bastion != nil {
			to.To[0] = "bastion of " + to.To[0]
			to.Look = Look{SSH: true, Address: bastion.Address, Port: sshPort(bastion.Port), HostKeys: bastion.HostKeys}
		}
		w.add(to)
	}
	for i := range hosts {
		if bmc := hosts[i].Spec.BMC; bmc != nil {
			w.addURL("BMC of QuoinHost "+hosts[i].Name, bmc.Address, false)
		}
	}
	w.addSources(planes, templates, nil, infrav1.BundleDeliveryPush)
	return w
}

// ServedBySource names the bundles and object stores at an address that ends with the source: of a node or Service of
// it, a name that its own DNS answers, or a loopback address of its managers. What hosts fetch on their own counts too,
// but for their own loopback addresses.
func ServedBySource(
	planes []controlplanev1.QuoinControlPlane, templates []infrav1.QuoinMachineTemplate, machines []infrav1.QuoinMachine,
	nodes []corev1.Node, services []corev1.Service,
) []string {
	own := addressesOf(nodes, services)
	var pushed, pulled ways
	pushed.addSources(planes, templates, machines, infrav1.BundleDeliveryPush)
	pulled.addSources(nil, templates, machines, infrav1.BundleDeliveryFetch)
	var served []string
	for i, way := range slices.Concat(pushed, pulled) {
		address := canonical(way.Address)
		reason := own[address]
		switch {
		case reason != "":
		case strings.HasSuffix(address, ".svc"), strings.HasSuffix(address, ".svc.cluster.local"):
			reason = "a Service's name, which each cluster answers by itself"
		case loopback(address) && i < len(pushed):
			reason = "a loopback address, where only the source's own manager finds it"
		default:
			continue
		}
		served = append(served, way.String()+": "+reason)
	}
	return served
}

// addressesOf nodes and Services, with whose each is.
func addressesOf(nodes []corev1.Node, services []corev1.Service) map[string]string {
	own := map[string]string{}
	for i := range nodes {
		for _, address := range nodes[i].Status.Addresses {
			own[canonical(address.Address)] = "an address of node " + nodes[i].Name
		}
	}
	for i := range services {
		service := &services[i]
		name := service.Name + "." + service.Namespace + ".svc"
		addresses := slices.Concat(service.Spec.ClusterIPs, service.Spec.ExternalIPs,
			[]string{strings.TrimSuffix(name, ".svc"), name, name + ".cluster.local"})
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			addresses = append(addresses, ingress.IP, ingress.Hostname)
		}
		for _, address := range addresses {
			own[canonical(address)] = "an address of Service " + service.Namespace + "/" + service.Name
		}
	}
	return own
}

// canonical form of an IP address or a name.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(address, "."))
}

// loopback reports whether a canonical address leads to whoever asks it.
func loopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback() || address == "localhost" || strings.HasSuffix(address, ".localhost")
}

// addSources adds the servers of bundles with the delivery, and object stores.
func (w *ways) addSources(
	planes []controlplanev1.QuoinControlPlane, templates []infrav1.QuoinMachineTemplate, machines []infrav1.QuoinMachine,
	delivery infrav1.BundleDelivery,
) {
	add := func(of string, bundle *infrav1.Bundle) {
		if bundle != nil && cmp.Or(bundle.Delivery, infrav1.BundleDeliveryFetch) == delivery &&
			!strings.HasPrefix(bundle.Location, "/") {
			w.addURL("bundles of "+of, through(bundle.Proxy, bundle.Location), false)
		}
	}
	for i := range templates {
		add("QuoinMachineTemplate "+templates[i].Name, templates[i].Spec.Template.Spec.Artifacts.Bundle)
	}
	for i := range machines {
		add("QuoinMachine "+machines[i].Name, machines[i].Spec.Artifacts.Bundle)
	}
	for i := range planes {
		if backup := planes[i].Spec.Backup; backup != nil && backup.Store.S3 != nil {
			s3 := backup.Store.S3
			w.addURL("object store of QuoinControlPlane "+planes[i].Name, through(s3.Proxy, s3.Endpoint), true)
		}
	}
}

func through(proxy, location string) string {
	if proxy != "" {
		return proxy
	}
	return location
}

// answers reports whether the source reaches the host, for all that it says.
func answers(host *infrav1.QuoinHost) bool {
	return !slices.ContainsFunc(host.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == infrav1.HostReachableCondition && c.Status == metav1.ConditionFalse
	})
}

func sshPort(port int32) int {
	if port == 0 {
		return 22
	}
	return int(port)
}

type ways []Way

func (w *ways) add(one Way) {
	same := slices.IndexFunc(*w, func(other Way) bool { return other.key() == one.key() })
	if same < 0 {
		*w = append(*w, one)
		return
	}
	(*w)[same].To = append((*w)[same].To, one.To...)
	(*w)[same].Answers = (*w)[same].Answers || one.Answers
}

// addURL adds what a URL leads to; the version that a location leaves open is not in its address.
func (w *ways) addURL(to, location string, service bool) {
	parsed, err := url.Parse(location)
	if err != nil || parsed.Hostname() == "" { // what the version is part of is not known, and no host has its braces
		return
	}
	port, err := strconv.Atoi(parsed.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[parsed.Scheme]
	}
	w.add(Way{To: []string{to}, Look: Look{Address: parsed.Hostname(), Port: port, Service: service}})
}

func (l Look) key() string {
	content, _ := json.Marshal(l) //nolint:errchkjson // texts and numbers
	return string(content)
}

// String names what is behind the way, and its address.
func (w Way) String() string {
	const shown = 3
	to := strings.Join(w.To[:min(shown, len(w.To))], ", ")
	if more := len(w.To) - shown; more > 0 {
		to += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s (%s port %d)", to, w.Address, w.Port)
}
