// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
)

// resetNetwork brings the links of a fresh boot: lo and eth0; mu is held.
func (m *Machine) resetNetwork() {
	m.links = []*Link{
		{Name: "lo", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		{Name: "eth0", Addresses: slices.Clone(m.o.Addresses)},
	}
	m.routes = nil
	for _, a := range m.o.Addresses {
		if a.Addr().Is4() && m.routes == nil {
			m.routes = []string{"default via " + a.Masked().Addr().Next().String() + " dev eth0 proto static",
				a.Masked().String() + " dev eth0 proto kernel scope link src " + a.Addr().String()}
		}
	}
	m.rules = []string{"0:\tfrom all lookup local", "32766:\tfrom all lookup main", "32767:\tfrom all lookup default"}
}

func (m *Machine) link_(name string) *Link {
	for _, l := range m.links {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// linkTree is /sys/class/net/<name>; mu is held.
func (m *Machine) linkTree(name string) *dynamic {
	i := slices.IndexFunc(m.links, func(l *Link) bool { return l.Name == name })
	l := m.links[i]
	nodes := map[string]*node{"operstate": constant("up\n"), "mtu": constant("1500\n"), "address": constant(fmt.Sprintf("02:00:00:00:00:%02x\n", i)),
		"ifindex": constant(fmt.Sprintf("%d\n", i+1)), "iflink": constant(fmt.Sprintf("%d\n", i+1))}
	if l.Kind == "veth" {
		// The other end is in a pod.
		nodes["iflink"] = constant(fmt.Sprintf("%d\n", i+1000))
	}
	if l.Kind == "" && name != "lo" {
		nodes["device"] = directory(table(map[string]*node{"uevent": constant("")}))
	}
	if l.Kind == "bridge" {
		nodes["bridge"] = directory(table(map[string]*node{}))
	}
	if l.Master != "" {
		nodes["master"] = &node{mode: os.ModeSymlink | 0o777, nlink: 1, data: []byte("../" + l.Master)}
	}
	return table(nodes)
}

// AddLink adds a network interface, as a CNI plugin does.
func (m *Machine) AddLink(l Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.links = append(m.links, &l)
}

// Links returns the network interfaces.
func (m *Machine) Links() []Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Link
	for _, l := range m.links {
		c := *l
		c.Addresses = slices.Clone(l.Addresses)
		out = append(out, c)
	}
	return out
}

func init() { add("ip", ipCommand) }

func ipCommand(_ context.Context, p *Process) int {
	args := p.Args[1:]
	family := ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-o", "-oneline", "-br", "-d", "-details":
		case "-4", "-6":
			family = args[0]
		default:
			return p.unknown("the flag %s", args[0])
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return p.unknown("ip without an object")
	}
	verb, rest := "show", args[1:]
	if len(rest) > 0 {
		verb, rest = rest[0], rest[1:]
	}
	if verb == "list" || verb == "ls" {
		verb = "show"
	}
	if verb == "del" {
		verb = "delete"
	}
	words := map[string]string{}
	var plain []string
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case "dev", "scope", "to", "type", "via", "table", "name", "from", "priority", "pref", "lladdr", "nud", "proto", "lookup", "master":
			if i+1 < len(rest) {
				words[rest[i]] = rest[i+1]
				i++
			}
		default:
			plain = append(plain, rest[i])
		}
	}
	p.enter()
	out, fail := p.Machine.ip(args[0], verb, family, words, plain)
	p.leave()
	if fail != "" {
		if fail == "?" {
			return p.unknown("ip %s %s", args[0], verb)
		}
		_, _ = p.Stderr.Write([]byte(fail + "\n"))
		return map[bool]int{true: 2, false: 1}[strings.HasPrefix(fail, "RTNETLINK")]
	}
	return p.say(out)
}

// begins says whether a word is an object or the beginning of its name.
func begins(word, object string) bool { return word == object[:min(len(word), len(object))] }

