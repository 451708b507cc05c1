// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// upload returns the script that receives a plan and the bytes that it receives. All files come one after the other
// through standard input, cut by length and checked by sum: one exchange, and no secret in any command line. The
// directory gets its name when everything is in it, and the complete marker last of all.
//
// A session that is cut does not end its script here, so two uploads of one plan may overlap. Each receives into a
// directory of its own, without the lock, for a peer that fell silent would hold it; and looks again, under the lock,
// whether the plan came meanwhile. Descriptor 8 marks a directory in use: what nobody holds is left from a cut.
func (r Runner) upload(plan Plan) (script string, content io.Reader) {
	var receive, sums strings.Builder
	var body bytes.Buffer
	add := func(path string, data []byte) {
		fmt.Fprintf(&receive, "\thead -c %d >\"$tmp/%s\"\n", len(data), path)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), path)
		body.Write(data)
	}
	add("runner.sh", []byte(runnerScript))
	add("prelude.sh", []byte(Prelude))
	add("steps", stepList(plan.Steps))
	for _, step := range plan.Steps {
		add("scripts/"+step.Name, []byte(step.Script+"\n"))
	}
	for _, file := range plan.Files {
		add("files/"+file.Name, file.Content)
	}
	return fmt.Sprintf(`set -eu
%s
dir=%s
take_lock
known_format "$dir"
if ! [ -f "$dir/complete" ]; then
	mkdir -p "$root/runs"
	chmod 0700 "$root"
	for left in "$root"/runs/.upload.*; do
		[ -d "$left" ] && flock -n "$left" rm -rf "$left" || :
	done
	tmp=$(mktemp -d "$root/runs/.upload.XXXXXX")
	exec 8<"$tmp"
	flock -n 8
	drop_lock
	trap 'rm -rf "$tmp"' EXIT
	mkdir "$tmp/scripts" "$tmp/files" "$tmp/log"
%s	cd "$tmp"
	sha256sum --quiet -c - >&2 <<'SUMS' || { echo "the plan arrived damaged" >&2; exit 1; }
%sSUMS
	find . -type f -exec sync {} +
	cd /
	take_lock
	if ! [ -f "$dir/complete" ]; then
		# What has a journal has begun: it is evidence, and never made room of.
		[ ! -e "$dir/journal" ] || { echo "$dir has a journal but is not complete; clean this host" >&2; exit 1; }
		[ -d "$tmp/scripts" ] || { echo "the plans on this host were stopped while this one arrived" >&2; exit 1; }
		rm -rf "$dir"
		mv -T "$tmp" "$dir"
		: >"$dir/complete"
		sync "$dir/complete" "$dir" "$root/runs"
	fi
	rm -rf "$tmp"
	trap - EXIT
fi
`, r.lock(), ssh.Quote(r.dir(plan.ID)), receive.String(), sums.String()), &body
}

// lock is sh text that sets root and defines take_lock and drop_lock: whoever looks whether a plan is there, runs or
// has ended, and acts on it, does both under one lock. Descriptors 6, the guard's, and 7 must not reach what outlives
// the script.
func (r Runner) lock() string {
	return fmt.Sprintf(`umask 077
root=%s
for tool in awk flock timeout; do
	command -v $tool >/dev/null || { echo "$tool is not installed on this host; install it" >&2; exit 1; }
done
take_lock() {
	mkdir -p "$root" || exit 1
	exec 7>"$root/runs.lock"
	flock -w 120 7 || { echo "another exchange with this host has held $root/runs.lock for 120 s; it is tried again" >&2; exit 1; }
%s}
drop_lock() { exec 6>&- 7>&-; }
%s`, ssh.Quote(r.root()), r.Guard, knownFormat)
}

// knownFormat is sh text that defines known_format, which ends the script where a plan is one that this release of
// Quoin would misread. A plan brings the runner of its release along, and with it the format of its list of steps, its
// journal and its result, to whose lines any release may add words. Whatever else changes comes with another number in
// a file "format", which format 1 lacks. In each of them the files "complete" and "result" say that a plan is there and
// ended.
const knownFormat = `known_format() {
	format=$(cat "$1/format" 2>/dev/null || echo 1)
	[ "$format" = 1 ] || {
		echo "plan $(basename "$1") on this host has format $format, which a later release of Quoin wrote, and this one" \
			"reads format 1, so it leaves the plan alone: install that release again" >&2
		exit 1
	}
}
`

// stepList is the file the runner walks: name, once, secret, seconds.
func stepList(steps []Step) []byte {
	var b bytes.Buffer
	for _, s := range steps {
		fmt.Fprintf(&b, "%s %d %d %d\n", s.Name, flag(s.Once), flag(s.Secret), s.seconds())
	}
	return b.Bytes()
}

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}
