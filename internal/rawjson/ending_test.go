package rawjson

import (
	"strings"
	"testing"
	"time"
)

// Ending finds the object at the end of a text, whatever stands before it, and only if the object ends the text.
func TestEnding(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`:                        `{"a":1}`,
		`{"a":fal{"b":{"c":[1,"}\""]}} `: `{"b":{"c":[1,"}\""]}}`,
		`{"a":"half a te{"b":"\\\\"}`:    `{"b":"\\\\"}`,
		`{"a":1}{"b":"{\"c\":2}"}`:       `{"b":"{\"c\":2}"}`,
		`half`:                           "",
		`{"a":1}half`:                    "",
		`"}`:                             "",
		`}`:                              "",
		``:                               "",
		`{"a":[}`:                        "",
	} {
		_, rest, ok := Ending([]byte(text))
		trimmed := strings.TrimRight(text, " ")
		if ok != (want != "") || ok && string(rest)+want != trimmed {
			t.Errorf("%s: got %q before the object (%v), want the object %q", text, rest, ok, want)
		}
	}
}

// Ending takes linear time for any nesting and quoting.
func TestEndingIsLinear(t *testing.T) {
	for _, piece := range []string{`{"a":`, `"{`, `\\"`, `}`, `{"a":"`, `[{`} {
		text := []byte(strings.Repeat(piece, 1<<20/len(piece)) + "}")
		start := time.Now()
		Ending(text)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%q: took %v", piece, took)
		}
	}
}