// ip is one ip command; mu is held. It returns what is printed, or why it failed; "?" when nobody taught it.
func (m *Machine) ip(object, verb, family string, words map[string]string, plain []string) (string, string) {
	switch {
	case begins(object, "address"):
		return m.ipAddress(verb, family, words, plain)
	case begins(object, "link"):
		return m.ipLink(verb, words, plain)
	case begins(object, "route"):
		return m.ipRoute(verb, family, words, plain)
	case begins(object, "rule"):
		if verb == "show" {
			return strings.Join(m.rules, "\n") + "\n", ""
		}
		if verb == "delete" {
			line := "from " + words["from"]
			for i, rule := range m.rules {
				if words["priority"] != "" && strings.HasPrefix(rule, words["priority"]+":") || words["pref"] != "" && strings.HasPrefix(rule, words["pref"]+":") || words["from"] != "" && strings.Contains(rule, line) {
					m.rules = slices.Delete(m.rules, i, i+1)
					return "", ""
				}
			}
			return "", "RTNETLINK answers: No such file or directory"
		}
		if verb == "add" {
			priority := words["priority"] + words["pref"]
			if priority == "" {
				priority = "32765"
			}
			m.rules = append(m.rules, priority+":\tfrom "+words["from"]+" lookup "+words["table"]+words["lookup"])
			slices.Sort(m.rules)
			return "", ""
		}
	case strings.HasPrefix(object, "neigh") || object == "n":
		return "", ""
	case object == "netns":
		if verb == "show" {
			return "", ""
		}
	}
	return "", "?"
}

func (m *Machine) ipAddress(verb, family string, words map[string]string, plain []string) (string, string) {
	if words["dev"] == "" && verb == "show" && len(plain) > 0 {
		words["dev"] = plain[0]
	}
	if words["dev"] != "" && m.link_(words["dev"]) == nil {
		return "", fmt.Sprintf("Device %q does not exist.", words["dev"])
	}
	switch verb {
	case "show":
		var out strings.Builder
		for i, l := range m.links {
			if words["dev"] != "" && l.Name != words["dev"] {
				continue
			}
			for _, a := range l.Addresses {
				scope := "global"
				if a.Addr().IsLoopback() {
					scope = "host"
				}
				is6 := a.Addr().Is6()
				if words["scope"] != "" && words["scope"] != scope || family == "-4" && is6 || family == "-6" && !is6 {
					continue
				}
				if to := words["to"]; to != "" {
					want, err := netip.ParsePrefix(to)
					if err != nil {
						single, err := netip.ParseAddr(to)
						if err != nil {
							return "", fmt.Sprintf("Error: inet prefix is expected rather than %q.", to)
						}
						want = netip.PrefixFrom(single, single.BitLen())
					}
					if !want.Contains(a.Addr()) {
						continue
					}
				}
				inet := "inet"
				if is6 {
					inet = "inet6"
				}
				fmt.Fprintf(&out, "%d: %s    %s %s scope %s %s\\       valid_lft forever preferred_lft forever\n", i+1, l.Name, inet, a, scope, l.Name)
			}
		}
		return out.String(), ""
	case "add", "replace", "delete":
		if len(plain) == 0 || words["dev"] == "" {
			return "", "Not enough information: \"dev\" argument is required."
		}
		a, err := netip.ParsePrefix(plain[0])
		if err != nil {
			single, bad := netip.ParseAddr(plain[0])
			if bad != nil {
				return "", fmt.Sprintf("Error: any valid prefix is expected rather than %q.", plain[0])
			}
			a = netip.PrefixFrom(single, single.BitLen())
		}
		l := m.link_(words["dev"])
		i := slices.IndexFunc(l.Addresses, func(b netip.Prefix) bool { return a.Addr() == b.Addr() })
		switch {
		case verb == "delete" && i < 0:
			return "", "RTNETLINK answers: Cannot assign requested address"
		case verb == "delete":
			l.Addresses = slices.Delete(l.Addresses, i, i+1)
		case i >= 0 && verb == "add":
			return "", "RTNETLINK answers: File exists"
		case i < 0:
			l.Addresses = append(l.Addresses, a)
		}
		return "", ""
	case "flush":
		m.link_(words["dev"]).Addresses = nil
		return "", ""
	}
	return "", "?"
}

