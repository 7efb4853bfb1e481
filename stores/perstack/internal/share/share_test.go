package share_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/perstack/internal/share"
)

// session is the contents of a log: each thread's turns.
type session struct {
	known   share.Messages
	threads map[string][]events.Raw
}

// store splits a value, appends the new turns, and checks that the value can be restored.
func (s *session) store(t interface{ Fatalf(string, ...any) }, own, text string) share.Split {
	split, err := s.known.Split(own, events.Raw(text))
	if err != nil {
		t.Fatalf("split %s: %v", text, err)
	}
	if s.threads == nil {
		s.threads = make(map[string][]events.Raw)
	}
	for _, e := range split.New {
		if e.Thread != own && e.Thread != share.ResultsOf(own) {
			t.Fatalf("got a turn of thread %q", e.Thread)
		}
		s.threads[e.Thread] = append(s.threads[e.Thread], e.Turn)
		s.known.Add(e.Thread, e.Turn)
	}
	p := &events.CheckpointSaved{ID: "c", Kind: events.CheckpointStep, Raw: split.Raw, Lists: split.Lists}
	if err := p.Validate(); err != nil {
		t.Fatalf("%s: %v", split.Raw, err)
	}
	whole, err := split.Lists.Fill(split.Raw, events.MaxValue, func(p events.Piece) ([]events.Raw, error) {
		if p.To > len(s.threads[p.Thread]) {
			t.Fatalf("the piece %+v is outside of the thread's %d turns", p, len(s.threads[p.Thread]))
		}
		return s.threads[p.Thread][p.From:p.To], nil
	})
	if err != nil || string(whole) != text {
		t.Fatalf("%v: the restored value is\n%s, want\n%s", err, whole, text)
	}
	return split
}

func message(n int) string {
	return fmt.Sprintf(`{"id":"m%d","type":"userMessage","contents":%q}`, n, strings.Repeat("x", 60))
}

