package secret

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// setting has a canary, ¤, at each position of a secret. None looks like a key, so only the table finds them.
const setting = `{
  "model": "claude-sonnet-4-5",
  "providerConfig": {
    "providerName": "anthropic", "apiKey": "¤", "baseUrl": "https://ann:¤@example.com/v1", "headers": {"x-team": "¤", "X-Api-Key": "¤", "trace": ["¤", {"deep": "¤"}]},
    "accessKeyId": "¤", "secretAccessKey": "¤", "sessionToken": "¤", "region": "eu-west-1",
    "credentials": {"client_email": "¤", "private_key": "-----BEGIN PRIVATE KEY-----\n¤\n", "pin": 4711471147},
    "resourceName": "east", "apiVersion": "2026-01-01", "azureADToken": "¤", "project": "p-1", "location": "europe-west4", "organization": "¤",
    "proxy": {"url": "https://example.com/?token=¤", "user": "¤"}, "somethingNew": "¤", "list": ["¤", ["¤"]], "useDeploymentBasedUrls": true, "timeout": 30000
  },
  "jobId": "j1", "runId": "r1", "expertKey": "coder@1.0.0",
  "input": {"text": "hello"},
  "experts": {
    "env": {"key": "env", "name": "env", "version": "1.0.0", "instruction": "Do it.", "delegates": ["token"], "tags": [],
      "skills": {
        "token": {"type": "mcpStdioSkill", "name": "token", "command": "npx", "args": ["-y", "--key", "¤"], "env": {"GITHUB": "¤", "B": "¤", "N": 4711471148}, "requiredEnv": ["GITHUB_TOKEN"]},
        "sse": {"type": "mcpSseSkill", "endpoint": "https://example.com/sse?k=¤", "headers": {"Authorization": "¤", "Cookie": "¤"}},
        "http": {"type": "mcpHttpSkill", "url": "https://u:¤@example.com", "baseUrl": "https://example.com/¤#¤", "auth": {"user": "¤", "password": "¤"}, "clientSecret": "¤"},
        "odd": {"command": "sh -c ¤", "access_token": "¤", "refreshToken": "¤"}
      },
      "providerToolOptions": {"mcp": {"authorization_token": "¤", "headers": {"a": "¤"}}}
    },
    "other": {"skills": [{"args": ["¤"], "env": ["A=¤"], "headers": [["x", "¤"]]}]}
  },
  "maxSteps": 100, "timeout": 300000, "startedAt": 1767225600000, "updatedAt": 1767225600001,
  "perstackApiBaseUrl": "https://api.example.com/¤?x=1", "perstackApiKey": "¤",
  "perstackBaseSkillCommand": ["npx", "-y", "¤", "--token=¤"],
  "env": {"ANTHROPIC_API_KEY": "¤", "PLAIN": "¤", "EMPTY": "", "PORT": 4711471149, "NESTED": {"A": "¤"}},
  "proxyUrl": "http://ann:¤@proxy:3128", "verbose": true,
  "env": {"TWICE": "¤"}, "password": "¤", "vendor": {"api_key": "¤", "webhookUrl": "https://hooks.example.com/?¤"}
}`

// withCanaries replaces each ¤ by a different canary, and returns them.
func withCanaries(text string) (events.Raw, []string) {
	canaries := []string{"4711471147", "4711471148", "4711471149"} // which are numbers
	for strings.Contains(text, "¤") {
		canary := fmt.Sprintf("canary%03d", len(canaries))
		canaries = append(canaries, canary)
		text = strings.Replace(text, "¤", canary, 1)
	}
	return events.Raw(text), canaries
}

