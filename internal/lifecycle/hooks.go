// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides what holds the deletion of a Machine: which hooks there are, who owns them, which
// annotations stand for them, whether the node was drained, and whether the host may be touched. It is pure; the
// controllers of QuoinMachines, hosts and control planes ask it the same questions and get the same answers.
package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Point at which hooks hold a deletion (S2-2). Its value begins the names of their annotations, before a slash.
type Point string

const (
	// PreDrain is before the drain of the node.
	PreDrain Point = clusterv1.PreDrainDeleteHookAnnotationPrefix
	// PreTerminate is after the drain, before the host is released.
	PreTerminate Point = clusterv1.PreTerminateDeleteHookAnnotationPrefix
)

// Hook holds the deletion of one Machine at one point.
type Hook struct {
	Name, Owner string
}

// String names the hook and whom to ask about it.
func (h Hook) String() string {
	if h.Owner == "" {
		return h.Name + " (owner unknown)"
	}
	return fmt.Sprintf("%s (owner %s)", h.Name, h.Owner)
}

// Hooks that are left at a point, by name: the entries of the QuoinMachine, which count also where their annotation was
// taken away, and the annotations that others put on the Machine themselves, whose value is their owner. The Machine
// may be nil.
func Hooks(point Point, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) []Hook {
	owners := map[string]string{}
	if machine != nil {
		for key, value := range machine.Annotations {
			if name, ok := nameOf(point, key); ok {
				owners[name] = value
			}
		}
	}
	for _, entry := range entries(point, quoinMachine) {
		owners[entry.Name] = entry.Owner
	}
	if owner, ok := owners[controlplanev1.HookName]; ok && owner == "" && machine != nil {
		if controller := metav1.GetControllerOf(machine); controller != nil {
			owners[controlplanev1.HookName] = controller.Kind + "/" + controller.Name
		}
	}
	var hooks []Hook
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		hooks = append(hooks, Hook{Name: name, Owner: owners[name]})
	}
	return hooks
}

// nameOf reads the hook's name from the key of an annotation. Cluster API takes every key with the prefix for a hook.
func nameOf(point Point, key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, string(point))
	if !ok {
		return "", false
	}
	if rest = strings.TrimPrefix(rest, "/"); rest == "" {
		return key, true
	}
	return rest, true
}

func entries(point Point, quoinMachine *infrav1.QuoinMachine) []infrav1.LifecycleHook {
	if point == PreDrain {
		return quoinMachine.Spec.LifecycleHooks.PreDrain
	}
	return quoinMachine.Spec.LifecycleHooks.PreTerminate
}

// Annotations that the Machine should have, for the entries of its QuoinMachine. Annotations of others are left as they
// are, also where one has the name of an entry: then it holds already. Once the Machine is being deleted nothing is
// added, because Cluster API may be past the point; the entry holds the host all the same.
//
// The control plane's own hook is not made here: it has its annotations from whoever runs the control plane.
func Annotations(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) map[string]string {
	made := recorded(machine)
	wanted := map[string]string{}
	for _, point := range []Point{PreDrain, PreTerminate} {
		for _, entry := range entries(point, quoinMachine) {
			if entry.Name != controlplanev1.HookName {
				wanted[string(point)+"/"+entry.Name] = entry.Owner
			}
		}
	}
	result := maps.Clone(machine.Annotations)
	if result == nil {
		result = map[string]string{}
	}
	record := map[string]string{}
	for key, owner := range made {
		if value, there := result[key]; !there || value != owner {
			// Taken away, or taken over by somebody.
			continue
		}
		if _, still := wanted[key]; still {
			result[key], record[key] = wanted[key], wanted[key]
		} else {
			delete(result, key)
		}
	}
	if machine.DeletionTimestamp.IsZero() {
		for key, owner := range wanted {
			if _, there := result[key]; !there {
				result[key], record[key] = owner, owner
			}
		}
	}
	if len(record) == 0 {
		delete(result, infrav1.LifecycleHooksAnnotation)
		return result
	}
	text, err := json.Marshal(record)
	if err != nil {
		panic(err) // a map of strings
	}
	result[infrav1.LifecycleHooksAnnotation] = string(text)
	return result
}

// recorded are the annotations that were made for entries. What cannot be read was made by nobody.
func recorded(machine *clusterv1.Machine) map[string]string {
	var made map[string]string
	if err := json.Unmarshal([]byte(machine.Annotations[infrav1.LifecycleHooksAnnotation]), &made); err != nil {
		return nil
	}
	return made
}
