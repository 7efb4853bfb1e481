package perstackdir_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// An oracleResult is the result of an original's function. Without a value and an error, the result is undefined.
type oracleResult struct {
	Value json.RawMessage
	Error *struct{ Kind, Message string } // Kind is not-found, missing, json, schema or io
}

// An oracleRun has the functions' results for a run.
type oracleRun struct {
	RunID            string
	GetEventsByRun   struct{ Module, Class oracleResult }
	GetEventContents []struct {
		MaxStep *float64 // nil: all steps
		oracleResult
	}
}

// An oracleJob has the functions' results for a job, its checkpoints and runs.
type oracleJob struct {
	JobID                              string
	RetrieveJob, GetCheckpointsByJobID oracleResult
	Checkpoints                        []struct {
		CheckpointID              string
		DefaultRetrieveCheckpoint oracleResult
	}
	Runs []oracleRun
}

// An oracleFolder has the functions' results for a folder.
type oracleFolder struct {
	GetAllJobs, GetAllRuns oracleResult
	Jobs                   []oracleJob
	Missing                oracleJob // results for a missing job
}

// oracle runs a program that behaves as the original. testdata/oracle/cli.mjs describes its arguments.
func oracle(t testing.TB, stdin io.Reader, args ...string) []byte {
	t.Helper()
	return testkit.Node(t, stdin, append([]string{"testdata/oracle/cli.mjs"}, args...)...)
}

// oracleReads returns the original's results for a folder with perstack/jobs in it.
func oracleReads(t testing.TB, dir string) oracleFolder {
	t.Helper()
	var all oracleFolder
	dec := json.NewDecoder(bytes.NewReader(oracle(t, nil, "read", dir)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// The oracle follows the description of the original, and this test parses its output correctly.
func TestOracle(t *testing.T) {
	testkit.NotUnderRace(t)
	t.Run("as described", func(t *testing.T) {
		testkit.OnlyFull(t, "TestOracleRoundTrip compares with the oracle")
		testkit.Node(t, nil, "--test", "testdata/oracle/oracle.test.mjs")
	})
	t.Run("as read", func(t *testing.T) {
		dir := t.TempDir()
		oracle(t, nil, "generate", "1", "14", dir)
		got := oracleReads(t, dir)
		kinds := make(map[string]int)
		for _, j := range got.Jobs {
			for _, c := range j.Checkpoints {
				if err := c.DefaultRetrieveCheckpoint.Error; err != nil {
					kinds[err.Kind]++
				}
			}
			for _, r := range j.Runs {
				if r.GetEventsByRun.Class.Value == nil || r.GetEventContents[0].MaxStep != nil || r.GetEventContents[1].MaxStep == nil {
					t.Errorf("run %q of job %q is %+v", r.RunID, j.JobID, r)
				}
			}
		}
		if kinds["json"] == 0 || kinds["schema"] == 0 || len(got.Jobs) < 14 || got.GetAllJobs.Value == nil || got.GetAllRuns.Value == nil {
			t.Errorf("got %d jobs and the errors %v", len(got.Jobs), kinds)
		}
		if err := got.Missing.Checkpoints[0].DefaultRetrieveCheckpoint.Error; err == nil || err.Kind != "not-found" || got.Missing.RetrieveJob.Value != nil {
			t.Errorf("the results for a missing job are %+v", got.Missing)
		}
	})
}
