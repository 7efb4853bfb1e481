package message_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/agents/shapes"
)

// Read loses no text: every text of a turn is in the result, whatever the shape, unless it is an identifier, a type
// or the like, or an image.
func TestNothingIsLost(t *testing.T) {
	for _, e := range examples(t) {
		check(t, []byte(e.turn))
	}
}

// The check detects lost text.
func TestLost(t *testing.T) {
	for turn, want := range map[string]string{
		`{"role":"user","content":"hi","to":{"name":["Ada","hi"]}}`:   `Ada`,
		`{"role":"user","content":"hi","id":"x","usage":{"a":"b"}}`:   ``,
		`{"role":"user","content":"hi","usage":"b","text":"\u0068i"}`: ``,
		`{"role":"user","content":"hi","arguments":"{\"a\":\"hi\"}"}`: ``,
		`{"role":"user","content":"hi","arguments":"{\"a\":\"ho\"}"}`: `{"a":"ho"}`,
	} {
		if got := lost([]byte(turn), shapes.Turn{Parts: []shapes.Part{{Text: "hi"}}}); got != want {
			t.Errorf("%s: got %q, want %q", turn, got, want)
		}
	}
}

// Nested parts are read to a limited depth. Deeper parts are kept as JSON, so that no level is read once for each
// level above it.
func TestDeep(t *testing.T) {
	for _, floor := range []string{
		`{"type":"non_standard","value":%s}`,
		`{"type":"tool_result","tool_use_id":"c","content":[%s,{"type":"image","source":"x"}]}`,
		`{"functionResponse":{"name":"f","response":{"a":1},"parts":[%s]}}`,
	} {
		nested := func(n int) string {
			part, turn := `{"type":"refusal","refusal":"hi"}`, `{"role":"user","content":[%s]}`
			if strings.Contains(floor, "functionResponse") {
				part, turn = `{"text":"hi"}`, `{"role":"user","parts":[%s]}`
			}
			for range n {
				part = fmt.Sprintf(floor, part)
			}
			return fmt.Sprintf(turn, part)
		}
		for n, deep := range map[int]bool{1: true, 3: true, 100: false} {
			turn := nested(n)
			check(t, []byte(turn))
			read, _ := message.Read([]byte(turn))
			if got := slices.ContainsFunc(read.Parts, func(p shapes.Part) bool { return p.Text == "hi" }); got != deep {
				t.Errorf("%d levels of %s:\n%s", n, floor, describe(read))
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, e := range examples(f) {
		f.Add([]byte(e.turn))
	}
	for _, turn := range []string{
		`{"role":"user","content":[{"type":"text","text":{"deep":"in"}}],"tool_calls":"none of them"}`,
		`{"role":"tool","tool_call_id":5,"content":{"a":"b"},"name":["x"]}`,
		`{"choices":[{"message":{"content":[["nested"]]}},{"delta":{"role":7,"tool_calls":[5,{"function":"f"}]}}]}`,
		`{"output":["item"],"object":"response","instructions":["one"]}`,
		`{"parts":[{"functionCall":"f"},{"functionResponse":{"response":["x"],"parts":"y"}},{"inlineData":[1],"thought":"so"}]}`,
		`{"type":"ai","data":{"content":null,"additional_kwargs":{"tool_calls":[{"function":{"name":"a"}}]},"tool_calls":[{"name":"b"}]}}`,
		`{"role":"user","content":[{"type":"image","image":{"data":"some words","x":"y"},"source":"z"},{"type":"tool-result","output":{"type":"text","value":[{"type":"text","text":"a","b":"c"}],"d":"e"}}]}`,
	} {
		f.Add([]byte(turn))
	}
	f.Fuzz(func(t *testing.T, turn []byte) { check(t, turn) })
}

// check checks one turn: no text is lost, and the result is valid text.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, turn []byte) {
	t.Helper()
	read, ok := message.Read(turn)
	if !ok {
		return
	}
	if text := lost(turn, read); text != "" {
		t.Fatalf("the result of reading %s\nlacks %q:\n%s", turn, text, describe(read))
	}
	if !utf8.ValidString(describe(read)) {
		t.Fatalf("the result of reading %s\nis not UTF-8:\n%s", turn, describe(read))
	}
	if u := read.Usage; u.Input < 0 || u.Output < u.Reasoning || u.CacheRead < 0 || u.CacheWrite < 0 || u.Total() < 0 {
		t.Fatalf("%s\nhas an invalid usage: %+v", turn, u)
	}
	for _, p := range read.Parts {
		if !utf8.ValidString(shapes.Plain(p.Text)) {
			t.Fatalf("the text for search %q is not UTF-8", p.Text)
		}
	}
}

// lost returns a text of a turn that is missing from the result, "" if all are there.
func lost(turn []byte, read shapes.Turn) string {
	said := []string{read.Model, read.Response}
	for _, p := range read.Parts {
		said = append(said, p.Text, p.Name, p.ID, p.Media)
		said = append(said, all(p.Text)...)
	}
	has := func(text string) bool {
		for _, s := range said {
			if strings.Contains(s, text) {
				return true
			}
		}
		return false
	}
	for _, text := range texts(turn, read.Shape) {
		if !has(text) && !isTagged(text, read.Shape, has) && !isImage(text) && !(isObject(text) && !slices.ContainsFunc(texts([]byte(text), ""), func(inner string) bool { return !has(inner) })) {
			return text
		}
	}
	return ""
}

// isObject reports whether a text is JSON that was written into a string.
func isObject(text string) bool {
	return json.Valid([]byte(text)) && strings.ContainsAny(strings.TrimSpace(text)[:1], "{[")
}

// isImage reports whether a text can be the data of an image.
func isImage(text string) bool {
	if strings.HasPrefix(text, "data:") && strings.Contains(text, ";base64,") {
		return true
	}
	return len(text) >= 64 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=") == ""
}

// all returns every text in a value; texts returns those that can have a speaker. A value that is not JSON has none.
func all(value string) []string {
	return walk("", []byte(value), func(string, string) bool { return false })
}
func texts(value []byte, shape string) []string {
	return walk(message.Whole, value, message.Quiet(shape))
}

// tag matches the tags that Claude Code writes around commands and their output.
var tag = regexp.MustCompile(`</?(command|bash|local-command)-[a-z]+>`)

// isTagged reports whether all text between the tags is there.
func isTagged(text, shape string, has func(string) bool) bool {
	pieces := tag.Split(text, -1)
	return shape == "claude-code" && len(pieces) > 1 && !slices.ContainsFunc(pieces, func(piece string) bool { return !has(strings.TrimSpace(piece)) })
}

// walk is an independent reader of JSON, so that its result does not depend on the tested code.
func walk(root string, value []byte, quiet func(object, name string) bool) []string {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return nil
	}
	var list []string
	var visit func(object, name string, v any)
	visit = func(object, name string, v any) {
		switch v := v.(type) {
		case string:
			if v != "" {
				list = append(list, v)
			}
		case []any:
			for _, e := range v {
				visit(object, name, e)
			}
		case map[string]any:
			for inner, e := range v {
				if !quiet(name, inner) {
					visit(name, inner, e)
				}
			}
		}
	}
	visit("", root, v)
	return list
}

// ReadGlued reads several lines of Claude Code in one line, each as it is. It reads no other invalid JSON.
func TestReadGlued(t *testing.T) {
	const said = `{"type":"assistant","uuid":"a","message":{"role":"assistant","content":[{"type":"text","text":"So."}]}}`
	const summary = `{"type":"summary","summary":"Belts","leafUuid":"a"}`
	read, ok := message.ReadGlued([]byte(said + summary))
	if want := "claude-code\nsaid assistant: So.\nsaid summary: Belts\n"; !ok || describe(read) != want {
		t.Errorf("%v\n%s", ok, describe(read))
	}
	for _, line := range []string{"", said, said + `{"torn`, said + `{"type":"unknown"}`, `{}{}`, "\x00"} {
		if read, ok := message.ReadGlued([]byte(line)); ok {
			t.Errorf("%q was read, want a refusal:\n%s", line, describe(read))
		}
	}
}
