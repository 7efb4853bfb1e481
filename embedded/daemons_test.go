package embedded_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/daemon/runner"
	"github.com/tallylog/tally/internal/testkit"
)

// lookout is a daemon that reports when it looked.
type lookout struct{ looks chan int }

func (d *lookout) Name() string { return "lookout" }

func (d *lookout) Decide(ctx context.Context, _ daemon.Work, _ time.Time) (res daemon.Result, err error) {
	select {
	case d.looks <- 1:
	case <-ctx.Done():
	}
	res.Next = time.UnixMilli(math.MaxInt64) // as far away as a lease may last
	return res, nil
}

// The daemons of an owner run from open to close, also when another process appends, and report their results. Daemons
// of an attached or read-only process do not run.
func TestDaemonsOfTheOwner(t *testing.T) {
	dir := t.TempDir()
	d := &lookout{looks: make(chan int)}
	st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Daemons: func(*tally.Store) ([]daemon.Daemon, error) { return []daemon.Daemon{d}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	<-d.looks
	var called atomic.Int64
	other := embedded.Options{Store: dir, Daemons: func(*tally.Store) ([]daemon.Daemon, error) {
		called.Add(1)
		return nil, errors.New("not here")
	}}
	attached, err := embedded.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attached.Session("inbox/s").AppendTurns(t.Context(), events.MainThread, []byte(`"x"`)); err != nil {
		t.Fatal(err)
	}
	<-d.looks
	for begun := time.Now(); ; {
		if list, err := runner.StatusOf(dir); err == nil && len(list) == 1 && list[0].PID == os.Getpid() && list[0].Daemon == "lookout" && list[0].Waits == "a record or the time" && list[0].Next.IsZero() {
			break
		} else if time.Since(begun) > testkit.Patience(time.Minute) {
			t.Fatalf("got %+v, %v", list, err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(attached.Close(), st.Close()); err != nil {
		t.Error(err)
	}
	if list, err := runner.StatusOf(dir); len(list) > 0 || err != nil {
		t.Errorf("after close: got %+v, %v", list, err)
	}
	other.Still = true
	still, err := embedded.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	if err := still.Close(); err != nil || called.Load() > 0 {
		t.Errorf("got %v; the daemons of other processes ran %d times", err, called.Load())
	}
}

// Reports that another program or another version left in the folder are skipped.
func TestDaemonsOfAnybody(t *testing.T) {
	dir := t.TempDir()
	if list, err := runner.StatusOf(dir); len(list) > 0 || err != nil {
		t.Errorf("got %v, %v", list, err)
	}
	for name, text := range map[string]string{
		"1.json": "{", "2.json": `{"version":2,"daemons":[{"daemon":"x"}]}`, "x.json": `{"version":1,"daemons":[{"daemon":"x"}]}`, "3.json": `{"version":1,"daemons":[{"daemon":"mine","made":3}]}`,
	} {
		path := filepath.Join(dir, "daemons", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := runner.StatusOf(dir); len(list) != 1 || list[0].PID != 3 || list[0].Daemon != "mine" || list[0].Made != 3 || err != nil {
		t.Errorf("got %+v, %v", list, err)
	}
}
