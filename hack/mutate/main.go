// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutate changes one thing at a time in packages that decide, and prints what their tests do not notice.
//
//	go run ./hack/mutate [--files leave.go] [--shard 1/4] [--changed-since main] internal/quorum internal/etcd/read.go ...
//
// A survivor is mended by a test, or listed in equivalents.txt with the reason why it changes nothing: a line of
// "file function: mutated text  # reason", by text and not by line number, so that it outlives changes beside it. One
// that ran out of time may have been noticed, or survived on a slow machine: it fails the run like a survivor, and is
// tried again with a longer --timeout, or listed when it has a loop go on for ever.
//
// Tests that take longer than --longest, such as those with real etcd members, judge no mutant, and are named: each
// mutant would cost their time. What they alone notice survives, and deserves a quick test.
//
// Of other tools, go-mutesting lists equivalents by the MD5 of the mutated file, so that each edit of the file outdates
// them; gremlins says itself that it does not suit big modules; ooze runs a whole suite for each mutant. Here the list
// goes by text, an overlay needs no copy of the module, one test binary has all mutants of a package, and rapid's seed is
// fixed, so that two runs say the same.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	files, shard, since, equivalents string
	checks                           int
	timeout, longest                 time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.files, "files", "", "names of the files to mutate, with commas; all when empty")
	flag.StringVar(&o.shard, "shard", "1/1", "i/n: the i-th of n parts of the mutants")
	flag.StringVar(&o.since, "changed-since", "", "mutate files alone that changed since a revision")
	flag.StringVar(&o.equivalents, "equivalents", "hack/mutate/equivalents.txt", "survivors that change nothing")
	flag.IntVar(&o.checks, "checks", 100, "checks of each property (rapid.checks)")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "how long the tests of one mutant may take")
	flag.DurationVar(&o.longest, "longest", 5*time.Second,
		"leave out tests that take longer where nothing is mutated, such as those with real etcd members; 0: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	bad, err := run(ctx, o, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// run mutates packages, and returns how many survivors and mutants that ran out of time are not listed, and how many
// entries of the list are stale. Cut short, it tells the totals so far.
func run(ctx context.Context, o options, packages []string, out io.Writer) (bad int, err error) {
	var part, parts int
	if _, err := fmt.Sscanf(o.shard, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		return 0, fmt.Errorf("--shard %q is no i/n", o.shard)
	}
	listed, err := readEquivalents(o.equivalents)
	if err != nil {
		return 0, err
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	begun, number := time.Now(), 0
	became := map[string]int{}
	defer func() {
		fmt.Fprintf(out, "%d mutants, %d killed, %d ran out of time, %d equivalent, %d to mend, %d did not compile, "+
			"%.1f minutes\n", became[killedMutant]+became[suspect]+became[listedMutant]+became[survivor],
			became[killedMutant], became[suspect], became[listedMutant], bad, became[invalidMutant],
			time.Since(begun).Minutes())
	}()
	for _, dir := range packages {
		files, err := sources(ctx, dir, o)
		if err != nil {
			return bad, err
		}
		if len(files) == 0 {
			continue
		}
		suite, err := measure(ctx, filepath.Dir(files[0]), scratch, o)
		if err != nil {
			return bad, err
		}
		if len(suite.left) > 0 {
			fmt.Fprintf(out, "%s: left out: %s\n", dir, strings.Join(suite.left, ", "))
		}
		var together, alone []*mutant
		known := map[string]bool{}
		for _, file := range files {
			mutants, err := mutate(file)
			if err != nil {
				return bad, err
			}
			for _, m := range mutants {
				known[m.key()] = true
				number++
				m.number = strconv.Itoa(number)
				switch {
				case number%parts != part%parts:
				case m.alone():
					alone = append(alone, m)
				default:
					together = append(together, m)
				}
			}
			for key := range listed {
				if strings.HasPrefix(key, file+" ") && !known[key] {
					bad++
					fmt.Fprintf(out, "%s: stale: %s\n", o.equivalents, key)
				}
			}
		}
		judge := func(mutants []*mutant) error {
			if len(mutants) == 0 {
				return nil
			}
			if err := suite.compile(ctx, mutants); err != nil {
				return err
			}
			for _, m := range mutants {
				how, err := suite.try(ctx, m)
				if err != nil {
					return err
				}
				noticed := how != survivor && how != suspect
				if !noticed && listed[m.key()] != "" {
					how, noticed = listedMutant, true
				}
				became[how]++
				if !noticed {
					bad++
				}
				if how == survivor && !suite.covered(m) {
					how = "not covered"
				}
				if !noticed {
					fmt.Fprintf(out, "%s:%d: %s: %s: %s\n", m.file, m.line, how, m.function, m.text)
				}
			}
			return nil
		}
		binaries := [][]*mutant{together}
		for _, m := range alone {
			binaries = append(binaries, []*mutant{m})
		}
		for _, mutants := range binaries {
			if err := judge(mutants); err != nil {
				return bad, err
			}
		}
	}
	return bad, nil
}

// sources of a package, without its tests, as far as the options pick them; or the one that is named.
func sources(ctx context.Context, dir string, o options) ([]string, error) {
	dir = filepath.Clean(dir)
	pattern := filepath.Join(dir, "*.go")
	if strings.HasSuffix(dir, ".go") {
		pattern = dir
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no source %s", pattern)
	}
	changed := ""
	if o.since != "" {
		diff, err := exec.CommandContext(ctx, "git", "diff", "--name-only", "--relative", o.since, "--", dir).Output()
		if err != nil {
			return nil, fmt.Errorf("what changed since %s: %w", o.since, err)
		}
		changed = "\n" + string(diff)
	}
	return slices.DeleteFunc(files, func(file string) bool {
		return strings.HasSuffix(file, "_test.go") || strings.Contains(file, "zz_generated") ||
			o.files != "" && !slices.Contains(strings.Split(o.files, ","), filepath.Base(file)) ||
			o.since != "" && !strings.Contains(changed, "\n"+file+"\n")
	}), nil
}

// readEquivalents reads the list: reasons by key.
func readEquivalents(path string) (map[string]string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // named by who runs it
	if err != nil {
		return nil, err
	}
	listed := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, "  # ")
		if at < 0 {
			return nil, fmt.Errorf("%s:%d: no reason", path, i+1)
		}
		listed[strings.TrimSpace(line[:at])] = line[at+4:]
	}
	return listed, nil
}

