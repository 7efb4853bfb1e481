package embedded_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
)

// Damage loses at most the rest of its block. A single flipped bit in a block that the owner checks at its start loses
// nothing. Every reader gets a report of every missing offset, also after the next start, and no offset is assigned to
// another event. (The server alone drops acknowledged events silently and assigns their numbers to others.)
func TestDamage(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	t.Parallel()
	n := 4
	switch {
	case testkit.Soak():
		n = 500
	case !testkit.Full():
		n = 2
	}
	closed := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	killed := newImage(t, func(*embedded.Server) {})
	for name, image := range map[string]*storeImage{"closed": closed, "killed": killed} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, uint64(n)))
			flipped, smeared := 0, 0
			for i := 0; i < n || smeared == 0 && i < max(4*n, 16); i++ { // a smear may hit bytes of which the server has a copy
				flipped += image.damage(t, random, 1)
				smeared += image.damage(t, random, 40)
			}
			t.Logf("%d flipped bits cost %d records, %d smears %d", n, flipped, n, smeared)
			if flipped > 0 {
				t.Error("a flipped bit in a small store cost a record, although opening the store checks its block")
			}
			if smeared == 0 {
				t.Error("no record was lost: the test showed nothing")
			}
		})
	}
}

// If the end of a properly closed store is damaged, the lost offset is not assigned to another event.
func TestDamagedEnd(t *testing.T) {
	testkit.NotUnderRace(t)
	t.Parallel()
	im := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	blocks, err := filepath.Glob(filepath.Join(im.dir, "jetstream", "*", "streams", fmt.Sprint("TALLY_", len(segments(t, im.dir))), "msgs", "*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("got blocks %v, %v", blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	copy(data[len(data)-60:], "0123456789")
	rewriteInPlace(t, blocks[0], data)
	// The server wrote its index when it stopped. By its time, the file may be as old as the block.
	index := filepath.Join(filepath.Dir(blocks[0]), "index.db")
	if err := os.Chtimes(index, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := embedded.Start(t.Context(), smallSegments(im.dir))
		if err != nil {
			t.Fatal(err)
		}
		if damaged := im.check(t, s, fmt.Sprint("round ", round)); len(damaged) != 1 || !damaged[events.Offset(len(im.ids))] {
			t.Errorf("round %d: got lost records %v", round, damaged)
		}
		if ack := mustAppend(t, s.Log(), events.Session("", "new"), turn(fmt.Sprint("new-", round), "x")); int(ack.Last) <= len(im.ids) {
			t.Errorf("offset %v was assigned again", ack.Last)
		}
		mustClose(t, s)
	}
}

// In a store that was closed, damage to the frame of a record (its length or its sequence) costs only the records that
// it touches. The server alone would discard the rest of the block.
func TestDamagedFrame(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t)
	t.Parallel()
	every := 5 // bytes: a smear is as long, so that every byte is hit
	if testkit.Soak() {
		every = 1
	}
	closed := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	killed := newImage(t, func(*embedded.Server) {})
	for name, im := range map[string]*storeImage{"closed": closed, "killed": killed} {
		t.Run(name, func(t *testing.T) {
			if name == "killed" {
				testkit.OnlyFull(t, "the subtest of a closed store damages the same bytes")
			}
			random := rand.New(rand.NewPCG(6, 6))
			for i := 0; i < 24; i += every {
				dir := filepath.Join(t.TempDir(), "store")
				copyStore(t, dir, im.dir)
				stream := []int{1, len(segments(t, dir))}[i%2]
				blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", fmt.Sprint("TALLY_", stream), "msgs", "*.blk"))
				if err != nil || len(blocks) != 1 {
					t.Fatalf("got blocks %v, %v", blocks, err)
				}
				number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(blocks[0]), ".blk"))
				if err != nil {
					t.Fatal(err)
				}
				records, _ := natsfile.Scan(fmt.Sprint("TALLY_", stream), number, mustReadFile(t, blocks[0]))
				hit := records[1+random.IntN(len(records)-2)]
				at := int64(hit.Begin) - 3 + int64(i)
				smear(t, random, blocks[0], at, 40)
				lost := im.examine(t, dir, fmt.Sprintf("%s of TALLY_%d, byte %d of the record", filepath.Base(blocks[0]), stream, at-int64(hit.Begin)), true)
				if name == "closed" && (lost < 1 || lost > 2) {
					t.Errorf("5 bytes from byte %d of a record: got %d lost records", at-int64(hit.Begin), lost)
				}
			}
		})
	}
}

// storeImage is a copy of a store at one moment, with its records.
type storeImage struct {
	dir      string
	files    []string // files in which a bit may be flipped
	sizes    []int64
	total    int64
	ids      []string // of the events, by offset - 1
	subjects []events.Subject
}

