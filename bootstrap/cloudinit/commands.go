// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

func parseCommands(node *yaml.Node) ([]Command, error) {
	if node.Kind != yaml.SequenceNode {
		return nil, errors.New("expected a list of commands")
	}
	commands := make([]Command, 0, len(node.Content))
	for _, entry := range node.Content {
		switch {
		case entry.Tag == "!!null":
		case entry.Kind == yaml.ScalarNode:
			if strings.IndexByte(entry.Value, 0) >= 0 {
				return nil, fmt.Errorf("line %d: a command holds a NUL byte", entry.Line)
			}
			commands = append(commands, Command{Shell: entry.Value, Kind: Plain})
		case entry.Kind == yaml.SequenceNode:
			words := make([]string, 0, len(entry.Content))
			for _, part := range entry.Content {
				if part.Kind != yaml.ScalarNode || strings.IndexByte(part.Value, 0) >= 0 {
					return nil, fmt.Errorf("line %d: a command in list form must hold plain words", entry.Line)
				}
				words = append(words, quoteWord(part.Value))
			}
			commands = append(commands, Command{Shell: strings.Join(words, " "), Kind: Plain})
		default:
			return nil, fmt.Errorf("line %d: a command is a text or a list of words", entry.Line)
		}
	}
	return commands, nil
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// quoteWord leaves plain words as they are, so that kubeadm is recognized in list form too.
func quoteWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return ssh.Quote(text)
}

// kubeadmVerb finds "kubeadm init" and "kubeadm join" as commands, with a path before and global flags between.
// "kubeadm init phase ..." is a part only, and may run twice; a file named kubeadm-join-config.yaml is no command.
var kubeadmVerb = regexp.MustCompile(
	`(?:^|[\s;&|({])(?:/[\w./-]*/)?kubeadm(?:\s+-\S+)*\s+(init|join)(?:\s+(phase)\b)?(?:[\s;&|)]|$)`)

func classify(shell string) Kind {
	for _, match := range kubeadmVerb.FindAllStringSubmatch(shell, -1) {
		switch {
		case match[2] != "":
		case match[1] == "init":
			return KubeadmInit
		default:
			return KubeadmJoin
		}
	}
	return Plain
}

// withArgs puts arguments right behind the verb.
func withArgs(shell string, args []string) string {
	at := kubeadmVerb.FindStringSubmatchIndex(shell)
	if len(args) == 0 || at == nil {
		return shell
	}
	words := make([]string, 0, len(args))
	for _, arg := range args {
		words = append(words, ssh.Quote(arg))
	}
	return shell[:at[3]] + " " + strings.Join(words, " ") + shell[at[3]:]
}
