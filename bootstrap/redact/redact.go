// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redact takes secrets out of what hosts say, before people read it: the very values that are known, in
// whatever form programs print them, and what looks like a secret.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"index/suffixarray"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// Least is how many bytes a value must have to be redacted. A shorter one is a part of many words.
	Least = 8
	// Mark stands in place of a value.
	Mark = "<redacted>"
	// maxValues bounds all values together in bytes. Nobody compares with more in a moment; bootstrap data has 1 MiB at
	// most, unless it was compressed.
	maxValues = 8 << 20
)

// Redactor takes a set of values out of texts. The nil one knows no values, only what secrets look like. It is safe for
// concurrent use.
type Redactor struct {
	forms [][]byte
	// instead is what is said in place of any text, because the values are not known.
	instead string
}

// New makes a Redactor of these values. Each line of a value is a value too, and each is also known in base64, at
// whatever place of what was encoded it stood, and as URLs, JSON, Go and shells write it. Lines shorter than Least are
// not looked for.
func New(values ...string) *Redactor {
	lines := map[string]bool{}
	size := 0
	for _, value := range values {
		for line := range strings.SplitSeq(value, "\n") {
			if line = strings.TrimSpace(line); len(line) >= Least && !structure(line) && !lines[line] {
				lines[line] = true
				size += len(line)
			}
		}
	}
	if size > maxValues {
		return Withhold("what must not be told of it is too much to look for")
	}
	forms := map[string]bool{}
	for line := range lines {
		for _, form := range formsOf(line) {
			if len(form) >= Least {
				forms[form] = true
			}
		}
	}
	r := &Redactor{forms: make([][]byte, 0, len(forms))}
	for form := range forms {
		r.forms = append(r.forms, []byte(form))
	}
	return r
}

// Withhold makes a Redactor for when the values cannot be had: in place of any text it says why.
func Withhold(why string) *Redactor { return &Redactor{instead: "(not shown: " + why + ")"} }

// structure says that a line is what PEM blocks and YAML put around values. It tells nothing, and the patterns need it.
func structure(line string) bool {
	return strings.HasPrefix(line, "-----BEGIN ") || strings.HasPrefix(line, "-----END ") ||
		strings.HasSuffix(line, ":") && !strings.ContainsAny(line, " \t")
}

// formsOf are the ways in which programs print a line.
func formsOf(line string) []string {
	forms := []string{line, strings.ToValidUTF8(line, "?"), url.QueryEscape(line), url.PathEscape(line),
		inner(strconv.Quote(line)), inner(strconv.QuoteToASCII(line)), strings.ReplaceAll(line, "'", `'\''`),
		strings.ReplaceAll(line, "'", `'"'"'`)}
	for _, html := range []bool{true, false} {
		var quoted bytes.Buffer
		encoder := json.NewEncoder(&quoted)
		encoder.SetEscapeHTML(html)
		if encoder.Encode(line) == nil {
			forms = append(forms, inner(strings.TrimSuffix(quoted.String(), "\n")))
		}
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(line)), encoding.EncodeToString([]byte(line+"\n")))
		for before := range 3 {
			forms = append(forms, within(encoding, line, before))
		}
	}
	return forms
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

// within is what of a longer text's base64 this part alone decides, when so many bytes (by three) stand before it.
func within(encoding *base64.Encoding, part string, before int) string {
	encoded := encoding.WithPadding(base64.NoPadding).EncodeToString([]byte(strings.Repeat("\x00", before) + part))
	return encoded[(before*8+5)/6 : (before+len(part))*8/6]
}

// Text returns the text without the values, and without what looks like a secret.
func (r *Redactor) Text(text string) string {
	if r != nil && r.instead != "" {
		return r.instead
	}
	return Patterns(r.exact(text, false))
}

// Tail is Text for the end of a text that was cut. It may begin in the middle of a value, and loses the rest of its
// first line, or word: half a token does not look like one.
func (r *Redactor) Tail(text string) string {
	if r != nil && r.instead != "" {
		return r.instead
	}
	text = r.exact(text, true)
	_, rest, found := strings.Cut(text, "\n")
	if !found {
		_, rest, _ = strings.Cut(text, " ")
	}
	return Patterns(rest)
}

// Values returns the text without the values. It is for sentences of ours, in which a word like "secret" means none.
func (r *Redactor) Values(text string) string {
	if r != nil && r.instead != "" {
		return r.instead
	}
	return r.exact(text, false)
}

// exact marks what any value covers. Values may overlap: what is left of one beside another would tell it in part.
func (r *Redactor) exact(text string, cut bool) string {
	if r == nil || text == "" {
		return text
	}
	data := []byte(text)
	// depth counts, by place, how many occurrences begin there, less those that end.
	var depth []int32
	cover := func(from, to int) {
		if depth == nil {
			depth = make([]int32, len(data)+1)
		}
		depth[from]++
		depth[to]--
	}
	index := suffixarray.New(data)
	for _, form := range r.forms {
		for _, at := range index.Lookup(form, -1) {
			cover(at, at+len(form))
		}
		if cut {
			if n := begins(data, form); n > 0 {
				cover(0, n)
			}
		}
	}
	if depth == nil {
		return text
	}
	return marked(data, depth)
}

func marked(data []byte, depth []int32) string {
	var out strings.Builder
	covered := int32(0)
	for i, c := range data {
		before := covered
		covered += depth[i]
		switch {
		case covered == 0:
			out.WriteByte(c)
		case before == 0:
			out.WriteString(Mark)
		}
	}
	return out.String()
}

// begins is how many bytes at the beginning of the text are the end of the form.
func begins(text, form []byte) int {
	for n := min(len(form)-1, len(text)); n > 0; n-- {
		if bytes.Equal(form[len(form)-n:], text[:n]) {
			return n
		}
	}
	return 0
}

// Error returns the error itself where its text holds no value, and else one that says the rest of the text and wraps
// nothing. It is for what servers answer to whom the values were sent.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	if text := r.Values(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// Without leaves out the values that these texts tell anyway, such as the name of the host.
func Without(values []string, public ...string) []string {
	return slices.DeleteFunc(values, func(value string) bool {
		return slices.ContainsFunc(public, func(text string) bool { return strings.Contains(text, value) })
	})
}
