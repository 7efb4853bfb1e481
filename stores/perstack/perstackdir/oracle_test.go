package perstackdir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/internal/formattest"
)

// oracleJobs is how many jobs the original's double writes.
func oracleJobs() string {
	if os.Getenv("TALLY_SOAK") != "" {
		return "1000"
	}
	return strconv.Itoa(testkit.Times(100))
}

// B2, P-39: what Node writes goes in and comes out byte for byte, damaged and foreign files
// with it, and Node reads what came out as it reads what it wrote.
func TestOracleRoundTrip(t *testing.T) {
	for seed, odd := range map[string][]string{"1": nil, "2": {"--unclear"}, "3": {"--unclear", "--collide"}} {
		t.Run("B2 seed "+seed, func(t *testing.T) {
			t.Parallel()
			wrote, out, st := t.TempDir(), t.TempDir(), openStore(t)
			oracle(t, nil, append([]string{"generate", seed, oracleJobs(), wrote}, odd...)...)
			files := formattest.ReadTree(t, wrote)
			r := mustImport(t, st, wrote)
			mustHideCanaries(t, st)
			formattest.MustExport(t, st, keyed(t), filepath.Join(out, "perstack"), formats.ExportOptions{})
			formattest.MustEqual(t, files, formattest.ReadTree(t, out))
			if want, have := oracle(t, nil, "read", wrote), oracle(t, nil, "read", out); !bytes.Equal(want, have) {
				t.Errorf("Node reads %d bytes of what came out, %d of what went in", len(have), len(want))
			}
			if again := mustImport(t, st, wrote); again.Events != 0 || len(again.Problems) != len(r.Problems) {
				t.Errorf("a second import: %d events, %d problems, want %d", again.Events, len(again.Problems), len(r.Problems))
			}
			t.Logf("%d jobs, %d files, %d whole, %d problems", r.Sessions, len(files), r.Files.Whole, len(r.Problems))
		})
	}
}

// What the original's functions write is rendered from the records, all of it.
func TestOracleWrites(t *testing.T) {
	wrote, st := t.TempDir(), openStore(t)
	oracle(t, bytes.NewReader(oracle(t, nil, "calls", "7", "20")), "write", wrote)
	files := formattest.ReadTree(t, wrote)
	r := mustBeClean(t, st, wrote)
	if r.Files.Whole != 0 || r.Files.Exact != len(files) || len(r.Notes) > 0 {
		t.Errorf("%+v", r)
	}
	out := t.TempDir()
	formattest.MustExport(t, st, keyed(t), filepath.Join(out, "perstack"), formats.ExportOptions{})
	formattest.MustEqual(t, files, formattest.ReadTree(t, out))
}
