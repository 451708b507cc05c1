// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fieldindex names the indexes of the cache, by which controllers find the few objects that concern an event
// among thousands. Only clients that read from the cache take them; the API server does not know these fields.
package fieldindex

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/firmware"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

const (
	// hostConsumer is the namespaced name of the QuoinMachine that has a QuoinHost.
	hostConsumer = "consumer"
	// hostMachine is the namespaced name of the Machine that has a QuoinHost.
	hostMachine = "consumerMachine"
	// hostAwaits is the namespace of the consumer of a QuoinHost, while that consumer is not here.
	hostAwaits = "awaitsConsumer"
	// hostIdentity is each identity of a QuoinHost.
	hostIdentity = "identity"
	// hostWord is each word by which a BMC may know a QuoinHost.
	hostWord = "word"
	// hostDomain is the failure domain of a QuoinHost.
	hostDomain = "failureDomain"
	// hostAddress is the address and the port of a QuoinHost, in one form of the many.
	hostAddress = "address"
	// hostBMC is the address of the BMC of a QuoinHost, in one form of the many.
	hostBMC = "bmc"
	// hostFree is each namespace that a free QuoinHost is offered to, or placement.AnyNamespace, alone and with each of
	// its labels.
	hostFree = "free"
	// machineAwaits is the same for each QuoinMachine that an unclaimed QuoinHost concerns.
	machineAwaits = "awaitsHost"
)

// HostsOfQuoinMachine selects the QuoinHosts whose claim names the QuoinMachine.
func HostsOfQuoinMachine(key types.NamespacedName) client.ListOption {
	return client.MatchingFields{hostConsumer: key.String()}
}

// HostsOfMachine selects the QuoinHosts whose claim names the Machine.
func HostsOfMachine(key types.NamespacedName) client.ListOption {
	return client.MatchingFields{hostMachine: key.String()}
}

// HostsAwaitingConsumer selects the QuoinHosts that last said that their QuoinMachine in the namespace is not here.
func HostsAwaitingConsumer(namespace string) client.ListOption {
	return client.MatchingFields{hostAwaits: namespace}
}

// HostsWithIdentity selects the QuoinHosts that have the identity.
func HostsWithIdentity(identity placement.Identity) client.ListOption {
	return client.MatchingFields{hostIdentity: string(identity)}
}

// HostsKnownBy selects the QuoinHosts of which somebody says what spec.bmc.systemID says of another: inspection, of
// their firmware, or a person, of their BMC.
func HostsKnownBy(systemID string) client.ListOption {
	return client.MatchingFields{hostWord: wordOf(systemID)}
}

// wordOf is one form of a UUID's two, or of a serial number's letters.
func wordOf(text string) string {
	return cmp.Or(firmware.CanonicalUUID(text), strings.ToLower(strings.TrimSpace(text)))
}

// wordsOf the host; what every host of a make says is none.
func wordsOf(host *infrav1.QuoinHost) []string {
	var words []string
	if facts := host.Status.Facts; facts != nil {
		words = append(words, firmware.CanonicalUUID(facts.ProductUUID), wordOf(firmware.Serial(facts.SerialNumber)))
	}
	if bmc := host.Spec.BMC; bmc != nil {
		words = append(words, wordOf(bmc.SystemID))
	}
	slices.Sort(words)
	return slices.DeleteFunc(slices.Compact(words), func(word string) bool { return word == "" })
}

// HostsOfDomain selects the QuoinHosts of the failure domain of host in its namespace: who may write those of another
// one must not decide by their silence whether this one is fenced. Those without a domain are of one.
func HostsOfDomain(host *infrav1.QuoinHost) client.ListOption {
	return client.MatchingFields{hostDomain: DomainOf(host)}
}

// DomainOf is the failure domain of a host within its namespace: an outage is judged by the hosts of one.
func DomainOf(host *infrav1.QuoinHost) string {
	return host.Namespace + "/" + host.Spec.FailureDomain
}

// HostsAtAddress selects the QuoinHosts whose address and port are those of host, however they are written.
func HostsAtAddress(host *infrav1.QuoinHost) client.ListOption {
	return client.MatchingFields{hostAddress: addressOf(host)}
}

// HostsAtBMC selects the QuoinHosts whose BMC has the address, however it is written.
func HostsAtBMC(address string) client.ListOption {
	return client.MatchingFields{hostBMC: bmcAt(address)}
}

func bmcAt(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return address
	}
	return net.JoinHostPort(NormalAddress(parsed.Hostname()), cmp.Or(parsed.Port(), "443"))
}

func addressOf(host *infrav1.QuoinHost) string {
	return net.JoinHostPort(NormalAddress(host.Spec.Address), strconv.Itoa(int(cmp.Or(host.Spec.Port, 22))))
}

// NormalAddress makes one form of the many in which an address or name can be written.
func NormalAddress(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(address), ".")
}

