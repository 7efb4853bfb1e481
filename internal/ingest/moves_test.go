package ingest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// move renames a file.
func (r *rig) move(from, to string) {
	r.t.Helper()
	old, path := filepath.Join(r.dir, filepath.FromSlash(from)), filepath.Join(r.dir, filepath.FromSlash(to))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatalf("%v", err)
	}
	if err := os.Rename(old, path); err != nil {
		r.t.Fatalf("%v", err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, filepath.FromSlash(name))); err != nil {
		r.t.Fatalf("%v", err)
	}
}

// mustGive compares the restored files with the expected ones, by name and byte for byte.
func (r *rig) mustGive(when string, files map[string]string) {
	r.t.Helper()
	if got := r.given(); !maps.Equal(got, files) {
		r.t.Errorf("%s: the restored files are %q, want %q", when, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(files)))
	}
}

// A moved file is restored under its current name, after any moves, with and without the state. Each move is recorded
// once.
func TestNames(t *testing.T) {
	const line = `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"` + threadID + `","cwd":"/pier"}}` + "\n"
	names := []string{"sessions/2026/01/02/" + rolloutName(threadID), "archived_sessions/" + rolloutName(threadID),
		"sessions/2026/01/02/" + rolloutName(threadID), "sessions/2026/01/03/" + rolloutName(threadID), "archived_sessions/" + rolloutName(threadID)}
	for _, isLost := range []bool{false, true} {
		for _, lines := range []int{1, 3} {
			r := newRig(t, t.TempDir(), ofCodex)
			r.write(names[0], strings.Repeat(line, lines))
			r.run()
			for i, to := range names[1:] {
				r.move(names[i], to)
				if isLost {
					r.lose()
				}
				before := len(r.records())
				r.run()
				r.mustGive("after a move to "+to, r.files())
				if n := len(r.records()) - before; n != 1 {
					t.Errorf("%d events record the move to %s, want one", n, to)
				}
				want := `"open"`
				if strings.HasPrefix(to, "archived") {
					want = `"archived"`
				}
				if got := r.field("codex/"+threadID, "status"); got != want && i > 0 {
					t.Errorf("the status in %s is %s, want %s", to, got, want)
				}
				before = len(r.records())
				r.run()
				r.lose()
				r.run()
				r.mustGive("without its state, in "+to, r.files())
				if n := len(r.records()) - before; n != 0 {
					t.Errorf("a second reading added %d events in %s", n, to)
				}
			}
			r.grow(names[len(names)-1], line)
			r.run()
			r.mustGive("with a line more", r.files())
		}
	}
}

// The session records that its file is gone, even if only the first line named the session and no watcher ran.
func TestGoneUnseen(t *testing.T) {
	const id = "5a5a5a5a-0000-4000-8000-000000000000"
	const name = "pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl"
	r := newRig(t, t.TempDir(), ofGemini)
	r.write(name, `{"sessionId":"`+id+`","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z"}`+"\n"+`{"id":"a","timestamp":"2026-01-02T03:04:06.006Z","type":"user","content":[{"text":"x"}]}`+"\n")
	r.run()
	r.run()
	files := r.files()
	r.remove(name)
	r.run()
	if got := r.field("gemini/"+id, fieldGone); got != "true" {
		t.Errorf("the field gone without the file is %q", got)
	}
	if got := r.sessions(); len(got) != 1 {
		t.Errorf("sessions are %q", got)
	}
	r.mustGive("when it is gone", files)
}

// If a new name implies another session, that session gets the file from its beginning, even if no watcher saw the
// rename. The former session records that its file is gone.
func TestRenamed(t *testing.T) {
	for _, to := range []string{"-p/t.jsonl", "-q/s.jsonl"} {
		for _, isLost := range []bool{false, true} {
			r := newRig(t, t.TempDir(), ofClaude)
			r.write("-p/s.jsonl", prompts(0, 3))
			r.run()
			r.move("-p/s.jsonl", to)
			if isLost {
				r.lose()
			}
			r.grow(to, prompts(3, 1))
			r.run()
			r.run()
			r.mustGive("renamed to "+to, map[string]string{"-p/s.jsonl": prompts(0, 3), to: prompts(0, 4)})
			if got := r.field("claude/-p/s", fieldGone); (got == "true") == isLost {
				t.Errorf("the field gone of the old session is %q; state lost: %v", got, isLost)
			}
			r.check(t.TempDir())
		}
	}
}

