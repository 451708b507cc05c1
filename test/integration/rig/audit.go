// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Refusal is a request that a manager made and that its role does not cover.
type Refusal struct {
	// User is the ServiceAccount's user name.
	User string
	// Request is the verb and the path asked for, without its query.
	Request string
}

func (r *Rig) auditLog() string { return filepath.Join(r.Dir, "audit.log") }

// Refusals reads from the API server's audit log what the authorizer refused to the managers, each request once. Unlike
// a search through the managers' logs it misses nothing that was retried quietly, and does not mistake an admission
// refusal for one.
func (r *Rig) Refusals() ([]Refusal, error) {
	var refusals []Refusal
	err := r.eachAuditEvent(func(event auditEvent) {
		if event.Annotations["authorization.k8s.io/decision"] != "forbid" {
			return
		}
		path, _, _ := strings.Cut(event.RequestURI, "?")
		refusal := Refusal{User: event.User.Username, Request: event.Verb + " " + path}
		if !slices.Contains(refusals, refusal) {
			refusals = append(refusals, refusal)
		}
	})
	return refusals, err
}

// Requests counts the API requests of each ServiceAccount so far, by user name.
func (r *Rig) Requests() (map[string]int, error) {
	counts := map[string]int{}
	err := r.eachAuditEvent(func(event auditEvent) { counts[event.User.Username]++ })
	return counts, err
}

type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Annotations map[string]string `json:"annotations"`
}

func (r *Rig) eachAuditEvent(visit func(auditEvent)) error {
	content, err := os.ReadFile(r.auditLog())
	if err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	// The last line may still be half written.
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	scanner := bufio.NewScanner(bytes.NewReader(content))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event auditEvent
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		visit(event)
	}
	return scanner.Err()
}
