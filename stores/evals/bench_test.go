package evals_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/snapshot"
	"github.com/tallylog/tally/stores/evals"
)

// longSteps returns the steps of a long conversation, of about 1 KiB each.
func longSteps(n int) []evals.Step {
	list := make([]evals.Step, n)
	for i := range list {
		list[i] = stepOf(i, fmt.Sprintf("turn %d %s", i, strings.Repeat("word ", 180)))
	}
	return list
}

// grownBy saves a conversation of n steps with one more step. It returns the appended bytes and the size of the step.
func grownBy(t testing.TB, st *tally.Store, n int) (appended, grown int) {
	c := evals.Of(st, fmt.Sprintf("grows-%d", n))
	list := longSteps(n + 1)
	mustStore(t, c, list[:n]...)
	d := mustContent(t, c)
	d.Steps = append(d.Steps, list[n])
	saved, err := c.Save(t.Context(), d)
	if err != nil || saved.New != 1 {
		t.Fatalf("got %+v, error %v", saved, err)
	}
	for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: c.Session().Subject(), After: saved.Ack.First - 1}) {
		if err != nil {
			t.Fatal(err)
		}
		appended += len(rec.Data)
	}
	return appended, len(list[n].Raw())
}

// A save costs only the new steps: the appended bytes are at most 1.2 times the new step, in a conversation of any
// length.
func TestSaveCostsWhatIsNew(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	for _, n := range []int{1, 10, 1000} {
		if appended, grown := grownBy(t, st, n); float64(appended) > 1.2*float64(grown) {
			t.Errorf("%d steps: %d bytes appended for a step of %d", n, appended, grown)
		}
	}
}

func BenchmarkSaveGrown(b *testing.B) {
	st := benchStore(b)
	c := evals.Of(st, "c1")
	list := longSteps(1000)
	mustStore(b, c, list...)
	warm(b, st, c)
	d := mustContent(b, c)
	appended, grown := grownBy(b, st, 1000)
	i := 1000
	for b.Loop() {
		d.Steps = append(d.Steps, stepOf(i, "one more"))
		i++
		if _, err := c.Save(b.Context(), d); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(appended)/float64(grown), "bytes-appended/new-byte")
}

// BenchmarkLoad loads a conversation of 1,000 steps from a store with a snapshot of it, and decodes the same file
// with encoding/json in the same run.
func BenchmarkLoad(b *testing.B) {
	st := benchStore(b)
	c := evals.Of(st, "c1")
	mustStore(b, c, longSteps(1000)...)
	warm(b, st, c)
	file := need(evals.Encode(mustContent(b, c)))
	b.SetBytes(int64(len(file)))
	var ours, theirs time.Duration
	for b.Loop() {
		began := time.Now()
		if d := mustContent(b, c); len(d.Steps) != 1000 {
			b.Fatal(len(d.Steps))
		}
		ours += time.Since(began)
		began = time.Now()
		if n := decodeLines(b, file); n != 1000 {
			b.Fatal(n)
		}
		theirs += time.Since(began)
	}
	b.ReportMetric(float64(ours)/float64(theirs), "times-encoding/json")
}

func decodeLines(b *testing.B, file []byte) int {
	var list []map[string]any
	for line := range bytes.Lines(file) {
		var v map[string]any
		if err := json.Unmarshal(line, &v); err != nil {
			b.Fatal(err)
		}
		list = append(list, v)
	}
	return len(list)
}

func BenchmarkAppend(b *testing.B) {
	st := benchStore(b)
	c := evals.Of(st, "c1")
	mustStore(b, c, longSteps(1000)...)
	i := 0
	for b.Loop() {
		if _, err := c.Append(b.Context(), stepOf(i, "one more")); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func benchStore(b *testing.B) *tally.Store {
	b.Helper()
	l, err := log.OpenOn(b.Context(), memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		b.Fatal(err)
	}
	st, err := tally.Open(b.Context(), l, tally.Config{Snapshots: &snapshot.Mem{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	return st
}

// warm stores a snapshot of a conversation, as the snapshotter of a store does.
func warm(b *testing.B, st *tally.Store, c *evals.Conversation) {
	b.Helper()
	if _, err := st.Loader().Keep(b.Context(), c.Session().Subject(), 0, ""); err != nil {
		b.Fatal(err)
	}
}
