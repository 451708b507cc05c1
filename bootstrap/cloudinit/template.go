// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// Variables are the instance data a `## template: jinja` document may refer to, by full name:
// "ds.meta_data.local_hostname", "v1.local_hostname". See InstanceData.
type Variables map[string]string

// InstanceData returns the variables that Quoin knows for a host. failureDomain may be empty: a reference to it is then
// an error.
func InstanceData(hostname, instanceID, failureDomain string) Variables {
	v := Variables{
		"ds.meta_data.local_hostname": hostname, "ds.meta_data.local-hostname": hostname, "ds.meta_data.hostname": hostname,
		"v1.local_hostname": hostname, "local_hostname": hostname,
		"ds.meta_data.instance_id": instanceID, "ds.meta_data.instance-id": instanceID,
		"v1.instance_id": instanceID, "instance_id": instanceID,
	}
	if failureDomain != "" {
		v["ds.meta_data.availability_zone"], v["v1.availability_zone"], v["availability_zone"] = failureDomain, failureDomain,
			failureDomain
	}
	return v
}

const templateHeader = "## template: jinja"

var (
	expression = regexp.MustCompile(`(?s)\{\{-?(.*?)-?\}\}`)
	reference  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_-]+)*$`)
	literal    = regexp.MustCompile(`^(?:'([^'\\]*)'|"([^"\\]*)")$`)
	comment    = regexp.MustCompile(`(?s)\{#.*?#\}`)
)

// render substitutes simple references. Jinja is a language; only what bootstrap data is known to use is understood,
// and everything else is refused rather than passed on half-done.
func render(document string, variables Variables) (string, error) {
	if i := strings.Index(document, "{%"); i >= 0 {
		return "", fmt.Errorf("line %d of the bootstrap data uses a jinja statement ({%% ... %%}), which Quoin does not "+
			"execute; compute the value in preKubeadmCommands instead", lineAt(document, i))
	}
	// "${#list[@]}" of bash begins like a jinja comment; only a closed one is meant as such.
	if at := comment.FindStringIndex(document); at != nil {
		return "", fmt.Errorf("line %d of the bootstrap data holds a jinja comment ({# ... #}); remove it",
			lineAt(document, at[0]))
	}
	var out strings.Builder
	rest := 0
	for _, at := range expression.FindAllStringSubmatchIndex(document, -1) {
		out.WriteString(document[rest:at[0]])
		rest = at[1]
		inner := strings.TrimSpace(document[at[2]:at[3]])
		if text := literal.FindStringSubmatch(inner); text != nil {
			out.WriteString(text[1] + text[2])
			continue
		}
		if !reference.MatchString(inner) {
			return "", fmt.Errorf("line %d of the bootstrap data uses the jinja expression {{ %s }}, of which Quoin "+
				"understands only plain names such as {{ ds.meta_data.local_hostname }}", lineAt(document, at[0]), inner)
		}
		value, known := variables[inner]
		if !known {
			return "", fmt.Errorf("line %d of the bootstrap data refers to {{ %s }}, which is not known for this host; known "+
				"are %s", lineAt(document, at[0]), inner, names(variables))
		}
		out.WriteString(value)
	}
	out.WriteString(document[rest:])
	return out.String(), nil
}

func lineAt(document string, offset int) int { return 1 + strings.Count(document[:offset], "\n") }

func names(variables Variables) string {
	list := make([]string, 0, len(variables))
	for name := range variables {
		list = append(list, name)
	}
	sort.Strings(list)
	return strings.Join(list, ", ")
}
