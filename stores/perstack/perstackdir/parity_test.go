package perstackdir_test

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// Imports and exports of a folder on every backend. The other tests of this package cover details, in memory.
func TestParity(t *testing.T) {
	testkit.NotUnderRace(t) // single-threaded
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for _, part := range []func(*testing.T, *tally.Store){parityBytes, parityWithoutJob, paritySecrets, parityLeftOut, parityKeys, parityGrown, parityNode} {
			part(t, st)
		}
	})
}

// in returns an empty namespace of a store.
func in(t *testing.T, st *tally.Store, name string) *tally.Store {
	t.Helper()
	own, err := st.In(name)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// under returns the log of a store for tests.
func under(st *tally.Store) store { return store{Log: st.Log, Name: st.Namespace()} }

func parityBytes(t *testing.T, st *tally.Store) {
	t.Run("P-20 every file comes out byte for byte, rendered from the records", func(t *testing.T) {
		files := small("a").files
		if r := mustComeBackOf(t, in(t, st, "p20"), files); len(r.Problems) > 0 || r.Files.Exact != len(files) || r.Added != 1 {
			t.Errorf("the report is %+v", r)
		}
	})
	t.Run("P-10 an event that took the name of another is in the log with it, and unique names stay", func(t *testing.T) {
		r, own := newRuntime("a").play(1, 10), in(t, st, "p10")
		first := pathOf(r.files, "-callTools")
		other := strings.Replace(r.files[first], `"id":"ev`, `"id":"again`, 1)
		files := layouttest.Change(r.files, strings.Replace(first, ".json", ".2.json", 1), other)
		if r := mustComeBackOf(t, own, files); len(r.Problems) > 0 {
			t.Error(r.Problems)
		}
		list, err := perstack.GetEventContents(t.Context(), own, "a", r.run)
		if err != nil || len(list) != len(r.files)-3+1 { // without job.json and two checkpoints
			t.Errorf("got %d events, error %v", len(list), err)
		}
	})
	t.Run("P-30 foreign files, the documents' variant and half a file come out as they were", func(t *testing.T) {
		base := small("a").files
		half := pathOf(base, "-callTools")
		files := layouttest.Change(base, "jobs/a/notes/deep/er.md", "# Notes\n", "jobs/a/.DS_Store", "\x00\x01", "config.json", "{ }", "jobs/readme.txt", "hello",
			"jobs/a/runs/run-a/checkpoint-1754000000000-1-cp2.json", base[pathOf(base, "checkpoints/cp2")], half, base[half][:40])
		own := in(t, st, "p30")
		r := mustComeBackOf(t, own, files)
		if mustSay(t, r, half, "kept as it is"); r.Files.Whole != 6 {
			t.Errorf("the report is %+v", r)
		}
		if list, err := perstack.GetCheckpointsByJobID(t.Context(), own, "a"); err != nil || len(list) != 4 {
			t.Errorf("got %d checkpoints, want only those of checkpoints/; error %v", len(list), err)
		}
	})
	t.Run("P-29 the log takes what is new, not what the files repeat", func(t *testing.T) {
		testkit.NotUnderRace(t)
		own := in(t, st, "p29")
		r := mustStaySmall(t, under(own))
		layouttest.MustEqual(t, r.files, exported(t, own))
	})
	t.Run("P-41 two jobs of one id, of two projects, stay apart", func(t *testing.T) {
		for name, steps := range map[string]int{"p41-a": 1, "p41-b": 2} {
			mustBeClean(t, in(t, st, name), folder(t, newRuntime("same").play(steps, 10).files))
		}
		for name, steps := range map[string]int{"p41-a": 1, "p41-b": 2} {
			layouttest.MustEqual(t, newRuntime("same").play(steps, 10).files, exported(t, in(t, st, name)))
		}
	})
}

// A log grows only by new content of a folder.
func TestImportSize(t *testing.T) { mustStaySmall(t, openStore(t)) }

// mustStaySmall imports a job that repeats all its messages, and checks that the log has each one once.
func mustStaySmall(t *testing.T, st store) *original {
	t.Helper()
	r := newRuntime("a").play(20, 4096)
	mustBeClean(t, st, folder(t, r.files))
	log, distinct := 0, 0
	for rec, err := range st.Read(t.Context(), events.Range{Subject: events.Session(st.Name, "job/a")}) {
		if err != nil {
			t.Fatal(err)
		}
		header, data := events.EncodeBinary(rec.Event)
		for name, values := range header {
			log += len(name) + len(strings.Join(values, ""))
		}
		log += len(data)
	}
	for _, m := range r.messages {
		distinct += len(js(m))
	}
	if most := distinct*3/2 + len(r.files)<<10; log < distinct || log > most {
		t.Errorf("the log has %d bytes for %d bytes of messages in %d files, want at most %d", log, distinct, len(r.files), most)
	}
	return r
}

func parityWithoutJob(t *testing.T, st *tally.Store) {
	t.Run("P-19 without job.json and run-setting.json the views follow from the checkpoints, and nothing is made up", func(t *testing.T) {
		r, own := newRuntime("a").play(2, 50), in(t, st, "p19")
		r.step++
		r.store(r.checkpoint("completed"))
		files := layouttest.Change(r.files, "jobs/a/job.json", "-")
		layouttest.MustBeClean(t, mustComeBackOf(t, own, files))
		mustMakeNothingUp(t, own, "a")

		ctx, h := t.Context(), perstack.JobOf(own, "a")
		jobs, err := perstack.GetAllJobs(ctx, own)
		settings, err2 := perstack.GetAllRuns(ctx, own)
		if _, err3 := perstack.RetrieveJob(ctx, own, "a"); errors.Join(err, err2) != nil || len(jobs)+len(settings) > 0 || !errors.Is(err3, tally.ErrNotFound) {
			t.Errorf("a missing job or setting is listed: %v, %v; errors %v, %v, %v", jobs, settings, err, err2, err3)
		}
		last, err := h.MostRecentCheckpoint(ctx)
		if err != nil || last.StepNumber != 3 || last.Status.Job() != perstack.JobCompleted {
			t.Errorf("the last checkpoint is %+v, error %v", last, err)
		}
		runs, err := h.Runs(ctx)
		if err != nil || len(runs) != 1 || runs[0].ID != r.run || runs[0].Steps != 3 || runs[0].Checkpoints != 4 || runs[0].HasSetting || runs[0].ExpertKey != "e" {
			t.Errorf("the runs are %+v, error %v", runs, err)
		}
		if totals, err := h.Totals(ctx); err != nil || totals.Steps != 3 || totals.Usage.TotalTokens != 3*11 {
			t.Errorf("the totals are %+v, error %v", totals, err)
		}
		mustListByCheckpoints(t, own)
	})
}

// mustMakeNothingUp checks that the session of a job has only the contents of files.
func mustMakeNothingUp(t *testing.T, st *tally.Store, job string) {
	t.Helper()
	for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: events.Session(st.Namespace(), "job/"+job)}) {
		if err != nil {
			t.Fatal(err)
		}
		switch p := projector.Decode(rec).Payload.(type) {
		case *events.RunCreated, *events.RunAnnotated:
			t.Errorf("got a record of type %s that no file has", rec.Type)
		case *events.SessionCreated:
			if p.Raw != nil {
				t.Errorf("the import made up a job: %s", p.Raw)
			}
		case *events.SessionUpdated:
			if _, says := p.Set.Get("status"); says || p.Raw != nil {
				t.Errorf("the import made up a job: %s", rec.Data)
			}
		}
	}
}

