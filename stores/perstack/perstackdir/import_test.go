package perstackdir_test

import (
	"testing"

	"github.com/tallylog/tally/stores/internal/formattest"
)

// A folder comes out byte for byte, every file of it rendered from the records, and a second
// import finds nothing to do.
func TestRoundTrip(t *testing.T) {
	t.Run("P-20 byte for byte", func(t *testing.T) {
		st, files := openStore(t), small("a").files
		dir := folder(t, files)
		r := mustBeClean(t, st, dir)
		if r.Added != 1 || r.Files.Whole != 0 || r.Files.Exact != len(files) || r.Root != "proj" {
			t.Errorf("%+v", r)
		}
		formattest.MustEqual(t, files, exported(t, st))
		if again := mustBeClean(t, st, dir); again.Events != 0 || again.Unchanged != 1 {
			t.Errorf("a second import: %+v", again)
		}
	})
}
