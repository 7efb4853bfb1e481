package perstackdir_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
)

// oracleJobs is how many jobs the oracle writes, each four times.
func oracleJobs() string {
	if testkit.Soak() {
		return "250"
	}
	return "10"
}

// B2, P-39: a folder that Node writes is imported and exported byte for byte, with damaged and unknown files, and Node
// reads both folders the same.
func TestOracleRoundTrip(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // half of it runs in Node, the rest in one goroutine
	for seed, odd := range map[string][]string{"1": nil, "2": {"--unclear"}, "3": {"--unclear", "--collide"}} {
		t.Run("B2 seed "+seed, func(t *testing.T) {
			if len(odd) < 2 {
				testkit.OnlyFull(t, "the last seed has everything that the others have")
			}
			t.Parallel()
			wrote, out, st := t.TempDir(), t.TempDir(), openStore(t)
			oracle(t, nil, append([]string{"generate", seed, oracleJobs(), wrote}, odd...)...)
			files := layouttest.ReadTree(t, wrote)
			r := mustImport(t, st, wrote)
			mustHideKeys(t, st, files)
			layouttest.MustExport(t, st, keyed(t), filepath.Join(out, "perstack"), layouts.ExportOptions{})
			layouttest.MustEqual(t, files, layouttest.ReadTree(t, out))
			if want, have := oracle(t, nil, "read", wrote), oracle(t, nil, "read", out); !bytes.Equal(want, have) {
				t.Errorf("Node's reading of the exported folder has %d bytes, of the imported one %d", len(have), len(want))
			}
			if again := mustImport(t, st, wrote); again.Events != 0 || len(again.Problems) != len(r.Problems) {
				t.Errorf("a second import added %d events and reported %d problems, want %d", again.Events, len(again.Problems), len(r.Problems))
			}
			t.Logf("%d jobs, %d files, %d whole, %d problems", r.Sessions, len(files), r.Files.Whole, len(r.Problems))
		})
	}
}

// mustHideKeys checks that no record has a key from the settings of a folder.
func mustHideKeys(t *testing.T, st store, files map[string]string) {
	t.Helper()
	keys := make(map[string]bool)
	key := regexp.MustCompile(`sk-[a-z0-9]{20,}`)
	for name, data := range files {
		if strings.HasSuffix(name, "run-setting.json") {
			for _, k := range key.FindAllString(data, -1) {
				keys[k] = true
			}
		}
	}
	if len(keys) == 0 {
		t.Fatal("the folder has no keys")
	}
	for rec, err := range st.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range key.FindAllString(string(rec.Data), -1) {
			if keys[k] {
				t.Errorf("record %s %s contains a key", rec.Subject, rec.Type)
			}
		}
	}
}

// All files that the original's functions write are rendered from the records.
func TestOracleWrites(t *testing.T) {
	testkit.OnlyFull(t, "TestOracle compares with the original")
	testkit.NotUnderRace(t)
	wrote, st := t.TempDir(), openStore(t)
	oracle(t, bytes.NewReader(oracle(t, nil, "calls", "7", "20")), "write", wrote)
	files := layouttest.ReadTree(t, wrote)
	r := mustBeClean(t, st, wrote)
	if r.Files.Whole != 0 || r.Files.Exact != len(files) || len(r.Notes) > 0 {
		t.Errorf("the report is %+v", r)
	}
	out := t.TempDir()
	layouttest.MustExport(t, st, keyed(t), filepath.Join(out, "perstack"), layouts.ExportOptions{})
	layouttest.MustEqual(t, files, layouttest.ReadTree(t, out))
}

// call is a call of an original's function.
type call struct {
	Call string
	Args []events.Raw
	Now  int64
}

// B2, the other way: the same calls of the Go functions and of Node make the same folder, and Node reads both the same.
func TestOracleReadsGo(t *testing.T) {
	testkit.OnlyFull(t, "TestOracleRoundTrip has Node read an exported folder")
	testkit.Long(t)
	testkit.NotUnderRace(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("k:"+strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(sealed.Variable, keys)
	now := time.UnixMilli(1)
	clock := func() time.Time { return now }
	l := logtest.OpenOn(t, memlog.New(memlog.Config{Now: clock}), log.Config{Now: clock})
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	calls := oracle(t, nil, "calls", "11", oracleJobs())
	for line := range bytes.Lines(calls) {
		var c call
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if c.Now != 0 {
			now = time.UnixMilli(c.Now)
		}
		if err := perform(t.Context(), st, c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	byNode, byGo := t.TempDir(), t.TempDir()
	oracle(t, bytes.NewReader(calls), "write", byNode)
	layout := perstackdir.Layout{Keys: sealed.FromEnvironment}
	layouttest.MustExport(t, st, layout, filepath.Join(byGo, "perstack"), layouts.ExportOptions{})
	layouttest.MustEqual(t, layouttest.ReadTree(t, byNode), layouttest.ReadTree(t, byGo))
	if want, have := oracle(t, nil, "read", byNode), oracle(t, nil, "read", byGo); !bytes.Equal(want, have) {
		t.Errorf("Node's reading of Go's folder has %d bytes, of its own %d", len(have), len(want))
	}
	r, err := layout.Import(t.Context(), st, byNode, layouts.ImportOptions{})
	if err != nil || len(r.Problems) > 0 || r.Events != 0 {
		t.Errorf("Node's folder differs from the store: %+v, error %v", r, err)
	}
}

// perform makes a call.
func perform(ctx context.Context, st *tally.Store, c call) (err error) {
	var ids struct{ ID, JobID string }
	if err := json.Unmarshal(c.Args[0], &ids); err != nil {
		return err
	}
	switch c.Call {
	case "storeJob":
		_, err = perstack.JobOf(st, ids.ID).SaveRaw(ctx, c.Args[0])
	case "defaultStoreCheckpoint":
		_, err = perstack.JobOf(st, ids.JobID).SaveCheckpointRaw(ctx, c.Args[0])
	case "defaultStoreEvent":
		_, err = perstack.JobOf(st, ids.JobID).RecordRaw(ctx, c.Args[0])
	case "storeRunSetting":
		_, err = perstack.JobOf(st, ids.JobID).SaveSettingRaw(ctx, c.Args[0])
	default:
		err = errors.New("no such function")
	}
	return err
}