func list(from, to int) string {
	var all []string
	for n := from; n < to; n++ {
		all = append(all, message(n))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// A message is stored once, wherever it is repeated.
func TestOnce(t *testing.T) {
	var s session
	s.store(t, "run/a", `{"type":"startRun","inputMessages":`+list(0, 2)+`}`)
	s.store(t, "run/a", `{"type":"startGeneration","messages":`+list(0, 2)+`}`)
	s.store(t, "run/a", `{"checkpoint":{"messages":`+list(0, 2)+`},"step":{"newMessages":`+list(2, 4)+`},"nextCheckpoint":{"messages":`+list(0, 4)+`}}`)
	split := s.store(t, "run/b/2", `{"id":"c1","messages":`+list(0, 5)+`,"n":1.50}`)
	if n := len(s.threads["run/a"]); n != 4 {
		t.Errorf("thread run/a has %d turns, want 4", n)
	}
	want := []events.Piece{{Thread: "run/a", To: 4}, {Thread: "run/b/2", To: 1}}
	if got := split.Lists["/messages"]; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("the list is %v, want %v", got, want)
	}
	if string(split.Raw) != `{"id":"c1","messages":[],"n":1.50}` {
		t.Errorf("raw is %s", split.Raw)
	}
}

// Results of tools have a thread of their own: they are not read as messages.
func TestResults(t *testing.T) {
	var s session
	results := `[{"id":"r","result":"` + strings.Repeat("y", 800) + `"}]`
	s.store(t, "run/a", `{"type":"resolveToolResults","toolResults":`+results+`}`)
	split := s.store(t, "run/a", `{"step":{"toolResults":`+results+`},"checkpoint":{"messages":[]}}`)
	if len(s.threads["run/a"]) != 0 || len(s.threads["results/run/a"]) != 1 || len(split.New) != 0 {
		t.Errorf("the threads are %v", s.threads)
	}
}

// A model's answer occurs alone in the event of its call, before it is in a list. It becomes a turn then, so that later
// turns follow it.
func TestSingle(t *testing.T) {
	var s session
	s.store(t, "run/a", `{"type":"startGeneration","messages":`+list(0, 2)+`}`)
	split := s.store(t, "run/a", `{"type":"callTools","newMessage":`+message(2)+`,"toolCalls":[]}`)
	if want := `{"type":"callTools","newMessage":null,"toolCalls":[]}`; string(split.Raw) != want {
		t.Errorf("raw is %s, want %s", split.Raw, want)
	}
	s.store(t, "run/a", `{"type":"finishToolCall","newMessages":`+list(3, 4)+`}`)
	split = s.store(t, "run/a", `{"id":"c","messages":`+list(0, 4)+`}`)
	if p := split.Lists["/messages"]; len(p) != 1 || len(split.New) != 0 {
		t.Errorf("the messages of the checkpoint are %v, want one piece; new are %d", p, len(split.New))
	}
}

// A value that could not be restored byte for byte stays, and so does one that is shorter than its reference.
func TestStays(t *testing.T) {
	for _, text := range []string{
		`{"messages":[ ` + message(1) + `]}`,             // white space
		`{"messages":` + list(0, 2) + `,"messages":[]}`,  // a repeated name
		`{"messages":[{"id":1}]}`,                        // shorter than a piece
		`{"messages":{}}`, `{"messages":[]}`, `[1]`, `7`, // not a list
		`{"checkpoint":[` + list(0, 2) + `]}`,
		`{"newMessage":` + list(0, 2) + `}`, `{"newMessage":null}`, `{"newMessage":{"id":1}}`,
	} {
		var s session
		if split := s.store(t, "run/a", text); split.Lists != nil || len(split.New) > 0 || string(split.Raw) != text {
			t.Errorf("%s was split into %s and %v, want no split", text, split.Raw, split.Lists)
		}
	}
	if _, err := new(share.Messages).Split("a", events.Raw(`{"messages":[}`)); err == nil {
		t.Error("invalid JSON was split")
	}
}

// A list that was not replaced leaves no turn that a later one could refer to.
func TestRefusedListIsForgotten(t *testing.T) {
	var s session
	split := s.store(t, "run/a", `{"newMessages":[{"id":"short"}],"step":{"newMessages":[{"id":"short"}]}}`)
	if len(split.New) != 0 {
		t.Errorf("got %d turns for two lists that stay, want none", len(split.New))
	}
}

// Known answer: of two turns with the same content, the one that continues the last piece is used.
func TestRepeatedContent(t *testing.T) {
	var s session
	twice := "[" + message(1) + "," + message(2) + "," + message(1) + "," + message(3) + "]"
	s.threads = map[string][]events.Raw{"run/a": {events.Raw(message(1)), events.Raw(message(2)), events.Raw(message(1)), events.Raw(message(3))}}
	s.known.Add("run/a", s.threads["run/a"]...)
	split := s.store(t, "run/b", `{"messages":`+twice+`}`)
	if p := split.Lists["/messages"]; len(p) != 1 || p[0].To != 4 {
		t.Errorf("the list is %v, want one piece", p)
	}
}

// In any sequence of values, every value can be restored, and none grows.
func TestSplitLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s session
		for range rapid.IntRange(1, 12).Draw(t, "values") {
			own := rapid.SampledFrom([]string{"run/a", "run/b", "run/b/2"}).Draw(t, "own")
			var members []string
			for i, at := range []string{"messages", "newMessages", "toolResults"} {
				if rapid.Bool().Draw(t, at) {
					members = append(members, fmt.Sprintf(`%q:%s`, at, drawList(t, i)))
				}
			}
			if rapid.Bool().Draw(t, "newMessage") {
				members = append(members, `"newMessage":`+drawElement(t, 0))
			}
			split := s.store(t, own, "{"+strings.Join(members, ",")+"}")
			for pointer := range split.Lists {
				if !slices.Contains([]string{"/messages", "/newMessage", "/newMessages", "/toolResults"}, pointer) {
					t.Fatalf("the lists are %v", split.Lists)
				}
			}
		}
	})
}

func drawList(t *rapid.T, at int) string {
	var all []string
	for range rapid.IntRange(0, 5).Draw(t, "elements") {
		all = append(all, drawElement(t, at))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func drawElement(t *rapid.T, at int) string {
	n := rapid.IntRange(0, 6).Draw(t, "n")
	return rapid.SampledFrom([]string{message(n), fmt.Sprint(n), fmt.Sprintf(`{"r":%d}`, n*100000+at)}).Draw(t, "element")
}

// No input panics, and any split value can be restored.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(`{"messages":` + list(0, 2) + `,"checkpoint":{"messages":` + list(0, 1) + `}}`))
	f.Add([]byte(`{"newMessage":` + message(1) + `,"toolCall":{},"toolResult":null,"messages":` + list(0, 3) + `}`))
	f.Add([]byte(`{"messages":[ ` + message(1) + `],"step":{"toolResults":[{},{}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if rawjson.Check(raw) != nil {
			if _, err := new(share.Messages).Split("run/a", raw); err == nil {
				t.Fatal("invalid JSON was split")
			}
			return
		}
		var s session
		raw = bytes.Clone(rawjson.Trim(raw))
		for range 2 {
			s.store(t, "run/a", string(raw))
		}
	})
}
