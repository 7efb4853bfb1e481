package redact_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/testkit"
)

// escs are the texts that tools print for ESC.
var escs = map[string]string{
	"raw": "\x1b", "JSON": `\u001b`, "JSON twice": `\\u001b`, "hexadecimal": `\x1b`, "upper case": `\x1B`, "octal": `\033`, "shell": `\e`, "URL": "%1b",
	"URL, upper case": "%1B", "caret": "^[", "HTML": "&#27;", "HTML, hexadecimal": "&#x1b;", "quoted-printable": "=1B", "syslog": "#033", "picture": "\u241b",
	"Unicode": `\u{1b}`, "Python": `\U0000001b`, "less": "ESC",
}

// sequences are terminal sequences; @ is ESC.
var sequences = map[string]string{
	"colour": "@[31m", "bold colour": "@[1;31m", "256 colours": "@[38;5;208m", "true colour": "@[38:2::255:100:0m", "reset": "@[0m", "short reset": "@[m",
	"erase": "@[K", "grep": "@[01;31m@[K", "cursor": "@[?25h", "title": "@]0;build 7\a", "link": "@]8;;https://example.com/@\\",
}

// moreSequences are sequences with other encodings.
var moreSequences = map[string]string{
	"C1": "\u009b31m", "C1 in JSON": `\u009b31m`, "URL throughout": "%1B%5B1%3B31m", "HTML throughout": "&#27;&#91;31m", "mail throughout": "=1B=5B31m", "two parameters in mail": "=1B[1;31m",
	"lost ESC": "[31m", "lost ESC, bold": "[1;32m",
	"charset": "\x1b(B", "two": "\x1b[0m\x1b[1m", "string": "\x1bPq#0\x1b\\",
}

func allSequences() map[string]string {
	all := make(map[string]string)
	for name, s := range sequences {
		for as, e := range escs {
			all[name+", "+as] = strings.ReplaceAll(s, "@", e)
		}
	}
	for name, s := range moreSequences {
		all[name] = s
	}
	return all
}

// lineContexts are contexts of a sequence.
var lineContexts = map[string]func(s string) string{
	"plain":  func(s string) string { return s },
	"JSON":   func(s string) string { return `{"text":"` + inside(s) + `","n":1.50}` },
	"nested": func(s string) string { return `{"arguments":"` + inside(`{"cmd":"`+inside(s)+`"}`) + `"}` },
}

// oneWords returns the seeds of one word, which a sequence can split.
func oneWords(list []seed) (words []seed) {
	for _, s := range list {
		if !strings.Contains(s.secret, "\n") {
			words = append(words, s)
		}
	}
	return words
}

// A terminal sequence before, after or inside a secret does not hide it.
func TestTerminalSequences(t *testing.T) {
	t.Run("B-04 known shapes with terminal sequences", func(t *testing.T) {
		r := mustNew(t, redact.Options{})
		all := allSequences()
		list := oneWords(seeds(dice{rand.New(rand.NewPCG(11, 1))}))
		n, wrong := 0, 0
		for _, s := range list {
			mark := "[redacted:" + s.rule + "]"
			half := len(s.secret) / 2
			for name, q := range all {
				variants := map[string][2]string{
					"before":       {s.before + q + s.secret + s.after, s.before + q + mark + s.after},
					"glued before": {"Xy" + q + s.before + s.secret + s.after, "Xy" + q + s.before + mark + s.after},
					"after":        {s.before + s.secret + q + s.after, s.before + mark + q + s.after},
					"around":       {s.before + q + s.secret + q + s.after, s.before + q + mark + q + s.after},
					"inside":       {s.before + s.secret[:half] + q + s.secret[half:] + s.after, s.before + mark + s.after},
					"inside twice": {s.before + s.secret[:half] + q + s.secret[half:half+2] + q + s.secret[half+2:] + s.after, s.before + mark + s.after},
				}
				if s.after == "" {
					variants["glued after"] = [2]string{s.before + s.secret + q + "then", s.before + mark + q + "then"}
				}
				for place, p := range variants {
					for form, line := range lineContexts {
						if n++; n%8 != 0 && !testkit.Soak() {
							continue // maps have a random order
						}
						out, found := r.Line([]byte(line(p[0])))
						if string(out) != line(p[1]) {
							if wrong++; wrong < 40 {
								t.Errorf("%s, %s, %s, %s: %v\n%q\nbecame\n%q\nwant\n%q", s.rule, name, place, form, found, line(p[0]), out, line(p[1]))
							}
						}
					}
				}
			}
		}
		t.Logf("%d shapes, %d sequences, %d lines are wrong", len(list), len(all), wrong)
	})
}

