// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

func TestAValueIsFoundInEveryFormInWhichProgramsPrintIt(t *testing.T) {
	const value = `it's a "p&ss" of/40%+chars, grün & long`
	quoted, err := json.Marshal(value)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, form := range map[string]string{
		"plain": value, "query": url.QueryEscape(value), "path": url.PathEscape(value), "JSON": string(quoted),
		"Go": strconv.Quote(value), "Go, ASCII": strconv.QuoteToASCII(value),
		"sh -x":         strings.ReplaceAll(value, "'", `'\''`),
		"base64":        base64.StdEncoding.EncodeToString([]byte(value)),
		"URL base64":    base64.URLEncoding.EncodeToString([]byte(value)),
		"echo | base64": base64.StdEncoding.EncodeToString([]byte(value + "\n")),
	} {
		NewWithT(t).Expect(New(value).Text("x "+strings.Trim(form, `"`)+" y")).To(Equal("x "+Mark+" y"), name)
	}
}

func TestAValueIsFoundInTheBase64OfWhatItStandsIn(t *testing.T) {
	const value = "0123456789abcdef>>?"
	for before := range 7 {
		for after := range 4 {
			for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				text := encoding.EncodeToString([]byte(strings.Repeat("x", before) + value + strings.Repeat("y", after)))
				got := New(value).Values(text)
				// At each end one character may depend on the value and on its neighbor.
				left := len(strings.ReplaceAll(got, Mark, ""))
				NewWithT(t).Expect(left).To(BeNumerically("<=", (before*4+2)/3+(after*4+2)/3+6), got)
				NewWithT(t).Expect(got).To(ContainSubstring(Mark), text)
			}
		}
	}
}

func TestEachLineOfAValueIsOne(t *testing.T) {
	g := NewWithT(t)
	r := New("-----BEGIN EC PRIVATE KEY-----\nfirst line here\r\n  second line here\nshort\n-----END EC PRIVATE KEY-----\n")
	g.Expect(r.Values("a first line here b")).To(Equal("a " + Mark + " b"))
	g.Expect(r.Values("a second line here b")).To(Equal("a " + Mark + " b"))
	g.Expect(r.Values("a short b")).To(Equal("a short b"), "under eight characters")
	g.Expect(r.Text("-----BEGIN EC PRIVATE KEY-----\nanother\n-----END EC PRIVATE KEY-----")).
		To(Equal("<EC PRIVATE KEY>"), "another key between the same lines")
}

func TestOverlappingValuesLeaveNothingOfEither(t *testing.T) {
	g := NewWithT(t)
	r := New("aaaabbbbcccc", "bbbbccccdddd", "bbbbcccc")
	g.Expect(r.Values("x aaaabbbbccccdddd y")).To(Equal("x " + Mark + " y"))
	g.Expect(r.Values("bbbbccccddddbbbbcccc")).To(Equal(Mark), "the longest, and what follows")
}

func TestAValueThatTheCutWentThroughIsNotLeftInPart(t *testing.T) {
	const value = "correct horse battery staple"
	for at := 1; at < len(value); at++ {
		got := New(value).Tail(value[at:] + "\nerror: x")
		NewWithT(t).Expect(got).To(Equal("error: x"))
		got = New(value).Tail(value[at:] + " is wrong")
		NewWithT(t).Expect(got).To(Equal("is wrong"), "cut at %d", at)
	}
}

// What values are, and where they stand, nobody knows: whatever is drawn, no value is left.
func TestNoValueIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("ab\n ")), 0, 40, -1)
		values := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("ab")), Least, 14, -1), 1, 5).Draw(t, "values")
		text := letters.Draw(t, "before")
		for _, value := range values {
			text += value + letters.Draw(t, "between")
		}
		got := New(values...).Values(text)
		for _, value := range values {
			if strings.Contains(got, value) {
				t.Fatalf("%q in %q", value, got)
			}
		}
	})
}

