// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

const (
	journal = "1700000000 b1 a start\n1700000001 b1 a done 0\n1700000002 b1 once start\n1700000003 b1 once failed 124 60\n1700000004 b2 x interrupted\n"
	mounts  = "/dev/root / ext4 rw 0 0\ntmpfs /var/lib/kubelet/pods/a\\040b tmpfs rw 0 0\ntmpfs /var/lib/kubelet/x tmpfs rw 0 0\n"
	save    = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:CNI-x - [0:0]\n-A PREROUTING -m comment --comment \"a b\" -j KUBE-SERVICES\n-A KUBE-SERVICES -j CNI-x\n-A PREROUTING -s 10.0.0.1/32 -j DROP\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -g KUBE-FORWARD\nCOMMIT\n"
	df      = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/root 100 50 50 50% /\n"
	routes  = "default via 10.0.0.1 dev eth0 proto static \n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.11 \n"
)

// What is simulated of awk, sed, grep and others says what the real ones say.
func TestToolsSayWhatTheRealOnesSay(t *testing.T) {
	for _, c := range []struct{ input, command string }{
		{journal, `awk '$4 == "failed" { print $3; exit }'`},
		{journal, `awk -v s=once -v w=start '$3 == s && $4 == w { f = 1 } END { exit !f }'; echo $?`},
		{journal, `awk -v s=onc -v w=start '$3 == s && $4 == w { f = 1 } END { exit !f }'; echo $?`},
		{journal, `awk '$4 == "failed" { print "failed", $3, $5, $6 } $4 == "interrupted" { print "interrupted", $3 }' | head -n 1`},
		{journal, `awk '$4 == "start" { s = $3 } END { print s }'`},
		{mounts, `awk -v p="/var/lib/kubelet/" 'index($2, p) == 1 { print $2 }' | sort -ru`},
		{mounts, `awk -v p=/ '$2 == p { f = 1 } END { exit !f }'; echo $?`},
		{save, `awk '
		/^\*/ { print; n = 0 }
		/^:(KUBE-|CNI-|cali-)/ { chains[++n] = substr($1, 2) }
		/^-A (KUBE-|CNI-|cali-)/ { next }
		/^-A .* (-j|-g) (KUBE-|CNI-|cali-)/ { sub(/^-A/, "-D"); print }
		/^COMMIT/ {
			for (i = 1; i <= n; i++) print "-F " chains[i]
			for (i = 1; i <= n; i++) print "-X " chains[i]
			print
		}'`},
		{df, `awk 'NR == 2 { print $4 }'`},
		{"0: 0100007F:192B 0:0 0A\n1: 0100007F:08FA 0:0 01\n", `awk -v p=":192B" '$4 == "0A" && substr($2, length($2) - 4) == p { f = 1 } END { exit !f }'; echo $?`},
		{"a b c\n10 9 8\n", `awk '{ $2 = "x"; print; n += $1 } END { print n, NR, (NF > 2 ? "many" : "few") }'`},
		{"a:b:c\n", `awk -F: '{ print $1 "-" $3; printf "%s %d %5.1f\n", $2, 42.9, 3.14159; print length($0), toupper($1), index("abc", "c") }'`},
		{"one two one\n", `awk '{ n = gsub(/one/, "[&]"); print n, $0; split("a,b,c", p, ","); print p[1] p[3]; if (match($0, /two/)) print RSTART, RLENGTH }'`},
		{"b\na\nb\n", `awk '!seen[$0]++'`},
		{"3\n10\n2\n", `awk '$1 > 2 { print ($1 > 9 ? "big" : "small") } $1 ~ /^[0-9]$/ { c++ } END { print c + 0 }'`},
		{"x y\nz\n", `awk 'BEGIN { OFS = "-" } { $1 = $1; print } END { i = 3; while (i-- > 0) { if (i == 1) continue; printf "%d ", i }; print "" }'`},
		{routes, `sed -n 's/.* dev \([^ ]*\).*/\1/p'`},
		{routes, `sed 's/^/step /'`},
		{"MemTotal:       16384 kB\nMemFree: 1 kB\n", `sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p'`},
		{"State:\tS (sleeping)\n", `sed -n 's/^State:[[:space:]]*\(.\).*/\1/p'`},
		{"_a_b_", `sed 's/^_//; s/_$//'`},
		{"unit kubelet.service\nfile /etc/x\nunit y\n", `sed -n 's/^unit //p' | tac`},
		{"a\nb\nc\nd\n", `sed -e '/b/,/c/d' -e 's/d/[&]/'`},
		{"a\nb\nc\n", `sed -n '2p;$='`},
		{"a.b.c\n", `sed 's/\./-/2; s|a|/|'; `},
		{"aXbX\n", `sed -E 's/(a|b)X/\1/g'`},
		{"TYPE=ext4\nPTTYPE=gpt\n\n", `sed -n -e 's/^PTTYPE=//p' -e 's/^TYPE=//p'`},
		{"# offset,uuid,label,type\n0x438,u,l,ext4\n\n", `sed '/^#/d; /^$/d; s/.*,//' | sort -u | tr '\n' ' ' | sed 's/ $//'`},
		{"/dev/sda disk\n/dev/sda1 part\n", `sed -n 's/ part$//p'`},
		{"file a\noriginal b\nfile ab\n", `grep -xF -e "file a" -e "original b"; grep -c file; grep -qxF -- "file" ; echo $?`},
		{"server x\npool y\nother\n", `grep -Ev '^(server|pool) '`},
		{"a  b\t c\n", `tr -s '[:space:]' '_'`},
		{"a\000b\n", `tr -d '\000' | wc -c`},
		{"net.ipv4.ip_forward", `tr . /`},
		{"root:x:0:0:r:/root:/bin/sh\n", `cut -d: -f6; printf abcdef | cut -c 1-3`},
		{"1\n2\n3\n4\n", `tail -n 2; printf '1\n2\n3' | tail -n +2; printf abc | tail -c 1; printf abc | head -c 2`},
		{"12 /dev/x 1 2 3 4 /b\n11 /dev/y 1 2 3 4 /a\n", `sort -k 7`},
		{"", `printf '%s|%5s|%-5s|%04X|%b|%%|%d\n' a b c 10250 'x\ty' 007; printf '%s %s\n' a b c; printf '\101\n'`},
		{"", `basename /a/b.txt .txt; dirname /a/b/c; dirname a; dirname /a; basename "$(dirname /x/y/)"`},
		{"", `x=/sys/class/net/eth0; echo "${x##*/}" "${x%/*}" "${x#/sys}" "${x:-d}" "${y:-d}" "${y+set}" "${#x}"`},
		{"", `x='a b  c'; set -- $x; echo $# "$3"; IFS=:; y=a:b; set -- $y; echo "$2"`},
		{"", `set -- a "b c"; for i in "$@"; do echo "[$i]"; done; echo "$*"; shift; echo $1`},
		{"", `f() { case $1 in a|b) return 3;; *) return 4;; esac; }; f a; echo $?; f x || echo $?`},
		{"l1\nl2 x y\n", `while read -r a rest; do echo "$rest:$a"; done; read -r z || echo end`},
		{"", `a=5 b=3; echo $((a * b - 1)) $((a > b)) $((-a)) $((a % b)); echo $(( (a + 1) / 2 ))`},
		{"", `(exit 3); echo $?; ! true; echo $?; { false; true; }; echo $?; if false; then :; fi; echo $?`},
		{"", `case " a b " in *" b "*) echo in;; esac; case 'x*' in 'x*') echo lit;; esac`},
		{"", "cat <<-E\n\ta $((1+1))\n\tE\ncat <<'X'\n$b `c`\nX"},
		{"", `echo 'a\tb'; echo -n x; echo "q\"q"; echo a\\b`},
		{"", `v=$(printf 'a\n\n'); echo "[$v]"; echo "[` + "`echo b`" + `]"`},
		{"", `exec 3>&1; (echo to3 >&3) >/dev/null; echo err 2>/dev/null >&2; exec 3>&-; echo ok`},
		{"", `trap 'echo t' EXIT; (trap - EXIT; exit 2); echo $?; exit 5`},
		{"", `n=0; while :; do n=$((n+1)); [ $n -lt 3 ] || break; done; echo $n; until [ $n = 0 ]; do n=$((n-1)); done; echo $n`},
		{"", `[ -z "" ] && [ a != b ] && [ 2 -gt 1 ] && ! [ -e /nonexistent ] && echo yes; [ 1 = 1 -a 2 = 3 ] || echo no; [ "!" = "!" ] && echo bang`},
		{"", `a=x; readonly a; (a=y) 2>/dev/null; echo $?; unset b; echo "${b-unset}"`},
		{"", `eval 'x=1; echo $x'; command -v echo; type nothing >/dev/null 2>&1; echo $?; umask 027; umask`},
	} {
		t.Run(c.command, func(t *testing.T) {
			g := NewWithT(t)
			actual := exec.Command("/bin/sh", "-c", c.command)
			actual.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
			actual.Stdin = strings.NewReader(c.input)
			want, wantErr := actual.Output()
			var exit *exec.ExitError
			if wantErr != nil && !errors.As(wantErr, &exit) {
				t.Skip(wantErr)
			}
			m := newMachine(t)
			var out, stderr bytes.Buffer
			code, err := m.Run(t.Context(), machine.Session{Command: c.command, Stdin: strings.NewReader(c.input), Stdout: &out, Stderr: &stderr})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(string(want)), "%s", stderr.String())
			g.Expect(code).To(Equal(actual.ProcessState.ExitCode()))
			known(t, m)
		})
	}
}

