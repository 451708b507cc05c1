// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=update,path=/mutate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinhost,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,versions=v1alpha1,name=default.quoinhost.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoinhost,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,versions=v1alpha1,name=validation.quoinhost.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts;quoinmachines,verbs=get;list;watch

// HostWebhook validates QuoinHosts, and keeps their claims when they are written over.
type HostWebhook struct {
	webhooks.Deletable[*infrav1.QuoinHost]

	// Client lists the other hosts. A cache is good enough: admission only spares people an error here, the owner
	// record on the host itself is what keeps two objects from working on one host.
	Client client.Reader
	// Live reads the claiming QuoinMachine from the API server: a cache that has not seen its end yet would keep the
	// controller from releasing the host.
	Live client.Reader
	// Reviews asks the API server what a user may do, by SubjectAccessReviews.
	Reviews client.Writer
}

var (
	_ admission.Defaulter[*infrav1.QuoinHost] = &HostWebhook{}
	_ admission.Validator[*infrav1.QuoinHost] = &HostWebhook{}
)

func (w *HostWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &infrav1.QuoinHost{}).WithDefaulter(w).WithValidator(w).Complete()
}

// ValidateCreate refuses a host that cannot be reached as written, that another object already describes, or that comes
// with a claim of somebody who does not accept it.
func (w *HostWebhook) ValidateCreate(ctx context.Context, host *infrav1.QuoinHost) (admission.Warnings, error) {
	reasons := validateHostSpec(&host.Spec)
	imposed, err := w.validateAccepted(ctx, host)
	if err != nil {
		return nil, err
	}
	reasons = append(reasons, imposed...)
	bmc, err := w.validateNewBMC(ctx, nil, host)
	if err != nil {
		return nil, err
	}
	reasons = append(reasons, bmc...)
	duplicates, err := w.validateAddressIsNew(ctx, host)
	if err != nil {
		return nil, err
	}
	return warnAboutTrust(&host.Spec), refuseHost(host, append(reasons, duplicates...))
}

// ValidateUpdate refuses what ValidateCreate refuses and is new, a claim that changes hands or ends without a release,
// and trust that is given anew without a look at the key.
func (w *HostWebhook) ValidateUpdate(
	ctx context.Context, before, after *infrav1.QuoinHost,
) (admission.Warnings, error) {
	if webhooks.Unchanged(before.Spec, after.Spec) {
		return nil, refuseHost(after, validateWords(before, after))
	}
	reasons := without(validateHostSpec(&after.Spec), validateHostSpec(&before.Spec))
	reasons = append(reasons, validateClaim(before.Spec.ConsumerRef, after.Spec.ConsumerRef)...)
	reasons = append(reasons, validateHold(before, after)...)
	reasons = append(reasons, validateGeneration(before.Spec.ClaimGeneration, after.Spec.ClaimGeneration)...)
	reasons = append(reasons, validateQuarantine(before, after)...)
	reasons = append(reasons, validateLostTrust(&before.Spec, &after.Spec)...)
	if before.Spec.ConsumerRef == nil && after.Spec.ConsumerRef != nil {
		imposed, err := w.validateAccepted(ctx, after)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, imposed...)
	}
	if before.Spec.ConsumerRef != nil && after.Spec.ConsumerRef == nil {
		held, err := w.validateReleased(ctx, before)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, held...)
	}
	bmc, err := w.validateNewBMC(ctx, before, after)
	if err != nil {
		return nil, err
	}
	reasons = append(reasons, bmc...)
	if before.Spec.Address != after.Spec.Address || before.Spec.Port != after.Spec.Port {
		duplicates, err := w.validateAddressIsNew(ctx, after)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, duplicates...)
	}
	return warnAboutLeftovers(before, after), refuseHost(after, reasons)
}

func refuseHost(host *infrav1.QuoinHost, reasons field.ErrorList) error {
	return webhooks.Refuse(infrav1.GroupVersion, "QuoinHost", host.Name, reasons)
}

// without leaves out the reasons that spoke against the host before. One that was stored under looser rules is claimed,
// quarantined and released by updates that leave the rest of its spec as it is, and would else never lose its
// finalizer.
func without(reasons, before field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(reasons, func(reason *field.Error) bool {
		return slices.ContainsFunc(before, func(known *field.Error) bool { return known.Error() == reason.Error() })
	})
}

