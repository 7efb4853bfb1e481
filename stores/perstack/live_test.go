package perstack_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

// The folder of the original is a live tree below the working directory.
func TestLive(t *testing.T) {
	withKey(t)
	dir := need(filepath.EvalSymlinks(t.TempDir()))
	t.Chdir(dir)
	ctx, layout := t.Context(), perstackdir.Layout{Keys: sealed.FromEnvironment}
	st, _ := storetest.Live(t, "", layout)
	folder := filepath.Dir(perstack.GetJobsDir())
	must(t, st.KeepFiles(ctx, layout.Name(), folder))
	isThere := func(t *testing.T, path string) []byte {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	t.Run("P-04 P-27 each path exists after the call that stores what it names", func(t *testing.T) {
		for _, id := range []string{"plain", "job-1.2", "a/b", "..", "ü \n", "con", "UPPER"} {
			before := perstack.GetJobDir(id)
			if _, err := os.Lstat(before); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s: got the error %v", before, err)
			}
			j := perstack.CreateInitialJob(id, "coder")
			must(t, perstack.StoreJob(ctx, st, j))
			var have perstack.Job
			if err := json.Unmarshal(isThere(t, filepath.Join(perstack.GetJobDir(id), "job.json")), &have); err != nil || have.ID != id {
				t.Errorf("%q: got %+v, error %v", id, have, err)
			}
			c := checkpoint(id, "r/"+id, "c/"+id, 1, messages(0, 2))
			must(t, perstack.DefaultStoreCheckpoint(ctx, st, c))
			if !bytes.Contains(isThere(t, perstack.GetCheckpointPath(id, c.ID)), []byte(`"userMessage"`)) {
				t.Errorf("%q: the checkpoint has no messages", id)
			}
			must(t, perstack.StoreRunSetting(ctx, st, setting(id, c.RunID, "sk-key", 1), nil, nil))
			isThere(t, filepath.Join(perstack.DefaultGetRunDir(id, c.RunID), "run-setting.json"))
			must(t, perstack.DefaultStoreEvent(ctx, st, event(id, c.RunID, "e", "startRun", 7, 1)))
			if list := need(filepath.Glob(filepath.Join(filepath.Clean(perstack.DefaultGetRunDir(id, c.RunID)), "event-7-1-startRun.json"))); len(list) != 1 {
				t.Errorf("%q: the files of the event are %v", id, list)
			}
		}
		want, r := layouttest.Exported(t, st, layout)
		layouttest.MustBeClean(t, r)
		layouttest.MustEqual(t, want, layouttest.ReadLive(t, folder))
	})
	t.Run("P-13 without an adapter the setting is in the store's tree, with one there and in its file", func(t *testing.T) {
		files, elsewhere := perstack.CreateDefaultFileSystem(), t.TempDir()
		must(t, perstack.StoreJob(ctx, st, perstack.CreateInitialJob("p13", "coder")))
		s := setting("p13", "r", "sk-key", 1)
		must(t, perstack.StoreRunSetting(ctx, st, s, nil, nil))
		own := filepath.Join(perstack.DefaultGetRunDir("p13", "r"), "run-setting.json")
		if have := isThere(t, own); !bytes.Equal(have, need(s.Raw())) {
			t.Errorf("the file is %s", have)
		}
		s = setting("p13", "r2", "sk-key", 1)
		must(t, perstack.StoreRunSetting(ctx, st, s, files, func(_, run string) string { return filepath.Join(elsewhere, run) }))
		for _, path := range []string{filepath.Join(elsewhere, "r2", "run-setting.json"), filepath.Join(perstack.DefaultGetRunDir("p13", "r2"), "run-setting.json")} {
			if have := isThere(t, path); !bytes.Equal(have, need(s.Raw())) {
				t.Errorf("the file %s is %s", path, have)
			}
		}
		had := records(t, st)
		must(t, perstack.StoreRunSetting(ctx, st, setting("p13", "r3", "k", 1), perstack.FileOnly(files), func(_, run string) string { return filepath.Join(elsewhere, run) }))
		if _, err := os.Lstat(perstack.DefaultGetRunDir("p13", "r3")); !errors.Is(err, fs.ErrNotExist) || records(t, st) != had {
			t.Errorf("the folder of a run without files exists, or the calls wrote records: %v", err)
		}
	})
	t.Run("P-13 what another program writes there is stored", func(t *testing.T) {
		path := filepath.Join(perstack.GetJobDir("plain"), "job.json")
		j := need(perstack.RetrieveJob(ctx, st, "plain"))
		j.Status, j.TotalSteps = perstack.JobCompleted, 9
		must(t, os.WriteFile(path, need(json.Marshal(j)), 0o600))
		must(t, st.KeepFiles(ctx, layout.Name(), folder)) // at once, without delay
		if have := need(perstack.RetrieveJob(ctx, st, "plain")); have.TotalSteps != 9 || have.Status != perstack.JobCompleted {
			t.Errorf("the job is %+v", have)
		}
	})
	t.Run("D-41 the files alone give equal jobs", func(t *testing.T) {
		other := need(st.In("alone"))
		need(layout.Import(ctx, other, filepath.Dir(folder), layouts.ImportOptions{}))
		if have, want := need(perstack.GetAllJobs(ctx, other)), need(perstack.GetAllJobs(ctx, st)); !reflect.DeepEqual(have, want) {
			t.Errorf("the jobs are %+v, want %+v", have, want)
		}
		for _, j := range need(perstack.GetAllJobs(ctx, st)) {
			// The comparison ignores the mark of an import's own threads.
			have, want := need(other.Session("job/"+j.ID).Load(ctx, "")), need(st.Session("job/"+j.ID).Load(ctx, ""))
			for name := range want.Threads {
				have.Threads[name].Meta = want.Threads[name].Meta
			}
			if len(want.Threads) != len(have.Threads) || have.Threads.Hash() != want.Threads.Hash() {
				t.Errorf("%q: the threads are %v, want %v", j.ID, have.Threads, want.Threads)
			}
			if have, want := need(perstack.GetCheckpointsByJobID(ctx, other, j.ID)), need(perstack.GetCheckpointsByJobID(ctx, st, j.ID)); !reflect.DeepEqual(have, want) {
				t.Errorf("%q: the checkpoints are %+v, want %+v", j.ID, have, want)
			}
			if have, want := need(perstack.GetEventContents(ctx, other, j.ID, "r/"+j.ID)), need(perstack.GetEventContents(ctx, st, j.ID, "r/"+j.ID)); !reflect.DeepEqual(have, want) {
				t.Errorf("%q: the events are %+v, want %+v", j.ID, have, want)
			}
		}
		if have, want := need(perstack.GetAllRuns(ctx, other)), need(perstack.GetAllRuns(ctx, st)); len(have) != len(want) {
			t.Errorf("%d settings, want %d", len(have), len(want))
		}
	})
}
