//go:build unix

package live

import (
	"fmt"
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

// Whatever a hook is given, what it kicks are absolute paths and sessions, without a NUL.
func FuzzKicks(f *testing.F) {
	f.Add([]byte(`{"a":[{}],"transcript_path":"/a","thread-id":"b"}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		for _, kick := range kicksIn(said) {
			if isSession := strings.HasPrefix(kick, "codex/"); !isSession && !filepath.IsAbs(kick) || strings.ContainsRune(kick, 0) || len(kick) > maxKick+len("codex/") {
				t.Errorf("%q", kick)
			}
		}
	})
}

// endless is an input that has no end; each read of a slow one takes its time.
type endless struct{ wait chan struct{} }

func (e endless) Read(p []byte) (int, error) {
	if e.wait != nil {
		<-e.wait
	}
	return copy(p, "{"), nil
}

func TestReadForHasAnEnd(t *testing.T) {
	if got := readFor(endless{}, time.Millisecond); len(got) > hookBytes {
		t.Errorf("%d bytes are kept", len(got))
	}
	never := make(chan struct{})
	defer close(never)
	if got := readFor(endless{never}, time.Millisecond); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := string(readFor(strings.NewReader("whole"), time.Hour)); got != "whole" {
		t.Errorf("%q", got)
	}
}

// A hook reaches every watch of the user, and passes over what killed ones left.
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
		t.Fatal("nothing listens")
	}
	defer k.Close()
	if info, err := os.Stat(k.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tally", "kick-1")); err == nil {
		t.Error("what a killed watch left is still there")
	}
	Hook([]string{"claude"}, strings.NewReader(`{"transcript_path":"/a/b.jsonl"}`), os.Getenv)
	if path := <-got; path != "/a/b.jsonl" {
		t.Errorf("%q", path)
	}
	Hook([]string{"codex", `{"thread-id":"0199"}`}, strings.NewReader(`{"transcript_path":"/not/read"}`), os.Getenv)
	if path := <-got; path != "codex/0199" {
		t.Errorf("%q", path)
	}
}

// A kick that is a session means the file of the line that was read of it last.
func TestKickedSession(t *testing.T) {
	tl := newTeller(nil, false)
	tl.places = []place{{}, {}}
	tl.places[0].Root, tl.places[1].Root = "/a", "/b"
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