func validateHostSpec(spec *infrav1.QuoinHostSpec) field.ErrorList {
	path := field.NewPath("spec")
	reasons := validateManagementAddress(path.Child("address"), spec.Address)
	reasons = append(reasons, validateTrust(path, spec)...)
	reasons = append(reasons, validateDisks(path.Child("disks"), spec.Disks)...)
	reasons = append(reasons, validateBMC(path.Child("bmc"), spec.BMC)...)
	for i, address := range spec.NodeNetwork.Addresses {
		reasons = append(reasons, validateNodeAddress(path.Child("nodeNetwork", "addresses").Index(i), address)...)
	}
	return append(reasons, validateNamespaces(path.Child("consumerNamespaces"), spec.ConsumerNamespaces)...)
}

func validateNamespaces(path *field.Path, namespaces []string) (reasons field.ErrorList) {
	for i, namespace := range namespaces {
		if namespace != placement.AnyNamespace && len(validation.IsDNS1123Label(namespace)) > 0 {
			reasons = append(reasons, field.Invalid(path.Index(i), namespace,
				`give the name of a namespace, or "*" for every namespace; patterns are not understood`))
		}
	}
	return reasons
}

// A DNS name never ends in a label of digits only (RFC 1123, 2.1), so what does is a mistyped IPv4 address.
var endsInDigits = regexp.MustCompile(`(^|\.)[0-9]+$`)

func validateManagementAddress(path *field.Path, address string) field.ErrorList {
	if ip, err := netip.ParseAddr(address); err == nil {
		if ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
			return field.ErrorList{field.Invalid(path, address,
				"no host can be reached at an unspecified, multicast or zoned address: give the unicast address at which sshd "+
					"answers")}
		}
		return nil
	}
	if len(validation.IsDNS1123Subdomain(strings.ToLower(address))) > 0 || endsInDigits.MatchString(address) {
		return field.ErrorList{field.Invalid(path, address,
			`give an IP address ("192.0.2.7", "2001:db8::7") or a DNS name ("rack1-07.example.com") without user, port or `+
				`brackets`)}
	}
	return nil
}

// The kubelet refuses these as --node-ip (pkg/kubelet, validateNodeIP), minutes later and on the host only.
func validateNodeAddress(path *field.Path, address string) field.ErrorList {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, address, "give an IPv4 or IPv6 address without prefix length")}
	case ip.IsLoopback(), ip.IsMulticast(), ip.IsUnspecified(), ip.IsLinkLocalUnicast(), ip.Zone() != "":
		return field.ErrorList{field.Invalid(path, address,
			"other nodes cannot reach a loopback, link-local, multicast or unspecified address: give one of the host's global "+
				"addresses")}
	}
	return nil
}

// validateClaim refuses to hand a host from one QuoinMachine to another: in between lies its verified reset.
func validateClaim(before, after *infrav1.ConsumerReference) field.ErrorList {
	if before == nil || after == nil || *before == *after {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "consumerRef"), fmt.Sprintf(
		"the host belongs to QuoinMachine %s/%s and cannot be handed on, because it was not reset: delete that machine's "+
			"Machine, and the host becomes Available when its reset was verified",
		before.Namespace, before.Name))}
}

// validateQuarantine refuses to take a quarantine off by hand. The controller does it while the annotation that asks
// for it is still there.
func validateQuarantine(before, after *infrav1.QuoinHost) field.ErrorList {
	_, again := after.Annotations[infrav1.RetryAnnotation]
	_, verify := after.Annotations[infrav1.VerifyOnlyAnnotation]
	if again || verify || before.Spec.Quarantine == nil || after.Spec.Quarantine != nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "quarantine"), fmt.Sprintf(
		"the host is quarantined (%s) and not known to be clean; a reset and its verification end that: kubectl -n %s "+
			"annotate quoinhost %s %s=, or the verification alone, where you mended it by hand: %s=",
		before.Spec.Quarantine.Reason, before.Namespace, before.Name, infrav1.RetryAnnotation,
		infrav1.VerifyOnlyAnnotation))}
}

