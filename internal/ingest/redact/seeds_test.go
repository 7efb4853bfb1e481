package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/rawjson"
)

// A seed is a secret in its context. Seeds follow the documented formats of vendors, written here independently of the
// rules. They are random and composed of parts, so that no scanner reports this file as a leak.
type seed struct{ rule, before, secret, after string }

const (
	digits       = "0123456789"
	upper        = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lowerLetters = "abcdefghijklmnopqrstuvwxyz"
	hexes        = digits + "abcdef"
	alnum        = digits + upper + lowerLetters
	urlish       = alnum + "_-"
	bech32       = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
)

// A dice draws the random parts of seeds.
type dice struct{ *rand.Rand }

func (d dice) of(alphabet string, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(alphabet[d.IntN(len(alphabet))])
	}
	return b.String()
}

// checked returns a token with the checksum that GitHub and npm append: CRC32 of the preceding 30 characters, in
// base62.
func (d dice) checked() string {
	body := d.of(alnum, 30)
	sum, end := crc32.ChecksumIEEE([]byte(body)), ""
	for range 6 {
		end = alnum[sum%62:sum%62+1] + end
		sum /= 62
	}
	return body + end
}

func (d dice) base64(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.IntN(256))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func (d dice) pem(label string, lines int) string {
	var b strings.Builder
	b.WriteString("-----" + "BEGIN " + label + "-----\n")
	for range lines {
		b.WriteString(d.base64(48) + "\n")
	}
	return b.String() + "-----" + "END " + label + "-----"
}

