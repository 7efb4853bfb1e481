package ingest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/testkit"
)

// reverted is a thread of Codex that went back a few times, each time into a new file.
func reverted(t *rapid.T, home map[string]string, number int) {
	type branchPoint struct {
		stem string
		end  int
		n    int // number of the next line
	}
	id := func(file int) string { return fmt.Sprintf("019b0000-%04x-7000-8000-%012d", file, number) }
	base, turns, said := branchPoint{}, []branchPoint(nil), 0
	for file := range rapid.IntRange(1, 5).Draw(t, "files") {
		k := &agentTalk{t: t, n: base.n}
		add := func(kind, payload string) {
			k.b.WriteString(fmt.Sprintf(`{"timestamp":"2026-01-02T03:%02d:%02d.000Z","ordinal":%d,"type":%q,"payload":%s}`, file, said%60, k.n, kind, payload) + "\n")
			k.n++
			said++
		}
		from := ""
		if base.end > 0 {
			from = fmt.Sprintf(`,"history_base":{"thread_id":%q,"end_ordinal_exclusive":%d,"end_byte_offset":%d}`, base.stem, base.n, base.end)
		}
		add("session_meta", `{"id":"`+id(0)+`","cwd":"/pier","timestamp":"2026-01-02T03:04:05.000Z","cli_version":"0.169.0","history_mode":"paginated"`+from+`}`)
		for range rapid.IntRange(1, 3).Draw(t, "turns") {
			turns = append(turns, branchPoint{id(file), k.b.Len(), k.n})
			turn := fmt.Sprintf("019b0001-0000-7000-8000-%06d%06d", number, said)
			add("event_msg", `{"type":"task_started","turn_id":"`+turn+`"}`)
			add("turn_context", `{"turn_id":"`+turn+`","model":"gpt-x"}`)
			add("response_item", fmt.Sprintf(`{"type":"message","id":"msg_%d","role":"user","content":[{"type":"input_text","text":"Go on %d"}]}`, said, said))
			if rapid.IntRange(0, 4).Draw(t, "ends") > 0 {
				add("event_msg", `{"type":"task_complete","turn_id":"`+turn+`"}`)
			}
		}
		name := fmt.Sprintf("rollout-2026-01-02T03-%02d-05-%s", file, id(0))
		if file > 0 {
			name += "_" + id(file)
		}
		folder := rapid.SampledFrom([]string{"sessions/2026/01/02/", "sessions/2026/01/03/", "archived_sessions/"}).Draw(t, "folder")
		home[folder+name+".jsonl"] = k.b.String()
		back := rapid.IntRange(0, len(turns)-1).Draw(t, "back")
		base, turns = turns[back], turns[:back]
		if base.n <= 1 {
			base = branchPoint{}
		}
	}
}

// byOrder sorts files by their start.
func byOrder(home map[string]string) []string {
	return slices.SortedFunc(maps.Keys(home), func(a, b string) int { return strings.Compare(stemOf(a), stemOf(b)) })
}

// inOrder ingests one file after the other.
func inOrder(t fataler, dir string, agent agents.Agent, home map[string]string) *rig {
	r := newRig(t, dir, agent)
	for _, name := range byOrder(home) {
		r.write(name, home[name])
		r.run()
	}
	return r
}

// kicked ingests the existing files, with the named ones first.
func (r *rig) kicked(names []string) {
	r.t.Helper()
	l := r.open()
	defer l.Close()
	in, err := New(r.options(l))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	defer in.Close()
	for _, name := range slices.Backward(names) {
		in.Kick(filepath.Join(r.dir, filepath.FromSlash(name)))
	}
	if err := in.Run(context.Background()); err != nil {
		r.t.Fatalf("%v", err)
	}
}

// mustBe compares the sessions with those of another rig.
func (r *rig) mustBe(other *rig) {
	r.t.Helper()
	if got, want := r.sessions(), other.sessions(); !slices.Equal(got, want) {
		r.t.Fatalf("sessions are %q, want %q", got, want)
	}
	for _, id := range other.sessions() {
		got, want := r.view(id), other.view(id)
		got.Rewinds, want.Rewinds = len(r.session(id).Ledger.Rewinds), len(other.session(id).Ledger.Rewinds)
		if !reflect.DeepEqual(got, want) {
			r.t.Fatalf("session %s is\n%+v\nafter reading in order\n%+v", id, got, want)
		}
	}
}