// validateWords refuses what a person says of a host that there is no cause for, or about another claim. The controller
// takes such a word back as well; here the person still looks. Only a word that is new is judged, and only where
// nothing but metadata changes: a copy that clusterctl move writes over an object must not be refused for it.
func validateWords(before, after *infrav1.QuoinHost) (reasons field.ErrorList) {
	path := field.NewPath("metadata", "annotations")
	isNew := func(annotation string) bool {
		was, had := before.Annotations[annotation]
		is, has := after.Annotations[annotation]
		return has && (!had || was != is)
	}
	for _, annotation := range []string{infrav1.VerifyOnlyAnnotation, infrav1.ReleaseUncleanAnnotation} {
		uses := "one that is Quarantined"
		fails := false
		if annotation == infrav1.ReleaseUncleanAnnotation {
			// For how long it fails is judged by the controller, with whom the word waits.
			uses, fails = uses+", or that cannot be cleaned,", after.Status.CleaningFailsSince != nil
		}
		if isNew(annotation) && after.Spec.Quarantine == nil && after.Status.State != infrav1.HostStateQuarantined &&
			!fails {
			reasons = append(reasons, field.Forbidden(path.Key(annotation), fmt.Sprintf(
				"the host is %s, and only %s has a use for it", cmp.Or(string(after.Status.State), "new"), uses)))
		}
	}
	if isNew(infrav1.AbandonAnnotation) {
		reasons = append(reasons, validateAbandon(path.Key(infrav1.AbandonAnnotation), after)...)
	}
	word := after.Annotations[infrav1.ReleaseUncleanAnnotation]
	switch {
	case len(reasons) > 0 || !isNew(infrav1.ReleaseUncleanAnnotation):
	case after.Spec.ConsumerRef == nil:
		reasons = append(reasons, field.Forbidden(path.Key(infrav1.ReleaseUncleanAnnotation),
			"no Machine has the host, so there is none to let go"))
	case word != after.ProviderID():
		reasons = append(reasons, field.Invalid(path.Key(infrav1.ReleaseUncleanAnnotation), word, fmt.Sprintf(
			"name the claim that is to end, so that the word is about no later one: kubectl -n %s annotate --overwrite "+
				"quoinhost %s %s=%s", after.Namespace, after.Name, infrav1.ReleaseUncleanAnnotation, after.ProviderID())))
	case after.GivenUp():
		reasons = append(reasons, field.Forbidden(path.Key(infrav1.ReleaseUncleanAnnotation),
			"the host was given up, so its Machine does not wait for it any more"))
	}
	return reasons
}

// validateAbandon refuses to give up another claim, and a host that runs: the volumes of its Node are freed on that
// word, and what two nodes write to is damaged.
func validateAbandon(path *field.Path, host *infrav1.QuoinHost) field.ErrorList {
	word, command := host.Annotations[infrav1.AbandonAnnotation], func(annotation, value string) string {
		return fmt.Sprintf("kubectl -n %s annotate --overwrite quoinhost %s %s=%s", host.Namespace, host.Name, annotation,
			value)
	}
	switch {
	case word != host.ProviderID() && host.Spec.ConsumerRef == nil:
		return field.ErrorList{field.Invalid(path, word, "no Machine has the host, so the word names no claim: "+
			command(infrav1.AbandonAnnotation, ""))}
	case word != host.ProviderID():
		return field.ErrorList{field.Invalid(path, word, "name the claim that is given up, so that the word is about no "+
			"later one: "+command(infrav1.AbandonAnnotation, host.ProviderID()))}
	case !host.Answers():
		return nil
	}
	asks := infrav1.RetryAnnotation
	if host.Spec.Quarantine != nil || host.Status.State == infrav1.HostStateQuarantined {
		// A retry would have it reset.
		asks = infrav1.VerifyOnlyAnnotation
	}
	refusal := "the host answered when it was last asked, and the volumes of its Node would be freed while it runs: " +
		"switch it off, and say so when its condition Reachable is False; to have it asked now: " + command(asks, "")
	if host.Spec.ConsumerRef != nil {
		refusal += "; to let its Machine go once it is Quarantined, or cannot be cleaned, while it may run: " +
			command(infrav1.ReleaseUncleanAnnotation, host.ProviderID())
	} else {
		refusal += "; to have it left alone as it is: " + command(infrav1.DetachedAnnotation, "")
	}
	return field.ErrorList{field.Forbidden(path, refusal)}
}

// validateHold refuses to claim a host that is held: it may be on its way to another management cluster, or not be ours
// any more.
func validateHold(before, after *infrav1.QuoinHost) field.ErrorList {
	if after.Spec.HeldFor == nil || before.Spec.ConsumerRef != nil || after.Spec.ConsumerRef == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "consumerRef"), fmt.Sprintf(
		"the host is held (spec.heldFor) while its namespace moves to another management cluster, and nobody can claim it: "+
			"claim another one, or end the hold by "+
			`unpausing its Clusters, or if they never come: kubectl -n %s patch quoinhost %s --type merge -p `+
			`'{"spec":{"heldFor":null}}'`,
		after.Namespace, after.Name))}
}