func (d dice) jwt() string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"typ":"JWT","alg":"HS256"}`)) + "." +
		enc.EncodeToString(fmt.Appendf(nil, `{"sub":"%s","iat":1516239022}`, d.of(digits, 10))) + "." + d.of(urlish, 43)
}

func seeds(d dice) []seed {
	word := func(rule string, parts ...string) seed { return seed{rule: rule, secret: strings.Join(parts, "")} }
	list := []seed{
		word("openai", "sk", "-", d.of(alnum, 20), "T3Blbk", "FJ", d.of(alnum, 20)),
		word("openai", "sk-", "proj-", d.of(urlish, 74), "T3Blbk", "FJ", d.of(urlish, 73), "x"),
		word("openai", "sk-", "svcacct-", d.of(urlish, 58), "T3Blbk", "FJ", d.of(urlish, 57), "x"),
		word("openai", "sk-", d.of(hexes, 32)),
		word("anthropic", "sk-", "ant-api03-", d.of(urlish, 93), "AA"),
		word("anthropic", "sk-", "ant-oat01-", d.of(urlish, 93), "AA"),
		word("openrouter", "sk-", "or-v1-", d.of(hexes, 64)),
		word("google-api-key", "AI", "za", d.of(urlish, 34), "x"),
		word("google-oauth", "GOC", "SPX-", d.of(urlish, 28)),
		word("groq", "gs", "k_", d.of(alnum, 52)),
		word("xai", "xa", "i-", d.of(alnum, 80)),
		word("perplexity", "pp", "lx-", d.of(alnum, 48)),
		word("replicate", "r", "8_", d.of(alnum, 37)),
		word("huggingface", "h", "f_", d.of(upper+lowerLetters, 34)),
		word("github", "gh", "p_", d.checked()),
		word("github", "gh", "o_", d.checked()),
		word("github", "gh", "u_", d.checked()),
		word("github", "gh", "s_", d.checked()),
		word("github", "gh", "r_", d.of(alnum, 76)),
		word("github", "github", "_pat_", d.of(alnum, 22), "_", d.of(alnum, 59)),
		word("gitlab", "gl", "pat-", d.of(alnum, 20)),
		word("gitlab", "gl", "pat-", d.of(alnum, 27), ".01.", d.of(digits+lowerLetters, 9)),
		word("gitlab", "gl", "rt-", d.of(alnum, 20)),
		word("slack", "xo", "xb-", d.of(digits, 12), "-", d.of(digits, 12), "-", d.of(alnum, 24)),
		word("slack", "xo", "xp-", d.of(digits, 12), "-", d.of(digits, 12), "-", d.of(digits, 12), "-", d.of(hexes, 32)),
		word("slack", "xa", "pp-1-A", d.of(digits+upper, 10), "-", d.of(digits, 13), "-", d.of(hexes, 64)),
		{"slack-webhook", "https://hooks.slack" + ".com/services/", "T" + d.of(digits+upper, 8) + "/B" + d.of(digits+upper, 10) + "/" + d.of(alnum, 24), ""},
		word("aws-access-key", "AK", "IA", d.of(upper+"234567", 16)),
		word("aws-access-key", "AS", "IA", d.of(upper+"234567", 16)),
		{"aws-secret-key", "AWS_SECRET_ACCESS_KEY=", d.of(alnum+"/+", 37) + "aB3", ""},
		{"aws-secret-key", `{"SecretAccessKey": "`, d.of(alnum+"/+", 37) + "aB3", `"}`},
		{"aws-secret-key", "aws_secret_access_key = ", d.of(alnum+"/+", 37) + "aB3", "\nregion = eu-west-1"},
		{"aws-session-token", "aws_session_token = ", d.base64(300), ""},
		word("stripe", "sk_", "live_", d.of(alnum, 24)),
		word("stripe", "rk_", "live_", d.of(alnum, 99)),
		word("npm", "np", "m_", d.checked()),
		{"npm", "//registry.npmjs.org/:_auth" + "Token=", "0f0f" + d.of(hexes, 28), ""},
		word("pypi", "py", "pi-AgEIcHlwaS5vcmc", d.of(urlish, 150), "x"),
		word("sendgrid", "S", "G.", d.of(urlish, 22), ".", d.of(urlish, 42), "x"),
		word("twilio", "S", "K", d.of(hexes, 32)),
		{"twilio", `TWILIO_AUTH_TOKEN: "`, d.of(hexes, 32), `"`},
		word("digitalocean", "do", "p_v1_", d.of(hexes, 64)),
		word("telegram", d.of("123456789", 10), ":A", "A", d.of(urlish, 32), "x"),
		{"discord", "DISCORD_TOKEN=", "MT" + d.of(alnum, 24) + "." + d.of(alnum, 6) + "." + d.of(urlish, 37) + "x", ""},
		{"discord", "https://discord" + ".com/api/webhooks/" + d.of("123456789", 19) + "/", d.of(urlish, 67) + "x", ""},
		word("linear", "lin_", "api_", d.of(alnum, 40)),
		word("notion", "nt", "n_", d.of(digits, 11), d.of(alnum, 35)),
		word("notion", "sec", "ret_", d.of(alnum, 43)),
		word("vercel", "vc", "p_", d.of(alnum, 56)),
		word("supabase", "sb", "p_", d.of(hexes, 40)),
		word("databricks", "da", "pi", d.of(hexes, 32)),
		word("shopify", "shp", "at_", d.of(hexes, 32)),
		word("doppler", "dp", ".pt.", d.of(alnum, 43)),
		word("doppler", "dp", ".st.dev_personal.", d.of(alnum, 43)),
		word("vault", "hv", "s.", d.of(urlish, 94), "x"),
		word("age", "AGE-SECRET", "-KEY-1", d.of(bech32, 58)),
		word("atlassian", "ATA", "TT3", d.of(urlish, 185), "x"),
		word("postman", "PM", "AK-", d.of(hexes, 24), "-", d.of(hexes, 34)),
		word("pulumi", "pu", "l-", d.of(hexes, 40)),
		word("rubygems", "ruby", "gems_", d.of(hexes, 48)),
		word("grafana", "gl", "sa_", d.of(alnum, 32), "_", d.of(hexes, 8)),
		word("new-relic", "NR", "AK-", d.of(digits+upper, 27)),
		word("terraform", d.of(alnum, 14), ".atlas", "v1.", d.of(alnum, 67)),
		{"azure-storage", "DefaultEndpointsProtocol=https;Account" + "Key=", d.base64(64), ";EndpointSuffix=core.windows.net"},
		word("private-key", d.pem("PRIVATE"+" KEY", 25)),
		word("private-key", d.pem("RSA PRIVATE"+" KEY", 24)),
		word("private-key", d.pem("EC PRIVATE"+" KEY", 3)),
		word("private-key", d.pem("OPENSSH PRIVATE"+" KEY", 6)),
		word("private-key", d.pem("PGP PRIVATE"+" KEY BLOCK", 60)),
		word("jwt", d.jwt()),
		{"authorization", "curl -H 'Authorization: Bearer ", d.of(alnum, 39) + "7", "' https://example.com/"},
		{"authorization", `"Authorization": "Bearer `, d.of(alnum+"._~+/-", 62) + "a7", `", "Accept": "*/*"`},
		{"authorization", "authorization: Basic ", base64.StdEncoding.EncodeToString([]byte("ada:" + d.of(alnum, 12))), ""},
		{"authorization", "Authorization: Token ", d.of(hexes, 40), ""},
		{"api-key-header", "x-api-key: ", d.of(alnum, 31) + "7", ""},
		{"url-password", "postgres://app:", "p" + d.of(alnum, 14), "@db.example.com:5432/app?sslmode=require"},
		{"url-password", "git clone https://ada:", "p%2F" + d.of(alnum, 14), "@example.com/x.git"},
		{"url-parameter", "https://example.com/cb?state=1&access_token=", d.of(alnum, 39) + "7", "&x=1"},
		{"url-parameter", "https://b.s3.amazonaws.com/k?X-Amz-Expires=900&X-Amz-Signature=", d.of(hexes, 63) + "a", ""},
	}
	return list
}

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

// inside returns the JSON encoding of a text, without quotes.
func inside(s string) string { q := string(rawjson.AppendString(nil, s)); return q[1 : len(q)-1] }

// The encodings of a text in a line. Each encodes three parts, so that a mark can replace the middle one.
var forms = map[string]func(a, b, c string) string{
	"plain":        func(a, b, c string) string { return a + b + c },
	"in a text":    func(a, b, c string) string { return "see " + a + b + c + " there" },
	"twice":        func(a, b, c string) string { return a + b + c + " " + a + b + c },
	"JSON":         func(a, b, c string) string { return `{"type":"user","text":"` + inside(a+b+c) + `","n":1.50}` },
	"its own line": func(a, b, c string) string { return ` [ "x\n` + inside(a+b+c) + `\ny\t" , null ]` },
	"a name":       func(a, b, c string) string { return `{"` + inside(a+b+c) + `":{}}` },
	"solidus":      func(a, b, c string) string { return `"` + strings.ReplaceAll(inside(a+b+c), "/", `\/`) + `"` },
	"Go's escapes": func(a, b, c string) string { return quoted("<&> " + a + b + c) },
	"nested": func(a, b, c string) string {
		return `{"arguments":"` + inside(`{"cmd":"`+inside("x\n"+a+b+c+"\n")+`"}`) + `"}`
	},
	"nested twice": func(a, b, c string) string {
		return `{"o":"` + inside(`{"p":"`+inside(`{"q":"`+inside(a+b+c)+`"}`)+`"}`) + `"}`
	},
	"glued": func(a, b, c string) string { return `{"a":"` + inside(a+b+c) + `"}{"b":2}` },
	"torn":  func(a, b, c string) string { return `{"a":"` + inside(a+b+c) + `","b":"tor` },
	"bytes": func(a, b, c string) string { return "\xff\xfe " + a + b + c + " \x00" },
}