// Take removes every secret of a setting, keeps everything else, and Put restores the setting byte for byte.
func TestCanaries(t *testing.T) {
	raw, canaries := withCanaries(setting)
	if len(canaries) < 40 {
		t.Fatalf("got %d canaries", len(canaries))
	}
	without, values, suspects, err := Take(raw)
	if err != nil {
		t.Fatal(err)
	}
	packed := string(Pack(values))
	for _, canary := range canaries {
		if strings.Contains(string(without), canary) {
			i := strings.Index(string(without), canary)
			t.Errorf("the setting still has %s: %s", canary, without[max(i-60, 0):i+20])
		}
		if !strings.Contains(packed, canary) {
			t.Errorf("the taken values lack %s", canary)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v %x", values, suspects, values[0], values), canary) {
			t.Errorf("%s is printed", canary)
		}
	}
	if len(suspects) > 0 {
		t.Errorf("the suspects are %q", suspects)
	}
	if got, err := Put(without, values); err != nil || string(got) != string(raw) {
		t.Errorf("got %s, error %v", got, err)
	}
	for _, kept := range []string{`"model": "claude-sonnet-4-5"`, `"providerName": "anthropic"`, `"region": "eu-west-1"`, `"resourceName": "east"`,
		`"apiVersion": "2026-01-01"`,
		`"location": "europe-west4"`, `"timeout": 30000`, `"expertKey": "coder@1.0.0"`, `"key": "env", "name": "env"`, `"instruction": "Do it."`,
		`"command": "npx"`, `"EMPTY": ""`,
		`"requiredEnv": ["GITHUB_TOKEN"]`, `"delegates": ["token"]`, `["npx", "tally:secret:`, `"text": "hello"`, `"verbose": true`} {
		if !strings.Contains(string(without), kept) {
			t.Errorf("Take removed %s", kept)
		}
	}
}

