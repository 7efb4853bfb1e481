//go:build linux

package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/errata"
)

// The effect of a panel call that returned survives a power cut, as TestPowerCut shows for appends by the command. And
// the test can fail: calls that return when their events are with the server, but not yet on disk, lose some.
func TestPanelPowerCut(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestPowerCut cuts the power; TestChangesWaitForTheDisk of stores/errata has the same promise")
	t.Parallel()
	needImages(t)
	cuts := 2
	if testkit.Soak() {
		cuts = 100
	}
	t.Run("E-47 what a call did when it returned is durable", func(t *testing.T) {
		d, acked := newDisk(t), make(map[said]bool)
		for i := range cuts {
			if lost := d.cutPanel(t, acked, cutScript{Round: i}); len(lost) > 0 {
				t.Fatalf("cut %d: %d of %d calls that returned are lost, such as %v", i, len(lost), len(acked), lost[0])
			}
		}
		t.Logf("%d cuts, %d calls returned", cuts, len(acked))
	})
	t.Run("buffered", func(t *testing.T) {
		for range 5 {
			d, acked := newDisk(t), make(map[said]bool)
			d.cutPanel(t, acked, cutScript{}) // creates the store
			if lost := d.cutPanel(t, acked, cutScript{Round: 1, Buffered: true}); len(lost) > 0 {
				t.Logf("caught: %d of %d calls that returned are lost", len(lost), len(acked))
				return
			}
		}
		t.Error("calls that do not wait for the disk lost nothing: this test cannot fail")
	})
}

// cutPanel makes panel calls until the power cut, soon after the creation of a store. It returns the calls that are
// lost although they had returned, at this cut or an earlier one.
func (d *cutDisk) cutPanel(t *testing.T, acked map[said]bool, c cutScript) (lost []said) {
	t.Helper()
	calls := 1 + testkit.Random(t).IntN(300)
	if len(acked) == 0 {
		calls = 1 + testkit.Random(t).IntN(30)
	}
	d.power(t, func(store string) {
		c.Store = store
		playCut(t, c, calls, acked)
	})
	dir, unmount := mount(t, d.image)
	defer unmount()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: filepath.Join(dir, "store"), Backend: "local"})
	if err != nil {
		t.Fatal(err)
	}
	found, err := foundCalls(t.Context(), st)
	if closeErr := st.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.Fatal(err)
	}
	for call := range acked {
		if !found[call] {
			lost = append(lost, call)
		}
	}
	return lost
}

// playCut starts a process that makes panel calls, and kills it when a number of further calls have returned.
func playCut(t *testing.T, c cutScript, calls int, acked map[said]bool) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := exec.CommandContext(t.Context(), os.Args[0])
	p.Env, p.Stderr = append(os.Environ(), cutPlay+"="+string(text)), os.Stderr
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := json.NewDecoder(out)
	for range calls {
		var call said
		if err := in.Decode(&call); err != nil {
			t.Fatalf("the process ended before the kill: %v", err)
		}
		acked[call] = true
	}
	p.Process.Kill()
	for { // the output before the kill
		var call said
		if in.Decode(&call) != nil {
			break
		}
		acked[call] = true
	}
	p.Wait()
}

// foundCalls returns the calls whose effects a store has.
func foundCalls(ctx context.Context, st *tally.Store) (map[said]bool, error) {
	s, found := errata.Of(st, "ses_cut"), make(map[said]bool)
	histories, err1 := s.Histories(ctx)
	for _, turn := range histories["m"] {
		found[said{"AppendHistories", turn.Content}] = true
	}
	rows, err2 := s.Runs(ctx)
	for _, row := range rows {
		sum := row.Summary
		found[said{"PersistRunState", sum.Run}] = true
		found[said{"UpdateLastRunNote", sum.Note}] = true
		found[said{"RecordSelection", sum.Run}] = found[said{"RecordSelection", sum.Run}] || sum.Selected == "m"
		found[said{"Rewind", sum.Run}] = row.IsMarker()
	}
	stack, err3 := s.RewindStack(ctx)
	for _, e := range stack {
		found[said{"PushRewindEntry", e.ID}] = true
	}
	costs, err4 := s.CostPerModel(ctx)
	for key := range costs {
		found[said{"AccumulateCost", key}] = true
	}
	prompts, err5 := errata.PromptsOf(st).List(ctx)
	for _, key := range prompts {
		found[said{"RecordPrompt", key}] = true
	}
	return found, errors.Join(err1, err2, err3, err4, err5)
}
