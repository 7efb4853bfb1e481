package message_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/agents/shapes"
)

// png is an image of 70 bytes.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// example is a turn of testdata with its expected content.
type example struct{ file, name, turn, want string }

// examples reads testdata. All of it was written by hand from the makers' documents, including the expected results.
func examples(t testing.TB) []example {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples were found: %v", err)
	}
	var list []example
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Files) < 10 {
			t.Errorf("%s has %d turns, want ten or more", file, len(a.Files))
		}
		for _, f := range a.Files {
			turn, want, ok := strings.Cut(strings.ReplaceAll(string(f.Data), "$PNG", png), "----\n")
			if !ok {
				t.Fatalf("%s: %s has no expected result", file, f.Name)
			}
			list = append(list, example{strings.TrimSuffix(filepath.Base(file), ".txtar"), f.Name, turn, want})
		}
	}
	return list
}

var kinds = []string{shapes.Said: "said", shapes.Reasoning: "reasoning", shapes.Call: "call", shapes.Result: "result", shapes.Media: "media", shapes.Refusal: "refusal", shapes.Other: "other"}

// describe writes the content of a turn in the form of testdata.
func describe(t shapes.Turn) string {
	b := &strings.Builder{}
	fmt.Fprintln(b, strings.Join(strings.Fields(t.Shape+" "+t.Model+" "+t.Response), " "))
	if u := t.Usage; u != (events.Tokens{}) {
		fmt.Fprintf(b, "usage %d in, %d out, %d reasoning, %d read, %d written\n", u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite)
	}
	for _, p := range t.Parts {
		words := []string{kinds[p.Kind], p.Role}
		if p.Name != "" {
			words = append(words, "("+p.Name+")")
		}
		words = append(words, p.ID, p.Media)
		if p.Error {
			words = append(words, "error")
		}
		if p.Bytes != 0 {
			words = append(words, fmt.Sprintf("%d bytes", p.Bytes))
		}
		head := strings.Join(strings.Fields(strings.Join(words, " ")), " ")
		if p.Kind == shapes.Media && p.Text == "" {
			fmt.Fprintln(b, head)
			continue
		}
		fmt.Fprintln(b, strings.TrimRight(head+": "+strings.ReplaceAll(p.Text, "\n", `\n`), " "))
	}
	return b.String()
}

func TestRead(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.file+"/"+e.name, func(t *testing.T) {
			read, ok := message.Read([]byte(e.turn))
			if got := describe(read); !ok || got != e.want {
				t.Errorf("%v\n%s\ngot\n%s\nwant\n%s", ok, e.turn, got, e.want)
			}
		})
	}
}

// Each shape of the table reads an example before any other shape matches it. So a new shape needs examples and the
// right position.
func TestEachShapeHasExamples(t *testing.T) {
	read := make(map[int]int)
	for _, e := range examples(t) {
		read[message.ShapeOf([]byte(e.turn))]++
	}
	for i, name := range message.Shapes() {
		if read[i] == 0 {
			t.Errorf("row %d of the table, of %s, reads no example: write testdata/*.txtar, or move the row above the shape that takes its turns", i+1, name)
		}
	}
}

// Each agent's package alone knows the members of the agent's lines.
func TestMembersOfAgents(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"isMeta": "claude", "isCompactSummary": "claude", "customTitle": "claude", "response_item": "codex", "event_msg": "codex", "functionCall": "gemini", "functionResponse": "gemini", "customType": "pi", "sessionUpdate": "acp",
	} {
		var found []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if dir := filepath.Base(filepath.Dir(file)); !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), `"`+name+`"`) && !slices.Contains(found, dir) {
				found = append(found, dir)
			}
		}
		if !slices.Equal(found, []string{want}) {
			t.Errorf("the member %s is in the packages %v, want only %s", name, found, want)
		}
	}
}
