package tavern_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/tavern"
)

// lifeMessages reads all messages of a session.
func lifeMessages(t testing.TB, r *tavern.Transcripts, s tavern.StoredSession) (list []tavern.StoredMessage) {
	t.Helper()
	for m, err := range r.Messages(t.Context(), s) {
		must(t, err)
		list = append(list, m)
	}
	return list
}

func TestTranscriptLines(t *testing.T) {
	dir := lifeFolder(t, map[string][]string{"-srv-bakery/" + lifeSession + ".jsonl": {
		`{"type":"summary","summary":"first","leafUuid":"x"}`,
		lifeLine("/srv/bakery", "user", 5, `"Bake bread"`),
		lifeLine("/srv/bakery", "assistant", 3, `[{"type":"text","text":"Yes."},{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"t1","name":"Oven","input":{"b":1,"a":[2]}}]`),
		lifeLine("/srv/bakery", "user", 9, `[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"too hot"},{"type":"image","source":{}},{"type":"text","text":"burnt"}]}]`),
		lifeLine("/srv/bakery", "user", 7, `[{"type":"tool_result","tool_use_id":"t1","content":"fine"}]`),
		lifeLine("/srv/bakery", "developer", 8, `"an unknown role"`),
		lifeLine("/srv/bakery", "system", 8, `"a note"`),
		`{"type":"user","message":{"role":"user","content":"no uuid"},"timestamp":"2026-08-22T10:30:00Z"}`,
		`{"type":"system","uuid":"n","content":"no message"}`,
		`{"type":"user","uuid":"late","message":{"role":"user","content":"no time"}}`,
		`not JSON`, `{"type":"user","uuid":"torn","message":{"role":"us`, ``, `[1]`,
		lifeLine("/srv/bakery", "user", 1, `"two"`) + ` ` + lifeLine("/srv/bakery", "user", 2, `"glued"`),
		`{"type":"summary","summary":"last","leafUuid":"x"}`,
	}})
	r := tavern.TranscriptsOf(dir)
	s := need(r.Latest(t.Context(), "/srv/bakery"))
	t.Run("D-28 the session", func(t *testing.T) {
		file := filepath.Join(dir, "-srv-bakery", lifeSession+".jsonl")
		want := tavern.StoredSession{ID: lifeSession, Project: "/srv/bakery", Key: "-srv-bakery", File: file, CreatedAt: lifeTime(0, 1), LastAccessedAt: lifeTime(30, 0),
			Summary: "last", GitBranch: "main", Messages: 9, Lines: 16, Corrupt: 3, From: "direct: vendor file"}
		if s != want {
			t.Errorf("the session is\n%+v, want\n%+v", s, want)
		}
	})
	list := lifeMessages(t, r, s)
	var said []string
	for _, m := range list {
		said = append(said, m.Role+": "+m.Content)
	}
	t.Run("D-28 the messages", func(t *testing.T) {
		want := []string{"user: Bake bread", "assistant: Yes.", "user: too hot\nburnt", "user: fine", "user: an unknown role", "system: a note", "user: no time", "user: two", "user: glued"}
		if !slices.Equal(said, want) {
			t.Errorf("the messages are %q", said)
		}
	})
	t.Run("D-28 blocks", func(t *testing.T) {
		b := list[1].Blocks
		if len(b) != 3 || b[1].Type != "thinking" || b[2].Name != "Oven" || b[2].ID != "t1" || string(b[2].Input) != `{"b":1,"a":[2]}` {
			t.Errorf("the blocks of the answer are %+v", b)
		}
		result := list[2].Blocks[0]
		if result.ID != "t1" || !result.IsError || !strings.Contains(string(result.Raw), `"image"`) {
			t.Errorf("the block of the result is %+v", result)
		}
	})
	t.Run("D-28 a message without a time", func(t *testing.T) {
		if age := time.Since(list[6].Timestamp); age < 0 || age > time.Hour {
			t.Errorf("the timestamp is %v", list[6].Timestamp)
		}
	})
	t.Run("D-28 no messages and no summary", func(t *testing.T) {
		r := tavern.TranscriptsOf(lifeFolder(t, map[string][]string{"-a/x.jsonl": {`{"type":"system","uuid":"n"}`}, "-a/agent-1.jsonl": {lifeLine("/a", "user", 1, `"sub"`)}, "-a/memo.txt": {"x"}}))
		if list := need(r.SessionsIn(t.Context(), "-a")); len(list) != 0 {
			t.Errorf("the sessions are %+v", list)
		}
		if _, err := r.Session(t.Context(), "x"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("get an unknown id: %v", err)
		}
	})
}