// Characters next to a token, and characters of the token, may be escaped for URLs, HTML, mail or a language.
func TestSpelledCharacters(t *testing.T) {
	spell := map[string]func(c byte) string{
		"URL":         func(c byte) string { return fmt.Sprintf("%%%02X", c) },
		"url":         func(c byte) string { return fmt.Sprintf("%%%02x", c) },
		"HTML":        func(c byte) string { return fmt.Sprintf("&#%d;", c) },
		"mail":        func(c byte) string { return fmt.Sprintf("=%02X", c) },
		"JSON":        func(c byte) string { return fmt.Sprintf(`\u%04x`, c) },
		"hexadecimal": func(c byte) string { return fmt.Sprintf(`\x%02x`, c) },
		"octal":       func(c byte) string { return fmt.Sprintf(`\%03o`, c) },
	}
	t.Run("B-04 known shapes beside escaped characters", func(t *testing.T) {
		r := mustNew(t, redact.Options{})
		for _, s := range oneWords(seeds(dice{rand.New(rand.NewPCG(12, 1))})) {
			if s.before != "" {
				continue
			}
			mark := "[redacted:" + s.rule + "]"
			for name, as := range spell {
				for _, c := range []byte("\"' =:&,<>(\n\t") {
					for form, line := range lineContexts {
						in, want := line("x"+as(c)+s.secret+as('"')+"y"), line("x"+as(c)+mark+as('"')+"y")
						if out, found := r.Line([]byte(in)); string(out) != want {
							t.Errorf("%s, %s, %q, %s: %v\n%q\nbecame\n%q\nwant\n%q", s.rule, name, c, form, found, in, out, want)
						}
					}
				}
				for i := range s.secret {
					if name == "mail" && strings.ContainsRune(alnum, rune(s.secret[i])) {
						continue // mail does not encode it
					}
					in := "x " + s.secret[:i] + as(s.secret[i]) + s.secret[i+1:] + " y"
					if out, found := r.Line([]byte(in)); string(out) != "x "+mark+" y" {
						t.Errorf("%s, %s at %d: %v\n%q\nbecame\n%q", s.rule, name, i, found, in, out)
					}
				}
			}
		}
	})
}

// Text that resembles a sequence, an escape or a named secret remains unchanged.
func TestLookAlikes(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(13, 1))}
	r := mustNew(t, redact.Options{})
	list := []string{
		"max_tokens=4096, the password field must not be empty, commit 3f786850e387550fdab836ed7e6dc881de23001b",
		"\x1b[31mnpm_config_registry\x1b[0m=https://registry.npmjs.org", "\x1b[32mok\x1b[0m github.com/x/y 0.123s", "%20task-" + d.of(lowerLetters, 40),
		"the password is required, tokens: 12345678, secret: none", "password: string", "password: String;", "password?: string | undefined", "Password string `json:\"password\"`",
		"password=os.environ['DB_PASSWORD_2']", "password=os.environ[\"DB_PASSWORD\"]", "password = getpass.getpass('Password 12: ')", "PASSWORD=$DB_PASSWORD_1", "PASSWORD=${DB_PASSWORD:-x}",
		"PASSWORD=$(pass show db/1)", "password: ${{ secrets.DB_PASSWORD1 }}", "password: {{ db_password_2 }}", "PASSWORD=<your-password-1>", "DB_PASSWORD=changeme1", "DB_PASSWORD=********",
		"DB_PASSWORD_FILE=/run/secrets/db1", "SECRET_PATH=/run/secrets/db1", "PASSWORD=/run/secrets/db-password-1", "PWD=/home/u/project1", "OLDPWD=/home/u/project1", "password_hash=$2b$12$" + d.of(alnum, 53),
		`{"password":null,"token":true,"secret":12345678901234567890}`, `{"password":"Enter 8 characters or more"}`, `{"password":"required|min:8"}`, `{"password":"varchar(255)"}`, `{"password":"[hidden]"}`,
		`{"input_tokens":1234567890123456,"max_tokens":8192,"token_type":"bearer0123456789abcd"}`, `{"next_page_token":"` + d.of(alnum, 40) + `"}`, `{"nextToken":"` + d.of(alnum, 40) + `"}`,
		`{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"db-credentials-v2","key":"password1"}}}`, "secretName: payments-api-tls-v2-secret-12", "secret: payments-api-tls-v2",
		"token = tokens[position1234567890]", "token := lexer.nextToken1234567890()", "const apiKey = config.services.payments.apiKey2", "api_key=settings.PAYMENTS_API_KEY_V2",
		`if token == "3f786850e387550fdab836ed7e6dc881de23001b" {`, "passwordEncoder=BCrypt2Encoder12", "tokenizer=cl100k_base_2024_01_01", "--password-stdin", "--token-budget 4096000000000000",
		"usage: login --password <password1234>", "monkey=1234567890abcdefgh", "bypass=a1b2c3d4e5", "public_key=" + d.of(alnum, 43), "primary_key=" + d.of(hexes, 32), "cache-key: " + d.of(hexes, 64),
		"sha256=" + d.of(hexes, 64), "etag: \"" + d.of(hexes, 32) + "\"", "uuid=9b2d0a1c-3f4e-4a5b-8c6d-7e8f9a0b1c2d", "[31m][0m] := matrix[31]", `regexp.MustCompile("[^[]ghi")`,
	}
	t.Run("B-04 look-alikes stay whole", func(t *testing.T) {
		for _, s := range list {
			for form, line := range lineContexts {
				if out, found := r.Line([]byte(line(s))); found != nil {
					t.Errorf("%s: %v\n%s\nbecame\n%s", form, found, line(s), out)
				}
			}
		}
	})
}