// A renamed project keeps its sessions and their subagents: each stays one session with all old and new lines,
// regardless of the read order and a loss of the state.
func TestProjectRenamed(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	files := func(project string, turns int) map[string]string {
		cwd := "/srv/" + project
		return map[string]string{
			"-" + project + "/" + id + ".jsonl":                   promptsIn(cwd, 0, turns),
			"-" + project + "/" + id + "/subagents/agent-a.jsonl": sidechain(cwd, 20, turns),
			"-" + project + "/agent-b.jsonl":                      strings.ReplaceAll(sidechain(cwd, 40, turns), `"agentId":"a"`, `"agentId":"b","sessionId":"`+id+`"`),
		}
	}
	for _, c := range []struct {
		name          string
		lost, earlier bool // lost: the state; earlier: a subagent's file is read before the others
	}{{"known", false, false}, {"the state is lost", true, false}, {"a sub-agent first", false, true}, {"a sub-agent first, the state is lost", true, true}} {
		t.Run("B-23 "+c.name, func(t *testing.T) {
			r := newRig(t, t.TempDir(), ofClaude)
			r.follows = true
			for name, text := range files("shop", 2) {
				r.write(name, text)
			}
			r.run()
			if err := os.Rename(filepath.Join(r.dir, "-shop"), filepath.Join(r.dir, "-shop2")); err != nil {
				t.Fatal(err)
			}
			if c.lost {
				r.lose()
			}
			for name, text := range files("shop2", 3) {
				if !c.earlier || strings.Contains(name, "/subagents/") {
					r.write(name, text)
				}
			}
			r.run()
			for name, text := range files("shop2", 4) {
				r.write(name, text)
			}
			r.run()
			if got := r.sessions(); len(got) != 1 || got[0] != "claude/-shop/"+id {
				t.Errorf("sessions are %q, want the session from before the rename", got)
			}
			r.mustGive("the project is renamed", files("shop2", 4))
			s := r.session("claude/-shop/" + id)
			for _, thread := range []string{"main", "agent/a", "agent/b"} {
				if n := len(s.Threads.Turns(thread)); n != 4 {
					t.Errorf("thread %s has %d turns, want 4", thread, n)
				}
			}
		})
	}
}

// A session that was copied into another project, and ingested there, stays that project's own when the file of the first
// project is gone.
func TestCopyOfAGoneSession(t *testing.T) {
	const name = "11111111-1111-4111-8111-111111111111.jsonl"
	for _, isLost := range []bool{false, true} { // the state
		r := newRig(t, t.TempDir(), ofClaude)
		r.follows = true
		first := promptsIn("/srv/shop", 0, 2)
		r.write("-shop/"+name, first)
		r.run()
		r.write("-shop2/"+name, promptsIn("/srv/shop2", 0, 2))
		r.run()
		if err := os.Remove(filepath.Join(r.dir, "-shop", name)); err != nil {
			t.Fatal(err)
		}
		if isLost {
			r.lose()
		}
		r.run()
		r.write("-shop2/"+name, promptsIn("/srv/shop2", 0, 3))
		r.run()
		r.mustGive("the first file is gone", map[string]string{"-shop/" + name: first, "-shop2/" + name: promptsIn("/srv/shop2", 0, 3)})
	}
}

// A complete value may be stored before its line has an end. When the end exists and the file is read again, the lines
// are recognised.
func TestUnended(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", " \n", "\n\n", "\r\n \n\n"} {
		r := newRig(t, t.TempDir(), ofClaude)
		first, second := strings.TrimSuffix(prompts(0, 2), "\n"), prompts(2, 2)
		r.write("-p/s.jsonl", first)
		r.run()
		r.grow("-p/s.jsonl", end+second)
		r.run()
		n := len(r.records())
		r.state = "" // all is read and compared
		r.run()
		if got := len(r.records()); got != n || len(r.problems) > 0 {
			t.Errorf("%q: got %[3]d records after a second reading, want %[2]d; problems %[4]v", end, n, got, r.problems)
		}
		r.mustGive(fmt.Sprintf("%q", end), map[string]string{"-p/s.jsonl": first + end + second})
		r.write("-p/s.jsonl", first+"\t"+end+second) // the file has changed
		r.run()
		if len(r.problems) != 1 {
			t.Errorf("%q: a changed end caused the problems %v, want one", end, r.problems)
		}
		r.mustGive(fmt.Sprintf("%q changed", end), map[string]string{"-p/s.jsonl": first + "\t" + end + second})
	}
}
