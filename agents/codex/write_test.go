package codex_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/agents/codex"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
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

// What is written for Codex to continue is the thread as it was, in one file, and costs
// nothing once more.
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
			return // nothing to continue, or what a sub-agent was told: it is shown from then on
		}
		r := codex.Rollout{Thread: w.id(), From: th.id, Began: w.clock, Lines: lines}
		content, err := r.Append(nil)
		if err != nil {
			rt.Fatal(err)
		}
		again := store(t, map[string][]byte{r.Name(time.UTC): content})
		got := again.session("codex/"+r.Thread, 0)
		if shown := again.main(got); !slices.Equal(shown, th.shown) {
			rt.Fatalf("it reads\n%q\nwant\n%q\n%s", shown, th.shown, content)
		}
		if got.Ledger.Parent == nil || got.Ledger.Parent.Session != "codex/"+th.id || len(got.Ledger.Costs) > 0 {
			rt.Fatalf("parent %+v, costs %+v", got.Ledger.Parent, got.Ledger.Costs)
		}
		for i, raw := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
			if n := linesOf(t, raw)[0].Ordinal; (n == nil) != th.legacy || n != nil && *n != int64(i) {
				rt.Fatalf("line %d has another number: %s", i, raw)
			}
		}
	})
}

func TestWriteRefuses(t *testing.T) {
	for _, r := range []codex.Rollout{{}, {Thread: own, From: own}, {Thread: own, From: older}, {Thread: own, From: older, Lines: [][]byte{[]byte("torn")}}} {
		if out, err := r.Append([]byte("before")); err == nil || string(out) != "before" {
			t.Errorf("%+v: %q, %v", r, out, err)
		}
	}
}

// With TALLY_CODEX_HOME a rollout of each recorded thread is written there, for a real Codex
// to resume.
func TestWriteForCodex(t *testing.T) {
	home := os.Getenv("TALLY_CODEX_HOME")
	testkit.Needs(t, home != "" || os.Getenv("CI") != "", "a folder in TALLY_CODEX_HOME")
	if home == "" {
		t.Skip("a real Codex is not at hand")
	}
	for _, files := range recordings(t) {
		s := store(t, files)
		for i, session := range s.sessions() {
			from := strings.TrimPrefix(session, "codex/")
			r := codex.Rollout{Thread: from[:24] + strings.Repeat(string(rune('a'+i%6)), 12), From: from, Began: time.Now(), Lines: s.lines(session)}
			content, err := r.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(home, r.Name(time.UTC))
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
