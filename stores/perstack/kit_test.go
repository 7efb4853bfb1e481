package perstack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// need returns the value of a call that must succeed.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// message returns the n-th message of a user.
func message(n int) events.Raw {
	return events.Raw(fmt.Sprintf(`{"id":"m%d","type":"userMessage","contents":[{"id":"p%d","type":"textPart","text":"%s"}]}`, n, n, strings.Repeat("<é>", 20)))
}

func messages(from, to int) []events.Raw {
	list := []events.Raw{}
	for n := from; n < to; n++ {
		list = append(list, message(n))
	}
	return list
}

var expert = perstack.Expert{Key: "coder@1", Name: "coder", Version: "1"}

func checkpoint(job, run, id string, step int64, list []events.Raw) perstack.Checkpoint {
	return perstack.Checkpoint{ID: id, JobID: job, RunID: run, Status: perstack.CheckpointProceeding, StepNumber: step, Messages: list, Expert: expert}
}

func event(job, run, id, typ string, timestamp, step int64, payload ...events.Field) perstack.Event {
	return perstack.Event{Type: typ, ID: id, ExpertKey: "coder@1", Timestamp: timestamp, JobID: job, RunID: run, StepNumber: step, Payload: payload}
}

// ending returns an event that ends a step, with its usage.
func ending(job, run, id string, step, tokens int64) perstack.Event {
	used := fmt.Sprintf(`{"usage":{"inputTokens":%d,"outputTokens":2,"reasoningTokens":1,"totalTokens":%d,"cachedInputTokens":1}}`, tokens, tokens+2)
	return event(job, run, id, "continueToNextStep", 1000+step, step, events.Field{Name: "step", Value: events.Raw(used)})
}

func setting(job, run, key string, at int64) perstack.RunSetting {
	return perstack.RunSetting{Model: "claude-sonnet-4-5", ProviderConfig: events.Raw(`{"providerName":"anthropic","apiKey":"` + key + `"}`), JobID: job, RunID: run, ExpertKey: "coder@1",
		Input: events.Raw(`{"text":"hello"}`), Experts: events.Fields{}, StartedAt: at, UpdatedAt: at}
}

// withKey configures a key for secrets.
func withKey(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(path, []byte("k1:"+"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"+"\n"), 0o600))
	t.Setenv("TALLY_SECRET_KEY_FILE", path)
}

// records counts the records of a store.
func records(t *testing.T, st *tally.Store) (n int) {
	t.Helper()
	for _, err := range st.Log.Read(t.Context(), events.Range{}) {
		must(t, err)
		n++
	}
	return n
}

// logAny allows appends of other programs to a job's session.
var logAny = log.Any
