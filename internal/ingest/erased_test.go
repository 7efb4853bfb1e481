package ingest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// erase erases records of the log, in their places.
func (r *rig) erase(which func(events.Record) bool) {
	r.t.Helper()
	erased := memlog.New(memlog.Config{})
	for _, rec := range r.records() {
		e := rec.Event
		if which(rec) {
			var err error
			if e, err = e.Erase("r7k2p9"); err != nil {
				r.t.Fatalf("%v: %v", rec.Offset, err)
			}
		}
		message := log.Outgoing{ID: e.MsgID(), Header: events.AppendHeader(nil, e), Data: e.Data}
		if _, err := erased.Publish(context.Background(), log.Publication{Writes: []log.Write{{Subject: e.Subject.NATS(), Messages: []log.Outgoing{message}}}}); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
	r.store.Backend = erased
}

// An import stores no erased record again, with or without the state of the files.
func TestErasedLinesStayErased(t *testing.T) {
	t.Parallel()
	for name, talk := range talks {
		t.Run("L-7 "+name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rapid.Check(t, func(rt *rapid.T) {
				r := newRig(rt, dir, talk.agent)
				defer os.RemoveAll(filepath.Dir(r.dir))
				name, content := talk.play(rt)
				r.write(name, content)
				r.run()
				isAll := rapid.Bool().Draw(rt, "all")
				r.erase(func(events.Record) bool { return isAll || rapid.Bool().Draw(rt, "erased") })
				before := r.records()
				if rapid.Bool().Draw(rt, "loses") {
					r.lose()
				}
				r.write(name, content) // another inode
				r.run()
				if after := r.records(); len(after) != len(before) {
					rt.Fatalf("%d records were added, such as %+v", len(after)-len(before), after[len(before)])
				}
			})
		})
	}
}

// The session of a sub-agent's file that lies beside the sessions is in its lines only.
func TestErasedFileNamedByItsLines(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	const line = `{"isSidechain":true,"sessionId":"s","agentId":"1","type":"user","uuid":"00000001-0000-4000-8000-000000000000","parentUuid":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"SECRET"}}` + "\n"
	r.write("-pier/s.jsonl", strings.ReplaceAll(strings.ReplaceAll(line, "00000001", "00000002"), "true", "false"))
	r.write("-pier/agent-1.jsonl", line)
	r.run()
	before := r.records()
	r.erase(func(events.Record) bool { return true })
	r.lose()
	r.run()
	if after := r.records(); len(after) != len(before) {
		t.Fatalf("%d records were added, such as %+v", len(after)-len(before), after[len(before)])
	}
	for _, rec := range r.records() {
		if strings.Contains(string(rec.Data), "SECRET") {
			t.Errorf("%v has content: %s", rec.Offset, rec.Data)
		}
	}
	r.grow("-pier/agent-1.jsonl", strings.ReplaceAll(strings.ReplaceAll(line, "00000001", "00000003"), "SECRET", "new"))
	r.run()
	if after := r.records(); len(after) != len(before)+1 || !strings.Contains(string(after[len(before)].Data), "new") {
		t.Errorf("after a new line, the log has %d records, want %d", len(after), len(before)+1)
	}
}

// A file that is read again from its beginning has its erased lines, whatever their content.
func TestErasedFileIsWrittenAgain(t *testing.T) {
	const line = `{"sessionId":"s","type":"user","uuid":"0000000%s-0000-4000-8000-000000000000","parentUuid":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"SECRET"}}` + "\n"
	one, two, three := strings.Replace(line, "%s", "1", 1), strings.Replace(line, "%s", "2", 1), strings.ReplaceAll(strings.Replace(line, "%s", "3", 1), "SECRET", "new")
	r := newRig(t, t.TempDir(), ofClaude)
	r.write("-pier/s.jsonl", one+two)
	r.run()
	before := r.records()
	r.erase(func(events.Record) bool { return true })
	r.lose()
	r.write("-pier/s.jsonl", one+two+three)
	r.run()
	r.write("-pier/s.jsonl", one+strings.Replace(two, "SECRET", "OTHER!", 1)+three) // another content of the same length
	r.run()
	if after := r.records(); len(after) == len(before) {
		t.Error("the new line is not in the log")
	}
	for _, rec := range r.records()[len(before):] {
		if rec.Type == events.TypeThreadReplaced || strings.Contains(string(rec.Data), "SECRET") || strings.Contains(string(rec.Data), "OTHER") {
			t.Errorf("%v was added: %s %s", rec.Offset, rec.Type, rec.Data)
		}
	}
}

// anyName is an agent whose files may have any names, as in an import of a file.
type anyName struct{ agents.Agent }

func (a anyName) Unwrap() agents.Agent { return a.Agent }
func (a anyName) Wants(string) bool    { return true }
func (a anyName) File(name string, first []byte) (agents.File, bool) {
	return agents.Named(a.Agent, name, first)
}

// The first line of a file whose name is not one of the agent has the session. When that line is erased and the
// state is lost, no line is stored again, under whatever name the file is.
func TestErasedFileOfAnyName(t *testing.T) {
	for _, agent := range []agents.Agent{ofCodex, ofPi, ofGemini} {
		first := map[string]string{
			"codex":  `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"` + threadID + `","cwd":"/pier","x":"SECRET"}}`,
			"pi":     `{"type":"session","id":"` + threadID + `","timestamp":"2026-01-02T03:04:05.678Z","cwd":"/pier","x":"SECRET"}`,
			"gemini": `{"sessionId":"` + threadID + `","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z","x":"SECRET"}`,
		}[agent.Name()]
		for _, isAll := range []bool{true, false} {
			r := newRig(t, t.TempDir(), anyName{agent})
			content := first + "\n" + strings.Repeat(`{"type":"unknown","x":"SECRET"}`+"\n", 3)
			r.write("copy.jsonl", content)
			r.run()
			n := 0
			r.erase(func(rec events.Record) bool { n++; return isAll || n <= 2 })
			before := r.records()
			if len(before) < 4 {
				t.Fatalf("%s: %d records", agent.Name(), len(before))
			}
			for _, to := range []string{"copy.jsonl", "other.jsonl", "dir/third.jsonl"} {
				r.move("copy.jsonl", to)
				r.lose()
				r.run()
				for _, rec := range r.records()[len(before):] {
					if rec.Type != events.TypeSessionUpdated || strings.Contains(string(rec.Data), "SECRET") {
						t.Errorf("%s, all erased: %v, now %s: %s %s was added", agent.Name(), isAll, to, rec.Type, rec.Data)
					}
				}
				r.move(to, "copy.jsonl")
			}
		}
	}
}
