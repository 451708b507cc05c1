// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// joinConfig is what is used of a kubeadm configuration, v1beta3 or v1beta4.
type joinConfig struct {
	Kind             string           `json:"kind"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	Discovery        struct {
		BootstrapToken *struct {
			Token             string   `json:"token"`
			APIServerEndpoint string   `json:"apiServerEndpoint"`
			CACertHashes      []string `json:"caCertHashes"`
			Unsafe            bool     `json:"unsafeSkipCAVerification"`
		} `json:"bootstrapToken"`
		File *struct {
			KubeConfigPath string `json:"kubeConfigPath"`
		} `json:"file"`
		TLSBootstrapToken string `json:"tlsBootstrapToken"`
	} `json:"discovery"`
	ControlPlane *struct {
		LocalAPIEndpoint endpointConfig `json:"localAPIEndpoint"`
	} `json:"controlPlane"`
	SkipPhases []string      `json:"skipPhases"`
	Patches    patchesConfig `json:"patches"`
}

// extraArgs takes both forms of extra arguments: a map, and a list of names and values.
type extraArgs []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *extraArgs) UnmarshalJSON(data []byte) error {
	var list []struct{ Name, Value string }
	if yaml.Unmarshal(data, &list) == nil {
		for _, entry := range list {
			*a = append(*a, "--"+entry.Name+"="+entry.Value)
		}
		return nil
	}
	var byName map[string]string
	if err := yaml.Unmarshal(data, &byName); err != nil {
		return fmt.Errorf("kubeletExtraArgs: %w", err)
	}
	for name, value := range byName {
		*a = append(*a, "--"+name+"="+value)
	}
	return nil
}

// parseConfig finds the document of the kind.
func parseConfig(content []byte, kind string) (*joinConfig, error) {
	for _, document := range bytes.Split(content, []byte("\n---")) {
		config := &joinConfig{}
		if err := yaml.Unmarshal(bytes.TrimPrefix(document, []byte("---")), config); err != nil {
			return nil, err
		}
		if config.Kind == kind {
			return config, nil
		}
	}
	return nil, fmt.Errorf("no %s in the configuration", kind)
}

// validate says what kubeadm says about a configuration that it cannot join with.
func (c *joinConfig) validate() error {
	if c.Discovery.BootstrapToken == nil && c.Discovery.File == nil {
		return errors.New("discovery: Invalid value: \"\": bootstrapToken or file must be set")
	}
	if t := c.Discovery.BootstrapToken; t != nil {
		if len(t.CACertHashes) == 0 && !t.Unsafe {
			return errors.New("discovery.bootstrapToken.caCertHashes: Invalid value: \"\": using token-based discovery without caCertHashes can be unsafe. Set unsafeSkipCAVerification as true in your kubeadm config file or pass --discovery-token-unsafe-skip-ca-verification flag to continue")
		}
		if t.APIServerEndpoint == "" || !strings.Contains(t.Token, ".") {
			return errors.New("discovery.bootstrapToken: Invalid value: the token or the API server's endpoint is missing")
		}
	}
	return nil
}
