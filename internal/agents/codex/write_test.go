package codex_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/codex"
	"pgregory.net/rapid"
)

// lines returns the lines of a session that are in effect.
func (s *stored) lines(session string) [][]byte {
	type placed struct {
		at  events.Offset
		raw []byte
	}
	var all []placed
	got := s.session(session, 0)
	for _, name := range []string{agents.Main, agents.Log} {
		for _, turn := range got.Threads.Turns(name) {
			all = append(all, placed{turn.Offset, append(turn.Raw, turn.Bytes...)})
		}
	}
	slices.SortFunc(all, func(a, b placed) int { return int(a.at) - int(b.at) })
	var list [][]byte
	for _, p := range all {
		list = append(list, p.raw)
	}
	return list
}

// A rollout for Codex has the thread's state, in one file, and adds no costs.
func TestWriteHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			w.step()
		}
		s := store(t, w.home())
		th := rapid.SampledFrom(w.threads).Draw(rt, "thread")
		lines := s.lines("codex/" + th.id)
		if len(th.shown) == 0 || bytes.Contains(bytes.Join(lines, nil), []byte(`"subagent_history_start_ordinal"`)) {
			return // nothing to continue, or a sub-agent's context, which becomes visible
		}
		r := codex.Rollout{Thread: w.id(), From: th.id, Began: w.clock, Lines: lines}
		content, err := r.Append(nil)
		if err != nil {
			rt.Fatal(err)
		}
		again := store(t, map[string][]byte{r.Name(time.UTC): content})
		got := again.session("codex/"+r.Thread, 0)
		if shown := again.main(got); !slices.Equal(shown, th.shown) {
			rt.Fatalf("the screen of the written file is\n%q\nwant\n%q\n%s", shown, th.shown, content)
		}
		if got.Ledger.Parent == nil || got.Ledger.Parent.Session != "codex/"+th.id || len(got.Ledger.Costs) > 0 {
			rt.Fatalf("got the parent %+v and the costs %+v", got.Ledger.Parent, got.Ledger.Costs)
		}
		for i, raw := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
			if n := linesOf(t, raw)[0].Ordinal; (n == nil) != th.legacy || n != nil && *n != int64(i) {
				rt.Fatalf("the number of line %d differs: %s", i, raw)
			}
		}
	})
}

// A reference is a fork in Codex' own form: it begins at the event of the named line, with exactly the state there,
// and it costs nothing.
func TestReferHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			w.step()
		}
		home := w.home()
		file := rapid.SampledFrom(w.files).Draw(rt, "file")
		lines := bytes.SplitAfter([]byte(file.content.String()), []byte("\n"))
		n := rapid.IntRange(1, len(lines)-1).Draw(rt, "lines")
		end := int64(len(bytes.Join(lines[:n], nil)))
		r := codex.Reference{Thread: w.id(), From: file.thread, Began: w.clock, First: lines[0], Stem: file.id, Last: lines[n-1], End: end}
		before := store(t, home)
		content, err := r.Append(nil)
		if legacy := !bytes.Contains(lines[0], []byte(`"paginated"`)); legacy || err != nil {
			if legacy != (err != nil) {
				rt.Fatalf("%s: got the error %v", lines[0], err)
			}
			return
		}
		home[r.Name(time.UTC)] = content
		again := store(t, home)
		got, at := again.session("codex/"+r.Thread, 0), again.ends[file.id][end]
		if got.Ledger.Fork == nil || *got.Ledger.Fork != (events.Fork{Session: "codex/" + file.thread, Offset: at}) || len(got.Ledger.Costs) > 0 {
			rt.Fatalf("got a fork of %+v with the costs %+v, want %v and no costs", got.Ledger.Fork, got.Ledger.Costs, at)
		}
		if shown, want := again.main(got), before.main(before.session("codex/"+file.thread, at)); !slices.Equal(shown, want) {
			rt.Fatalf("the screen of the fork is\n%q\nwant\n%q", shown, want)
		}
		if m := linesOf(t, bytes.TrimSuffix(content, []byte("\n"))); json.Valid(lines[n-1]) && len(m) != 1 || json.Valid(lines[n-1]) && *m[0].Ordinal != *linesOf(t, bytes.TrimSuffix(lines[n-1], []byte("\n")))[0].Ordinal+1 {
			rt.Fatalf("the lines are not numbered in order:\n%s", content)
		}
	})
}

// A rollout or a reference with invalid ids, or without lines to refer to, is refused, and nothing is appended to dst.
func TestWriteRefuses(t *testing.T) {
	for _, r := range []codex.Rollout{{}, {Thread: ownID, From: ownID}, {Thread: ownID, From: olderID}, {Thread: ownID, From: olderID, Lines: [][]byte{[]byte("torn")}}} {
		if out, err := r.Append([]byte("before")); err == nil || string(out) != "before" {
			t.Errorf("%+v: got %q, error %v", r, out, err)
		}
	}
	meta := []byte(`{"type":"session_meta","ordinal":0,"payload":{"history_mode":"paginated"}}`)
	whole := codex.Reference{Thread: ownID, From: olderID, First: meta, Stem: olderID, Last: meta, End: 1}
	if _, err := whole.Append(nil); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*codex.Reference){
		"no thread": func(r *codex.Reference) { r.Thread = "x" }, "itself": func(r *codex.Reference) { r.From = ownID }, "no file": func(r *codex.Reference) { r.Stem = "" },
		"no numbers": func(r *codex.Reference) { r.First = []byte(`{"type":"session_meta","payload":{}}`) }, "no number": func(r *codex.Reference) { r.Last = []byte(`{}`) },
		"nothing": func(r *codex.Reference) { r.End = 0 },
	} {
		r := whole
		change(&r)
		if out, err := r.Append([]byte("before")); err == nil || string(out) != "before" {
			t.Errorf("%s: got %q, error %v", name, out, err)
		}
	}
}

// A prompt has two lines, of which the screen shows the second.
func TestIsToldAgain(t *testing.T) {
	prompt, answer := `{"type":"response_item","payload":{"type":"message","role":"user"}}`, `{"type":"response_item","payload":{"type":"message","role":"assistant"}}`
	item, older := `{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"UserMessage"}}}`, `{"type":"event_msg","payload":{"type":"user_message"}}`
	for _, c := range []struct {
		line, next string
		want       bool
	}{
		{prompt, item, true}, {prompt, older, true}, {answer, item, false}, {prompt, prompt, false}, {item, item, false},
		{prompt, `{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"AgentMessage"}}}`, false}, {prompt, `{"type":"turn_context","payload":{}}`, false}, {"", "", false}, {prompt, "torn", false},
	} {
		if got := codex.IsToldAgain([]byte(c.line), []byte(c.next)); got != c.want {
			t.Errorf("IsToldAgain(%s, %s) = %v", c.line, c.next, got)
		}
	}
}