func TestWithoutTheValuesNothingIsShown(t *testing.T) {
	g := NewWithT(t)
	for _, hide := range []func(string) string{Withhold("why").Text, Withhold("why").Tail, Withhold("why").Values} {
		g.Expect(hide("anything")).To(Equal("(not shown: why)"))
	}
	many := make([]string, 0, maxValues/64)
	for i := range maxValues/64 + 1 {
		many = append(many, fmt.Sprintf("%064d", i))
	}
	g.Expect(New(many...).Text("x")).To(HavePrefix("(not shown"))
	g.Expect((*Redactor)(nil).Text("token: abc, and more")).To(Equal("token: <hidden> and more"))
}

func TestWordsAreTheSecretsAmongThoseOfACommand(t *testing.T) {
	for text, want := range map[string][]string{
		"systemctl restart containerd.service":                                    nil,
		"modprobe br_netfilter && sysctl --system":                                nil,
		"curl -fsSLo /usr/share/keyrings/k8s.asc https://pkgs.k8s.io/core/v1.35/": nil,
		"kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml":             nil,
		"registry.k8s.io/kube-apiserver:v1.35.4":                                  nil,
		"apt-get install containerd.io=1.7.22-1ubuntu1":                           nil,
		"kubeletExtraArgs: {cgroup-driver: systemd}":                              nil,
		"export DB_PASSWORD=correcthorse":                                         {"correcthorse"},
		"password: correct horse battery":                                         {"correct horse battery"},
		"mysql --password hunter22":                                               {"hunter22"},
		`{"api_key":"abcdefghij"}`:                                                {"abcdefghij"},
		"token: abcdef.0123456789abcdef":                                          {"abcdef.0123456789abcdef", "0123456789abcdef"},
		"echo k7Xp2mQ9vR4tW8zB":                                                   {"k7Xp2mQ9vR4tW8zB"},
		"echo kxpqmvrtwzbkxpqmvrtwzb":                                             {"kxpqmvrtwzbkxpqmvrtwzb"},
		"git clone https://bot:hunter2hunter@git.example.com/infra.git":           {"hunter2hunter"},
		"curl -H 'Authorization: Bearer abcdefghijkl' https://example.com":        {"abcdefghijkl"},
		"mount -o password=a;b":                                                   {"a"},
	} {
		var got []string
		for _, word := range Words(text) {
			if len(word) >= Least {
				got = append(got, word)
			}
		}
		for _, value := range want {
			if len(value) >= Least {
				NewWithT(t).Expect(got).To(ContainElement(value), text)
			}
		}
		if want == nil {
			NewWithT(t).Expect(got).To(BeEmpty(), text)
		}
	}
}

// drawn is a secret as programs draw them.
func drawn(r *rand.Rand, n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

func TestWhatIsDrawnIsTakenForDrawn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not for secrets
	for range 10_000 {
		secret := drawn(r, 32)
		NewWithT(t).Expect(Words("echo " + secret + " | tee x")).To(ContainElement(secret))
	}
}

func BenchmarkText(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not for secrets
	for _, values := range []int{10, 300, 3000} {
		for _, size := range []int{8 << 10, 1 << 20, 4 << 20} {
			secrets := make([]string, values)
			for i := range secrets {
				secrets[i] = drawn(r, 32)
			}
			var text strings.Builder
			for i := 0; text.Len() < size; i++ {
				text.WriteString("[preflight] reading configuration, step " + strconv.Itoa(i) + " of kubeadm said: ")
				if i%10 == 0 {
					text.WriteString(secrets[i%values])
				}
				text.WriteByte('\n')
			}
			redactor := New(secrets...)
			for name, hide := range map[string]func(string) string{"values": redactor.Values, "patterns": Patterns} {
				b.Run(fmt.Sprintf("%s/%d/%dKiB", name, values, size>>10), func(b *testing.B) {
					b.SetBytes(int64(size))
					for b.Loop() {
						hide(text.String())
					}
				})
			}
		}
	}
}
