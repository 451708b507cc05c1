// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/base64"
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// certManagerGroup is the API group of the objects that a cert-manager would act on.
const certManagerGroup = "cert-manager.io"

// Certificates replaces every Certificate by the Secret that cert-manager would have made from it, signed by the
// authority for the names asked for and the additional addresses, and drops the issuers. It returns the new list and
// the certificates made, by Secret name.
func Certificates(
	objects []*unstructured.Unstructured, authority *Authority, addresses ...net.IP,
) ([]*unstructured.Unstructured, map[string]ServingCertificate, error) {
	kept := make([]*unstructured.Unstructured, 0, len(objects))
	made := map[string]ServingCertificate{}
	for _, object := range objects {
		if object.GroupVersionKind().Group != certManagerGroup {
			kept = append(kept, object)
			continue
		}
		switch kind := object.GetKind(); kind {
		case "Issuer", "ClusterIssuer":
			continue
		case "Certificate":
			secret, serving, err := certificateSecret(object, authority, addresses)
			if err != nil {
				return nil, nil, fmt.Errorf("resolving Certificate %s/%s: %w", object.GetNamespace(), object.GetName(), err)
			}
			made[secret.GetName()] = serving
			kept = append(kept, secret)
		default:
			return nil, nil, fmt.Errorf("resolving %s %s/%s: this kind of cert-manager is not known here",
				kind, object.GetNamespace(), object.GetName())
		}
	}
	return kept, made, nil
}

func certificateSecret(
	certificate *unstructured.Unstructured, authority *Authority, addresses []net.IP,
) (*unstructured.Unstructured, ServingCertificate, error) {
	name, _, err := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if err != nil {
		return nil, ServingCertificate{}, fmt.Errorf("spec.secretName: %w", err)
	}
	if name == "" {
		return nil, ServingCertificate{}, fmt.Errorf("spec.secretName is empty")
	}
	names, _, err := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	if err != nil {
		return nil, ServingCertificate{}, fmt.Errorf("spec.dnsNames: %w", err)
	}
	serving, err := authority.Serve(names, addresses)
	if err != nil {
		return nil, ServingCertificate{}, err
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"type":       "kubernetes.io/tls",
		"data": map[string]any{
			"ca.crt":  base64.StdEncoding.EncodeToString(authority.PEM()),
			"tls.crt": base64.StdEncoding.EncodeToString(serving.Certificate),
			"tls.key": base64.StdEncoding.EncodeToString(serving.Key),
		},
	}}
	secret.SetName(name)
	secret.SetNamespace(certificate.GetNamespace())
	secret.SetLabels(certificate.GetLabels())
	return secret, serving, nil
}