// Take returns the paths of secrets in order, and keeps values that only look unusual.
func TestTake(t *testing.T) {
	for name, c := range map[string]struct{ raw, without, paths, suspects string }{
		"nothing":     {`{"model":"m"}`, `{"model":"m"}`, "", ""},
		"no object":   {` 1 `, ` 1 `, "", ""},
		"white space": {"{ \"env\" :\n{ \"A\" : \"x\" } }", "{ \"env\" :\n{ \"A\" : \"tally:secret:1\" } }", "/env/A", ""},
		"a plain address": {`{"proxyUrl":"http://proxy:3128/","providerConfig":{"baseUrl":"https://[::1]:80/v1"}}`,
			`{"proxyUrl":"http://proxy:3128/","providerConfig":{"baseUrl":"https://[::1]:80/v1"}}`, "", ""},
		"an address with a key": {`{"providerConfig":{"baseUrl":"https://h/Zx81Qw7Lk2Vb9Nc4Tt5Yh6Rr/v1"}}`,
			`{"providerConfig":{"baseUrl":"tally:secret:1"}}`, "/providerConfig/baseUrl", ""},
		"a token without a scheme": {`{"proxyUrl":"ann:pw@proxy"}`, `{"proxyUrl":"tally:secret:1"}`, "/proxyUrl", ""},
		"a harmless name, and a key": {`{"providerConfig":{"region":"sk-0123456789abcdef"}}`, `{"providerConfig":{"region":"tally:secret:1"}}`,
			"/providerConfig/region", ""},
		"an escaped name": {`{"\u0065nv":{"a/b~":"x"}}`, `{"\u0065nv":{"a/b~":"tally:secret:1"}}`, "/env/a~1b~0", ""},
		"like a placeholder": {`{"input":{"text":"tally:secret:7"},"a":"tally\u003asecret:x"}`,
			`{"input":{"text":"tally:secret:1"},"a":"tally:secret:2"}`, "/input/text /a", ""},
		"half a pair":         {`{"env":{"A":"\ud800"}}`, `{"env":{"A":"tally:secret:1"}}`, "/env/A", ""},
		"literals":            {`{"env":{"A":true,"B":null,"C":-1e5}}`, `{"env":{"A":true,"B":null,"C":"tally:secret:1"}}`, "/env/C", ""},
		"suspects":            {`{"input":{"text":"use sk-ant-0123456789 please"},"x":["ok","ghp_0123456789abcdef"]}`, "", "", "/input/text /x/1"},
		"a name is a suspect": {`{"experts":{"sk-0123456789abcdef":{"name":"n"}},"env":{"AKIA0123456789ABCDEF":""}}`, "", "", "/experts/* /env/*"},
		"an id":               {`{"input":{"interactiveToolCallResult":{"toolCallId":"toolu_01A09q90qw90lQ917835Lq9"}}}`, "", "", ""},
	} {
		without, values, suspects, err := Take(events.Raw(c.raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := cmp.Or(c.without, c.raw)
		var paths []string
		for _, v := range values {
			paths = append(paths, v.Path)
		}
		if string(without) != want || strings.Join(paths, " ") != c.paths || strings.Join(suspects, " ") != c.suspects {
			t.Errorf("%s:\n%s\nwant\n%s\nfrom %q, suspects %q", name, without, want, paths, suspects)
		}
	}
}

// Names of secrets are recognised at any position and in any spelling, names of harmless values are not.
func TestNames(t *testing.T) {
	taken := func(format string, names ...string) map[string]bool {
		result := make(map[string]bool)
		for _, name := range names {
			_, values, _, err := Take(events.Raw(fmt.Sprintf(format, name)))
			if err != nil {
				t.Fatal(err)
			}
			result[name] = len(values) > 0
		}
		return result
	}
	for name, is := range taken(`{"x":[{"%s":{"a":["red"]}}]}`, "env", "environment", "headers", "credentials", "auth", "cookies", "secrets", "apiKey",
		"API_KEY", "openai.api-key", "accessKey", "awsAccessKeyId",
		"secretKey", "privateKey", "private_key", "accessToken", "Token", "clientSecret", "password", "passwd", "passphrase", "credential", "Authorization",
		"bearer", "Set-Cookie", "connectionString") {
		if !is {
			t.Errorf("Take kept the values below %q", name)
		}
	}
	for name, is := range taken(`{"x":{"%s":["https://example.com/?q=red"]}}`, "url", "urls", "uri", "uris", "endpoint", "proxy", "webhook", "dsn",
		"perstackApiBaseUrl", "server_url") {
		if !is {
			t.Errorf("Take kept an address with a query in %q", name)
		}
	}
	for name, is := range taken(`{"providerConfig":{"x":{"%s":"red"}}}`, "apiVersion", "deploymentName", "location", "model", "project", "providerName",
		"region", "resourceName", "type", "api_version") {
		if is {
			t.Errorf("Take removed a provider's %q", name)
		}
	}
	for name, is := range taken(`{"%s":"red","experts":{"token":{"skills":{"env":{"tools":{"password":{"description":"red"}}}}}}}`, "model", "expertKey",
		"key", "maxTokens", "text", "authors", "keyboard") {
		if is {
			t.Errorf("Take removed %q, or a member that the user named like a secret", name)
		}
	}
}

func TestTakeRefusesWhatIsNotJSON(t *testing.T) {
	for _, raw := range []string{"", `{"env":{"A":"canary"`, "\xef\xbb\xbf{}", "{\"env\":\"canary \xff\"}"} {
		_, _, _, err := Take(events.Raw(raw))
		if _, ok := errors.AsType[*rawjson.SyntaxError](err); !ok || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: got the error %v", raw, err)
		}
	}
}

// Put refuses placeholders and secrets that do not match one to one, with an error that contains no secret.
func TestPutRefuses(t *testing.T) {
	values, err := Unpack([]byte(`["canary",1]`))
	if err != nil {
		t.Fatal(err)
	}
	for raw, says := range map[string]string{
		`{"a":"tally:secret:1"}`:                                       "number 2 has no placeholder",
		`{"a":"tally:secret:1","b":"tally:secret:3"}`:                  "/b: ",
		`{"a":"tally:secret:1","b":"tally:secret:1"}`:                  "/b: ",
		`{"a":"tally:secret:0"}`:                                       "/a: ",
		`{"a":"tally:secret:01"}`:                                      "/a: ",
		`{"a":"tally:secret:"}`:                                        "/a: ",
		`{"a":"tally:secret:99999999999999999999"}`:                    "/a: ",
		`{"a":["tally:secret:1 "]}`:                                    "/a/0: ",
		`{"tally:secret:1":"tally:secret:2","tally:secret:2":"tally"}`: "number 1 has no placeholder",
	} {
		_, err := Put(events.Raw(raw), values)
		if _, ok := errors.AsType[*events.InvalidError](err); !ok || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want %q", raw, err, says)
		}
	}
}