// Values that are secrets by their name alone, in each form of assignment; @ is the value.
func TestNamedValues(t *testing.T) {
	const password, token = "gT5kW9qLs2Vx8Z", "h7Kq2LmPz9Xv4RtWb8NcYd3FgJs6TuAe1QoViZxB"
	for rule, kind := range map[string]struct {
		value string
		forms []string
	}{
		"password": {password, []string{
			"DATABASE_PASSWORD=@", "export DB_PASSWORD=@", "DB_PASSWORD='@'", `DB_PASSWORD="@"`, "DB_PASS=@", "PGPASSWORD=@ psql", "MYSQL_PWD=@", "MYSQL_ROOT_PASSWORD: @", "docker run -e DB_PASSWORD=@ db",
			"ENV DB_PASSWORD @", `{"password":"@"}`, `{"password" : "@","n":1}`, `{"db_password":"@"}`, `{"dbPassword":"@"}`, `{"a":{"passwd":"@"}}`, `{'password': '@'}`, "password: @", "  - password: @", `password: "@"`,
			`password = "@"`, ":password => '@'", "'password' => '@',", "$db['password'] = '@';", "password=@", "spring.datasource.password=@", "<password>@</password>", `<add key="DB_PASSWORD" value="@"/>`,
			`{"name":"DB_PASSWORD","value":"@"}`, "{\n  \"name\": \"DB_PASSWORD\",\n  \"value\": \"@\"\n}", "mysql --password=@ -h db", "mysql --password @", "passphrase: @", "user=app&password=@&x=1", "connect user=app password=@ host=db",
			"Server=db;User Id=app;Password=@;", "password%3D@", "%22password%22%3A%22@%22", "&quot;password&quot;:&quot;@&quot;", "password=3D@", "password: \x1b[33m@\x1b[0m", "\x1b[34;1m\"password\"\x1b[0m\x1b[39m:\x1b[0m \x1b[32m\"@\"\x1b[0m",
		}},
		"secret": {token, []string{
			"CLOUDFLARE_API_TOKEN=@", "API_KEY=@", "export STRIPE_SECRET=@", `{"apiKey":"@"}`, `{"api_key": "@"}`, `{"accessToken":"@","expires_in":3600}`, "client_secret: @", "JWT_SECRET='@'", "SECRET_KEY_BASE=@",
			"token: @", `"token":"@"`, "--api-key @", "--token=@", "ENCRYPTION_KEY=@", `api_token = "@"`, `{"name":"API_TOKEN","value":"@"}`, `<secret>@</secret>`,
		}},
	} {
		t.Run("B-04 values by name, "+rule, func(t *testing.T) {
			r := mustNew(t, redact.Options{})
			for _, f := range kind.forms {
				for form, line := range lineContexts {
					in, want := line(strings.ReplaceAll(f, "@", kind.value)), line(strings.ReplaceAll(f, "@", "[redacted:"+rule+"]"))
					if out, found := r.Line([]byte(in)); string(out) != want {
						t.Errorf("%s: %v\n%s\nbecame\n%s\nwant\n%s", form, found, in, out, want)
					}
				}
			}
		})
	}
}
