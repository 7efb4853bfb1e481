package redact_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
)

func mustRedact(t *testing.T, r *redact.Redactor, in, want string, found ...redact.Found) {
	t.Helper()
	before := strings.Clone(in)
	out, got := r.Line([]byte(in))
	if string(out) != want || !slices.Equal(got, found) || in != before {
		t.Errorf("%s\nbecame\n%s %v\nwant\n%s %v", in, out, got, want, found)
	}
}

// Hashes, ids, images and programs are not secrets. A line without secrets is returned as the same slice.
func TestNoSecrets(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(4, 4))}
	picture := make([]byte, 200_000)
	for i := range picture {
		picture[i] = byte(d.IntN(256))
	}
	r := mustNew(t, redact.Options{})
	for _, in := range []string{
		"", "{}", `"a"`, "7", "\x00\xff",
		`{"uuid":"9b2d0a1c-3f4e-4a5b-8c6d-7e8f9a0b1c2d","parentUuid":null,"sha":"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"}`,
		`"integrity": "sha512-` + d.base64(64) + `"`, d.of(hexes, 64),
		`{"source":{"type":"base64","media_type":"image/png","data":"` + base64.StdEncoding.EncodeToString(picture) + `"}}`,
		base64.RawURLEncoding.EncodeToString(picture),
		"task-list-of-the-disk-and-the-risk-of-desk-work-in-2024 sk-learn-estimators-and-pipelines-1-2-3",
		"!function(e,t){\"use strict\";var n=e.sk_live_mode,r=t.token=n.npm_config_registry;e.hf_hub=r8_t}(this,{})",
		"export OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx GITHUB_TOKEN=ghp_" + strings.Repeat("x", 36),
		`if strings.HasPrefix(s, "-----BEGIN RSA PRIVATE KEY-----") { return parse("-----END RSA PRIVATE KEY-----") }`,
		"-----BEGIN CERTIFICATE-----\n" + d.base64(300) + "\n-----END CERTIFICATE-----",
		"https://user:password@example.com http://${USER}:${PASS}@host https://%s:%s@%s http://[::1]:8080/@x ssh://git@github.com:22/x",
		"Authorization: Bearer $TOKEN", "Authorization: Bearer YOUR_ACCESS_TOKEN_HERE", "authorization: basic authentication",
		"?access_token=YOUR_ACCESS_TOKEN_HERE&token=%s", "AKIA", "eyJhbGciOi", "eyJhIjoxfQ.eyJiIjoyfQ.c2lnbmF0dXJl",
		`C:\new\table\npm_thing`, "aws_secret_access_key = " + d.of(hexes, 64), d.of(hexes, 40) + "-us-east-1",
		"the redaction writes [redacted:<rule>] and [redacted:]",
	} {
		out, found := r.Line([]byte(in))
		if string(out) != in || found != nil {
			t.Errorf("%.200q: got %v", in, found)
		}
	}
	in := []byte(`{"a":1}`)
	if out, _ := r.Line(in); &out[0] != &in[0] {
		t.Error("a line without secrets was copied")
	}
}

// AWS's console shows both halves of a key side by side.
func TestBesideAccessKey(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(7, 7))}
	id, key := "AK"+"IA"+d.of(upper, 16), d.of(alnum+"/+", 37)+"aB3"
	both := []redact.Found{{Rule: "aws-access-key", Count: 1}, {Rule: "aws-secret-key", Count: 1}}
	r := mustNew(t, redact.Options{})
	mustRedact(t, r, id+","+key, "[redacted:aws-access-key],[redacted:aws-secret-key]", both...)
	mustRedact(t, r, `["`+id+`","`+key+`"]`, `["[redacted:aws-access-key]","[redacted:aws-secret-key]"]`, both...)
	hash := d.of(hexes, 40)
	mustRedact(t, r, id+" "+hash+" "+key+"x", "[redacted:aws-access-key] "+hash+" "+key+"x", both[0])
}

