package claude_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
)

// A player plays a session with Claude Code: prompts, parallel calls of tools, sub-agents whose lines are in both
// files, and rewinds.
type player struct {
	t       *rapid.T
	main    sheet
	subs    map[string]*sheet
	spots   []spot // before the prompts of the current conversation
	rewinds []int64
	took    map[string]int // largest output of a response in any of its lines
	n       int
}

// spot is the position of a prompt.
type spot struct {
	parent string
	end    int64 // of the parent's line
}

func (p *player) response(output int) string {
	p.n++
	id := fmt.Sprintf("msg_01XFDUDYJgAACzvn%08d", p.n)
	p.took[id] = output
	return id
}

// turn plays a prompt and the work on it.
func (p *player) turn(parent string) {
	p.spots = append(p.spots, spot{parent, int64(p.main.Len())})
	at := p.main.prompt(parent, "Go on")
	for range rapid.IntRange(0, 3).Draw(p.t, "steps") {
		at = p.step(at)
	}
	at = p.main.text(at, p.response(5), 5)
	if rapid.Bool().Draw(p.t, "measured") {
		p.main.system(at, "turn_duration", `,"durationMs":10`)
	}
}

// step plays parallel calls: each follows the one before it, and its result and progress follow the call.
func (p *player) step(at string) string {
	calls := rapid.IntRange(1, 3).Draw(p.t, "calls")
	outputs := make([]int, calls)
	for i := range outputs {
		outputs[i] = rapid.IntRange(1, 50).Draw(p.t, "output")
	}
	id := p.response(slices.Max(outputs))
	var nodes []string
	for i, output := range outputs {
		at = p.main.call(at, id, output, fmt.Sprintf("t%d-%d", p.n, i))
		nodes = append(nodes, at)
	}
	for _, node := range nodes {
		if rapid.Bool().Draw(p.t, "progress") {
			p.main.entry("progress", node, `"data":{"type":"bash_progress"}`)
		}
		if rapid.Bool().Draw(p.t, "agent") {
			p.subAgent()
		}
		at = p.main.result(node, "t")
	}
	return at
}

// subAgent plays a sub-agent: its lines are in its own file and, for some, in the session's too.
func (p *player) subAgent() {
	output := rapid.IntRange(1, 50).Draw(p.t, "output")
	id := p.response(output)
	line := func(kind, message string) {
		p.n++
		line := fmt.Sprintf(`"parentUuid":null,"isSidechain":true,"agentId":"ab","type":%q,"uuid":"sub-%d","message":%s`, kind, p.n, message)
		if p.subs["ab"] == nil {
			p.subs["ab"] = &sheet{}
		}
		p.subs["ab"].line(line)
		if rapid.Bool().Draw(p.t, "copied") {
			p.main.line(line)
		}
	}
	line("user", `{"role":"user","content":"Look"}`)
	for _, n := range []int{1, output} {
		line("assistant", fmt.Sprintf(`{"id":%q,"role":"assistant","model":"m","content":[],"usage":{"output_tokens":%d}}`, id, n))
	}
}

// rewind goes back to before a prompt and writes another one there.
func (p *player) rewind() {
	i := rapid.IntRange(0, len(p.spots)-1).Draw(p.t, "to")
	to := p.spots[i]
	p.rewinds, p.spots = append(p.rewinds, to.end), p.spots[:i]
	p.spots = append(p.spots, to)
	at := p.main.prompt(to.parent, "Rather so")
	p.main.text(at, p.response(3), 3)
}

// last returns the newest entry of the sheet.
func (s *sheet) last() string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.n) }

// play plays a session and returns its files.
func play(t *rapid.T) (p *player, files map[string]string) {
	p = &player{t: t, subs: make(map[string]*sheet), took: make(map[string]int)}
	p.turn("")
	for range rapid.IntRange(0, 12).Draw(t, "moves") {
		if rapid.IntRange(0, 2).Draw(t, "move") == 0 {
			p.rewind()
		} else {
			p.turn(p.main.last())
		}
	}
	files = map[string]string{"-p/s.jsonl": p.main.String()}
	for id, sub := range p.subs {
		files["-p/s/subagents/agent-"+id+".jsonl"] = sub.String()
	}
	return p, files
}

