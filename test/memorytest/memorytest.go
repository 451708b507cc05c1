// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memorytest counts what a process remembers, for tests that nothing is remembered of what is gone.
package memorytest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// Lives is how many objects are made and deleted, one after the other, before nothing may be remembered of any.
const Lives = 1000

// Entries counts the entries of every map below root, by its path, empty ones left out: fields of any visibility are
// followed through structs, pointers and maps of this module, with the mutexes of each struct locked. Interfaces are
// not followed: behind them are clients and what stands for hosts. Whatever remembers something behind one is a root of
// its own.
func Entries(root any) map[string]int {
	w := walk{found: map[string]int{}, seen: map[unsafe.Pointer]bool{}}
	w.visit("", reflect.ValueOf(root))
	return w.found
}

// Text is the entries as a line for people.
func Text(entries map[string]int) string {
	lines := make([]string, 0, len(entries))
	for _, path := range slices.Sorted(maps.Keys(entries)) {
		lines = append(lines, fmt.Sprintf("%s: %d", strings.TrimPrefix(path, "."), entries[path]))
	}
	return strings.Join(lines, ", ")
}

type walk struct {
	found map[string]int
	seen  map[unsafe.Pointer]bool
}

func (w walk) visit(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || w.seen[v.UnsafePointer()] || !ours(v.Type().Elem()) {
			return
		}
		w.seen[v.UnsafePointer()] = true
		w.visit(path, v.Elem())
	case reflect.Map:
		if v.Len() > 0 {
			w.found[path] += v.Len()
		}
		for entries := v.MapRange(); entries.Next(); {
			w.visit(path+"[]", entries.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[sync.Map]() {
			if n := w.syncMap(v); n > 0 {
				w.found[path] += n
			}
			return
		}
		if !ours(v.Type()) {
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.Type() == reflect.TypeFor[sync.Mutex]() && field.CanAddr() {
				guard := (*sync.Mutex)(field.Addr().UnsafePointer())
				guard.Lock()
				defer guard.Unlock() //nolint:gocritic // held until the struct was walked
			}
		}
		for i := range v.NumField() {
			w.visit(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

// syncMap counts the entries of a sync.Map, which reflect does not let be read in a field that is not exported.
func (w walk) syncMap(v reflect.Value) (count int) {
	if !v.CanAddr() {
		return 0
	}
	m := (*sync.Map)(v.Addr().UnsafePointer())
	m.Range(func(any, any) bool {
		count++
		return true
	})
	return count
}

// ours reports whether a type is of this module, or has no package of its own.
func ours(t reflect.Type) bool {
	return t.PkgPath() == "" || strings.HasPrefix(t.PkgPath(), "github.com/quoin-dev/cluster-api-provider-quoin/")
}
