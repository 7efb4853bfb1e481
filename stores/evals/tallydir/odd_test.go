package tallydir_test

import (
	"fmt"
	"testing"

	"github.com/tallylog/tally/internal/gentree"
	"github.com/tallylog/tally/internal/testkit"
)

// Whatever stands in a folder comes out byte for byte, and a second import finds
// nothing to do.
func TestOddFolders(t *testing.T) {
	testkit.NotUnderRace(t)
	for seed := range 1000 {
		t.Run(fmt.Sprint("T-27/seed=", seed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := gentree.Write(dir, gentree.Options{Seed: uint64(seed), Sessions: 1 + seed%2, Turns: 4, TurnBytes: 100, Odd: true}); err != nil {
				t.Fatal(err)
			}
			want := readTree(t, dir)
			st := openStore(t)
			r := mustImport(t, st, dir)
			if len(r.Refused) > 0 {
				t.Errorf("refused: %v", r.Refused)
			}
			got := exported(t, st)
			mustEqual(t, want, got)
			if r.Files.Total() != len(want) {
				t.Errorf("%d files counted, there are %d", r.Files.Total(), len(want))
			}
			if again := mustImport(t, st, dir); again.Events != 0 || len(again.Problems) != len(r.Problems) {
				t.Errorf("a second import added %d events; %d problems, at first %d", again.Events, len(again.Problems), len(r.Problems))
			}
			if t.Failed() {
				for _, p := range r.Problems {
					t.Log(p)
				}
			}
		})
	}
}