// A given value is found in each usual encoding. A JSON number stays.
func TestValues(t *testing.T) {
	const value = `tr0ub&dor/3 "ü"`
	r := mustNew(t, redact.Options{Values: map[string]string{"DB_PASSWORD": value + "\n", "PIN": "86427531"}})
	one := redact.Found{Rule: "DB_PASSWORD", Count: 1}
	mustRedact(t, r, "x"+value+"y", "x[redacted:DB_PASSWORD]y", one)
	mustRedact(t, r, `{"a":"x`+inside(value)+`y","b":"\n"}`, `{"a":"x[redacted:DB_PASSWORD]y","b":"\n"}`, one)
	mustRedact(t, r, `{"a":"`+`tr0ub\u0026dor\/3 \u0022\u00fc\"`+`"}`, `{"a":"[redacted:DB_PASSWORD]"}`, one)
	mustRedact(t, r, "?p="+url.QueryEscape(value)+"&q=1", "?p=[redacted:DB_PASSWORD]&q=1", one)
	mustRedact(t, r, "/"+strings.ToLower(url.PathEscape(value))+"/", "/[redacted:DB_PASSWORD]/", one)
	mustRedact(t, r, `{"pin":86427531,"s":"86427531"}`, `{"pin":86427531,"s":"[redacted:PIN]"}`, redact.Found{Rule: "PIN", Count: 1})
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
		for before := range 4 {
			for after := range 4 {
				text := enc.EncodeToString([]byte(strings.Repeat("~", before) + value + strings.Repeat("?", after)))
				out, found := r.Line([]byte("b " + text + " e"))
				if !slices.Equal(found, []redact.Found{one}) || !bytes.HasPrefix(out, []byte("b ")) || !bytes.HasSuffix(out, []byte(" e")) {
					t.Errorf("%s with %d characters before and %d after it: got %s %v", text, before, after, out, found)
				}
				left := strings.NewReplacer("[redacted:DB_PASSWORD]", "", "b ", "", " e", "", "=", "").Replace(string(out))
				if len(left) > 4*(before/3)+4*((after+2)/3)+2 {
					t.Errorf("%s: the output contains %s", text, left)
				}
			}
		}
	}
}

// A value whose letters JSON may all escape is found too.
func TestValueWithoutASCII(t *testing.T) {
	r := mustNew(t, redact.Options{Values: map[string]string{"P": "пароль"}})
	mustRedact(t, r, `{"a":"\u043f\u0430\u0440\u043e\u043b\u044c!"}`, `{"a":"[redacted:P]!"}`, redact.Found{Rule: "P", Count: 1})
}

// A given pattern is applied to each unescaped string. If it has a group, only the group is replaced.
func TestPatterns(t *testing.T) {
	r := mustNew(t, redact.Options{Patterns: []redact.Pattern{
		{Name: "assigned", Regexp: `(?i)\b(?:password|passwd|pwd)\b["']?\s*[:=]\s*["']?([^\s"',;]{4,})`},
		{Name: "ticket", Regexp: `\b[A-Z]{2}[0-9]{6}\b`}, // no literal word
		{Name: "rest", Regexp: `internal: .*`},
	}})
	mustRedact(t, r, `{"a":"PassWord = hunter2x\nnext","password":"kept-apart"}`, `{"a":"PassWord = [redacted:assigned]\nnext","password":"kept-apart"}`,
		redact.Found{Rule: "assigned", Count: 1})
	mustRedact(t, r, `{"a":"{\"pwd\":\"hunter2x\",\"b\":1}"}`, `{"a":"{\"pwd\":\"[redacted:assigned]\",\"b\":1}"}`, redact.Found{Rule: "assigned", Count: 1})
	mustRedact(t, r, `{"AB123456":["x CD654321"]}`, `{"[redacted:ticket]":["x [redacted:ticket]"]}`, redact.Found{Rule: "ticket", Count: 2})
	mustRedact(t, r, `{"a":"internal: x\ny","b":"c"}`, `{"a":"[redacted:rest]\ny","b":"c"}`, redact.Found{Rule: "rest", Count: 1})
}

func TestOptionErrors(t *testing.T) {
	for _, o := range []redact.Options{
		{Values: map[string]string{"SHORT": "s3cr3t "}},
		{Values: map[string]string{"BYTES": "s3cr3t\xff\xff"}},
		{Values: map[string]string{"a]b": "s3cr3t-s3cr3t"}},
		{Values: map[string]string{"": "s3cr3t-s3cr3t"}},
		{Values: map[string]string{strings.Repeat("n", 65): "s3cr3t-s3cr3t"}},
		{Patterns: []redact.Pattern{{Name: "open", Regexp: "("}}},
		{Patterns: []redact.Pattern{{Name: "all", Regexp: ".*"}}},
		{Patterns: []redact.Pattern{{Name: "two words", Regexp: "x"}}},
	} {
		if _, err := redact.New(o); err == nil {
			t.Errorf("%v is accepted", o)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error contains the value: %v", err)
		}
	}
	r := mustNew(t, redact.Options{Values: map[string]string{"A": "s3cr3t-s3cr3t"}})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(verb, r); got != "redact.Redactor" {
			t.Errorf("%s: got %.80s", verb, got)
		}
	}
}

// Only texts in the form of a mark count as marks.
func TestMarked(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "[redacted:github]": 1, `{"a":"[redacted:a][redacted:B_1.-]"}`: 2, "[redacted:]": 0, "[redacted:<rule>]": 0,
		"[redacted:[redacted:x]": 1, "[redacted:" + strings.Repeat("n", 64) + "]": 1, "[redacted:" + strings.Repeat("n", 65) + "]": 0, "[redacted:x": 0,
	} {
		if got := redact.Marked([]byte(in)); got != want {
			t.Errorf("%s: %d marks, want %d", in, got, want)
		}
	}
}

