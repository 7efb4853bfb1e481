package program_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
)

// afterDamage are the questions for a store with a damaged file.
var afterDamage = []string{
	"ls -o json", "search plum", "show trip --all -o json", "show trip-fork", "log trip -o jsonl", "doc cat doc/a", "doc cat doc/b", "doc ls -o json", "doc log doc/a -o json", "cost -o json", "stats --by model",
	"runs trip -o json", "runs ses_1", "agent ls -o json", "inbox ls " + bob + " -o jsonl", "queue ls build -o jsonl --state done", "queue show build v3", "flow ls --all -o jsonl", "quota", "jobs -o json", "show history/chat",
}

// A damage is a change of a copy of a store that was stopped cleanly.
type damage struct {
	what   string
	file   string
	at     int  // first byte that may change
	length int  // length of the damaged part
	bare   bool // the copy also lacks snapshots and views
}

// drawn draws a damage: half of them in records of any kind, the others in files of any kind other than the log.
func (s *allStore) drawn(random *rand.Rand, round int, kinds [][]natsfile.Record, files []string) damage {
	if round%2 == 1 {
		name := files[random.IntN(len(files))]
		return damage{what: name, file: name}
	}
	kind := kinds[random.IntN(len(kinds))]
	r := kind[random.IntN(len(kind))]
	return damage{what: fmt.Sprintf("@%d (%s)", r.Seq, s.types[events.Offset(r.Seq)]), file: s.path, at: r.Begin, length: r.End - r.Begin, bare: random.IntN(2) == 1}
}

// do flips up to 24 bits in four bytes.
func (d *damage) do(t *testing.T, dir string, random *rand.Rand) {
	t.Helper()
	flip(t, filepath.Join(dir, d.file), func(data []byte) {
		if d.length == 0 {
			d.length = len(data)
		}
		at, bits := random.IntN(d.length), 1+random.IntN(24)
		for range bits {
			data[d.at+min(at+random.IntN(4), d.length-1)] ^= 1 << random.IntN(8)
		}
		d.what += fmt.Sprintf(", byte %d of %d, %d flips", at, d.length, bits)
	})
	if d.bare {
		forget(t, dir)
	}
}

// Bits are flipped anywhere in a store that was stopped cleanly: in records, in the server's own files, in the
// program's own files. Every answer is the one before the damage, or an error that names the place.
func TestDamagedAnywhere(t *testing.T) {
	testkit.OnlyFull(t, "TestDamagedRecords plays B-02")
	testkit.Long(t)
	testkit.NotUnderRace(t)
	quietHome(t)
	t.Run("B-02 random damages over records and state files", func(t *testing.T) {
		rounds := 6
		switch {
		case testkit.Soak():
			rounds = 300
		case !testkit.Full():
			rounds = 2
		}
		s := newAllStore(t)
		list := afterDamages(t)
		ask := func(dir string) []answered {
			t.Setenv("TALLY_STORE", dir)
			all := make([]answered, 0, len(list))
			for _, q := range list[:len(afterDamage)] {
				all = append(all, q.ask(t.Context(), nil))
			}
			return append(all, answersOf(t, dir, list[len(afterDamage):])...)
		}
		before := map[bool][]answered{}
		for _, bare := range []bool{false, true} {
			dir := s.copy(t)
			if bare {
				forget(t, dir)
			}
			before[bare] = ask(dir)
		}
		kinds, files := s.kinds(), slices.DeleteFunc(filesOf(t, s.dir), func(name string) bool { return name == s.path })
		var sum tallied
		for round := range rounds {
			random := rand.New(rand.NewPCG(2, uint64(300+round)))
			dir, d := s.copy(t), s.drawn(random, round, kinds, files)
			d.do(t, dir, random)
			sum.damages++
			for i, now := range ask(dir) {
				was := before[d.bare][i]
				if fault := sum.judge(list[i], was, now, isPlace.MatchString); fault != "" {
					t.Errorf("round %d, %s: %s: %s\n   before: %.400s\n   now:    %.400s", round, d.what, list[i].name, fault, strings.ReplaceAll(was.String(), "\n", "⏎"), strings.ReplaceAll(now.String(), "\n", "⏎"))
				}
			}
			if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
				t.Error(err)
			}
		}
		t.Log(&sum)
	})
}

// afterDamages returns the questions for a damaged store: commands, and in a long campaign every call.
func afterDamages(t *testing.T) (list []question) {
	t.Helper()
	for _, line := range afterDamage {
		list = append(list, command(line, false))
	}
	if !testkit.Soak() {
		return list
	}
	probe, err := embedded.Open(t.Context(), embedded.Options{Backend: "memory"})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	return append(list, slices.DeleteFunc(questions(probe), func(q question) bool { return q.commands })...)
}

// kinds groups the records by the kinds of their subjects and their types.
func (s *allStore) kinds() (list [][]natsfile.Record) {
	by := make(map[string][]natsfile.Record)
	for _, r := range s.records {
		typ := s.types[events.Offset(r.Seq)]
		by[typ] = append(by[typ], r)
	}
	for _, typ := range slices.Sorted(maps.Keys(by)) {
		list = append(list, by[typ])
	}
	return list
}

// isPlace matches an offset or a file in a text.
var isPlace = regexp.MustCompile(`@\d+|\.json|\.db|\.blk|meta\.inf|\bmark\b|watermark`)

// filesOf lists the files of a store that are not empty.
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