func TestTranscriptMany(t *testing.T) {
	t.Run("D-28 1000 good and 100 bad", func(t *testing.T) {
		var list []string
		for n := range 1100 {
			if n%11 == 10 {
				list = append(list, lifeLine("/a", "user", n, `"cut`)[:80+n%50])
				continue
			}
			list = append(list, lifeLine("/a", "user", n, fmt.Sprint(`"message `, n, `"`)))
		}
		r := tavern.TranscriptsOf(lifeFolder(t, map[string][]string{"-a/x.jsonl": list}))
		s := need(r.Session(t.Context(), "x"))
		if s.Messages != 1000 || s.Corrupt != 100 || s.Lines != 1100 {
			t.Errorf("the session is %+v", s)
		}
		if list := lifeMessages(t, r, s); len(list) != 1000 || list[999].Content != "message 1098" {
			t.Errorf("got %d messages", len(list))
		}
	})
}

func TestTranscriptLists(t *testing.T) {
	at := func(cwd string, n int) []string {
		return []string{`{"type":"mode"}`, lifeLine(cwd, "user", n, `"hi"`), lifeLine("/elsewhere", "user", n, `"gone on"`)}
	}
	dir := lifeFolder(t, map[string][]string{
		"-a-b-c/one.jsonl": at("/a/b-c", 10), "-a-b-c/two.jsonl": at("/a/b_c", 40), "-a-b-c/three.jsonl": at("/a/b-c", 30), "-a-b-c/four.jsonl": at("/a/b-c", 20), "-a-b-c/five.jsonl": at("", 5),
		"-my-project-v1-2/six.jsonl":                   at("/my project/v1.2", 1),
		"-nobody-says/seven.jsonl":                     at("", 1),
		"-" + longName('x', 199) + "-1a2b/eight.jsonl": at("/"+longName('x', 240), 1),
	})
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "-a-b-c", "link.jsonl")))
	r := tavern.TranscriptsOf(dir)
	ids := func(list []tavern.StoredSession) (ids []string) {
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		return ids
	}
	t.Run("D-29 the newest first", func(t *testing.T) {
		if got := ids(need(r.Sessions(t.Context(), "/a/b-c"))); !slices.Equal(got, []string{"three", "four", "one", "five"}) {
			t.Errorf("the sessions are %q", got)
		}
		if s := need(r.Latest(t.Context(), "/a/b-c")); s.ID != "three" || s.LastAccessedAt != lifeTime(0, 30) {
			t.Errorf("the latest session is %+v", s)
		}
	})
	t.Run("D-29 an id that is not known", func(t *testing.T) {
		s, exact, err := r.SessionOrLatest(t.Context(), "/a/b-c", "four")
		if err != nil || !exact || s.ID != "four" {
			t.Errorf("an existing session: %v, exact %v, error %v", s.ID, exact, err)
		}
		s, exact, err = r.SessionOrLatest(t.Context(), "/a/b-c", "../five")
		if err != nil || exact || s.ID != "three" {
			t.Errorf("a missing session: %v, exact %v, error %v", s.ID, exact, err)
		}
		if _, _, err := r.SessionOrLatest(t.Context(), "/nowhere", "x"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("the latest session of an unknown project: %v", err)
		}
	})
	t.Run("D-25 projects that share a folder", func(t *testing.T) {
		if got := ids(need(r.Sessions(t.Context(), "/a/b_c"))); !slices.Equal(got, []string{"two", "five"}) { // the fifth has no project
			t.Errorf("the sessions of the other project are %q", got)
		}
		if got := ids(need(r.SessionsIn(t.Context(), "-a-b-c"))); len(got) != 5 {
			t.Errorf("the sessions of the folder are %q", got)
		}
	})
	t.Run("D-25 a path with a dot and a space, and a long one", func(t *testing.T) {
		for path, want := range map[string]string{"/my project/v1.2": "six", "/" + longName('x', 240): "eight"} {
			if got := ids(need(r.Sessions(t.Context(), path))); !slices.Equal(got, []string{want}) {
				t.Errorf("the sessions of %.20q are %q", path, got)
			}
		}
		if got := need(r.Sessions(t.Context(), "/"+longName('x', 241))); len(got) != 0 {
			t.Errorf("the sessions of another long path are %q", ids(got))
		}
	})
	t.Run("D-29 projects", func(t *testing.T) {
		var got []string
		for _, p := range need(r.Projects(t.Context())) {
			got = append(got, fmt.Sprintf("%.12s %.12s %d %v", p.Key, p.Path, p.Sessions, p.Guessed))
		}
		want := []string{"-a-b-c /a/b-c 3 false", "-a-b-c /a/b_c 1 false", "-a-b-c /a/b/c 1 true", "-my-project- /my project/ 1 false", "-nobody-says /nobody/says 1 true", "-xxxxxxxxxxx /xxxxxxxxxxx 1 false"}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the sessions are %q", got)
		}
	})
	t.Run("D-29 no folder", func(t *testing.T) {
		r := tavern.TranscriptsOf(filepath.Join(dir, "nowhere"))
		if list, err := r.Projects(t.Context()); len(list) != 0 || err != nil {
			t.Errorf("got %v, error %v", list, err)
		}
		if list, err := r.Sessions(t.Context(), "/a/b-c"); len(list) != 0 || err != nil {
			t.Errorf("got %v, error %v", list, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "nowhere")); !os.IsNotExist(err) {
			t.Error("a read created the folder")
		}
	})
}

