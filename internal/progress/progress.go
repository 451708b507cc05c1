// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress shows what a long-running command does: one line for each step, how long it took, and, while a step
// waits, what it waits for. On a terminal the last line moves; in a log every line stays.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// ReportEvery is how often a waiting step says what it waits for.
const ReportEvery = 15 * time.Second

// frames of the spinner that a terminal shows.
var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Printer prints steps. The zero value is not usable; see New.
type Printer struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu   sync.Mutex
	step *Step
	// hide ends what Show shows.
	hide func()
}

// New prints to out. A spinner turns only where out is a terminal: in a log every line stays.
func New(out io.Writer) *Printer {
	return &Printer{out: out, terminal: isTerminal(out), began: time.Now()}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Elapsed is the time since the Printer was made.
func (p *Printer) Elapsed() time.Duration { return time.Since(p.began) }

// Printf prints a line between steps or within one.
func (p *Printer) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(fmt.Sprintf(format, args...))
}

// line prints one line; the caller holds the lock.
func (p *Printer) line(text string) {
	if p.terminal {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	_, _ = fmt.Fprintln(p.out, text)
}

// Write implements io.Writer, for what others print in whole lines.
func (p *Printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.step != nil { // nothing but the line that moves is unfinished
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	return p.out.Write(text)
}

// Show keeps a title below what is printed, and for how long it has been there, until the next one. An empty one takes
// it away, as before a question to a person. It does so on a terminal alone, and not within a Step.
func (p *Printer) Show(title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		return
	}
	if p.hide != nil {
		p.hide()
		p.step, p.hide = nil, nil
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	if title == "" {
		return
	}
	stop := make(chan struct{})
	p.step, p.hide = &Step{printer: p, title: narrow(title), began: time.Now()}, func() { close(stop) }
	go p.step.spin(stop)
}

// Step does one thing within a deadline and prints how it went. An error names the step, so that a caller passes it on
// as it is. Steps do not nest: an inner one is printed as a part of the outer one.
func (p *Printer) Step(
	ctx context.Context, title string, deadline time.Duration, do func(context.Context, *Step) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	step := &Step{printer: p, title: title, began: time.Now()}
	step.reported = step.began
	outer := p.begin(step)
	stop := make(chan struct{})
	var turning sync.WaitGroup
	if p.terminal {
		turning.Go(func() { step.spin(stop) })
	}
	err := do(ctx, step)
	close(stop)
	turning.Wait()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done within %s: %w%s", deadline, err, step.pending())
	}
	p.end(step, outer, err)
	if err != nil {
		return fmt.Errorf("%s: %w", lowerFirst(title), err)
	}
	return nil
}

func (p *Printer) begin(step *Step) (outer *Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	outer, p.step = p.step, step
	if !p.terminal {
		p.line(fmt.Sprintf(" • %s ...", step.title))
	}
	return outer
}

func (p *Printer) end(step, outer *Step, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = outer
	took, total := short(time.Since(step.began)), short(time.Since(p.began))
	switch {
	case err != nil:
		p.line(fmt.Sprintf(" %s %s (%s, %s in all)", p.color("31", "✗"), step.title, took, total))
	default:
		p.line(fmt.Sprintf(" %s %s (%s, %s in all)", p.color("32", "✓"), step.title, took, total))
	}
}

func (p *Printer) color(code, text string) string {
	if !p.terminal {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Step is the one that runs.
type Step struct {
	printer  *Printer
	title    string
	began    time.Time
	reported time.Time
	waiting  []string
}

// Waiting notes what the step waits for, one thing a line. It is printed now and then, not at each call.
func (s *Step) Waiting(what ...string) {
	s.printer.mu.Lock()
	defer s.printer.mu.Unlock()
	s.waiting = slices.Clone(what)
	if len(what) == 0 || time.Since(s.reported) < ReportEvery {
		return
	}
	s.reported = time.Now()
	s.printer.line(fmt.Sprintf("   %s, waiting for:", short(time.Since(s.began))))
	for _, one := range what {
		s.printer.line("     " + one)
	}
}

// Printf prints a line that belongs to the step.
func (s *Step) Printf(format string, args ...any) {
	s.printer.Printf("   "+format, args...)
}

// pending words what was being waited for, for an error.
func (s *Step) pending() string {
	s.printer.mu.Lock()
	defer s.printer.mu.Unlock()
	if len(s.waiting) == 0 {
		return ""
	}
	return "\n  still waiting for:\n    " + strings.Join(s.waiting, "\n    ")
}

func (s *Step) spin(stop <-chan struct{}) {
	ticker := time.NewTicker(120 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		s.printer.mu.Lock()
		if s.printer.step == s {
			_, _ = fmt.Fprintf(s.printer.out, "\r\x1b[K %s %s (%s)", frames[n%len(frames)], s.title, short(time.Since(s.began)))
		}
		s.printer.mu.Unlock()
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
	}
}

// Poll asks until done says so. Errors of asking are not the end, because API servers come and go while a cluster is
// made; the last one is part of the error when the deadline comes. What is waited for is reported through the step.
func (s *Step) Poll(
	ctx context.Context, every time.Duration, ask func(context.Context) (done bool, waiting []string, err error),
) error {
	var last error
	for {
		done, waiting, err := ask(ctx)
		switch {
		case err == nil && done:
			s.Waiting()
			return nil
		case err != nil && ctx.Err() == nil:
			last = err
			s.Waiting(append(waiting, "an answer: "+oneLine(err.Error()))...)
		case err == nil:
			last = nil
			s.Waiting(waiting...)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-time.After(every):
		}
	}
}

// short prints a duration as a person says it.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	if d < time.Minute {
		return fmt.Sprintf("%ds", int(d.Seconds()))
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return text
}

// narrow makes one line of a terminal of a text, with room for what stands around it.
func narrow(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 64 {
		text = string(runes[:61]) + "..."
	}
	return text
}

func lowerFirst(text string) string {
	if text == "" || len(text) > 1 && text[1] >= 'A' && text[1] <= 'Z' {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}
