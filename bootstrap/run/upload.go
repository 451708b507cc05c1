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
umask 077
root=%s
dir=%s
if ! [ -f "$dir/complete" ]; then
	mkdir -p "$root/runs"
	chmod 0700 "$root"
	rm -rf "$root"/runs/.upload.*
	tmp=$(mktemp -d "$root/runs/.upload.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	mkdir "$tmp/scripts" "$tmp/files" "$tmp/log"
%s	cd "$tmp"
	sha256sum --quiet -c - >&2 <<'SUMS' || { echo "the plan arrived damaged" >&2; exit 1; }
%sSUMS
	find . -type f -exec sync {} +
	cd /
	rm -rf "$dir"
	mv -T "$tmp" "$dir"
	trap - EXIT
	: >"$dir/complete"
	sync "$dir/complete" "$dir" "$root/runs"
fi
`, ssh.Quote(r.root()), ssh.Quote(r.dir(plan.ID)), receive.String(), sums.String()), &body
}

// stepList is the file the runner walks: name, once, secret.
func stepList(steps []Step) []byte {
	var b bytes.Buffer
	for _, s := range steps {
		fmt.Fprintf(&b, "%s %d %d\n", s.Name, flag(s.Once), flag(s.Secret))
	}
	return b.Bytes()
}

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}
