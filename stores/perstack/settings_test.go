package perstack_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/perstack"
)

func paritySettings(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-11 the first setting counts, a later one moves its time", func(t *testing.T) {
		const canary = "sk-ant-canary-0123456789"
		first := setting("p11", "r", canary, 1000)
		must(t, perstack.StoreRunSetting(ctx, st, first, nil, nil))
		h := perstack.JobOf(st, "p11")
		if diff := cmp.Diff(first, need(h.Setting(ctx, "r"))); diff != "" {
			t.Error(diff)
		}
		later := setting("p11", "r", "other", 2000)
		later.Model = "other"
		must(t, perstack.StoreRunSetting(ctx, st, later, nil, nil))
		have := need(h.Setting(ctx, "r"))
		if have.UpdatedAt < 1700000000000 || have.StartedAt != 1000 {
			t.Errorf("UpdatedAt is %d", have.UpdatedAt)
		}
		have.UpdatedAt = 1000
		first.ReasoningBudget, first.MaxSteps, first.MaxRetries, first.Timeout = events.Raw(`"low"`), 100, 5, 300000 // defaults that the original adds when it writes the setting again
		if diff := cmp.Diff(first, have); diff != "" {
			t.Error(diff)
		}
		for rec, err := range st.Log.Read(ctx, events.Range{}) {
			must(t, err)
			if bytes.Contains(rec.Data, []byte("canary-0123")) {
				t.Errorf("the record %v has a secret", rec.Offset)
			}
		}
		if runs := need(h.Runs(ctx)); runs[0].Model != "claude-sonnet-4-5" || !runs[0].HasSetting {
			t.Errorf("the run is %+v", runs[0])
		}
	})
	t.Run("P-11 a setting with secrets and without a key is refused, and nothing is written", func(t *testing.T) {
		t.Setenv("TALLY_SECRET_KEY_FILE", "")
		had := records(t, st)
		if err := perstack.StoreRunSetting(ctx, st, setting("p11-none", "r", "sk-ant-canary-0123456789", 1), nil, nil); !errors.Is(err, perstack.ErrNoKey) {
			t.Errorf("got the error %v", err)
		}
		s := setting("p11-none", "r", "sk", 1)
		s.ProviderConfig = events.Raw(`{"providerName":"ollama"}`)
		s.ExpertKey = "sk-ant-REDACTED"
		var suspect *perstack.SuspectError
		if err := perstack.StoreRunSetting(ctx, st, s, nil, nil); !errors.As(err, &suspect) || strings.Contains(err.Error(), "canary") {
			t.Errorf("store a value that looks like a key: %v", err)
		}
		if n := records(t, st); n != had {
			t.Errorf("the refused calls wrote %d events", n-had)
		}
		s.ExpertKey = "coder"
		must(t, perstack.StoreRunSetting(ctx, st, s, nil, nil)) // a setting without secrets
		if _, err := perstack.JobOf(st, "p11").Setting(ctx, "r"); !errors.Is(err, perstack.ErrNoKey) {
			t.Errorf("read a sealed setting without a key: %v", err)
		}
		if list := need(perstack.GetAllRuns(ctx, st)); len(list) < 2 {
			t.Errorf("the list without a key has %d runs", len(list))
		}
	})
	t.Run("P-12 events may come before the setting", func(t *testing.T) {
		must(t, perstack.DefaultStoreEvent(ctx, st, event("p12", "r", "e", "startRun", 1, 1)))
		must(t, perstack.StoreRunSetting(ctx, st, setting("p12", "r", "k", 7), nil, nil))
		if have := need(perstack.JobOf(st, "p12").Setting(ctx, "r")); have.StartedAt != 7 {
			t.Errorf("the setting is %+v", have)
		}
	})
	t.Run("P-13 with an adapter the file is written and the event appended", func(t *testing.T) {
		dir := t.TempDir()
		files, dirOf := perstack.CreateDefaultFileSystem(), func(job, run string) string { return filepath.Join(dir, job+"_"+run) }
		s := setting("p13", "r", "sk-key", 100)
		must(t, perstack.StoreRunSetting(ctx, st, s, files, dirOf))
		path := filepath.Join(dir, "p13_r", "run-setting.json")
		if have := need(os.ReadFile(path)); !bytes.Equal(have, need(s.Raw())) {
			t.Errorf("the file is %s", have)
		}
		need(perstack.JobOf(st, "p13").Setting(ctx, "r"))
		had := records(t, st)
		s.Model = "ignored"
		must(t, perstack.StoreRunSetting(ctx, st, s, perstack.FileOnly(files), dirOf))
		have := need(perstack.ParseRunSetting(need(os.ReadFile(path))))
		if have.Model == "ignored" || have.UpdatedAt <= 100 || records(t, st) != had {
			t.Errorf("FileOnly: the setting is %+v, %d events were written", have, records(t, st)-had)
		}
		t.Chdir(t.TempDir())
		must(t, perstack.StoreRunSetting(ctx, st, setting("p13", "r2", "k", 1), perstack.FileOnly(files), nil))
		if _, err := os.Stat(filepath.Join(perstack.DefaultGetRunDir("p13", "r2"), "run-setting.json")); err != nil {
			t.Error(err)
		}
	})
	t.Run("P-14 runs of all jobs are listed, those that changed last first", func(t *testing.T) {
		const far = 4000000000000 // later than any change
		for i, job := range []string{"p14-a", "p14-b", "p14-a"} {
			s := setting(job, fmt.Sprint("r", i), "k", far+int64(i))
			s.ExpertKey = fmt.Sprint("p14-", i%2)
			must(t, perstack.StoreRunSetting(ctx, st, s, nil, nil))
		}
		var runs []string
		for _, s := range need(perstack.GetAllRuns(ctx, st))[:3] {
			runs = append(runs, s.JobID+" "+s.RunID)
		}
		if !slices.Equal(runs, []string{"p14-a r2", "p14-b r1", "p14-a r0"}) {
			t.Errorf("the runs are %v", runs)
		}

		// The start of a run, its name, its job and the order of storing do not matter.
		own := need(st.In("p14"))
		for i, updated := range []int64{40, 10, 50, 20, 30} {
			s := setting(fmt.Sprint("j", i%2), fmt.Sprint("r", 9-i), "k", far+updated)
			s.StartedAt = far - updated
			must(t, perstack.StoreRunSetting(ctx, own, s, nil, nil))
		}
		order := func(list []perstack.RunSetting) (ids string) {
			for _, s := range list {
				ids += s.JobID + " " + s.RunID + ", "
			}
			return ids
		}
		if have, want := order(need(perstack.GetAllRuns(ctx, own))), "j0 r7, j0 r9, j0 r5, j1 r6, j1 r8, "; have != want {
			t.Errorf("the settings are %s, want %s", have, want)
		}
		if have, want := order(need(perstack.JobOf(own, "j0").Settings(ctx))), "j0 r7, j0 r9, j0 r5, "; have != want {
			t.Errorf("the settings of one job are %s, want %s", have, want)
		}
	})
}