// newImage fills a store of several segments, calls end, and copies the directory. If end does not stop the owner, the
// copy is as after a kill.
func newImage(t *testing.T, end func(*embedded.Server)) *storeImage {
	t.Helper()
	dir := t.TempDir()
	s := mustStart(t, smallSegments(dir))
	im := &storeImage{dir: filepath.Join(t.TempDir(), "image")}
	for n := 1; n <= 5; n++ { // a segment has room for fewer than 60
		im.ids = append(im.ids, fillSegments(t, s.Log(), len(im.ids), 60)...)
		eventually(t, func() error {
			if have := len(segments(t, dir)); have <= n {
				return fmt.Errorf("waiting for segment %d: there are %d", n+1, have)
			}
			return nil
		})
	}
	im.ids = append(im.ids, fillSegments(t, s.Log(), len(im.ids), 10)...)
	for i := range im.ids {
		im.subjects = append(im.subjects, events.Session("", fmt.Sprint("s", i%10)))
	}
	mustSettle(t, dir)
	end(s)
	copyStore(t, im.dir, dir)
	err := filepath.WalkDir(im.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "lock" || d.Name() == "owner.json" {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		rel, err := filepath.Rel(im.dir, path)
		im.files, im.sizes, im.total = append(im.files, rel), append(im.sizes, info.Size()), im.total+info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// copyStore copies a store with the times of its files, by which the server decides whether an index is current. If the
// store is in use and a file vanishes meanwhile, copyStore starts again.
func copyStore(t *testing.T, to, from string) {
	t.Helper()
	err := fs.ErrNotExist
	for try := 0; errors.Is(err, fs.ErrNotExist) && try < 20; try++ {
		time.Sleep(time.Duration(try) * 10 * time.Millisecond)
		if err = os.RemoveAll(to); err == nil {
			err = copyOnce(to, from)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyOnce(to, from string) error {
	err := os.CopyFS(to, os.DirFS(from))
	if err == nil {
		err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(from, path)
			return errors.Join(err, os.Chtimes(filepath.Join(to, rel), info.ModTime(), info.ModTime()))
		})
	}
	return err
}

// rewriteInPlace changes a file as a failing disk does: its times stay.
func rewriteInPlace(t testing.TB, path string, data []byte) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// damage flips one bit, or some of bits in a row, at a random place. It returns the number of records that this damages.
func (im *storeImage) damage(t *testing.T, random *rand.Rand, bits int) int {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	copyStore(t, dir, im.dir)
	defer os.RemoveAll(dir)
	at, i := random.Int64N(im.total), 0
	for ; at >= im.sizes[i]; i++ {
		at -= im.sizes[i]
	}
	path := filepath.Join(dir, im.files[i])
	smear(t, random, path, at, bits)
	return im.examine(t, dir, fmt.Sprintf("%s, byte %d of %d", im.files[i], at, im.sizes[i]), strings.HasSuffix(path, ".blk"))
}

// smear flips the first bit at an offset and some of the bits after it, within a number of bits.
func smear(t *testing.T, random *rand.Rand, path string, at int64, bits int) {
	t.Helper()
	data := mustReadFile(t, path)
	data[at] ^= 1 << random.IntN(8)
	for bit := 1; bit < bits; bit++ {
		data[min(at+int64(bit/8), int64(len(data))-1)] ^= byte(random.IntN(2)) << (bit % 8)
	}
	rewriteInPlace(t, path, data)
}

// examine opens a damaged store twice. It fails unless each missing record is reported each time, and returns their
// number.
func (im *storeImage) examine(t *testing.T, dir, where string, isBlock bool) int {
	t.Helper()
	var first map[events.Offset]bool
	for round := range 2 {
		s, err := embedded.Start(t.Context(), smallSegments(dir))
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		damaged := im.check(t, s, fmt.Sprintf("%s, round %d", where, round))
		if len(damaged) > 0 && !isBlock {
			t.Errorf("%s: got %d lost records, but no block is damaged", where, len(damaged))
		}
		if round == 0 {
			first = damaged
		} else if !maps.Equal(first, damaged) {
			t.Errorf("%s: got %d lost records, and then %d", where, len(first), len(damaged))
		}
		ack := mustAppend(t, s.Log(), events.Session("", "new"), turn(fmt.Sprint("new-", round), "x"))
		if int(ack.Last) <= len(im.ids) {
			t.Errorf("%s: offset %v was assigned again", where, ack.Last)
		}
		mustClose(t, s)
	}
	return len(first)
}

// check reads the log as a whole and by session, and fails if a missing record is not reported.
func (im *storeImage) check(t *testing.T, s *embedded.Server, where string) map[events.Offset]bool {
	t.Helper()
	have, damaged := im.read(t, s, events.Range{}, where)
	for i, id := range im.ids {
		at := events.Offset(i + 1)
		if have[at] != id && !damaged[at] {
			t.Errorf("%s: %v: got %q and no report, want %q", where, at, have[at], id)
		}
	}
	for _, sub := range im.sessions() {
		have, reported := im.read(t, s, events.Range{Subject: sub}, where)
		for i, id := range im.ids {
			at := events.Offset(i + 1)
			if im.subjects[i] == sub && have[at] != id && !reported[at] {
				t.Errorf("%s: a read of %s lacks %v without a report (%d reported)", where, sub.ID, at, len(damaged))
			}
		}
	}
	return damaged
}

// sessions lists the subjects, each once.
func (im *storeImage) sessions() []events.Subject {
	seen := make(map[events.Subject]bool)
	for _, s := range im.subjects {
		seen[s] = true
	}
	return slices.Collect(maps.Keys(seen))
}

func (im *storeImage) read(t *testing.T, s *embedded.Server, r events.Range, where string) (have map[events.Offset]string, damaged map[events.Offset]bool) {
	t.Helper()
	have, damaged = make(map[events.Offset]string), make(map[events.Offset]bool)
	for rec, err := range s.Log().Read(t.Context(), r) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			damaged[damage.Offset] = true
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		have[rec.Offset] = rec.ID
	}
	return have, damaged
}
