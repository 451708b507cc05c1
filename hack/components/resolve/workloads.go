// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managerContainer is the name every Cluster API provider gives the container of its manager.
const managerContainer = "manager"

// ManagerImage sets the image of the manager in every Deployment. The image is expected to be on the node already, so
// it is pulled only when it is not there.
func ManagerImage(objects []*unstructured.Unstructured, image string) error {
	found := false
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil {
			return fmt.Errorf("deployment %s: containers: %w", object.GetName(), err)
		}
		for i := range containers {
			container, _ := containers[i].(map[string]any)
			if container["name"] != managerContainer {
				continue
			}
			container["image"] = image
			container["imagePullPolicy"] = "IfNotPresent"
			found = true
		}
		if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
			return fmt.Errorf("deployment %s: containers: %w", object.GetName(), err)
		}
	}
	if !found {
		return fmt.Errorf("no Deployment has a container named %q to give the image %s", managerContainer, image)
	}
	return nil
}

// ScaleToZero keeps every Deployment in the components, and with it the arguments that are shipped, without asking
// for a pod.
func ScaleToZero(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := unstructured.SetNestedField(object.Object, int64(0), "spec", "replicas"); err != nil {
			return fmt.Errorf("deployment %s: replicas: %w", object.GetName(), err)
		}
	}
	return nil
}
