// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	// maxData bounds the bootstrap data, which comes in a Secret of at most 1 MiB, with what rendering may add.
	maxData = 4 << 20
	// maxFiles bounds all files together after decompression: gzip makes a thousand bytes of one.
	maxFiles = 64 << 20
)

// refused are directives of cloud-init that somebody may well use, with the way out.
var refused = map[string]string{
	"packages": "install packages in preKubeadmCommands",
}

// Parse reads userData. Unknown variables and directives that Quoin does not execute are errors that name them.
func Parse(userData []byte, variables Variables) (*Config, error) {
	if len(userData) > maxData {
		return nil, fmt.Errorf("the bootstrap data has %d bytes; no Secret holds so much", len(userData))
	}
	text := strings.ReplaceAll(string(userData), "\r\n", "\n")
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return nil, errors.New("the bootstrap data is not cloud-config but JSON, as Ignition is; set spec.format of the " +
			"KubeadmConfig to cloud-config")
	}
	if first, rest, _ := strings.Cut(text, "\n"); strings.TrimSpace(first) == templateHeader {
		rendered, err := render(rest, variables)
		if err != nil {
			return nil, err
		}
		text = rendered
	}
	if !strings.HasPrefix(strings.TrimLeft(text, "\n"), "#cloud-config") {
		return nil, errors.New("the bootstrap data does not begin with #cloud-config; Quoin executes cloud-config only")
	}
	if len(text) > maxData {
		return nil, fmt.Errorf("the bootstrap data has %d bytes with its variables filled in; use fewer of them", len(text))
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return nil, fmt.Errorf("the cloud-config is not valid YAML: %w", plainYAML(err))
	}
	config := &Config{}
	if len(document.Content) == 0 {
		return config, nil
	}
	if line := aliasLine(&document); line > 0 {
		return nil, fmt.Errorf("line %d of the cloud-config uses a YAML alias (*name), which Quoin does not follow; write "+
			"the value out", line)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the cloud-config is not a YAML mapping")
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, value := root.Content[i].Value, root.Content[i+1]
		if value.Tag == "!!null" || (value.Kind != yaml.ScalarNode && len(value.Content) == 0) {
			continue
		}
		if err := config.directive(name, value); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// aliasLine is the line of the first alias, or 0. A few lines of aliases of aliases make gigabytes, and nobody who
// renders bootstrap data writes any.
func aliasLine(node *yaml.Node) int {
	if node.Kind == yaml.AliasNode {
		return node.Line
	}
	for _, child := range node.Content {
		if line := aliasLine(child); line > 0 {
			return line
		}
	}
	return 0
}

func (c *Config) directive(name string, value *yaml.Node) error {
	var err error
	switch name {
	case "write_files":
		c.Files, err = parseFiles(value)
	case "bootcmd":
		c.BootCommands, err = parseCommands(value)
	case "runcmd":
		c.Commands, err = parseCommands(value)
		for i := range c.Commands {
			c.Commands[i].Kind = classify(c.Commands[i].Shell)
		}
	case "users":
		c.Users, err = parseUsers(value)
	case "ntp":
		c.NTP, err = parseNTP(value)
	case "disk_setup":
		c.PartitionTables, err = parseDiskSetup(value)
	case "fs_setup":
		c.FileSystems, err = parseFSSetup(value)
	case "mounts":
		c.Mounts, err = parseMounts(value)
	case "hostname":
		if c.Hostname == "" {
			c.Hostname = value.Value
		}
	case "fqdn":
		// cloud-init lets the long name win.
		c.Hostname = value.Value
	case "preserve_hostname", "prefer_fqdn_over_hostname":
	default:
		advice := refused[name]
		if advice == "" {
			advice = "do the same in files and preKubeadmCommands"
		}
		return fmt.Errorf("line %d of the cloud-config: directive %q is not executed by Quoin; %s", value.Line, name, advice)
	}
	if err != nil {
		return fmt.Errorf("cloud-config %s: %w", name, err)
	}
	return nil
}

// decode is strict: a field that we do not know may matter.
func decode(node *yaml.Node, into any) error {
	data, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	return plainYAML(decoder.Decode(into))
}

// plainYAML drops quoted values from a YAML error: bootstrap data holds keys and tokens.
func plainYAML(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for {
		begin := strings.IndexByte(text, '`')
		end := strings.LastIndexByte(text, '`')
		if begin < 0 || end <= begin {
			return errors.New(text)
		}
		text = text[:begin] + "a value" + text[end+1:]
	}
}

// word is a scalar as written: 0640 stays "0640", whatever number YAML would make of it.
type word string

// UnmarshalYAML keeps the scalar's text.
func (w *word) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return errors.New("expected a plain value")
	}
	if node.Tag != "!!null" {
		*w = word(node.Value)
	}
	return nil
}

