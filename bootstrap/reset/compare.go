// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"crypto/sha256"
	"fmt"
	"strings"

	gossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
)

// nameOf is what people call a trace.
var nameOf = map[string]func(t inspect.Trace) string{
	"user":      func(t inspect.Trace) string { return "user " + t.Name },
	"password":  func(t inspect.Trace) string { return "password of user " + t.Name },
	"member":    func(t inspect.Trace) string { return fmt.Sprintf("user %s in group %s", t.Name, t.Value) },
	"key":       nameOfKey,
	"sudo":      func(t inspect.Trace) string { return "rule of sudo " + t.Name },
	"sshd":      func(t inspect.Trace) string { return "setting of sshd " + t.Name },
	"cron":      func(t inspect.Trace) string { return "cron job " + t.Name },
	"unit":      func(t inspect.Trace) string { return "unit " + t.Name },
	"link":      func(t inspect.Trace) string { return "network link " + t.Name },
	"rule":      func(t inspect.Trace) string { return "rule of policy routing " + t.Name },
	"route":     func(t inspect.Trace) string { return "route " + t.Name },
	"ipvs":      func(t inspect.Trace) string { return "virtual server of ipvs " + t.Name },
	"image":     func(t inspect.Trace) string { return "image " + t.Name + " with " + t.Value },
	"mount":     nameOfMount,
	"home":      func(t inspect.Trace) string { return "file that a user's shell or programs read " + t.Name },
	"data":      func(t inspect.Trace) string { return "directory " + t.Name },
	"plugin":    func(t inspect.Trace) string { return "program of network or volumes " + t.Name },
	"cni":       func(t inspect.Trace) string { return "configuration of a network " + t.Name },
	"kube":      func(t inspect.Trace) string { return "credentials " + t.Name },
	"boot":      func(t inspect.Trace) string { return "file that runs by itself " + t.Name },
	"transient": func(t inspect.Trace) string { return "unit until the next boot " + t.Name },
	"linger":    func(t inspect.Trace) string { return "service of a user " + t.Name },
	"hook":      func(t inspect.Trace) string { return "file that the system reads or runs by itself " + t.Name },
	"program":   func(t inspect.Trace) string { return "program that is looked for first " + t.Name },
	"kernel":    func(t inspect.Trace) string { return "setting of the kernel " + t.Name },
	"login":     func(t inspect.Trace) string { return "setting of logins " + t.Name },
	"runtime":   func(t inspect.Trace) string { return "setting of containerd " + t.Name },
}

// fingerprint of the key that a line holds; empty where it holds none.
func fingerprint(t inspect.Trace) string {
	key, _, _, _, err := gossh.ParseAuthorizedKey([]byte(t.Value)) //nolint:dogsled // of upstream
	if err != nil {
		return ""
	}
	return gossh.FingerprintSHA256(key)
}

// nameOfMount has no options: there may be a password among them.
func nameOfMount(t inspect.Trace) string {
	if fields := strings.Fields(t.Value); t.Name == "/etc/fstab" && len(fields) > 1 {
		return "line of /etc/fstab for " + fields[1]
	}
	return "mount at " + t.Name
}

// nameOfKey has the key's fingerprint and comment. A line that is no key may be a secret that came to the wrong place:
// whoever may read it finds it on the host by its digest.
func nameOfKey(t inspect.Trace) string {
	key, comment, _, _, err := gossh.ParseAuthorizedKey([]byte(t.Value))
	if err != nil {
		return fmt.Sprintf("line that is no key (sha256 %.6x...) in the authorized keys of user %s",
			sha256.Sum256([]byte(t.Value)), t.Name)
	}
	return fmt.Sprintf("authorized key %s %q of user %s", gossh.FingerprintSHA256(key),
		shorten(redact.Patterns(comment), 80), t.Name)
}

// nounOf is what people call things of a kind.
func nounOf(kind string) string {
	switch say := nameOf[kind]; {
	case kind == "key":
		return "authorized key"
	case kind == "member":
		return "member of a group"
	case say != nil:
		return strings.TrimSpace(say(inspect.Trace{}))
	}
	return kind
}