// mustListByCheckpoints checks that the list of jobs has the job, if the store has a list.
func mustListByCheckpoints(t *testing.T, st *tally.Store) {
	t.Helper()
	dir := views(t, st)
	if dir == "" {
		return
	}
	r, err := catalog.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list, _, err := r.Jobs(t.Context(), catalog.JobQuery{Namespace: st.Namespace()})
	if err != nil || len(list) != 1 || list[0].Stored || list[0].Status != "" || list[0].Reached != "completed" || list[0].Steps != 3 || list[0].Runs != 1 {
		t.Errorf("the list of jobs is %+v, error %v", list, err)
	}
}

// views returns the folder of the views after they have caught up with the log. Only the embedded store has views; for
// other stores it is "".
func views(t *testing.T, st *tally.Store) string {
	t.Helper()
	if !strings.Contains(t.Name(), "/local/") {
		return ""
	}
	at, err := st.Log.Durable(t.Context())
	for _, v := range catalog.Views(render.Opening, render.Said) {
		if err == nil {
			err = st.Wait(t.Context(), v.Name, at)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return st.ViewsDir()
}

func parityGrown(t *testing.T, st *tally.Store) {
	t.Run("P-40 imports while the folder grows end as one import at the end", func(t *testing.T) {
		r := newRuntime("a")
		list := history(r, 2)
		own, once := in(t, st, "p40"), in(t, st, "p40-once")
		dir := folder(t, map[string]string{list[0].path: list[0].content})
		for i, w := range list {
			if i%2 == 0 {
				mustImportHalf(t, own, dir, i, w, len(w.content)*i/len(list))
			}
			layouttest.WriteTree(t, dir, 0o644, map[string]string{w.path: w.content})
		}
		mustBeClean(t, own, dir)
		if again := mustBeClean(t, own, dir); again.Events != 0 {
			t.Errorf("the report of a further import is %+v", again)
		}
		layouttest.MustEqual(t, r.files, exported(t, own))
		mustBeClean(t, once, folder(t, r.files))
		if have, want := contents(t, under(own), "a"), contents(t, under(once), "a"); !slices.Equal(have, want) {
			t.Errorf("got %d records, want %d: %q\n%q", len(have), len(want), have, want)
		}
	})
}

// The files are written by an export or perstack.FileOnly. No tree is involved.
func parityNode(t *testing.T, st *tally.Store) {
	t.Run("P-39 Node reads what an export and FileOnly write, in the order of the original", func(t *testing.T) {
		testkit.NotUnderRace(t)
		ctx, own, root := t.Context(), in(t, st, "p39"), t.TempDir()
		old, young := newRuntime("old").play(1, 10), newRuntime("young").play(12, 10)
		young.files["jobs/young/job.json"] = strings.Replace(young.files["jobs/young/job.json"], `"startedAt": 1754000000000`, `"startedAt": 1754000000001`, 1)
		files := maps.Clone(young.files)
		maps.Copy(files, old.files)
		mustBeClean(t, own, folder(t, files))
		layouttest.MustExport(t, own, keyed(t), filepath.Join(root, "perstack"), layouts.ExportOptions{})
		head, err := own.Log.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		dirOf := func(job, run string) string { return filepath.Join(root, "perstack", "jobs", job, "runs", run) }
		for i, run := range []string{"r1", "r2", "r3"} {
			s, err := perstack.ParseRunSetting(events.Raw(settingOf("old", run, began+int64(i%2))))
			if err != nil {
				t.Fatal(err)
			}
			if err := perstack.StoreRunSetting(ctx, own, s, perstack.FileOnly(perstack.CreateDefaultFileSystem()), dirOf); err != nil {
				t.Fatal(err)
			}
		}
		if now, err := own.Log.Head(ctx); err != nil || now != head {
			t.Errorf("FileOnly wrote to the log: %v, error %v", now, err)
		}
		read := oracleReads(t, root)
		mustRead(t, read.GetAllJobs, "id", "young", "old")
		mustRead(t, read.GetAllRuns, "runId", "r2", "r1", "r3")
		at := slices.IndexFunc(read.Jobs, func(j oracleJob) bool { return j.JobID == "young" })
		if at < 0 || len(read.Jobs[at].Runs) != 1 {
			t.Fatalf("Node reads %+v", read.Jobs)
		}
		points, err := perstack.GetCheckpointsByJobID(ctx, own, "young")
		if err != nil || len(points) != 13 {
			t.Fatalf("got %d checkpoints, error %v", len(points), err)
		}
		var ids []string
		for _, c := range points {
			ids = append(ids, c.ID)
		}
		mustRead(t, read.Jobs[at].GetCheckpointsByJobID, "id", ids...)
		list, err := perstack.GetEventContents(ctx, own, "young", young.run)
		if err != nil || len(list) != 12*3+2 {
			t.Fatalf("got %d events, error %v", len(list), err)
		}
		ids = nil
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		mustRead(t, read.Jobs[at].Runs[0].GetEventContents[0].oracleResult, "id", ids...)
	})
}

// settingOf returns the setting of a run, changed at a time.
func settingOf(job, run string, at int64) string {
	r := newRuntime(job)
	r.run, r.now = run, at
	r.storeSetting()
	return r.files[r.dir()+"runs/"+run+"/run-setting.json"]
}

// mustRead checks that a result is a list of objects with the given values of a member.
func mustRead(t *testing.T, read oracleResult, member string, want ...string) {
	t.Helper()
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(read.Value, &list); err != nil {
		t.Fatalf("%v: %+v", err, read)
	}
	var have []string
	for _, o := range list {
		have = append(have, strings.Trim(string(o[member]), `"`))
	}
	if !slices.Equal(have, want) {
		t.Errorf("Node reads %v, want %v", have, want)
	}
}