// validateGeneration refuses to go back: whoever counts on is taken for the owner by the host, and a lower generation
// than the host's may only read.
func validateGeneration(before, after int64) field.ErrorList {
	if after >= before {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "claimGeneration"), fmt.Sprintf(
		"the generation counts the claims of the host and never goes back: keep %d, or give a higher one to take the host "+
			"over from another management plane", before))}
}

// validateAccepted refuses to write a claim of a QuoinMachine that accepts no hosts of this namespace: whoever reads
// the claim would take the host for that Machine's. One whose node the host is, by its provider ID, comes back from a
// move or a restore as it was. So does one whose QuoinMachine is not here yet; nothing begins before that is read.
func (w *HostWebhook) validateAccepted(ctx context.Context, host *infrav1.QuoinHost) (field.ErrorList, error) {
	ref := host.Spec.ConsumerRef
	if ref == nil || ref.Namespace == host.Namespace {
		return nil, nil
	}
	machine := &infrav1.QuoinMachine{}
	if err := w.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, apierrors.NewInternalError(fmt.Errorf("read QuoinMachine %s/%s to find out whether it accepts the host: "+
			"%w", ref.Namespace, ref.Name, err))
	}
	if placement.NamespaceAccepted(machine.Spec.HostNamespaces, machine.Namespace, host.Namespace) ||
		machine.Spec.ProviderID == host.ProviderID() {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "consumerRef"), fmt.Sprintf(
		"QuoinMachine %s/%s accepts no hosts of namespace %s, and would give its bootstrap data to this one: leave the "+
			"claim out, or have its owner add the namespace to spec.hostNamespaces",
		ref.Namespace, ref.Name, host.Namespace))}, nil
}

// validateReleased refuses to end a claim while its QuoinMachine exists. The controller asks no less: it ends a claim
// only when QuoinMachine and Machine are gone, so nobody needs to be known by name here.
func (w *HostWebhook) validateReleased(ctx context.Context, host *infrav1.QuoinHost) (field.ErrorList, error) {
	ref := host.Spec.ConsumerRef
	machine := &infrav1.QuoinMachine{}
	if err := w.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, apierrors.NewInternalError(fmt.Errorf("read QuoinMachine %s/%s to find out whether it still has the "+
			"host: %w", ref.Namespace, ref.Name, err))
	}
	if !hasClaim(machine, host) {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "consumerRef"), fmt.Sprintf(
		"QuoinMachine %s/%s still has the host, and its node runs there: delete Machine %s; the claim ends when the reset "+
			"was verified",
		ref.Namespace, ref.Name, ref.Machine))}, nil
}

// hasClaim says whether the host's claim is that of this QuoinMachine, and not of an earlier one of its name.
func hasClaim(machine *infrav1.QuoinMachine, host *infrav1.QuoinHost) bool {
	if machine.Spec.ProviderID != "" {
		return machine.Spec.ProviderID == host.ProviderID()
	}
	for _, owner := range machine.OwnerReferences {
		if owner.Kind == "Machine" && infrav1.ClaimOf(string(owner.UID)) == host.Spec.ConsumerRef.Claim {
			return true
		}
	}
	return false
}

// validateAddressIsNew refuses the address of another host. One of another namespace counts only once it was inspected,
// so that whoever registered it can log in: who only names a machine first must not keep its owner out. Of two objects
// that do describe one machine, the owner record there lets one work.
func (w *HostWebhook) validateAddressIsNew(ctx context.Context, host *infrav1.QuoinHost) (field.ErrorList, error) {
	var hosts infrav1.QuoinHostList
	if err := w.Client.List(ctx, &hosts, client.UnsafeDisableDeepCopy, fieldindex.HostsAtAddress(host)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list QuoinHosts to find out whether one has this address: %w",
			err))
	}
	for i := range hosts.Items {
		other := &hosts.Items[i]
		if other.Namespace == host.Namespace && other.Name == host.Name ||
			other.Namespace != host.Namespace && other.Status.Facts == nil {
			continue
		}
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "address"), fmt.Sprintf("QuoinHost %s/%s already "+
			"describes the host at %s port %d: use that one (consumerNamespaces lets other namespaces claim it), or delete it "+
			"first", other.Namespace, other.Name, other.Spec.Address, cmp.Or(other.Spec.Port, 22)))}, nil
	}
	return nil, nil
}
