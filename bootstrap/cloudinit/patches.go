// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// PatchInit has kubeadm init read the patches of static pods in a directory, unless its configuration names one
// already. It returns the Config that does so, the receiver stays as it is, and the directory that counts; "" when no
// command is kubeadm init. kubeadm takes no --patches beside its --config, so that file is edited: of all its documents
// only the InitConfiguration.
func (c *Config) PatchInit(directory string) (*Config, string, error) {
	at := slices.IndexFunc(c.Commands, func(command Command) bool { return command.Kind == KubeadmInit })
	if at < 0 {
		return c, "", nil
	}
	given := configArgument.FindStringSubmatch(c.Commands[at].Shell)
	if given == nil {
		return nil, "", errors.New("kubeadm init is called without --config=/...; Quoin names a directory with patches of " +
			"its own there")
	}
	file := slices.IndexFunc(c.Files, func(file File) bool { return file.Path == given[1] && !file.Append })
	if file < 0 {
		return nil, "", fmt.Errorf("kubeadm init is called with --config=%s, which is none of the files of the bootstrap "+
			"data; "+
			"Quoin names a directory with patches of its own there", given[1])
	}
	content, directory, err := patchInit(string(c.Files[file].Content), directory)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", given[1], err)
	}
	patched := *c
	patched.Files = slices.Clone(c.Files)
	patched.Files[file].Content = []byte(content)
	return &patched, directory, nil
}

var documentEnd = regexp.MustCompile(`(?m)^---[ \t]*\n`)

// patchInit sets patches.directory of the InitConfiguration where it is not set.
func patchInit(content, directory string) (string, string, error) {
	documents := documentEnd.Split(content, -1)
	for i, document := range documents {
		var node yaml.Node
		if err := yaml.Unmarshal([]byte(document), &node); err != nil {
			return "", "", fmt.Errorf("the configuration of kubeadm is not valid YAML: %w", plainYAML(err))
		}
		if len(node.Content) == 0 || scalar(node.Content[0], "kind") != "InitConfiguration" {
			continue
		}
		patches := field(node.Content[0], "patches")
		if patches.Kind != yaml.MappingNode {
			*patches = yaml.Node{Kind: yaml.MappingNode}
		}
		if set := scalar(patches, "directory"); set != "" {
			if !path.IsAbs(set) {
				return "", "", fmt.Errorf("initConfiguration.patches.directory %q is not an absolute path", set)
			}
			return content, set, nil
		}
		field(patches, "directory").SetString(directory)
		var changed bytes.Buffer
		encoder := yaml.NewEncoder(&changed)
		encoder.SetIndent(2)
		if err := errors.Join(encoder.Encode(&node), encoder.Close()); err != nil {
			return "", "", err
		}
		documents[i] = changed.String()
		return strings.Join(documents, "---\n"), directory, nil
	}
	return "", "", errors.New("the configuration of kubeadm holds no InitConfiguration")
}

// field of a mapping; it is added when there is none.
func field(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	key, value := &yaml.Node{}, &yaml.Node{}
	key.SetString(name)
	mapping.Content = append(mapping.Content, key, value)
	return value
}

// scalar is the value of a field; "" when it is absent, null or no scalar.
func scalar(mapping *yaml.Node, name string) string {
	if mapping.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if value := mapping.Content[i+1]; mapping.Content[i].Value == name && value.Kind == yaml.ScalarNode &&
			value.Tag != "!!null" {
			return value.Value
		}
	}
	return ""
}
