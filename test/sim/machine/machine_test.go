// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

func newMachine(t *testing.T, change ...func(*machine.Options)) *machine.Machine {
	t.Helper()
	o := machine.Options{Hostname: "host-1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.11/24")}}
	for _, c := range change {
		c(&o)
	}
	m := machine.New(o)
	t.Cleanup(m.PowerOff)
	return m
}

// sh runs a script and returns what it printed to both streams, and its code.
func sh(t *testing.T, m *machine.Machine, script string) (string, string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code, err := m.Run(ctx, machine.Session{Command: script, Stdin: strings.NewReader("input\n"), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	return stdout.String(), stderr.String(), code
}

func TestTheShell(t *testing.T) {
	for name, c := range map[string]struct {
		script, out string
		code        int
	}{
		"words":                      {`a=1; echo "$a" '$a' ${b:-x} $((a + 2))`, "1 $a x 3\n", 0},
		"pipeline":                   {`printf 'b\na\n' | sort | tr a-z A-Z`, "A\nB\n", 0},
		"substitution":               {`x=$(echo a; echo b); echo "[$x]"`, "[a\nb]\n", 0},
		"here-document":              {"x=1; cat <<E\n$x\nE\ncat <<'E'\n$x\nE", "1\n$x\n", 0},
		"loop":                       {`for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done`, "1\n3\n", 0},
		"while read":                 {`printf 'a b\nc d\n' | while read -r x y; do echo "$y$x"; done`, "ba\ndc\n", 0},
		"function":                   {`f() { echo "$1-$#"; return 3; }; f x y; echo $?`, "x-2\n3\n", 0},
		"errexit":                    {`set -e; false || echo a; if false; then :; fi; false; echo never`, "a\n", 1},
		"errexit assignment":         {`set -e; x=$(false); echo never`, "", 1},
		"nounset":                    {`set -u; echo "$nope"; echo never`, "", 2},
		"exit trap":                  {`trap 'echo bye' EXIT; echo a; exit 4`, "a\nbye\n", 4},
		"subshell":                   {`x=1; (x=2; exit 3); echo $? $x`, "3 1\n", 0},
		"background":                 {`(sleep 0.01; exit 7) & wait $!; echo $?`, "7\n", 0},
		"case":                       {`case abc in x) echo x;; a*) echo a;; esac`, "a\n", 0},
		"high descriptors":           {`exec 9>/tmp/f; echo x >&9; exec 9>&-; exec 8</tmp/f; read -r y <&8; echo $y`, "x\n", 0},
		"unknown":                    {`frobnicate; echo $?`, "127\n", 0},
		"command -v":                 {`command -v awk; command -v nothing || echo none`, "/usr/bin/awk\nnone\n", 0},
		"globs":                      {`cd /etc; echo passw* nothing*`, "passwd nothing*\n", 0},
		"kill":                       {`sleep 60 & kill $!; wait $!; echo $?`, "143\n", 0},
		"group":                      {`(exec timeout 60 sh -c 'sleep 60 & sleep 60') & g=$!; sleep 0.05; kill -s KILL -- "-$g"; wait $g; echo $?`, "137\n", 0},
		"timeout":                    {`timeout 0.05 sleep 60; echo $?; timeout -k 0.05 0.05 sh -c 'trap "" TERM; while :; do sleep 0.01; done'; echo $?`, "124\n137\n", 0},
		"eval head":                  {`q=$(head -c 3) && echo "$q"; cat`, "inp\nut\n", 0},
		"default values":             {`: "${x:=5}"; echo $x ${x%5} ${x#?}`, "5\n", 0},
		"trim":                       {`p=/a/b/c; echo ${p##*/} ${p%/*}`, "c /a/b\n", 0},
		"redirections":               {`{ echo out; echo err >&2; } 2>&1 >/dev/null`, "err\n", 0},
		"printf":                     {`printf '%s-%04X|%5d\n' a 255 7; printf '%s\n' x y`, "a-00FF|    7\nx\ny\n", 0},
		"sh -s":                      {"/bin/sh -s -- a b <<'E'\necho $2 $#\nE", "b 2\n", 0},
		"pipe breaks":                {`while echo y; do :; done | head -n 1`, "y\n", 0},
		"process identity":           {`sh -c 'echo $$ >/tmp/p; exec sleep 0.1' & wait $!; [ "$(cat /tmp/p)" = $! ] && echo same`, "same\n", 0},
		"dot":                        {`echo 'v=7' >/tmp/e; . /tmp/e; echo $v`, "7\n", 0},
		"export -p":                  {`A="it's x"; export A; export -p | grep ' A='; export -p >/tmp/e; A=; . /tmp/e; echo "$A"`, "export A='it'\"'\"'s x'\nit's x\n", 0},
		"until":                      {`n=0; until [ $n -ge 3 ]; do n=$((n + 1)); done; echo $n`, "3\n", 0},
		"break out of two":           {`for a in 1 2; do for b in 1 2; do break 2; done; done; echo $a$b`, "11\n", 0},
		"assignment for one":         {`X=1 sh -c 'echo $X'; echo "[$X]"`, "1\n[]\n", 0},
		"exit code of a pipe":        {`false | true; echo $?; true | false; echo $?`, "0\n1\n", 0},
		"negation":                   {`set -e; ! false; ! true || echo no; echo end`, "no\nend\n", 0},
		"function in a substitution": {`f() { cat /etc/hostname; echo b; }; echo $(f) | cat; x=$(f | tail -n 1); echo $x`, "host-1 b\nb\n", 0},
		"shift":                      {`set -- a b c; shift; echo "$@" $#`, "b c 2\n", 0},
		"args kept apart":            {`set -- "a b" c; for x; do echo "$x"; done`, "a b\nc\n", 0},
		"umask":                      {`umask 077; echo >/tmp/m; stat -c %a /tmp/m`, "600\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t)
			out, stderr, code := sh(t, m, c.script)
			g.Expect(out).To(Equal(c.out), "stderr: %s", stderr)
			g.Expect(code).To(Equal(c.code), "stderr: %s", stderr)
		})
	}
}

func TestWhatIsUnknownIsLoud(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	_, stderr, code := sh(t, m, `ls --frobnicate`)
	g.Expect(code).To(Equal(127))
	g.Expect(stderr).To(ContainSubstring("test/sim/machine does not simulate"))
	_, _, code = sh(t, m, `frobnicate`)
	g.Expect(code).To(Equal(127))
	g.Expect(m.Unknown()).To(ConsistOf("ls --frobnicate", "command frobnicate"))
}
