// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// page is how many objects one call to an API server asks for.
const page = 500

// onceReader makes each list once, however many checks ask for it at the same time, so that all of them judge the same
// world. Those who ask share the items, and none may change them.
type onceReader struct {
	client.Reader
	mu    sync.Mutex
	lists map[string]func() (client.ObjectList, error)
}

func once(reader client.Reader) client.Reader {
	return &onceReader{Reader: reader, lists: map[string]func() (client.ObjectList, error){}}
}

// List implements client.Reader.
func (r *onceReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	key := fmt.Sprintf("%T in %q with %v and %v", list, asked.Namespace, asked.LabelSelector, asked.FieldSelector)
	r.mu.Lock()
	read, known := r.lists[key]
	if !known {
		kind := reflect.TypeOf(list).Elem()
		// The checks begin together and have the same time, so the first one's context is as good as any.
		read = sync.OnceValues(func() (client.ObjectList, error) { return r.pages(ctx, kind, options) })
		r.lists[key] = read
	}
	r.mu.Unlock()
	found, err := read()
	if err != nil {
		return err
	}
	reflect.ValueOf(list).Elem().Set(reflect.ValueOf(found).Elem())
	return nil
}

// pages reads a list in parts: of a large cluster's pods the API server and we would both hold hundreds of megabytes.
func (r *onceReader) pages(
	ctx context.Context, kind reflect.Type, options []client.ListOption,
) (client.ObjectList, error) {
	var all []runtime.Object
	for next := ""; ; {
		part := reflect.New(kind).Interface().(client.ObjectList)
		if err := r.Reader.List(ctx, part, slices.Concat(options,
			[]client.ListOption{client.Limit(page), client.Continue(next)})...); err != nil {
			return nil, err
		}
		items, err := meta.ExtractList(part)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			shed(item)
		}
		all = append(all, items...)
		if next = part.GetContinue(); next == "" {
			return part, meta.SetList(part, all)
		}
	}
}

// shed drops what takes most of the room and no check asks for.
func shed(item runtime.Object) {
	if object, ok := item.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	if pod, ok := item.(*corev1.Pod); ok {
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, nil
		for i := range pod.Spec.Containers {
			container := &pod.Spec.Containers[i]
			container.Env, container.LivenessProbe, container.ReadinessProbe, container.StartupProbe = nil, nil, nil, nil
		}
	}
}