// D-26, D-54: a display needs only the vendor's file. Nothing is written, and if a file cannot be read, the others are
// listed and the error names it.
func TestTranscriptsAlone(t *testing.T) {
	dir := lifeFolder(t, map[string][]string{"-a/one.jsonl": {lifeLine("/a", "user", 1, `"hi"`)}, "-a/two.jsonl": {lifeLine("/a", "user", 2, `"ho"`)}})
	before := lifeListing(t, dir)
	r := tavern.TranscriptsOf(dir)
	t.Run("D-26 from the local transcript only", func(t *testing.T) {
		s := need(r.Latest(t.Context(), "/a"))
		if list := lifeMessages(t, r, s); s.From != "direct: vendor file" || len(list) != 1 || list[0].Content != "ho" {
			t.Errorf("%+v: got %+v", s, list)
		}
	})
	t.Run("D-54 no store is opened and nothing is written", func(t *testing.T) {
		need(r.Projects(t.Context()))
		if after := lifeListing(t, dir); after != before {
			t.Errorf("the folder changed from\n%s\nto\n%s", before, after)
		}
		if _, err := os.Stat(filepath.Join(os.Getenv("XDG_DATA_HOME"), "tally")); !os.IsNotExist(err) {
			t.Error("the read created a store")
		}
	})
	t.Run("D-54 by the environment", func(t *testing.T) {
		config := t.TempDir()
		must(t, os.Rename(dir, filepath.Join(config, "projects")))
		t.Setenv("CLAUDE_CONFIG_DIR", config)
		if list := need(tavern.TranscriptsOf("").Sessions(t.Context(), "/a")); len(list) != 2 {
			t.Errorf("the sessions are %+v", list)
		}
	})
}

// An unreadable folder does not hide the folders after it.
func TestTranscriptFolderClosed(t *testing.T) {
	if testkit.AsNobody(t) {
		return
	}
	dir := lifeFolder(t, map[string][]string{"-a/one.jsonl": {lifeLine("/a", "user", 1, `"hi"`)}, "-b/two.jsonl": {lifeLine("/b", "user", 2, `"ho"`)}})
	closed := filepath.Join(dir, "-a")
	must(t, os.Chmod(closed, 0))
	t.Cleanup(func() { must(t, os.Chmod(closed, 0o700)) })
	list, err := tavern.TranscriptsOf(dir).Projects(t.Context())
	if err == nil || !strings.Contains(err.Error(), "-a") || len(list) != 1 || list[0].Path != "/b" {
		t.Errorf("%v: got %+v", err, list)
	}
}

// lifeListing lists the files in a folder, with sizes and times.
func lifeListing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		return err
	}))
	return b.String()
}

// A line longer than the limit does not take memory of its length, and the lines around it are read.
func TestTranscriptLongLine(t *testing.T) {
	testkit.OnlyFull(t, "TestLines has short lines")
	testkit.NotUnderRace(t)
	testkit.Long(t)
	dir := lifeFolder(t, map[string][]string{"-a/x.jsonl": {lifeLine("/a", "user", 1, `"before"`)}})
	f := need(os.OpenFile(filepath.Join(dir, "-a", "x.jsonl"), os.O_APPEND|os.O_WRONLY, 0))
	piece := bytes.Repeat([]byte("x"), 1<<20)
	const length = 300
	for range length {
		need(f.Write(piece))
	}
	need(io.WriteString(f, "\n"+lifeLine("/a", "user", 2, `"after"`)+"\n"))
	must(t, f.Close())
	r := tavern.TranscriptsOf(dir)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := need(r.Session(t.Context(), "x"))
	list := lifeMessages(t, r, s)
	runtime.ReadMemStats(&after)
	if s.TooLong != 1 || s.Lines != 3 || len(list) != 2 || list[1].Content != "after" {
		t.Errorf("%+v: got %+v", s, list)
	}
	if took := int64(after.Sys) - int64(before.Sys); took > 200<<20 {
		t.Errorf("reading took %d MiB", took>>20)
	}
}