// suite is the tests of a package.
type suite struct {
	dir, scratch string
	o            options
	flags        []string
	// stages are patterns of tests, the quick ones first.
	stages []string
	// left are the tests that are left out, because they take too long.
	left []string
	// binary of the tests, with the mutants.
	binary string
	// lines that some test covers, as from and to, by the file's base name.
	lines map[string][][2]int
}

var (
	passed  = regexp.MustCompile(`(?m)^--- PASS: (\w+) \((\d+\.\d+)s\)`)
	profile = regexp.MustCompile(`(?m)/([^/]+\.go):(\d+)\.\d+,(\d+)\.\d+ \d+ [1-9]\d*$`)
)

// quick is how long a test takes that is tried before the others.
const quick = 0.2

// measure runs the tests of what is not mutated: they must pass, and tell what they cover and how long each takes.
func measure(ctx context.Context, dir, scratch string, o options) (*suite, error) {
	s := &suite{dir: dir, scratch: scratch, o: o, lines: map[string][][2]int{}}
	tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, test := range tests {
		text, err := os.ReadFile(test) //nolint:gosec // a test of the package
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			// A mutant is killed by the first failure: a small counterexample would take half a minute more.
			s.flags = []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ns",
				fmt.Sprintf("-rapid.checks=%d", o.checks)}
		}
	}
	coverage := filepath.Join(scratch, "coverage")
	args := append([]string{"test", "-count=1", "-v", "-coverprofile", coverage, "./" + dir}, s.flags...)
	output, err := command(ctx, scratch, "go", args...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("the tests of %s fail before anything is mutated: %w\n%s", dir, err, output)
	}
	s.order(string(output))
	data, err := os.ReadFile(coverage) //nolint:gosec // written above
	if err != nil {
		return nil, err
	}
	for _, match := range profile.FindAllStringSubmatch(string(data), -1) {
		from, _ := strconv.Atoi(match[2])
		to, _ := strconv.Atoi(match[3])
		s.lines[match[1]] = append(s.lines[match[1]], [2]int{from, to})
	}
	return s, nil
}

// order makes the stages of the tests that passed, by how long each took.
func (s *suite) order(output string) {
	var fast, slow []string
	for _, match := range passed.FindAllStringSubmatch(output, -1) {
		seconds, _ := strconv.ParseFloat(match[2], 64)
		switch {
		case s.o.longest > 0 && seconds > s.o.longest.Seconds():
			s.left = append(s.left, match[1])
		case seconds < quick:
			fast = append(fast, match[1])
		default:
			slow = append(slow, match[1])
		}
	}
	for _, names := range [][]string{fast, slow} {
		if len(names) > 0 {
			s.stages = append(s.stages, "^("+strings.Join(names, "|")+")$")
		}
	}
}

// command leaves what it writes for a while in the scratch directory, also when it is killed. The go command is asked
// to end, because it ends its compilers then.
func command(ctx context.Context, scratch, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // go, or tests that it compiled
	c.Env = append(os.Environ(), "TMPDIR="+scratch)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = time.Second
	return c
}

// covered reports whether a test runs the line of a mutant. A constant outside of functions is in no profile, and a
// profile has of a case its body alone.
func (s *suite) covered(m *mutant) bool {
	asks := strings.HasPrefix(strings.TrimPrefix(m.text, "- "), "case ")
	return m.function == "" || asks || slices.ContainsFunc(s.lines[filepath.Base(m.file)], func(span [2]int) bool {
		return span[0] <= m.line && m.line <= span[1]
	})
}

// What became of a mutant. Of one that ran out of time nothing is known: it may loop, or the machine is slow.
const (
	killedMutant  = "killed"
	invalidMutant = "did not compile"
	listedMutant  = "equivalent"
	survivor      = "survives"
	suspect       = "ran out of time"
)

// try runs the tests with a mutant, which was compiled.
func (s *suite) try(ctx context.Context, m *mutant) (string, error) {
	switch {
	case m.invalid:
		return invalidMutant, nil
	case !s.covered(m):
		return survivor, nil
	}
	limited, cancel := context.WithTimeout(ctx, s.o.timeout)
	defer cancel()
	for _, stage := range s.stages {
		args := append([]string{"-test.failfast", "-test.run", stage}, s.flags...)
		tests := command(limited, s.scratch, s.binary, args...)
		tests.Dir, tests.Env = s.dir, append(tests.Env, chosen+"="+m.number)
		if tests.Run() == nil {
			continue
		}
		if limited.Err() != nil {
			return suspect, ctx.Err()
		}
		return killedMutant, nil
	}
	return survivor, nil
}