func TestUnpackRefuses(t *testing.T) {
	for _, packed := range []string{"", "{}", `"canary"`, `[["canary"]]`, `["canary",{}]`, `["canary"`} {
		if _, err := Unpack([]byte(packed)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got the error %v", packed, err)
		}
	}
}

func TestLooksLikeKey(t *testing.T) {
	for _, text := range []string{
		"sk-proj-abcdefgh", "sk-ant-api03-x_y-z0", "AIzaSyA0123456789abcdef", "ghp_0123456789abcdef", "github_pat_11ABCDEFG0", "glpat-abcdefgh12",
		"xoxb-12345678-x", "AKIAIOSFODNN7EXAMPLE", "hf_abcdefghijklmnop",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----", "https://ann:pw@example.com/",
		"postgres://ann:pw@db/x", "https://0123456789abcdef@github.com",
		"https://example.com/?api_key=abcd", "https://example.com/x?a=1&X-Amz-Signature=abcd", "AccountKey=abcdefgh12==",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY0a1B", "the password: hunter2hunter2", `{"token": "abcdefgh1"}`, "Authorization: Bearer abcdefgh1234",
		"Basic YW5uOnB3YW5u1==",
		"0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0", "Q7f2kL9xPz3mR8vT1nW6", "use Q7f2kL9xPz3mR8vT1nW6, please",
	} {
		if !looksLikeKey(text) {
			t.Errorf("looksLikeKey(%q) = false, want true", text)
		}
	}
	for _, text := range []string{
		"", "hello", "claude-sonnet-4-5-20250929", "gpt-5.2", "@modelcontextprotocol/server-github@1.2.3", "https://example.com/v1/chat?page=2",
		"task-management-for-everybody-2026",
		"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "tz4a98xxat96iws9zmbrgj3a", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
		"sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
		"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP", "/srv/ann/projects/tally/stores/perstack/internal/secret/table.go",
		"The token is given by the environment: set GITHUB_TOKEN=${TOKEN}.",
		"getUserByIdentifierAndName", "1767225600000", strings.Repeat("a", 100), "https://ann@example.com",
		"Enter your password: it is never stored anywhere.", "0123456789012345678901234567890123456789",
	} {
		if looksLikeKey(text) {
			t.Errorf("looksLikeKey(%q) = true, want false", text)
		}
	}
}

// drawn returns a random value up to a depth, with names from the table and others.
func drawn(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind = max(kind, 2)
	}
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")
	var list []string
	switch kind {
	case 0, 1:
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			element := drawn(t, depth-1)
			if kind == 0 {
				name := rapid.SampledFrom([]string{"env", "experts", "skills", "headers", "args", "a", "apiKey", "url", "providerConfig",
					"perstackBaseSkillCommand", "command", "region", "~/", "\\u0065nv", "é"}).Draw(t, "name")
				element = `"` + name + `"` + space + ":" + element
			}
			list = append(list, space+element)
		}
		text := strings.Join(list, ",") + space
		if kind == 0 {
			return "{" + text + "}"
		}
		return "[" + text + "]"
	case 2:
		return rapid.SampledFrom([]string{"0", "-1.50", "1e400", "true", "null", `""`, `"\ud800"`, `"tally:secret:1"`, `"tally:secret:x"`,
			`"tally:secret:\ud800"`}).Draw(t, "literal")
	}
	return string(rawjson.AppendString(nil, rapid.String().Draw(t, "text")))
}