func parseFiles(node *yaml.Node) ([]File, error) {
	var entries []struct {
		Path, Encoding, Owner, Permissions, Content word
		Append, Defer                               bool
	}
	if err := decode(node, &entries); err != nil {
		return nil, err
	}
	files := make([]File, 0, len(entries))
	left := maxFiles
	for _, e := range entries {
		file := File{Path: string(e.Path), Owner: string(e.Owner), Mode: 0o644, Append: e.Append}
		if err := checkPath(file.Path); err != nil {
			return nil, err
		}
		if e.Permissions != "" {
			bits, err := strconv.ParseUint(strings.TrimPrefix(string(e.Permissions), "0o"), 8, 12)
			if err != nil {
				return nil, fmt.Errorf("file %s: permissions %q are not an octal mode such as 0640", e.Path, e.Permissions)
			}
			file.Mode = os.FileMode(bits)
		}
		var err error
		if file.Content, err = content(string(e.Encoding), string(e.Content), left); err != nil {
			return nil, fmt.Errorf("file %s: %w", e.Path, err)
		}
		left -= len(file.Content)
		files = append(files, file)
	}
	return files, nil
}

func checkPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, "\n\x00") {
		return fmt.Errorf("file path %q is not a plain absolute path", p)
	}
	if p == "/var/lib/quoin" || strings.HasPrefix(p, "/var/lib/quoin/") {
		return fmt.Errorf("file %s lies in Quoin's own directory; choose another place", p)
	}
	return nil
}

func content(encoding, text string, limit int) ([]byte, error) {
	zipped, encoded := false, false
	switch strings.ToLower(encoding) {
	case "", "text/plain":
	case "b64", "base64":
		encoded = true
	case "gz", "gzip":
		zipped = true
	case "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		zipped, encoded = true, true
	default:
		return nil, fmt.Errorf("encoding %q is not known; use base64, gzip+base64 or none", encoding)
	}
	data := []byte(text)
	if encoded {
		var err error
		if data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
			return nil, errors.New("the content is not base64, as its encoding says")
		}
	}
	if !zipped {
		return data, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("the content is not gzip, as its encoding says")
	}
	data, err = io.ReadAll(io.LimitReader(reader, int64(limit)+1))
	if err != nil {
		return nil, errors.New("the gzip content is damaged")
	}
	if len(data) > limit {
		return nil, fmt.Errorf("with its gzip content the files are larger than %d bytes together", maxFiles)
	}
	return data, nil
}

func parseNTP(node *yaml.Node) (*NTP, error) {
	var entry struct {
		Enabled *bool
		Servers []word
		Pools   []word
	}
	if err := decode(node, &entry); err != nil {
		return nil, err
	}
	ntp := &NTP{Enabled: entry.Enabled == nil || *entry.Enabled}
	for _, server := range append(entry.Servers, entry.Pools...) {
		if strings.ContainsAny(string(server), " \t\n") || server == "" {
			return nil, fmt.Errorf("server %q is not a host name or an address", server)
		}
		ntp.Servers = append(ntp.Servers, string(server))
	}
	return ntp, nil
}

var shortDevice = regexp.MustCompile(`^(x?[shv]d[a-z]+[0-9]*|nvme[0-9]+n[0-9]+(p[0-9]+)?)$`)

func parseMounts(node *yaml.Node) ([][]string, error) {
	var entries [][]word
	if err := decode(node, &entries); err != nil {
		return nil, err
	}
	mounts := make([][]string, 0, len(entries))
	for _, entry := range entries {
		var fields []string
		for _, field := range entry {
			if strings.ContainsAny(string(field), " \t\n") || field == "" {
				return nil, fmt.Errorf("field %q must be one word", field)
			}
			fields = append(fields, string(field))
		}
		if len(fields) < 2 || len(fields) > 6 || (!path.IsAbs(fields[1]) && fields[1] != "none") {
			return nil, fmt.Errorf("%q needs a device, an absolute mount point, and at most four fstab fields more",
				strings.Join(fields, " "))
		}
		if fields[1] == "none" || len(fields) > 2 && fields[2] == "swap" {
			return nil, fmt.Errorf("%q: swap and mounts without a directory are not set up by Quoin; the kubelet wants no swap",
				strings.Join(fields, " "))
		}
		// The reset looks for the directory as the kernel names it.
		fields[1] = path.Clean(fields[1])
		// cloud-init takes the kernel's short names too.
		if shortDevice.MatchString(fields[0]) {
			fields[0] = "/dev/" + fields[0]
		}
		mounts = append(mounts, fields)
	}
	return mounts, nil
}
