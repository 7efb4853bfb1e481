package program_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// afterDamage are asked of a store in which a file was damaged.
var afterDamage = []string{
	"ls -o json", "search plum", "show trip --all -o json", "show trip-fork", "log trip -o jsonl", "cat doc/a", "cat doc/b", "docs ls -o json", "docs history doc/a -o json", "cost -o json", "stats --by model",
	"runs trip -o json", "runs ses_1", "agents -o json", "inbox " + bob + " -o jsonl", "queue build -o jsonl --state done", "queue build v3", "flows --all -o jsonl", "quota", "jobs -o json", "show history/chat",
}

// Bits are flipped anywhere in a store that was stopped cleanly: in records, in what the server
// keeps of them, in what the program writes about itself. Every answer is the one before, or an
// error that names the place.
func TestDamagedAnywhere(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	quietHome(t)
	t.Run("B-02 random damages over records and state files", func(t *testing.T) {
		rounds := 6
		if testkit.Soak() {
			rounds = 300
		}
		s := newAllStore(t)
		ask := func(dir string) (list []answered) {
			t.Setenv("TALLY_STORE", dir)
			for _, line := range afterDamage {
				list = append(list, command(line, false).ask(t.Context(), nil))
			}
			return list
		}
		before := ask(s.copy(t))
		files, random := filesOf(t, s.dir), rand.New(rand.NewPCG(2, 300))
		equal, named, silent := 0, 0, 0
		for round := range rounds {
			dir, name := s.copy(t), files[random.IntN(len(files))]
			where := ""
			flip(t, filepath.Join(dir, name), func(data []byte) {
				at, bits := random.IntN(len(data)), 1+random.IntN(24)
				for range bits {
					data[min(at+random.IntN(4), len(data)-1)] ^= 1 << random.IntN(8)
				}
				where = fmt.Sprintf("round %d, %s, byte %d of %d, %d flips", round, name, at, len(data), bits)
			})
			for i, now := range ask(dir) {
				switch {
				case now.code == before[i].code && now.text == before[i].text:
					equal++
				case isPlace.MatchString(now.err+now.text) && now.code == 5:
					named++
				default:
					silent++
					t.Errorf("%s: %s\n   before: %.400s\n   now:    %.400s", where, afterDamage[i], strings.ReplaceAll(before[i].String(), "\n", "⏎"), strings.ReplaceAll(now.String(), "\n", "⏎"))
				}
			}
		}
		t.Logf("%d damages, %d answers: %d as before, %d errors with the place, %d silent", rounds, rounds*len(afterDamage), equal, named, silent)
	})
}

// isPlace finds a place in a text: an offset, or a file.
var isPlace = regexp.MustCompile(`@\d+|\.json|\.db|\.blk|meta\.inf|\bmark\b|watermark`)

// filesOf lists the files of a store that have something.
func filesOf(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			list = append(list, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
