//go:build linux

package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// After a power cut while batches of three subjects are appended, no batch is stored in part, and no acknowledged
// batch is lost. And the test can fail: appending the parts one after the other leaves partial batches.
func TestPowerCutOfUnits(t *testing.T) {
	testkit.OnlyFull(t, "TestPowerCut cuts the power")
	t.Parallel()
	needImages(t)
	t.Run("product", func(t *testing.T) {
		cuts := 4 // one for each number of writers
		if testkit.Soak() {
			cuts = 300
		}
		d, units := newDisk(t), 0
		for i := range cuts {
			acked := make(map[string]bool)
			half, lost := d.cutUnits(t, i, false, acked)
			if half+lost > 0 {
				t.Fatalf("cut %d: got %d partial batches, and %d of %d acknowledged ones lost", i, half, lost, len(acked))
			}
			if units += len(acked); i%5 == 4 {
				d = newDisk(t)
			}
		}
		if units == 0 {
			t.Error("no acknowledgement: the test showed nothing")
		}
		t.Logf("%d cuts, %d batches", cuts, units)
	})
	t.Run("apart", func(t *testing.T) {
		for i := range 40 { // the moment of the cut is random
			if half, _ := newDisk(t).cutUnits(t, i, true, make(map[string]bool)); half > 0 {
				t.Logf("caught: %d partial batches", half)
				return
			}
		}
		t.Error("parts that were appended one by one left no partial batch: this test cannot fail")
	})
}

// cutUnits appends batches for a while, cuts the power, and checks the store.
func (d *cutDisk) cutUnits(t *testing.T, round int, apart bool, acked map[string]bool) (half, lost int) {
	t.Helper()
	d.power(t, func(store string) {
		p, out := startUnits(t, unitScript{Store: store, Round: time.Now().Format("150405.000000"), Writers: 1 + round%4, Apart: apart})
		in := json.NewDecoder(out)
		for n, most := 0, 1+testkit.Random(t).IntN(300); ; n++ {
			var id string
			if in.Decode(&id) != nil {
				break
			}
			acked[id] = true
			if n == most {
				p.Process.Kill()
			}
		}
		p.Wait()
	})
	dir, unmount := mount(t, d.image)
	defer unmount()
	return halves(t, filepath.Join(dir, "store"), events.KindSession, 3, acked)
}
