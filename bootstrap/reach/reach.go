// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reach asks a host what it reaches: routes, ports and names. One script does, and changes nothing.
package reach

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

//go:embed reach.sh
var script string

// atOnce is how many things a host looks at at a time.
const atOnce = 100

// Endpoint is a TCP port of a host, which is an IP address or a name.
type Endpoint struct {
	Host string
	Port uint16
}

// String is the endpoint in the form host:port.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Answer is what a host does not reach.
type Answer struct {
	// NoRoute are the addresses that its kernel would send nothing to.
	NoRoute []string
	// Refused are the ports where somebody answers that nothing listens; Silent are those where nobody answers.
	Refused, Silent []Endpoint
	// Unresolved are the names that it knows no address of.
	Unresolved []string
	// Lacks are the programs that it would need to find out, and does not have.
	Lacks []string
}

// hostName is what a resolver is asked for: nothing that a shell or a program would take for anything else.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$`)

// Ask asks the host in one exchange whether it has a route to each address, resolves each name, and reaches the ports.
// What is no name is not resolved.
func Ask(ctx context.Context, host ssh.Host, endpoints []Endpoint) (*Answer, error) {
	answer := &Answer{}
	var lines, routes []string
	for _, endpoint := range endpoints {
		_, err := netip.ParseAddr(endpoint.Host)
		switch of := ssh.Quote(endpoint.Host); {
		case err == nil:
			lines = append(lines, fmt.Sprintf("port %s %d", of, endpoint.Port))
			if route := "route " + of; !slices.Contains(routes, route) {
				routes = append(routes, route)
			}
		case hostName.MatchString(endpoint.Host):
			lines = append(lines, fmt.Sprintf("named %s %d", of, endpoint.Port))
		default:
			answer.Unresolved = append(answer.Unresolved, endpoint.Host)
		}
	}
	var text strings.Builder
	text.WriteString(script)
	for some := range slices.Chunk(append(lines, routes...), atOnce) {
		text.WriteString(strings.Join(some, " &\n") + " &\nwait\n")
	}
	text.WriteString("echo end\n")
	result, err := host.Run(ctx, ssh.Command{Script: text.String(), Sudo: true})
	if err != nil {
		return nil, fmt.Errorf("ask the host what it reaches: %w", err)
	}
	if err := answer.read(result.Stdout); err != nil {
		return nil, err
	}
	return answer, nil
}

// read takes what the script printed.
func (a *Answer) read(output string) error {
	whole := false
	for line := range strings.SplitSeq(output, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && words[0] == "end":
			whole = true
		case len(words) == 2 && words[0] == "lacks":
			a.Lacks = append(a.Lacks, words[1])
		case len(words) == 2 && words[0] == "unresolved":
			a.Unresolved = append(a.Unresolved, words[1])
		case len(words) == 2 && words[0] == "noroute":
			a.NoRoute = append(a.NoRoute, words[1])
		case len(words) == 3 && (words[0] == "refused" || words[0] == "silent"):
			port, err := strconv.ParseUint(words[2], 10, 16)
			if err != nil {
				return fmt.Errorf("the host's answer about what it reaches cannot be read: %.100q", line)
			}
			at := Endpoint{Host: words[1], Port: uint16(port)}
			if words[0] == "refused" {
				a.Refused = append(a.Refused, at)
			} else {
				a.Silent = append(a.Silent, at)
			}
		}
	}
	if !whole {
		return errors.New("the host's answer about what it reaches is cut off")
	}
	return nil
}