// law checks the rules for any JSON.
func law(raw events.Raw) error {
	without, values, suspects, err := Take(raw)
	if err != nil {
		return err
	}
	if err := rawjson.Check(without); err != nil {
		return fmt.Errorf("%s: %w", without, err)
	}
	packed, err := Unpack(Pack(values))
	if err != nil || len(packed) != len(values) {
		return fmt.Errorf("%v, %w", packed, err)
	}
	got, err := Put(without, packed)
	if err != nil || string(got) != string(raw) {
		return fmt.Errorf("%s\nwithout secrets\n%s\nwas restored as\n%s, error %w", raw, without, got, err)
	}
	// No further secret is left: the text has only placeholders, each once.
	again, placeholders, same, err := Take(without)
	if err != nil || string(again) != string(without) || len(placeholders) != len(values) || !slices.Equal(same, suspects) {
		return fmt.Errorf("a second Take changed %s\nto\n%s, taken %q, suspects %q, error %w", without, again, suspects, same, err)
	}
	for i, v := range placeholders {
		if string(v.raw) != string(placeholder(i+1)) {
			return fmt.Errorf("the secret %s is left at %s", v.raw, v.Path)
		}
	}
	return nil
}

func TestLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := law(events.Raw(drawn(t, 5))); err != nil {
			t.Fatal(err)
		}
	})
}

// No word of a value below the position of a secret is left, whatever the value.
func TestNothingIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		canary := rapid.StringMatching(`[a-z]{3} canary [a-z]{3}`).Draw(t, "canary")
		value := rapid.SampledFrom([]string{`"%s"`, `["%s"]`, `{"region":{"b":"%s"}}`, `[["x",{"c":"%s"}]]`, `{"url":["https://x/?%s"]}`}).Draw(t, "value")
		place := rapid.SampledFrom([]string{`{"env":%s}`, `{"env":{"A":%s}}`, `{"experts":{"e":{"skills":{"s":{"env":{"A":%s}}}}}}`,
			`{"experts":{"e":{"skills":{"s":{"headers":%s}}}}}`, `{"experts":[{"skills":[{"args":%s}]}]}`,
			`{"providerConfig":{"apiKey":%s}}`, `{"providerConfig":{"unheardOf":%s}}`, `{"providerConfig":{"credentials":%s}}`, `{"perstackApiKey":%s}`,
			`{"x":{"y":{"client_secret":%s}}}`, `{"x":{"Authorization":%s}}`}).Draw(t, "place")
		raw := events.Raw(fmt.Sprintf(place, fmt.Sprintf(value, canary)))
		without, _, _, err := Take(raw)
		if err != nil || strings.Contains(string(without), canary) {
			t.Fatalf("%s: got %s, error %v", raw, without, err)
		}
	})
}

func FuzzTake(f *testing.F) {
	raw, _ := withCanaries(setting)
	f.Add([]byte(raw))
	for _, text := range []string{`{}`, `[]`, ` "tally:secret:1" `, `{"env":{"A":"\ud800"},"env":[1,{}]}`, `{"input":"sk-0123456789"}`,
		strings.Repeat("[", 999) + strings.Repeat("]", 999)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if rawjson.Check(raw) != nil {
			if _, _, _, err := Take(raw); err == nil {
				t.Fatal("Take accepted invalid JSON")
			}
			return
		}
		if err := law(raw); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzPut calls Put with input that Take did not make.
func FuzzPut(f *testing.F) {
	f.Add([]byte(`{"a":"tally:secret:1"}`), []byte(`["x"]`))
	f.Add([]byte(`"tally:secret:18446744073709551617"`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, raw, packed []byte) {
		values, err := Unpack(packed)
		if err != nil {
			return
		}
		if got, err := Put(raw, values); err == nil && rawjson.Check(got) != nil {
			t.Fatalf("Put returned invalid JSON: %s", got)
		}
	})
}
