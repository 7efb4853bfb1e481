package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const someHandler = `{"type":"command","command":"tally hook claude","timeout":5}`

func mustAdd(t interface{ Fatalf(string, ...any) }, text string, events ...string) string {
	to, err := addHooks([]byte(text), []byte(someHandler), events)
	if err != nil {
		t.Fatalf("%s: got %v", text, err)
	}
	return string(to)
}

// Added text has the style of the file, and all other bytes stay.
func TestAddHooks(t *testing.T) {
	const group = `{"hooks": [{"type": "command", "command": "tally hook claude", "timeout": 5}]}`
	full := "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \"tally hook claude\",\n            \"timeout\": 5\n          }\n        ]\n      }\n    ]\n  }\n}\n"
	tabs := strings.ReplaceAll(full, "  ", "\t")
	for name, c := range map[string]struct{ from, to string }{
		"nothing":        {"", full},
		"blanks":         {" \n", full},
		"empty":          {"{}\n", full},
		"empty and wide": {"{\n}\n", full},
		"empty hooks":    {"{\n  \"hooks\": {}\n}\n", full},
		"already":        {full, full},
		"tabs":           {"{\n\t\"hooks\": {\n\t}\n}\n", tabs},
		"CRLF":           {"{\r\n  \"hooks\": {}\r\n}\r\n", strings.ReplaceAll(full, "\n", "\r\n")},
		"behind others":  {"{\n  \"model\": \"m\" \n}", "{\n  \"model\": \"m\",\n" + strings.TrimPrefix(strings.TrimSuffix(full, "\n}\n"), "{\n") + " \n}"},
		"one line":       {`{"a": 1, "hooks": {"Stop": [{"x": 1}]}}`, `{"a": 1, "hooks": {"Stop": [{"x": 1}, ` + strings.ReplaceAll(strings.ReplaceAll(group, ": ", ":"), ", ", ",") + `]}}`},
		"elsewhere":      {`{"hooks": {"Stop": [{"matcher": "*", "hooks": [{"command": "/opt/tally hook"}]}]}}`, `{"hooks": {"Stop": [{"matcher": "*", "hooks": [{"command": "/opt/tally hook"}]}]}}`},
	} {
		if got := mustAdd(t, c.from, "Stop"); got != c.to {
			t.Errorf("%s: %s", name, cmp.Diff(c.to, got))
		}
	}
}

// A file that is not a settings file is not changed, and the error names the place.
func TestAddHooksRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{\n// mine\n}": "line 2 is not JSON", "[]": "not a JSON object", `{"hooks": []}`: `"hooks" is not an object`, `{"hooks": {"Stop": {}}}`: "not a list",
		"{\"a\": 1,\n\"a\": 2}": "", "{} {}": "line 1", "\xef\xbb\xbf{}": "line 1",
	} {
		_, err := addHooks([]byte(text), []byte(someHandler), []string{"Stop"})
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// settingsText draws a settings file with hooks of other programs, in several layouts.
func settingsText(t *rapid.T) string {
	value := rapid.SampledFrom([]string{`1`, `"x, {\"a\": ["`, `[1, {"hooks": 2}]`, `{"a": {}}`, `[]`, `null`, `"ü\\"`}).Draw(t, "value")
	other := `{"type": "command", "command": "say done"}`
	event := func(name string) string {
		var groups []string
		for range rapid.IntRange(1, 2).Draw(t, "groups") {
			groups = append(groups, `{"matcher": "Bash", "hooks": [`+other+`]}`)
		}
		return `"` + name + `": [` + strings.Join(groups, ", ") + `]`
	}
	members := []string{`"model": ` + value}
	if rapid.Bool().Draw(t, "hooks") {
		members = append(members, `"hooks": {`+event(rapid.SampledFrom([]string{"Stop", "Other"}).Draw(t, "event"))+`}`)
	}
	if rapid.Bool().Draw(t, "last") {
		members = append(members, `"last": `+value)
	}
	text := "{" + strings.Join(members, ", ") + "}"
	if rapid.Bool().Draw(t, "wide") {
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(text), "", rapid.SampledFrom([]string{"  ", "\t", "    "}).Draw(t, "indent")); err != nil {
			t.Fatal(err)
		}
		text = b.String() + "\n"
	}
	return text
}

// Adding and removing restores the bytes. Adding twice is adding once. Hooks of other programs stay.
func TestHooksLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := settingsText(rt)
		to := mustAdd(rt, text, "SessionStart", "Stop")
		if again := mustAdd(rt, to, "SessionStart", "Stop"); again != to {
			rt.Fatalf("a second addition: want - got +\n%s", cmp.Diff(to, again))
		}
		var was, is map[string]any
		if err := json.Unmarshal([]byte(text), &was); err != nil {
			rt.Fatal(err)
		}
		if err := json.Unmarshal([]byte(to), &is); err != nil {
			rt.Fatalf("%v\n%s", err, to)
		}
		for name, value := range was {
			if name != "hooks" && !cmp.Equal(is[name], value) {
				rt.Fatalf("%s: got %v, want %v", name, is[name], value)
			}
		}
		if n := strings.Count(to, "tally hook claude"); n != 2 || strings.Count(to, "say done") != strings.Count(text, "say done") {
			rt.Fatalf("got %d hooks in\n%s", n, to)
		}
		back, err := cutHooks([]byte(to))
		if err != nil || string(back) != text {
			rt.Fatalf("%v: taken out\n%s", err, cmp.Diff(text, string(back)))
		}
	})
}

