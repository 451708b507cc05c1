// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// mostNamed pods or volumes are named in a message.
const mostNamed = 5

func names(pods []Pod) string { return describe(pods, func(Pod) string { return "" }) }

func describe(pods []Pod, more func(Pod) string) string {
	var said []string
	for _, pod := range pods {
		said = append(said, pod.Name+more(pod))
	}
	return some(said)
}

func some(said []string) string {
	if rest := len(said) - mostNamed; rest > 0 {
		said = append(slices.Clone(said[:mostNamed]), fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(said, ", ")
}

// forced says what becomes of pods that are deleted whatever protects them.
func forced(pods []Pod) string {
	return "deletes " + describe(pods, func(pod Pod) string {
		what := "nobody makes it anew"
		if pod.Owner != "" {
			what = pod.Owner + " makes it anew elsewhere"
			if strings.HasPrefix(pod.Owner, "StatefulSet ") {
				what = pod.Owner + " makes it anew when it has ended"
			}
		}
		if pod.Volumes > 0 {
			what += ", and its volumes follow when they are detached"
		}
		return " (" + what + ")"
	})
}

// lost says what becomes of pods whose host is taken away.
func lost(pods []Pod) string {
	if len(pods) == 0 {
		return "The host is taken away; volumes are attached elsewhere when its Node is deleted"
	}
	return "The host is taken away with pods on it: " + names(pods) +
		". StatefulSets make theirs anew, and volumes are attached elsewhere, when its Node is deleted"
}