// A transcript of 2 GiB does not take memory of its size: neither one line of 300 MiB, nor lines of 15 MiB without
// text, nor all its messages.
func TestTranscriptOfTwoGigabytes(t *testing.T) {
	testkit.OnlySoak(t)
	testkit.NotUnderRace(t)
	const count, hole, long, size = 900_000, 15 << 20, 300 << 20, 2 << 30
	dir := lifeFolder(t, map[string][]string{"-a/x.jsonl": {lifeLine("/a", "user", 1, `"before"`)}})
	f := need(os.OpenFile(filepath.Join(dir, "-a", "x.jsonl"), os.O_WRONLY, 0))
	defer f.Close()
	at, lines, corrupt := need(f.Seek(0, io.SeekEnd)), 1+count+1, 0
	out := bufio.NewWriter(f)
	for n := range count {
		line := lifeLine("/a", "assistant", 2, fmt.Sprintf(`"%d"`, n)) + "\n"
		need(out.WriteString(line))
		at += int64(len(line))
	}
	must(t, out.Flush())
	ends := func(after int64) { // the line is a hole in the file
		at += after
		need(f.WriteAt([]byte("\n"), at))
		at++
	}
	ends(long)
	for at < size {
		ends(hole)
		lines, corrupt = lines+1, corrupt+1
	}
	grown := peakMemory(t)
	r, seen := tavern.TranscriptsOf(dir), 0
	s := need(r.Session(t.Context(), "x"))
	for _, err := range r.Messages(t.Context(), s) {
		must(t, err)
		seen++
	}
	if s.TooLong != 1 || s.Lines != lines || s.Corrupt != corrupt || s.Messages != 1+count || seen != 1+count {
		t.Errorf("got %+v and %d messages, want %d lines, %d of them corrupt, and %d messages", s, seen, lines, corrupt, 1+count)
	}
	if took := grown(); took > 200<<20 {
		t.Errorf("reading %d bytes took %d MiB", at, took>>20)
	} else {
		t.Logf("%d bytes took %d MiB", at, took>>20)
	}
}

// The recorded transcripts are read completely: each line is a message, another entry, or counted.
func TestTranscriptRecorded(t *testing.T) {
	r := tavern.TranscriptsOf(testkit.Data(t, "claude", "projects"))
	sessions := need(r.SessionsIn(t.Context(), "sample-project"))
	if len(sessions) == 0 {
		t.Fatal("found no sessions")
	}
	for _, s := range sessions {
		data := need(os.ReadFile(s.File))
		if n := bytes.Count(data, []byte("\n")); s.Lines != n && s.Lines != n+1 {
			t.Errorf("%s: got %d lines, want %d", s.ID, s.Lines, n)
		}
		list := lifeMessages(t, r, s)
		if s.Messages == 0 || len(list) != s.Messages {
			t.Errorf("%s: got %d messages, want %d", s.ID, len(list), s.Messages)
		}
		for _, m := range list {
			if !bytes.Contains(data, m.Raw) {
				t.Errorf("%s: the bytes of %s differ from those of the file", s.ID, m.ID)
			}
		}
	}
}

// For any line, the parser neither fails nor makes messages of other entries, and its results share the line's bytes.
func FuzzTranscriptLine(f *testing.F) {
	f.Add([]byte(lifeLine("/a", "user", 1, `"hi"`)))
	f.Add([]byte(lifeLine("/a", "assistant", 1, `[{"type":"tool_result","content":[{"type":"text","text":"x"}]},5]`) + `{"a":1}`))
	f.Add([]byte(`{"uuid":"u","message":{"role":"","content":"x"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			t.Skip()
		}
		for m := range tavern.ParseTranscriptLine(line) {
			if m.ID == "" || !slices.Contains([]string{"user", "assistant", "system"}, m.Role) {
				t.Errorf("%q: got %+v", line, m)
			}
			for _, b := range m.Blocks {
				if !bytes.Contains(line, b.Raw) || !bytes.Contains(line, b.Input) {
					t.Errorf("%q: got %+v", line, b)
				}
			}
			if !bytes.Contains(line, m.Raw) {
				t.Errorf("%q: got %q", line, m.Raw)
			}
		}
	})
}

// D-28 measures the time for 1000 messages.
func BenchmarkTranscript(b *testing.B) {
	var list []string
	for n := range 1000 {
		list = append(list, lifeLine("/a", "assistant", n, `[{"type":"text","text":"`+longName('x', 2000)+`"}]`))
	}
	r := tavern.TranscriptsOf(lifeFolder(b, map[string][]string{"-a/x.jsonl": list}))
	for b.Loop() {
		s := need(r.Session(b.Context(), "x"))
		if n := len(lifeMessages(b, r, s)); n != 1000 {
			b.Fatal(n)
		}
	}
}