// Each seed is found in each encoding, and only the secret is replaced.
func TestSeeds(t *testing.T) {
	r := mustNew(t, redact.Options{})
	tried, kinds := 0, map[string]bool{}
	for n := range 5 {
		for i, s := range seeds(dice{rand.New(rand.NewPCG(uint64(n), 1))}) {
			kinds[fmt.Sprint(i)] = true
			for name, form := range forms {
				tried++
				line := form(s.before, s.secret, s.after)
				want := form(s.before, "[redacted:"+s.rule+"]", s.after)
				out, found := r.Line([]byte(line))
				if string(out) != want {
					t.Errorf("%s, %s: %v\n%s\nbecame\n%s\nwant\n%s", s.rule, name, found, line, out, want)
				}
			}
		}
	}
	t.Logf("%d shapes, %d lines", len(kinds), tried)
	if len(kinds) < 50 {
		t.Errorf("found only %d shapes", len(kinds))
	}
}

// Every character of the string is escaped. No encoder does that, but every decoder accepts it.
func TestEscapedThroughout(t *testing.T) {
	r := mustNew(t, redact.Options{})
	escape := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, `\u%04X`, c)
		}
		return b.String()
	}
	for _, s := range seeds(dice{rand.New(rand.NewPCG(9, 9))}) {
		line := `["` + escape(s.before) + escape(s.secret) + escape(s.after) + `"]`
		want := `["` + escape(s.before) + "[redacted:" + s.rule + "]" + escape(s.after) + `"]`
		if out, _ := r.Line([]byte(line)); string(out) != want {
			t.Errorf("%s: got %s", s.rule, out)
		}
	}
}
