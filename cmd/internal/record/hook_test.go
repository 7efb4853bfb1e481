//go:build unix

package record

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

func TestKicksIn(t *testing.T) {
	for said, want := range map[string][]string{
		`{"session_id":"s","transcript_path":"/a/b.jsonl","cwd":"/"}`:                                               {"/a/b.jsonl"},
		`{"hook_event_name":"SubagentStop","transcript_path":"/a/b.jsonl","agent_transcript_path":"/a/c.jsonl"}`:    {"/a/b.jsonl", "/a/c.jsonl"},
		`{"tool_input":{"transcript_path":"/no","x":[{"transcript_path":"/no"}]},"transcript_path":"/a/\u00e9"}`:    {"/a/é"},
		`{"list":["transcript_path","/no"],"transcript_path":null,"agent_transcript_path":5,"x":"transcript_path"}`: nil,
		`{"transcript_path":"/a/b.jsonl","tool_response":"cut of`:                                                   {"/a/b.jsonl"},
		`{"transcript_path":"relative/b.jsonl"}`:                                                                    nil,
		`{"transcript_path":"/nul\u0000"}`:                                                                          nil,
		`{"type":"agent-turn-complete","thread-id":"0199"}`:                                                         {"codex/0199"},
		`[{"transcript_path":"/a"}]`:                                                                                nil,
		`{"transcript_path":"/` + strings.Repeat("x", 5000) + `"}`:                                                  nil,
		`{"transcript_path":"/a`:                                                                                    nil, `"/a"`: nil, ``: nil, `{`: nil, "\xff": nil,
	} {
		if got := kicksIn([]byte(said)); !slices.Equal(got, want) {
			t.Errorf("%.80s: %q, want %q", said, got, want)
		}
	}
}

// For any input of a hook, the kicks are absolute paths and sessions without zero bytes.
func FuzzKicks(f *testing.F) {
	f.Add([]byte(`{"a":[{}],"transcript_path":"/a","thread-id":"b"}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		for _, kick := range kicksIn(said) {
			if isSession := strings.HasPrefix(kick, "codex/"); !isSession && !filepath.IsAbs(kick) || strings.ContainsRune(kick, 0) || len(kick) > maxKick+len("codex/") {
				t.Errorf("got %q", kick)
			}
		}
	})
}

// endless is an input without an end, with an object without an end. It counts the bytes read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, strings.Repeat("{", len(p))), nil
}

// open is an input that has data and is not closed.
func open(t *testing.T, pieces ...string) io.Reader {
	in, out := io.Pipe()
	t.Cleanup(func() { out.Close() })
	go func() {
		for _, piece := range pieces {
			_, _ = out.Write([]byte(piece)) // it need not be read
		}
	}()
	return in
}

// A hook reads the members that matter, and waits for a limited time only if an object is incomplete.
func TestReadForHasAnEnd(t *testing.T) {
	var e endless
	if got := readFor(&e, within); e.read < hookBytes || e.read > hookBytes+64<<10 || len(got) > 0 {
		t.Errorf("%d bytes are read, %d kept", e.read, len(got))
	}
	for _, pieces := range [][]string{{`{"a":"\\"}`}, {`{"a":`, `[{}]`, `}`}, {`{"a":"}`, `\`, `"}"`, "}"}, {" \n{}"}} {
		want := strings.Join(pieces, "")
		if got := string(readFor(open(t, pieces...), within)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, text := range []string{`"{`, "]", "7", "whole"} {
		if got := string(readFor(open(t, text), within)); got != text[:1] {
			t.Errorf("%q of %q", got, text)
		}
	}
	for part, want := range map[string]string{"": "", " ": "", `{"a":"`: "", `{"a":"}\"`: "", `{"a":{}`: "", `{"a":{"b":1,`: "", `{"a":",",`: `{"a":","`, `{"a":[1,2],"b":"`: `{"a":[1,2]`} {
		began := time.Now()
		got := string(readFor(open(t, part), 50*time.Millisecond))
		if took := time.Since(began); got != want || took < 50*time.Millisecond {
			t.Errorf("%q of %q in %v, want to be waited for", got, part, took)
		}
	}
	if got := string(readFor(strings.NewReader(`{"a":1,"b`), within)); got != `{"a":1` {
		t.Errorf("%q", got)
	}
}

// within is longer than any step takes.
const within = time.Minute

// A hook reaches every watch of the user, and skips sockets of killed watches.
func TestHookKicks(t *testing.T) {
	dir, err := os.MkdirTemp("", "kick") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_STATE_HOME", dir)
	if err := os.Mkdir(filepath.Join(dir, "tally"), 0o700); err != nil {
		t.Fatal(err)
	}
	stale := listen(func(string) {})
	if err := os.Rename(stale.path, filepath.Join(dir, "tally", "kick-1")); err != nil {
		t.Fatal(err)
	}
	stale.Close()
	got := make(chan string, 10)
	k := listen(func(path string) { got <- path })
	if k == nil {
		t.Fatal("no watch listens")
	}
	defer k.Close()
	if info, err := os.Stat(k.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tally", "kick-1")); err == nil {
		t.Error("the socket of a killed watch is still there")
	}
	Hook([]string{"claude"}, strings.NewReader(`{"transcript_path":"/a/b.jsonl"}`), os.Getenv)
	if path := <-got; path != "/a/b.jsonl" {
		t.Errorf("got %q", path)
	}
	Hook([]string{"codex", `{"thread-id":"0199"}`}, strings.NewReader(`{"transcript_path":"/not/read"}`), os.Getenv)
	if path := <-got; path != "codex/0199" {
		t.Errorf("got %q", path)
	}
}

// A kick with a session means the file of the session's last line.
func TestKickedSession(t *testing.T) {
	tl := newReporter(nil, false)
	tl.locations = []location{{}, {}}
	tl.locations[0].Root, tl.locations[1].Root = "/a", "/b"
	sub := events.Session("", "codex/one")
	e, err := events.New("urn:tally:agent:codex", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "log", Turn: events.Raw(`{}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	tl.seen(sub, []events.Event{e.WithExtension(extLine, "sessions/x.jsonl:0+5")}, log.Ack{First: 1, Last: 1}, 1)
	if got, want := tl.files("codex/one"), []string{"/a/sessions/x.jsonl", "/b/sessions/x.jsonl"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := tl.files("codex/two"); got != nil {
		t.Errorf("%q", got)
	}
	if got := tl.files("/c/d"); !slices.Equal(got, []string{"/c/d"}) {
		t.Errorf("%q", got)
	}
}

func BenchmarkHook(b *testing.B) {
	said := fmt.Sprintf(`{"session_id":"s","transcript_path":"/a/b.jsonl","tool_response":%q}`, strings.Repeat("x", hookBytes))
	for b.Loop() {
		kicksIn([]byte(said)[:hookBytes])
	}
}