// nameOfGone says what is gone by its kind alone: the baseline has no names.
func nameOfGone(g inspect.Gone) string {
	if len(g.Tools) > 0 {
		return strings.Join(g.Tools, ", ") + ": worked at the inspection, and is gone or fails now, so what it shows is " +
			"unknown"
	}
	return fmt.Sprintf("%s: gone since the inspection, %d of those that were there", nounOf(g.Kind), g.Count)
}

// must adds a finding that has its place whatever else there is.
func (v *Verification) must(f Finding) {
	v.Findings = append(v.Findings[:min(len(v.Findings), maxFindings-1)], f)
}

// compare finds what came, changed or went since the host was inspected before the claim. Whose it is, nothing on the
// host can prove, so it is never removed.
func (v *Verification) compare(o Options, now *inspect.Traces) {
	baseline, err := inspect.ParseBaseline(o.Baseline)
	if err != nil || baseline == nil {
		v.unrecorded(o, err)
		return
	}
	lost, missing := baseline.Missing(now)
	if o.IgnoreChanges {
		missing = append(missing, lost...)
	}
	if len(missing) > 0 {
		v.Skipped = append(v.Skipped, "what came since the inspection, of "+strings.Join(missing, ", ")+
			": not read both then and now")
	}
	var names []string
	for _, t := range baseline.Later(now) {
		if t.Kind == "key" && o.OwnKey != "" && fingerprint(t) == o.OwnKey {
			continue
		}
		name := t.Kind + " " + t.Name
		if say := nameOf[t.Kind]; say != nil {
			name = say(t)
		}
		names = append(names, shorten(name, maxFinding))
	}
	if inspect.Outdated(o.Baseline) {
		v.Skipped = append(v.Skipped, "what is gone since the inspection, and modes and owners of files: an earlier version "+
			"of Quoin inspected the host")
	}
	gone := baseline.Gone(now)
	if o.IgnoreChanges {
		for _, g := range gone {
			names = append(names, nameOfGone(g))
		}
		v.pass(names)
		return
	}
	// Few, and each of its kind: what came may be many.
	for _, kind := range lost {
		v.must(Finding{
			What: nounOf(kind) + ": could be read at the inspection, and cannot be now",
			Fix: "see which program or file is not there any more, and bring it back; or, if you removed it, set " +
				"spec.cleaning.ignoreChanges",
		})
	}
	for _, g := range gone {
		v.must(Finding{
			What: nameOfGone(g),
			Fix: "put it back, a backup or a host of its kind shows what it was; or, if you removed it, set " +
				"spec.cleaning.ignoreChanges",
		})
	}
	for _, name := range names[:min(len(names), max(0, maxFindings-len(v.Findings)))] {
		v.Findings = append(v.Findings, Finding{
			What: name + " came or changed since the inspection",
			Fix:  "put back what was there; or, if it is yours, set spec.cleaning.ignoreChanges",
		})
	}
}

// unrecorded says that nothing can be compared: where changes may not pass, nobody may take that for clean.
func (v *Verification) unrecorded(o Options, err error) {
	why := "nothing is on record of it"
	if err != nil {
		why = err.Error()
	}
	if o.IgnoreChanges {
		v.Skipped = append(v.Skipped, "what came since the inspection: "+why)
		return
	}
	v.must(Finding{
		What: "what came since the inspection before the claim cannot be found: " + why,
		Fix: "look at the host, and set spec.cleaning.ignoreChanges to true until it is free again; or install it anew, " +
			"delete the QuoinHost and register it again",
	})
}

// pass names what is let pass, the first of many.
func (v *Verification) pass(names []string) {
	const shown = 5
	if len(names) == 0 {
		return
	}
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
	}
	v.Skipped = append(v.Skipped, fmt.Sprintf("whose these are that came or changed since the inspection: %s%s",
		strings.Join(names[:min(len(names), shown)], ", "), more))
}
