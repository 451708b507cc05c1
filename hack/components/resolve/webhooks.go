// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// injectAnnotation asks cert-manager to fill in a caBundle; left in place it would overwrite ours if one ever ran.
const injectAnnotation = "cert-manager.io/inject-ca-from"

// TrustWebhooks writes the authority into the client configuration of every admission and conversion webhook and
// removes cert-manager's annotation.
func TrustWebhooks(objects []*unstructured.Unstructured, authority *Authority) error {
	bundle := base64.StdEncoding.EncodeToString(authority.PEM())
	return eachClientConfig(objects, func(_ *unstructured.Unstructured, config map[string]any) error {
		config["caBundle"] = bundle
		return nil
	})
}

// LocalWebhooks makes the API server call webhooks on a loopback port instead of through a Service, for managers that
// run as processes beside it.
func LocalWebhooks(objects []*unstructured.Unstructured, port int) error {
	return eachClientConfig(objects, func(object *unstructured.Unstructured, config map[string]any) error {
		path, _, err := unstructured.NestedString(config, "service", "path")
		if err != nil {
			return fmt.Errorf("%s %s: webhook path: %w", object.GetKind(), object.GetName(), err)
		}
		config["url"] = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + path
		delete(config, "service")
		return nil
	})
}

// eachClientConfig visits the client configuration of every webhook in the objects.
func eachClientConfig(
	objects []*unstructured.Unstructured, visit func(*unstructured.Unstructured, map[string]any) error,
) error {
	for _, object := range objects {
		var configs []map[string]any
		switch object.GetKind() {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			webhooks, _ := object.Object["webhooks"].([]any)
			for i := range webhooks {
				webhook, _ := webhooks[i].(map[string]any)
				config, ok := webhook["clientConfig"].(map[string]any)
				if !ok {
					return fmt.Errorf("%s %s: webhook %d has no clientConfig", object.GetKind(), object.GetName(), i)
				}
				configs = append(configs, config)
			}
		case "CustomResourceDefinition":
			if config := conversionConfig(object); config != nil {
				configs = append(configs, config)
			}
		default:
			continue
		}
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", injectAnnotation)
		for _, config := range configs {
			if err := visit(object, config); err != nil {
				return err
			}
		}
	}
	return nil
}

// conversionConfig is the client configuration of a CRD's conversion webhook, not a copy, or nil.
func conversionConfig(crd *unstructured.Unstructured) map[string]any {
	spec, _ := crd.Object["spec"].(map[string]any)
	conversion, _ := spec["conversion"].(map[string]any)
	webhook, _ := conversion["webhook"].(map[string]any)
	config, _ := webhook["clientConfig"].(map[string]any)
	return config
}