// touch sets random times of files, some of them current.
func (r *rig) touch(names []string, n func(upto int) int) {
	for _, name := range names {
		at := time.Now().Add(-time.Duration(n(30)) * time.Minute)
		if err := os.Chtimes(filepath.Join(r.dir, filepath.FromSlash(name)), at, at); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
}

// Files of a session are read by their start, in any order of changes and notifications, and after any progress of an
// earlier watcher: the result equals that of the files in order.
func TestOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		home := make(map[string]string)
		for number := range rapid.IntRange(1, 3).Draw(rt, "threads") {
			reverted(rt, home, number)
		}
		names := byOrder(home)
		want := inOrder(rt, dir, ofCodex, home)
		defer os.RemoveAll(filepath.Dir(want.dir))
		r := newRig(rt, dir, ofCodex)
		defer os.RemoveAll(filepath.Dir(r.dir))
		n := func(upto int) int { return rapid.IntRange(0, upto).Draw(rt, "n") }
		if begun := n(2 * len(names)); begun < len(names) { // a watcher read up to here, and a part of the last file
			for _, name := range names[:begun] {
				r.grow(name, home[name])
			}
			cut := n(len(home[names[begun]]))
			if isAmbiguous(home[names[begun]], cut) {
				cut = 0
			}
			r.grow(names[begun], home[names[begun]][:cut])
			r.run()
			r.grow(names[begun], home[names[begun]][cut:])
			for _, name := range names[begun+1:] {
				r.grow(name, home[name])
			}
			if n(2) == 0 {
				r.lose()
			}
		} else {
			for name, content := range home {
				r.grow(name, content)
			}
		}
		r.touch(names, n)
		r.kicked(rapid.Permutation(names).Draw(rt, "seen"))
		if len(r.problems) > 0 {
			rt.Fatalf("got the problems %v", r.problems)
		}
		r.mustBe(want)
	})
}

// Recorded homes yield the result of the files in order, for any order of changes.
func TestRecordedOrder(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob(filepath.Join(testkit.Data(t, "agents"), "codex-0.1*"))
	if err != nil {
		t.Fatal(err)
	}
	threads := 0
	for seed, folder := range folders {
		home := make(map[string]string)
		err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "rollout-") {
				return err
			}
			b, err := os.ReadFile(name)
			rel, _ := filepath.Rel(folder, name)
			home[filepath.ToSlash(rel)] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(home) == 0 { // with one file
			continue
		}
		draw := rand.New(rand.NewPCG(uint64(seed), 3))
		dir := t.TempDir()
		want := inOrder(t, dir, ofCodex, home)
		for range 5 {
			r := newRig(t, dir, ofCodex)
			names := byOrder(home)
			for name, content := range home {
				r.write(name, content)
			}
			r.touch(names, func(upto int) int { return draw.IntN(upto + 1) })
			draw.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			r.kicked(names)
			r.mustBe(want)
		}
		threads += len(home)
	}
	if threads < 4 {
		t.Errorf("found %d recorded files", threads)
	}
}

// A file whose thread refers to a missing one begins without it. A later file of its session does not wait forever.
func TestOrderOfTheLost(t *testing.T) {
	r := newRig(t, t.TempDir(), ofCodex)
	meta := func(file string) string {
		return `{"timestamp":"2026-01-02T03:04:05.000Z","ordinal":0,"type":"session_meta","payload":{"id":"` + threadID + `","cwd":"/pier","history_mode":"paginated","history_base":{"thread_id":"` + file + `","end_ordinal_exclusive":9,"end_byte_offset":900}}}` + "\n"
	}
	const first, second = "019b0000-0000-7000-8000-000000000002", "019b0000-0000-7000-8000-000000000003"
	names := []string{"sessions/2026/01/02/" + rolloutName(second), "archived_sessions/" + rolloutName(first)}
	r.write(names[0], meta(first))
	r.write(names[1], meta(threadID))
	r.kicked(names)
	var order []string
	for _, rec := range r.records() {
		if name, _, ok := parse(rec.Extensions[extLine]); ok && rec.Source == sourceLines+"codex" {
			order = append(order, path.Base(name))
		}
	}
	if want := []string{rolloutName(first), rolloutName(second)}; !slices.Equal(order, want) {
		t.Errorf("the order of reading is %q, want %q", order, want)
	}
	if len(r.problems) == 0 {
		t.Errorf("no problem reports the missing parent")
	}
}