// Existing marks remain, and secrets next to them are found.
func TestMarksStay(t *testing.T) {
	r := mustNew(t, redact.Options{Values: map[string]string{"V": "redacted"}, Patterns: []redact.Pattern{{Name: "p", Regexp: `p: (.+)`}}})
	mustRedact(t, r, "[redacted:V] redacted", "[redacted:V] [redacted:V]", redact.Found{Rule: "V", Count: 1})
	mustRedact(t, r, "p: a[redacted:x]b", "p: [redacted:p][redacted:x][redacted:p]", redact.Found{Rule: "p", Count: 2})
	mustRedact(t, r, "p: [redacted:x]", "p: [redacted:x]")
}

// A line sixteen times as long takes about sixteen times as long, up to 64 MiB: for words that start many rules, for
// escapes, and for openings of strings.
func TestLinear(t *testing.T) {
	testkit.Long(t)
	r := mustNew(t, redact.Options{Values: map[string]string{"V": "sk-ant-sk-ant"}})
	for _, unit := range []string{"a", `\n`, `\u0041`, "-sk-ant-", "://a:", ".eyJhbGciOiJIUzI1NiJ9", "-----BEGIN PRIVATE KEY-----", "-glpat-1a2b3c4d5e",
		"authorization: bearer ", "&token=", `\\\\`, `{"a":`, "AKIA0123456789ABCDEF ", "[redacted:x]", "]"} {
		took := func(size int) time.Duration {
			in := []byte(`"` + strings.Repeat(unit, size/len(unit)) + `"`)
			start := time.Now()
			r.Line(in)
			return time.Since(start)
		}
		size := 1 << 19
		if unit == "a" {
			size = 4 << 20
		}
		if !testkit.Full() {
			size /= 4
		}
		small := min(took(size), took(size), took(size))
		large := took(16 * size)
		for try := 0; try < 3 && large > 64*small+time.Second; try++ { // other work may have run meanwhile
			small, large = min(small, took(size)), took(16*size)
		}
		if large > 64*small+time.Second {
			t.Errorf("%q: %d bytes took %v, %d took %v", unit, size, small, 16*size, large)
		}
	}
}

// A secret is found at any depth of nesting.
func TestDeepNesting(t *testing.T) {
	r := mustNew(t, redact.Options{})
	s := seeds(dice{rand.New(rand.NewPCG(5, 5))})[0]
	for _, depth := range []int{900, 100_000} {
		around := func(s string) string {
			return strings.Repeat(`[`, depth) + `"` + s + `"` + strings.Repeat("]", depth)
		}
		mustRedact(t, r, around(s.secret), around("[redacted:openai]"), redact.Found{Rule: "openai", Count: 1})
	}
}

// The laws, on arbitrary lines: JSON remains JSON, other text remains unchanged, and a second call finds nothing.
func FuzzLine(f *testing.F) {
	d := dice{rand.New(rand.NewPCG(6, 6))}
	for _, s := range seeds(d) {
		for _, form := range forms {
			f.Add([]byte(form(s.before, s.secret, s.after)))
		}
	}
	for _, q := range allSequences() {
		f.Add([]byte("x" + q + "ghp_" + d.of(alnum, 20) + q + d.of(alnum, 16) + q + "password=" + q + d.of(alnum, 12) + q))
	}
	f.Add([]byte(`%22token%22%3A%22` + d.of(alnum, 40) + `%22 &quot;api_key&quot;:&quot;` + d.of(alnum, 40) + `&quot; password=3D` + d.of(alnum, 12)))
	f.Add([]byte(`{"a":"tr0ub\u0026dor","b":["[redacted:x]"]}`))
	f.Add([]byte("sk-" + d.of(alnum, 40) + "tr0ub&dor" + "ghp_" + d.of(alnum, 36)))
	r := mustNew(f, redact.Options{Values: map[string]string{"V": "tr0ub&dor", "W": "00000000"}, Patterns: []redact.Pattern{{Name: "p", Regexp: `pwd=(\w+)`}}})
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		out, found := r.Line(in)
		if !bytes.Equal(in, before) {
			t.Fatal("the input was changed")
		}
		if (found == nil) != bytes.Equal(out, in) {
			t.Fatalf("a second redaction of %q found %v", in, found)
		}
		if rawjson.Check(in) == nil && rawjson.Check(out) != nil {
			t.Fatalf("%q is no longer JSON: %q", in, out)
		}
		if again, more := r.Line(out); more != nil {
			t.Fatalf("%q became %q, then %q", in, out, again)
		}
		if !pieces(in, out) {
			t.Fatalf("%q became %q: more than secrets was changed", in, out)
		}
	})
}

// pieces reports whether out equals in, except for parts replaced by marks.
func pieces(in, out []byte) bool {
	first := true
	for {
		i := bytes.Index(out, []byte("[redacted:"))
		if i < 0 {
			return first && bytes.Equal(in, out) || !first && bytes.HasSuffix(in, out)
		}
		n := bytes.Index(in, out[:i])
		if n < 0 || first && n > 0 {
			return false
		}
		in = in[n+i:]
		end := bytes.IndexByte(out[i:], ']')
		if end < 0 {
			return true
		}
		out, first = out[i+end+1:], false
	}
}