var awkProgram = regexp.MustCompile(`(?s)\bawk (?:-[vF] ?\S+ )*'([^']+)'`)

// Every awk program of the scripts is one that the simulation reads, and prints the same as the real awk over what it may meet.
func TestEveryAwkProgramOfTheScripts(t *testing.T) {
	seen := map[string]bool{}
	root := "../../../bootstrap"
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".sh") && (!strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range awkProgram.FindAllStringSubmatch(string(content), -1) {
			seen[found[1]] = true
		}
		return nil
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(len(seen)).To(BeNumerically(">", 5))
	for program := range seen {
		t.Run(program, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t)
			for _, input := range []string{journal, mounts, save, df, routes, "", "a b c d e f g\n"} {
				args := []string{"-v", "s=a", "-v", "w=start", "-v", "n=a", "-v", "p=/", program}
				actual := exec.Command("awk", args...)
				actual.Stdin = strings.NewReader(input)
				want, _ := actual.Output()
				var out, stderr bytes.Buffer
				g.Expect(m.FS().WriteFile("/root/program", machine.File{Content: []byte(program)})).To(Succeed())
				code, err := m.Run(t.Context(), machine.Session{Command: `awk -v s=a -v w=start -v n=a -v p=/ "$(cat /root/program)"`, Stdin: strings.NewReader(input), Stdout: &out, Stderr: &stderr})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out.String()).To(Equal(string(want)), "%s", stderr.String())
				g.Expect(code).To(Equal(actual.ProcessState.ExitCode()))
			}
			known(t, m)
		})
	}
}
