package tallydir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// largeStep returns a step of more than four megabytes. Five of them are not kept between the comparison of a folder
// and its import, but are read again.
func largeStep(n int) string {
	return fmt.Sprintf(`{"stepIndex":%d,"input":{"role":"user","content":"%d%s"},"output":[],"conversationId":"c1"}`, n, n, strings.Repeat("x", 4<<20))
}

// If a large conversation grew, an import adds only the new steps, once.
func TestLargeGrows(t *testing.T) {
	testkit.OnlyFull(t, "TestGrowth has smaller steps")
	testkit.NotUnderRace(t)
	var list []string
	for n := range 5 {
		list = append(list, largeStep(n))
	}
	st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
	for _, more := range [][]string{nil, {step(5), step(6), step(7)}, {largeStep(8)}, {}} {
		list = append(list, more...)
		files := map[string]string{conv + "conversation.jsonl": strings.Join(list, "\n")}
		writeTree(t, dir, files)
		r := mustBeClean(t, st, dir)
		if more != nil && r.Events != len(more) {
			t.Errorf("the folder has %d new steps, but the import added %d events", len(more), r.Events)
		}
		if have := len(load(t, st, "c1").Threads.Turns("main")); have != len(list) {
			t.Errorf("the session has %d turns, want %d", have, len(list))
		}
		mustEqual(t, files, exported(t, st))
		if again := mustBeClean(t, st, dir); again.Events != 0 {
			t.Errorf("a second import added %d events", again.Events)
		}
	}
}

// A session is rewound or continued between the comparison and the append of an import. The import compares again,
// and has the same result as if the change had come first.
func TestRewoundMeanwhile(t *testing.T) {
	a := smallTree()
	longer := with(a, conv+"conversation.jsonl", a[conv+"conversation.jsonl"]+"\n"+step(3), conv+"stepTraces.json", tracesOf(4))
	shorter := with(a, conv+"conversation.jsonl", step(0), conv+"stepTraces.json", tracesOf(1))
	for name, p := range map[string]events.Payload{
		"rewound": &events.SessionRewound{To: 4}, "turn": appended(step(4)), "the same turn": appended(step(3)),
		"title": &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}}},
		"run":   &events.RunFinished{Run: events.RunRef{Kind: "tally", ID: "run-1-a"}, Outcome: "completed", Result: events.Raw("1")},
	} {
		for next, tree := range map[string]map[string]string{"longer": longer, "shorter": shorter} {
			t.Run(name+", folder "+next, func(t *testing.T) {
				outcome := func(before bool) (refused []string, hash string, files map[string]string) {
					st, dir := openStore(t), filepath.Join(t.TempDir(), "p")
					mustBeClean(t, st, writeTree(t, dir, a))
					replaceTree(t, dir, tree)
					other := func() { live(t, st, "c1", log.At(load(t, st, "c1").Offset()), p) }
					m := &layouttest.Meddler{Target: st, Subject: events.Session(st.Name, "c1"), Meanwhile: other}
					if before {
						other()
						m.Called = true
					}
					r, err := (tallydir.Layout{}).Import(t.Context(), m, dir, layouts.ImportOptions{})
					if err != nil || !m.Called {
						t.Fatalf("the change during the import was made: %v; import error %v", m.Called, err)
					}
					return r.Refused, fmt.Sprint(load(t, st, "c1").Threads.Hash()), exported(t, st)
				}
				wantRefused, wantHash, wantFiles := outcome(true)
				refused, hash, files := outcome(false)
				if !slices.Equal(refused, wantRefused) || hash != wantHash {
					t.Errorf("refused %v, turns %s; want %v, %s as after a change before the import", refused, hash, wantRefused, wantHash)
				}
				mustEqual(t, wantFiles, files)
			})
		}
	}
}

// An export over an older one repairs only the files that differ: too long, truncated, altered, or with another mode.
func TestExportPutsRight(t *testing.T) {
	st := openStore(t)
	mustBeClean(t, st, writeTree(t, filepath.Join(t.TempDir(), "p"), smallTree()))
	out := t.TempDir()
	first := mustExport(t, st, out, layouts.ExportOptions{})
	want := readTree(t, out)
	if r := mustExport(t, st, out, layouts.ExportOptions{}); r.Written != 0 || r.Kept != first.Written || first.Written != len(smallTree()) {
		t.Fatalf("exported again: %+v", r)
	}
	for name, content := range want {
		path := filepath.Join(out, filepath.FromSlash(name))
		mode := modeOf(t, path)
		for what, spoil := range map[string]func() error{
			"longer by a byte":   func() error { return os.WriteFile(path, []byte(content+"\n"), 0) },
			"twice":              func() error { return os.WriteFile(path, []byte(content+content), 0) },
			"shorter by a byte":  func() error { return os.WriteFile(path, []byte(content[:len(content)-1]), 0) },
			"empty":              func() error { return os.WriteFile(path, nil, 0) },
			"another first byte": func() error { return os.WriteFile(path, []byte("x"+content[1:]), 0) },
			"another last byte":  func() error { return os.WriteFile(path, []byte(content[:len(content)-1]+"x"), 0) },
			"another mode":       func() error { return os.Chmod(path, 0o600) },
		} {
			if what == "another mode" && runtime.GOOS == "windows" {
				continue
			}
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if r := mustExport(t, st, out, layouts.ExportOptions{}); r.Written != 1 || r.Kept != len(want)-1 {
				t.Errorf("%s %s: got %d files written, %d kept", name, what, r.Written, r.Kept)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != content || modeOf(t, path) != mode {
				t.Errorf("%s %s was not repaired: content %q, mode %v, error %v", name, what, data, modeOf(t, path), err)
			}
		}
	}
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}
