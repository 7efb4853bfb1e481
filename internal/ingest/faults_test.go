package ingest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// With any faults of files and the store: no line is lost or stored twice, and the file can be restored.
func TestFaults(t *testing.T) {
	t.Parallel()
	const name = "-p/s.jsonl"
	uuid := func(id, rest string) string {
		return `{"type":"user","uuid":"` + id + `","message":{"role":"user","content":"` + id + `"}` + rest + `}`
	}
	contents := map[string]string{
		"NUL":                      prompts(0, 1) + "\x00\x00\x00\n" + prompts(1, 1),
		"CRLF":                     strings.ReplaceAll(prompts(0, 3), "\n", "\r\n"),
		"no LF":                    strings.TrimSuffix(prompts(0, 3), "\n"),
		"glued lines":              uuid("a", "") + uuid("b", "") + "\n" + prompts(1, 1),
		"timestamps backwards":     uuid("a", `,"timestamp":"2026-01-02T03:04:09Z"`) + "\n" + uuid("b", `,"timestamp":"2025-01-02T03:04:05Z"`) + "\n",
		"a parent after its child": uuid("a", `,"timestamp":"2026-01-02T03:04:05Z","parentUuid":"b"`) + "\n" + uuid("b", `,"parentUuid":null`) + "\n",
		"the same id twice":        prompts(0, 1) + prompts(0, 1),
		"blank lines":              "\n\n" + prompts(0, 1) + " \n\t\n",
	}
	for fault, content := range contents {
		t.Run("A13 "+fault, func(t *testing.T) {
			testkit.Sample(t, 3)
			r := newRig(t, t.TempDir(), ofClaude)
			r.write(name, content)
			r.run()
			r.lose()
			r.run()
			r.check(t.TempDir())
		})
	}
	t.Run("A13 full disk, then room", func(t *testing.T) {
		r := newRig(t, t.TempDir(), ofClaude)
		r.write(name, prompts(0, 3))
		r.store.err = log.ErrFull
		r.run()
		if r.store.tries < 2 {
			t.Errorf("got %d attempts", r.store.tries)
		}
		if n := r.blocked.Load(); n != 2 {
			t.Errorf("got %d reports, want one that the store is full and one that it is not any more", n)
		}
		r.check(t.TempDir())
	})
	t.Run("A13 lost state", func(t *testing.T) {
		r := newRig(t, t.TempDir(), ofClaude)
		for i := range 4 {
			r.grow(name, prompts(i, 1))
			r.lose()
			r.run()
		}
		r.check(t.TempDir())
	})
	change := func(fault, before, after string, put func(r *rig, name, content string)) {
		t.Run("A13 "+fault, func(t *testing.T) {
			r := newRig(t, t.TempDir(), ofClaude)
			r.write(name, before)
			r.run()
			old := r.records()
			put(r, name, after)
			r.run()
			r.same(t.TempDir())
			if got := r.given()[name]; got != after {
				t.Errorf("the restored file is %q, want %q", got, after)
			}
			for i, rec := range r.records()[:len(old)] {
				if !rec.Event.Equal(old[i].Event) {
					t.Errorf("%s changed", rec.Offset)
				}
			}
		})
	}
	inPlace := func(r *rig, name, content string) {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("truncated", prompts(0, 4), prompts(0, 2), inPlace)
	change("replaced by rename", prompts(0, 4), prompts(0, 2)+prompts(7, 3), (*rig).write)
	change("another end of the last line", prompts(0, 2), strings.TrimSuffix(prompts(0, 2), "\n")+"\r\n", (*rig).write)
	t.Run("A13 64 MiB line", func(t *testing.T) {
		testkit.Long(t)
		testkit.NotUnderRace(t)
		r := newRig(t, t.TempDir(), ofClaude)
		content := prompts(0, 1) + uuid("l", `,"x":"`+strings.Repeat("x", 64<<20)+`"`) + "\n" + prompts(1, 1)
		r.write(name, content)
		r.run()
		n := len(r.records())
		r.lose()
		r.run()
		if r.given()[name] != content || len(r.records()) != n {
			t.Errorf("the file is not restored, or is stored twice: %d events, then %d", n, len(r.records()))
		}
	})
	t.Run("A13 second file with the same session id", func(t *testing.T) {
		const head = `{"sessionId":"5a5a5a5a-0000-4000-8000-000000000000","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z"}` + "\n"
		r := newRig(t, t.TempDir(), ofGemini)
		message := func(id string) string {
			return `{"id":"` + id + `","timestamp":"2026-01-02T03:04:06.006Z","type":"user","content":[{"text":"x"}]}` + "\n"
		}
		r.write("pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl", head+message("a")+message("b"))
		r.run()
		r.write("pier/chats/session-2026-01-02T03-09-5a5a5a5a.jsonl", head+message("c")+message("d")+message("c2")+`{"$set":{"messages":[`+strings.TrimSpace(message("d"))+`]}}`+"\n")
		r.run()
		if got := r.view("gemini/5a5a5a5a-0000-4000-8000-000000000000").Turns["main"]; len(got) != 3 || !strings.Contains(got[0]+got[1]+got[2], `"a"`) {
			t.Errorf("%q: want a, b and d", got)
		}
		r.lose()
		r.check(t.TempDir())
	})
	rollout := "sessions/2026/01/02/" + rolloutName(threadID)
	line := `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"` + threadID + `","cwd":"/pier"}}` + "\n"
	t.Run("A13 archived, compressed, unpacked, deleted", func(t *testing.T) {
		r := newRig(t, t.TempDir(), ofCodex)
		r.write(rollout, line)
		r.run()
		at := filepath.Join(r.dir, rollout)
		away := filepath.Join(r.dir, "archived_sessions", filepath.Base(rollout))
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			r.run()
			r.run()
		}
		if err := os.MkdirAll(filepath.Dir(away), 0o700); err != nil {
			t.Fatal(err)
		}
		must(os.Rename(at, away))
		n := len(r.records())
		enc, err := zstd.NewWriter(nil)
		must(err)
		must(os.WriteFile(away+".zst", enc.EncodeAll([]byte(line), nil), 0o600))
		must(os.Remove(away))
		must(os.WriteFile(away, []byte(line+line), 0o600))
		must(os.Remove(away + ".zst"))
		must(os.Remove(away))
		lines := 0
		for _, rec := range r.records() {
			if rec.Source == sourceLines+"codex" {
				lines++
			}
		}
		given := ""
		for _, content := range r.given() {
			given += content
		}
		if lines != 2 || given != line+line {
			t.Errorf("got %d lines after %d events; the restored file is %q", lines, n, given)
		}
	})
	t.Run("A13 symbolic links", func(t *testing.T) {
		r := newRig(t, t.TempDir(), ofClaude)
		r.write(name, prompts(0, 2))
		secret := filepath.Join(t.TempDir(), "secret.jsonl")
		if err := os.WriteFile(secret, []byte(prompts(5, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, filepath.Join(r.dir, "-p", "t.jsonl")); err != nil {
			t.Skip(err)
		}
		r.run()
		if list := r.sessions(); len(list) != 1 {
			t.Errorf("the target of a link was read: the sessions are %q", list)
		}
	})
}