// The fold finds exactly the rewinds that were made, with their targets. Usage counts once, in whatever order the
// files are read, and however often.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, files := play(rt)
		if got := foldFile(rt, "-p/s.jsonl", files["-p/s.jsonl"]).rewinds(); !slices.Equal(got, p.rewinds) {
			rt.Fatalf("rewinds to %d, want %d", got, p.rewinds)
		}
		files["-p/fork.jsonl"] = strings.ReplaceAll(files["-p/s.jsonl"], `"isSidechain":false`, `"isSidechain":false,"forkedFrom":{"sessionId":"s","messageUuid":"m"}`)
		var facts []agents.Fact
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(files))).Draw(rt, "order") {
			d := foldFile(rt, name, files[name])
			facts = append(facts, d.facts()...)
			for i, m := range d.lines {
				if m.Thread != agents.Main && m.Thread != "agent/ab" && m.Thread != agents.Log {
					rt.Fatalf("%s: got line %d in the thread %q", name, i, m.Thread)
				}
			}
		}
		took, _ := counted(facts)
		for id, output := range p.took {
			if took[id].Output != int64(output) {
				rt.Fatalf("response %s: got an output of %d, want %d", id, took[id].Output, output)
			}
		}
		if len(took) != len(p.took) {
			rt.Fatalf("got %d responses, want %d", len(took), len(p.took))
		}
		for _, c := range of[*events.SessionCreated](facts) {
			if c.Fork != nil && c.Fork.Session != "claude/-p/s" {
				rt.Fatalf("got a fork of %q, want none", c.Fork.Session)
			}
		}
	})
}

// A session's file has one event for each response, unless the response continues after another.
func TestOneEventAResponse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, files := play(rt)
		if p.subs["ab"] != nil {
			return // sub-agents of the same name alternate
		}
		if _, n := counted(foldFile(rt, "-p/s.jsonl", files["-p/s.jsonl"]).facts()); n != len(p.took) {
			rt.Fatalf("got %d events, want %d", n, len(p.took))
		}
	})
}

// For any lines, nothing panics, equal lines have equal results, facts can be stored, and their keys differ.
func FuzzLine(f *testing.F) {
	var s sheet
	p := s.prompt("", "First")
	s.text(s.result(s.call(p, "m1", 5, "t1"), "t1"), "m1", 9)
	s.prompt("", "Better")
	s.line(`"type":"summary","summary":"so","leafUuid":"` + p + `"`)
	f.Add([]byte(s.String()))
	for _, lines := range []string{
		"", "\n\n", "\x00\n{}\n[]\n7\n", `{"type":"user","uuid":"u","message":{"content":[{"type":"text","text":7},5]}}`,
		`{"type":"user","uuid":"u","parentUuid":"u","message":{"content":"x"}}{"type":"assistant","uuid":"u","message":{"usage":{"output_tokens":1e400}}}`,
		`{"type":"assistant","costUSD":1e99,"message":{"id":"\u0000","model":"","usage":{"output_tokens":9007199254740993}},"timestamp":"0000-01-01T00:00:00Z"}`,
		`{"type":"user","isSidechain":true,"agentId":"*","uuid":"` + strings.Repeat("u", 600) + `","timestamp":"9999-12-31T23:59:59-23:59","message":{"content":"x"}}`,
		`{"type":"user","uuid":"u","timestamp":"9999-12-31T23:59:59-23:59","message":{"content":"x"}}`,
		`{"type":"assistant","uuid":"a","message":{"model":"x","usage":{"output_tokens":2}}}` + `{"type":"assistant","uuid":"b","message":{"model":"x","usage":{"output_tokens":3}}}`,
		`{"forkedFrom":{"sessionId":"s"},"cwd":"/","version":7,"type":"custom-title","customTitle":"\ud800"}`,
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if first, _, _ := bytes.Cut(content, []byte("\n")); isOthers(first) {
			t.Skip()
		}
		for _, name := range []string{"-p/s.jsonl", "-p/s/subagents/agent-ab.jsonl"} {
			first, second := foldFile(t, name, string(content)), foldFile(t, name, string(content))
			if a, b := mustJSON(t, first.facts()), mustJSON(t, second.facts()); a != b {
				t.Fatalf("equal lines have two results:\n%s\nand\n%s", a, b)
			}
			ids := make(map[string]bool)
			for _, m := range first.lines {
				if m.ID != "" && ids[m.ID] {
					t.Fatalf("two lines have the id %s", m.ID)
				}
				ids[m.ID] = true
				if e := (&events.TurnAppended{Entries: []events.Entry{{Thread: m.Thread, Bytes: []byte("x"), ID: m.Turn}}}); m.Thread == "*" || e.Validate() != nil {
					t.Fatalf("the fact %+v is not valid", m)
				}
			}
		}
		if f, ok := (claude.Agent{}).File("-p/agent-ab.jsonl", content); ok && events.Session("", f.Session).Validate() != nil {
			t.Fatalf("the session %q has no subject", f.Session)
		}
	})
}

// isOthers reports whether a file with this first line is not a transcript.
func isOthers(first []byte) bool {
	_, ok := claude.Agent{}.File("-p/s.jsonl", first)
	return !ok
}
