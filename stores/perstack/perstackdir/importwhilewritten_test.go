package perstackdir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// written is a write of the original: files are written one after the other, and each may be cut off.
type written struct{ path, content string }

// history returns the writes of a job in order, with job.json after each step.
func history(r *original, steps int) []written {
	var list []written
	before := make(map[string]string)
	note := func() {
		var news []string
		for name := range r.files {
			if before[name] != r.files[name] {
				news = append(news, name)
			}
		}
		slices.Sort(news)
		for _, name := range news {
			list = append(list, written{name, r.files[name]})
		}
		before = maps.Clone(r.files)
	}
	r.storeJob("running")
	r.storeSetting()
	r.messages = append(r.messages, r.message("userMessage", "go"))
	r.store(r.checkpoint("init"))
	note()
	for range steps {
		r.steps(1, 300)
		r.storeJob("running")
		note()
	}
	r.storeJob("completed")
	note()
	return list
}

// contents lists the session's contents from files: every checkpoint and event once.
func contents(t *testing.T, st store, job string) []string {
	t.Helper()
	var list []string
	s := load(t, st, job)
	for rec, err := range st.Read(t.Context(), events.Range{Subject: s.Subject}) {
		if err == nil {
			rec, err = st.Loader().Whole(t.Context(), rec)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch p := projector.Decode(rec).Payload.(type) {
		case *events.CheckpointSaved:
			list = append(list, string(p.Raw))
		case *events.RunStarted:
			list = append(list, string(p.Raw))
		case *events.RunProgressed:
			list = append(list, string(p.Raw))
		case *events.RunFinished:
			list = append(list, string(p.Result))
		case *events.CostAccrued:
			list = append(list, fmt.Sprintf("cost %s %v", p.Run.ID, *p.Tokens))
		}
	}
	slices.Sort(list)
	return list
}

// P-40: imports while the original writes, at any moments and any number of times, result in the events of one import
// at the end. A half-written file is kept until it is complete.
func TestImportWhileWritten(t *testing.T) {
	seeds := testkit.Times(20)
	if testkit.Soak() {
		seeds = 1000
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("P-40 seed %d", seed), func(t *testing.T) {
			r, random := newRuntime("a"), rand.New(rand.NewPCG(seed, 1))
			list := history(r, 1+random.IntN(4))
			st, dir := openStore(t), folder(t, map[string]string{list[0].path: list[0].content})
			for i, w := range list {
				if random.IntN(5) == 0 {
					mustImportHalf(t, st, dir, i, w, random.IntN(len(w.content)+1))
				}
				layouttest.WriteTree(t, dir, 0o644, map[string]string{w.path: w.content})
			}
			mustBeClean(t, st, dir)
			layouttest.MustEqual(t, r.files, exported(t, st))

			once := openStore(t)
			mustBeClean(t, once, folder(t, r.files))
			if have, want := contents(t, st, "a"), contents(t, once, "a"); !slices.Equal(have, want) {
				t.Errorf("got %d records, want %d: %q\n%q", len(have), len(want), have, want)
			}
		})
	}
}

// mustImportHalf imports while a file is written up to cut.
func mustImportHalf(t *testing.T, st layouts.Target, dir string, i int, w written, cut int) {
	t.Helper()
	layouttest.WriteTree(t, dir, 0o644, map[string]string{w.path: w.content[:cut]})
	r := mustImport(t, st, dir)
	if cut == len(w.content) && len(r.Problems) > 0 || len(r.Problems) > 1 {
		t.Errorf("write %d: %v", i, r.Problems)
	}
	have, _ := layouttest.Exported(t, st, keyed(t))
	layouttest.MustEqual(t, layouttest.ReadTree(t, dir), have)
}

// P-29: messages that checkpoints and events repeat are stored once.
func TestSize(t *testing.T) {
	testkit.OnlyFull(t, "TestChangedMeanwhile imports while files are written")
	testkit.NotUnderRace(t)
	const steps, size = 60, 4096
	r := newRuntime("a").play(steps, size)
	st := openStore(t)
	mustBeClean(t, st, folder(t, r.files))
	layouttest.MustEqual(t, r.files, exported(t, st))
	folderBytes, logBytes, records := 0, 0, 0
	for _, data := range r.files {
		folderBytes += len(data)
	}
	for rec, err := range st.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		logBytes += len(rec.Data)
		records++
	}
	distinct := 0
	for _, m := range r.messages {
		distinct += len(js(m))
	}
	if limit := distinct*3/2 + records*1024; logBytes > limit {
		t.Errorf("the log has %d bytes in %d records, want at most %d: of %d bytes of messages; the folder has %d", logBytes, records, limit, distinct, folderBytes)
	}
	t.Logf("folder %d bytes, messages %d, log %d in %d records", folderBytes, distinct, logBytes, records)
}