// In a group with handlers of other programs, only tally's handler is removed.
func TestCutHooks(t *testing.T) {
	for text, want := range map[string]string{
		`{"hooks": {"Stop": [{"hooks": [{"command": "a"}, {"command": "tally hook"}, {"command": "b"}]}]}}`:   `{"hooks": {"Stop": [{"hooks": [{"command": "a"}, {"command": "b"}]}]}}`,
		`{"hooks": {"Stop": [{"hooks": [{"command": "tally hook"}, {"command": "b"}]}]}}`:                     `{"hooks": {"Stop": [{"hooks": [{"command": "b"}]}]}}`,
		`{"a": 1, "hooks": {"Stop": [{"matcher": "*", "hooks": [{"command": "'/a b/tally' hook claude"}]}]}}`: `{"a": 1}`,
		`{"hooks": {"Stop": [{"hooks": [{"command": "mytally hook"}, {"command": "tally hooks"}]}]}}`:         `{"hooks": {"Stop": [{"hooks": [{"command": "mytally hook"}, {"command": "tally hooks"}]}]}}`,
		``: ``, `{}`: `{}`, `{"hooks": 7}`: `{"hooks": 7}`,
	} {
		if got, err := cutHooks([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", text, err, got, want)
		}
	}
}

func TestNotify(t *testing.T) {
	const line = "notify = [\"tally\", \"hook\", \"codex\"]\n"
	for _, text := range []string{"", "model = \"m\"\n", "# mine\n[tools]\nnotify = 1\n", "x = [\n  [1],\n]\n\n[a]\n", "a = 1\r\n", "a = \"\"\"\n[b]\nnotify = 2\n\"\"\"\n"} {
		to, remark, err := addNotify([]byte(text), "tally")
		if err != nil || remark != "" {
			t.Fatalf("%q: got %v, %s", text, err, remark)
		}
		if want := strings.TrimSuffix(line, "\n"); !strings.HasPrefix(string(to), want) || !strings.HasSuffix(string(to), text) || len(to) < len(want)+len(text)+1 {
			t.Errorf("%q: got %q", text, to)
		}
		if again, _, err := addNotify(to, "/opt/tally"); err != nil || string(again) != string(to) {
			t.Errorf("again: got %q, %v", again, err)
		}
		if back, err := cutNotify(to); err != nil || string(back) != text {
			t.Errorf("taken out: %q, %v, want %q", back, err, text)
		}
	}
	taken := "notify = [\"bell\"]\n"
	if to, remark, err := addNotify([]byte(taken), "tally"); err != nil || string(to) != taken || !strings.Contains(remark, "bell") {
		t.Errorf("got %q, %q, %v", to, remark, err)
	}
	if to, err := cutNotify([]byte(taken)); err != nil || string(to) != taken {
		t.Errorf("got %q, %v", to, err)
	}
	if _, _, err := addNotify([]byte("a = 1\nb = \n"), "tally"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
	if _, err := cutNotify([]byte("notify = [\n\"tally\", \"hook\"]\n")); err == nil {
		t.Error("a part of a value was removed")
	}
}

// For any file, the result is JSON or an error.
func FuzzHooks(f *testing.F) {
	for _, text := range []string{"", "{}", `{"hooks":{"Stop":[{"hooks":[{"command":"tally hook"}]},7]},"a":[{},[]]}`, `{"hooks":{"Stop":[[{"hooks":[]}]]}}`, "{\n\t\"a\" : 1\n}", `[1]`, `{"hooks":{"Stop":["x",{"hooks":{"command":"tally hook"}}]}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		to, err := addHooks(text, []byte(someHandler), []string{"Stop", "End"})
		if err != nil {
			return
		}
		if !json.Valid(to) {
			t.Fatalf("%q: got %q", text, to)
		}
		if again, err := addHooks(to, []byte(someHandler), []string{"Stop", "End"}); err != nil || !bytes.Equal(again, to) {
			t.Fatalf("%q: again: got %q, %v", to, again, err)
		}
		back, err := cutHooks(to)
		if err != nil || !json.Valid(back) || bytes.Contains(back, []byte(`"tally hook claude"`)) && !bytes.Contains(text, []byte("tally")) {
			t.Fatalf("%q: removed again: got %q, %v", to, back, err)
		}
	})
}
