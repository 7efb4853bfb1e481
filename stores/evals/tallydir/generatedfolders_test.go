package tallydir_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/gentree"
)

// Any folder is exported byte for byte, and a second import adds nothing.
func TestOddFolders(t *testing.T) {
	testkit.NotUnderRace(t)
	for seed := range testkit.Times(1000) {
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
				t.Errorf("the import refused %v", r.Refused)
			}
			got := exported(t, st)
			mustEqual(t, want, got)
			if r.Files.Total() != len(want) {
				t.Errorf("the report counts %d files, want %d", r.Files.Total(), len(want))
			}
			if again := mustImport(t, st, dir); again.Events != 0 || len(again.Problems) != len(r.Problems) {
				t.Errorf("a second import added %d events and reported %d problems, want %d", again.Events, len(again.Problems), len(r.Problems))
			}
			if t.Failed() {
				for _, p := range r.Problems {
					t.Log(p)
				}
			}
		})
	}
}

// An export is more than content: each file has its mode, and there are no other files. It is made from the records,
// so a member that differs in the log changes the file.
func TestExportedFolders(t *testing.T) {
	t.Run("T-27 files come out of the records, with their modes", func(t *testing.T) {
		for seed := range 12 {
			dir, random := filepath.Join(t.TempDir(), "p"), rand.New(rand.NewPCG(uint64(seed), 27))
			if _, err := gentree.Write(dir, gentree.Options{Seed: uint64(seed), Sessions: 2, Turns: 4, TurnBytes: 100, Odd: seed%2 == 1}); err != nil {
				t.Fatal(err)
			}
			want := readTree(t, dir)
			for name := range want {
				if err := os.Chmod(filepath.Join(dir, name), []os.FileMode{0o644, 0o600, 0o755}[random.IntN(3)]); err != nil {
					t.Fatal(err)
				}
			}
			st, out := openStore(t), t.TempDir()
			r := mustImport(t, st, dir)
			mustExport(t, st, out, layouts.ExportOptions{Root: r.Root})
			mustEqual(t, want, readTree(t, out))
			for name := range want {
				a, err := os.Stat(filepath.Join(dir, name))
				b, other := os.Stat(filepath.Join(out, name))
				if err != nil || other != nil || a.Mode() != b.Mode() {
					t.Errorf("seed %d: %s has mode %v, want %v; errors %v, %v", seed, name, b.Mode(), a.Mode(), err, other)
				}
			}
			kept := 0
			for _, err := range st.Subjects(t.Context(), events.KindFile) {
				if err != nil {
					t.Fatal(err)
				}
				kept++
			}
			if kept != r.Files.Whole || seed%2 == 0 && kept > 0 {
				t.Errorf("seed %d: %d files are kept whole, but the report has %d", seed, kept, r.Files.Whole)
			}
		}
	})
}