// Another program writes to the job between the read and the append: the import reads again, and does what it would
// have done after that write.
func TestChangedMeanwhile(t *testing.T) {
	r := newRuntime("a").play(1, 100)
	r.storeSetting()
	first := maps.Clone(r.files)
	r.steps(1, 100)
	longer := r.files
	gone := layouttest.Change(first, pathOf(first, "-callTools"), "-")
	ref := events.RunRef{Kind: "expert", ID: "run-a"}
	for name, p := range map[string]events.Payload{
		"turn":       &events.TurnAppended{Entries: []events.Entry{{Thread: "run/run-a", Turn: events.Raw(`{"type":"userMessage"}`)}}},
		"own thread": &events.TurnAppended{Entries: []events.Entry{{Thread: "run/run-a/2", Turn: events.Raw(`{"type":"userMessage"}`)}}},
		"event":      &events.RunProgressed{Run: ref, Kind: "retry", Raw: events.Raw(`{"id":"x","expertKey":"e","timestamp":1754000000900,"jobId":"a","runId":"run-a","stepNumber":1,"type":"retry"}`)},
		"checkpoint": &events.CheckpointSaved{ID: "other", Kind: "step", Run: &ref, Raw: events.Raw(`{"id":"other"}`)},
		"job":        &events.SessionUpdated{Set: events.Fields{}, Raw: events.Raw(`{"id":"a"}`)},
		"truncated":  &events.ThreadTruncated{Lengths: map[string]int{"run/run-a": 1}, Reason: "test"},
	} {
		for next, files := range map[string]map[string]string{"longer": longer, "one gone": gone} {
			t.Run(name+", folder with "+next, func(t *testing.T) {
				outcome := func(before bool) (layouts.Report, map[string]string, []string) {
					st, dir := openStore(t), folder(t, first)
					mustBeClean(t, st, dir)
					replaceTree(t, dir, files)
					m := &layouttest.Meddler{Target: st, Subject: events.Session(st.Name, "job/a"), Meanwhile: func() { liveAt(t, st, p) }}
					if before {
						m.Meanwhile()
						m.Called = true
					}
					r := mustImport(t, m, dir)
					if !m.Called {
						t.Fatal("the change during the import was not made")
					}
					have, _ := layouttest.Exported(t, st, keyed(t))
					return r, have, contents(t, st, "a")
				}
				want, wantTree, wantContents := outcome(true)
				have, tree, haveContents := outcome(false)
				if !slices.Equal(have.Refused, want.Refused) || have.Events != want.Events || !slices.Equal(haveContents, wantContents) {
					t.Errorf("got %+v, want %+v as after a change before the import", have, want)
				}
				layouttest.MustEqual(t, wantTree, tree)
			})
		}
	}
}

// liveAt appends to job a as a program that knows its head.
func liveAt(t *testing.T, st store, p events.Payload) {
	t.Helper()
	s := load(t, st, "a")
	e, err := events.New("urn:test:live", s.Subject, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(t.Context(), s.Subject, log.At(s.Offset()), e); err != nil {
		t.Fatal(err)
	}
}

// A crash between any two records leaves a state that the next import completes, without duplicates.
func TestCutShort(t *testing.T) {
	testkit.NotUnderRace(t) // single-threaded
	r := newRuntime("a").play(2, 300)
	r.storeSetting()
	once := openStore(t)
	mustBeClean(t, once, folder(t, r.files))
	want := contents(t, once, "a")
	for stop := range 30 {
		st, dir := openStore(t), folder(t, r.files)
		b := &breaking{store: st, left: stop}
		_, err := keyed(t).Import(t.Context(), b, dir, layouts.ImportOptions{})
		if err == nil && b.left >= 0 {
			break
		}
		mustBeClean(t, st, dir)
		layouttest.MustEqual(t, r.files, exported(t, st))
		if have := contents(t, st, "a"); !slices.Equal(have, want) {
			t.Errorf("after %d records: %q\nwant %q", stop, have, want)
		}
	}
}

// breaking is a store that fails after a number of records.
type breaking struct {
	store
	left int
}

func (b *breaking) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	if len(evs) <= b.left {
		b.left -= len(evs)
		return b.store.AppendSeries(ctx, sub, expect, evs...)
	}
	n := b.left
	b.left = -1
	if n > 0 {
		if _, _, err := b.store.AppendSeries(ctx, sub, expect, evs[:n]...); err != nil {
			return log.Ack{}, 0, err
		}
	}
	return log.Ack{}, n, errors.New("broken")
}

// Several jobs are several sessions, independent of each other.
func TestSeveralJobs(t *testing.T) {
	files := make(map[string]string)
	for i := range 5 {
		maps.Copy(files, newRuntime(fmt.Sprintf("job-%d", i)).play(1, 20).files)
	}
	files["jobs/job-3/job.json"] = "{"
	files["jobs/empty/x/y/z"] = "z"
	r := mustComeBack(t, files)
	if r.Sessions != 6 || len(r.Problems) != 1 {
		t.Errorf("the report is %+v", r)
	}
	st, dir := openStore(t), folder(t, files)
	mustImport(t, st, dir)
	if err := os.RemoveAll(filepath.Join(dir, "jobs", "job-1")); err != nil {
		t.Fatal(err)
	}
	if r := mustImport(t, st, dir); r.Events != 0 { // a job whose folder is gone stays
		t.Errorf("the report is %+v", r)
	}
	if have, _ := layouttest.Exported(t, st, keyed(t)); !strings.Contains(have["jobs/job-1/job.json"], "job-1") {
		t.Error("the session is missing in the store")
	}
}