func (m *Machine) ipLink(verb string, words map[string]string, plain []string) (string, string) {
	name := words["dev"]
	if name == "" {
		name = words["name"]
	}
	if name == "" && len(plain) > 0 {
		name = plain[0]
	}
	if name != "" && verb != "add" && m.link_(name) == nil {
		return "", fmt.Sprintf("Device %q does not exist.", name)
	}
	switch verb {
	case "show":
		var out strings.Builder
		for i, l := range m.links {
			if name != "" && l.Name != name || words["type"] != "" && words["type"] != l.Kind {
				continue
			}
			fmt.Fprintf(&out, "%d: %s: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT group default qlen 1000\\    link/ether 02:00:00:00:00:%02x brd ff:ff:ff:ff:ff:ff\n", i+1, l.Name, i)
		}
		return out.String(), ""
	case "add":
		if m.link_(name) != nil {
			return "", "RTNETLINK answers: File exists"
		}
		m.links = append(m.links, &Link{Name: name, Kind: words["type"]})
		return "", ""
	case "delete":
		m.links = slices.DeleteFunc(m.links, func(l *Link) bool { return l.Name == name })
		m.routes = slices.DeleteFunc(m.routes, func(r string) bool { return strings.Contains(r+" ", " dev "+name+" ") })
		return "", ""
	case "set":
		return "", ""
	}
	return "", "?"
}

func (m *Machine) ipRoute(verb, family string, words map[string]string, plain []string) (string, string) {
	to := words["to"]
	if to == "" && len(plain) > 0 {
		to = plain[0]
	}
	fits := func(route string) bool {
		first, _, _ := strings.Cut(route, " ")
		is6 := strings.Contains(first, ":")
		return (to == "" || first == to) && (words["dev"] == "" || strings.Contains(route+" ", " dev "+words["dev"]+" ")) && is6 == (family == "-6")
	}
	switch verb {
	case "show":
		var out strings.Builder
		if words["table"] == "" || words["table"] == "main" || words["table"] == "all" {
			for _, route := range m.routes {
				if fits(route) {
					out.WriteString(route + " \n")
				}
			}
		}
		return out.String(), ""
	case "add", "replace":
		route := to
		if words["via"] != "" {
			route += " via " + words["via"]
		}
		m.routes = append(m.routes, route+" dev "+words["dev"])
		return "", ""
	case "delete", "flush":
		before := len(m.routes)
		m.routes = slices.DeleteFunc(m.routes, fits)
		if before == len(m.routes) && verb == "delete" {
			return "", "RTNETLINK answers: No such process"
		}
		return "", ""
	case "get":
		return "", "?"
	}
	return "", "?"
}

var keepalivedAddress = regexp.MustCompile(`(?m)^\s*([0-9a-fA-F.:]+/[0-9]+)(?:\s+dev\s+(\S+))?\s*$`)

// keepalivedDaemon takes the addresses of its configuration at once, for nobody else on the network is simulated, and gives
// them back when it is asked to end. Killed, it leaves them.
func keepalivedDaemon(ctx context.Context, p *Process) int {
	conf, err := p.ReadFile("/etc/keepalived/keepalived.conf")
	if err != nil {
		return p.Fail("Unable to find configuration file")
	}
	p.enter()
	m := p.Machine
	p.caught = with(nil, "TERM", "HUP")
	p.wake = make(chan struct{})
	wake := p.wake
	var held [][2]string
	for _, at := range keepalivedAddress.FindAllStringSubmatch(string(conf), -1) {
		dev := at[2]
		if dev == "" {
			dev = "eth0"
		}
		if _, fail := m.ipAddress("add", "", map[string]string{"dev": dev}, []string{at[1]}); fail == "" {
			held = append(held, [2]string{at[1], dev})
		}
	}
	p.leave()
	select {
	case <-wake:
	case <-ctx.Done():
		p.check()
	}
	p.enter()
	defer p.leave()
	for _, h := range held {
		_, _ = m.ipAddress("delete", "", map[string]string{"dev": h[1]}, []string{h[0]})
	}
	return 0
}
