package perstackdir_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit/layouttest"
)

// respelled returns a document with its members in another order, further members, and unusual spellings of text and
// numbers.
func respelled(t *testing.T, random *rand.Rand, text string, indented bool) string {
	t.Helper()
	members, err := rawjson.Object([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{"0", "1.0", "-0", "1e+2", `""`, `"\u00e9é<&>\/"`, "[]", "{}", "null", "false", `{"b":1,"a":[1.50]}`} {
		if random.IntN(3) == 0 {
			members = append(members, rawjson.Member{Name: fmt.Sprint("odd-", random.IntN(1000000)), Value: []byte(odd)})
		}
	}
	random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	raw, err := rawjson.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	if indented {
		return string(rawjson.AppendIndent(nil, raw, "  "))
	}
	return string(raw)
}

// A folder is exported byte for byte, with every file rendered from the records, and a second import adds nothing.
func TestRoundTrip(t *testing.T) {
	t.Run("P-20 byte for byte", func(t *testing.T) {
		st, files := openStore(t), small("a").files
		dir := folder(t, files)
		r := mustBeClean(t, st, dir)
		if r.Added != 1 || r.Files.Whole != 0 || r.Files.Exact != len(files) || r.Root != "proj" {
			t.Errorf("the report is %+v", r)
		}
		layouttest.MustEqual(t, files, exported(t, st))
		if again := mustBeClean(t, st, dir); again.Events != 0 || again.Unchanged != 1 {
			t.Errorf("the report of a second import is %+v", again)
		}
	})
	t.Run("P-20 of several jobs, with members in any order and of any value, with their modes", func(t *testing.T) {
		for seed := range 6 {
			st, files, random := openStore(t), make(map[string]string), rand.New(rand.NewPCG(uint64(seed), 20))
			for _, job := range []string{"a", "b", "c"} {
				maps.Copy(files, small(job).files)
			}
			for _, name := range slices.Sorted(maps.Keys(files)) {
				files[name] = respelled(t, random, files[name], strings.HasSuffix(name, "job.json"))
			}
			dir, out := folder(t, files), t.TempDir()
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if random.IntN(3) == 0 {
					if err := os.Chmod(filepath.Join(dir, filepath.FromSlash(name)), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			r := mustBeClean(t, st, dir)
			layouttest.MustExport(t, st, keyed(t), out, layouts.ExportOptions{Root: r.Root})
			layouttest.MustEqual(t, files, layouttest.ReadTree(t, out))
			for name := range files {
				a, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
				b, other := os.Stat(filepath.Join(out, filepath.FromSlash(name)))
				if err != nil || other != nil || a.Mode() != b.Mode() {
					t.Errorf("%s has mode %v, want %v; errors %v, %v", name, b.Mode(), a.Mode(), err, other)
				}
			}
			for info, err := range st.Subjects(t.Context(), events.KindFile) {
				t.Errorf("the file %v was kept whole, want it rendered; error %v", info.Subject, err)
			}
			if again := mustBeClean(t, st, dir); again.Events != 0 {
				t.Errorf("the report of a second import is %+v", again)
			}
		}
	})
}