// FreeHosts selects QuoinHosts that can be claimed now and are offered to the namespace by name, or to every namespace
// when it is placement.AnyNamespace. Of several labels that they are to have, it minds one: most free hosts are another
// pool's, and those of the same are few.
func FreeHosts(namespace string, labels map[string]string) client.ListOption {
	value := namespace + "/"
	if len(labels) > 0 {
		key := slices.Min(slices.Collect(maps.Keys(labels)))
		value = withLabel(namespace, key, labels[key])
	}
	return client.MatchingFields{hostFree: value}
}

func withLabel(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// MachinesAwaitingHost selects the QuoinMachines that have no host yet, and those that are being deleted and may just
// have lost theirs.
func MachinesAwaitingHost() client.ListOption { return client.MatchingFields{machineAwaits: "true"} }

// Index is an index of one kind.
type Index struct {
	// Object of the kind.
	Object client.Object
	// Field is the index's name.
	Field string
	// Values of an object in the index.
	Values client.IndexerFunc
}

// All are the indexes that the controllers of the infrastructure provider ask for.
func All() []Index {
	return []Index{
		{&infrav1.QuoinHost{}, hostConsumer, func(o client.Object) []string {
			return ofConsumer(o, func(ref *infrav1.ConsumerReference) string { return ref.Name })
		}},
		{&infrav1.QuoinHost{}, hostMachine, func(o client.Object) []string {
			return ofConsumer(o, func(ref *infrav1.ConsumerReference) string { return ref.Machine })
		}},
		{&infrav1.QuoinHost{}, hostAwaits, func(o client.Object) []string {
			if host, ok := o.(*infrav1.QuoinHost); ok && host.Spec.ConsumerRef != nil && awaitsConsumer(host) {
				return []string{host.Spec.ConsumerRef.Namespace}
			}
			return nil
		}},
		{&infrav1.QuoinHost{}, hostIdentity, func(o client.Object) []string {
			var values []string
			if host, ok := o.(*infrav1.QuoinHost); ok {
				for _, identity := range placement.IdentitiesOf(host) {
					values = append(values, string(identity))
				}
			}
			return values
		}},
		{&infrav1.QuoinHost{}, hostWord, func(o client.Object) []string {
			if host, ok := o.(*infrav1.QuoinHost); ok {
				return wordsOf(host)
			}
			return nil
		}},
		{&infrav1.QuoinHost{}, hostDomain, func(o client.Object) []string { return ofHost(o, DomainOf) }},
		{&infrav1.QuoinHost{}, hostAddress, func(o client.Object) []string { return ofHost(o, addressOf) }},
		{&infrav1.QuoinHost{}, hostBMC, func(o client.Object) []string {
			if host, ok := o.(*infrav1.QuoinHost); ok && host.Spec.BMC != nil {
				return []string{bmcAt(host.Spec.BMC.Address)}
			}
			return nil
		}},
		{&infrav1.QuoinHost{}, hostFree, func(o client.Object) []string {
			host, ok := o.(*infrav1.QuoinHost)
			if !ok || !placement.Free(placement.HostOf(host)) {
				return nil
			}
			var values []string
			for _, namespace := range namespacesAllowed(host) {
				values = append(values, namespace+"/")
				for key, value := range host.Labels {
					values = append(values, withLabel(namespace, key, value))
				}
			}
			return values
		}},
		{&infrav1.QuoinMachine{}, machineAwaits, func(o client.Object) []string {
			if m, ok := o.(*infrav1.QuoinMachine); ok && (m.Spec.ProviderID == "" || !m.DeletionTimestamp.IsZero()) {
				return []string{"true"}
			}
			return nil
		}},
	}
}

// namespacesAllowed are the namespaces that may claim the host, each host in few enough of them to be found once.
func namespacesAllowed(host *infrav1.QuoinHost) []string {
	switch {
	case len(host.Spec.ConsumerNamespaces) == 0:
		return []string{host.Namespace}
	case slices.Contains(host.Spec.ConsumerNamespaces, placement.AnyNamespace):
		return []string{placement.AnyNamespace}
	}
	return host.Spec.ConsumerNamespaces
}

func awaitsConsumer(host *infrav1.QuoinHost) bool {
	return conditions.GetReason(host, infrav1.HostReadyCondition) == infrav1.HostMovingReason ||
		conditions.GetReason(host, infrav1.HostProvisionedCondition) == infrav1.HostConsumerMissingReason
}

func ofHost(o client.Object, value func(*infrav1.QuoinHost) string) []string {
	host, ok := o.(*infrav1.QuoinHost)
	if !ok {
		return nil
	}
	return []string{value(host)}
}

func ofConsumer(o client.Object, name func(*infrav1.ConsumerReference) string) []string {
	host, ok := o.(*infrav1.QuoinHost)
	if !ok || host.Spec.ConsumerRef == nil || name(host.Spec.ConsumerRef) == "" {
		return nil
	}
	return []string{types.NamespacedName{Namespace: host.Spec.ConsumerRef.Namespace,
		Name: name(host.Spec.ConsumerRef)}.String()}
}

// Add adds all indexes, once for each cache and before it starts.
func Add(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range All() {
		if err := indexer.IndexField(ctx, index.Object, index.Field, index.Values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.Object, index.Field, err)
		}
	}
	return nil
}
