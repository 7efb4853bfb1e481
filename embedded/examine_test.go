package embedded

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/minio/highwayhash"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
)

// madeRecord returns a record of a block as the server writes it.
func madeRecord(stream string, block int, seq uint64, subject, payload string) []byte {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, block))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(4+8+8+2+len(subject)+len(payload)+8))
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, 1_700_000_000)
	h.Write(b[4:])
	b = binary.LittleEndian.AppendUint16(b, uint16(len(subject)))
	b = append(append(b, subject...), payload...)
	h.Write([]byte(subject + payload))
	return h.Sum(b)
}

// madeBlocks is a stream of small blocks, with the bytes of each record.
type madeBlocks struct {
	dir, stream   string
	first, behind events.Offset // behind is the offset after the last one
	numbers       []int
	records       map[int][][]byte // by block
}

func makeBlocks(t *testing.T, random *rand.Rand, dir string) *madeBlocks {
	m := &madeBlocks{dir: dir, stream: "TALLY_1", first: events.Offset(1 + 50*random.IntN(2)), records: make(map[int][][]byte)}
	at := m.first
	for number := 1 + random.IntN(3); len(m.numbers) < 1+random.IntN(4); number++ {
		m.numbers = append(m.numbers, number)
		for range 1 + random.IntN(5) {
			sub := events.Session("", fmt.Sprint("s", random.IntN(3)))
			m.records[number] = append(m.records[number], madeRecord(m.stream, number, uint64(at), sub.NATS(), fmt.Sprintf("%0*d", 1+random.IntN(40), at)))
			at++
		}
	}
	m.behind = at
	meta, err := json.Marshal(map[string]any{"first_seq": m.first})
	if err == nil {
		err = errors.Join(os.MkdirAll(natsfile.Messages(dir, m.stream), 0o700), os.MkdirAll(storedir.DamagedDir(dir), 0o700),
			os.WriteFile(filepath.Join(natsfile.Streams(dir), m.stream, natsfile.MetaFile), meta, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sizes describes the blocks: number and records of each.
func (m *madeBlocks) sizes() (list []string) {
	for _, number := range m.numbers {
		list = append(list, fmt.Sprintf("%d:%d", number, len(m.records[number])))
	}
	return list
}

// damage smears, removes or cuts some records.
func (m *madeBlocks) damage(random *rand.Rand) (what string) {
	for range 1 + random.IntN(3) {
		number := m.numbers[random.IntN(len(m.numbers))]
		list := m.records[number]
		i := random.IntN(len(list))
		switch random.IntN(8) {
		case 0: // the server has discarded the end of the block
			what += fmt.Sprintf(" discard %d from %d", number, i)
			for n := max(i, 1); n < len(list); n++ {
				list[n] = nil
			}
		case 1: // the process died, or the disk lost the end
			if number == m.numbers[len(m.numbers)-1] && len(list[len(list)-1]) > 0 {
				last := list[len(list)-1]
				what += fmt.Sprintf(" cut %d", number)
				list[len(list)-1] = last[:random.IntN(len(last))]
			}
		default:
			what += fmt.Sprintf(" smear %d of %d", i, number)
			from := random.IntN(len(list[i]) + 1)
			for n := from; n < min(from+1+random.IntN(12), len(list[i])); n++ {
				list[i][n] ^= byte(1 + random.IntN(255))
			}
		}
	}
	return what
}

// write writes the blocks, and an index that is older than them or not.
func (m *madeBlocks) write(t *testing.T, isIndexed bool) {
	t.Helper()
	when := time.Unix(1_700_000_000, 0)
	index := when.Add(-time.Hour)
	if isIndexed {
		index = when
	}
	msgs := natsfile.Messages(m.dir, m.stream)
	err := errors.Join(os.WriteFile(filepath.Join(msgs, natsfile.IndexFile), nil, 0o600), os.Chtimes(filepath.Join(msgs, natsfile.IndexFile), index, index))
	for _, number := range m.numbers {
		path := natsfile.Path(msgs, number)
		err = errors.Join(err, os.WriteFile(path, slices.Concat(m.records[number]...), 0o600), os.Chtimes(path, when, when))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readable returns the offsets that the server returns from the blocks. If it reads them without its index, it discards
// a block from its first damaged record on. An index is of no use if the last record is damaged.
func (m *madeBlocks) readable(t *testing.T) map[events.Offset]bool {
	t.Helper()
	msgs := natsfile.Messages(m.dir, m.stream)
	n, err := natsfile.Unindexed(m.dir, m.stream)
	_, gone := os.Stat(filepath.Join(msgs, natsfile.IndexFile))
	reads := n > 0 || gone != nil
	there := make(map[events.Offset]bool)
	for _, number := range slices.Backward(m.numbers) {
		data, readErr := os.ReadFile(natsfile.Path(msgs, number))
		if err = errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		records, gaps := natsfile.Scan(m.stream, number, data)
		if n := len(gaps); number == m.numbers[len(m.numbers)-1] && n > 0 && gaps[n-1].End == len(data) {
			reads = true
		}
		for _, r := range records {
			if !reads || len(gaps) == 0 || r.Begin < gaps[0].Begin {
				there[events.Offset(r.Seq)] = true
			}
		}
	}
	return there
}

// After an examination each acknowledged record can be read or is named as lost, never both, and no offset that a
// record ever had is given to another one. So it is however many places are damaged, and wherever they are.
func TestDamagedNeighbours(t *testing.T) {
	play := func(t *testing.T, random *rand.Rand, dir string) {
		m := makeBlocks(t, random, dir)
		what, isIndexed := m.damage(random), random.IntN(2) == 0
		m.write(t, isIndexed)
		before := m.readable(t)
		x := &examination{dir: dir, durable: m.behind - 1, sameBoot: random.IntN(2) == 0, vouched: make(map[string]bool),
			prove: func() error { return nil }, store: func() error { return nil }, close: func() error { return nil }}
		if random.IntN(2) == 0 {
			x.durable = m.first + events.Offset(random.IntN(int(m.behind-m.first)))
		}
		x.seen = x.durable
		where := fmt.Sprintf("records %v-%v in blocks %v, durable %v, indexed %v:%s", m.first, m.behind-1, m.sizes(), x.durable, isIndexed, what)
		err := x.examine(isIndexed, 1<<20)
		if _, ok := errors.AsType[*LayoutError](err); ok && len(before) == 0 {
			return // no record shows that the layout is known
		}
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		named, listed := make(map[events.Offset]bool), make(map[events.Offset]bool)
		for _, h := range x.lost {
			named[h.Offset], listed[h.Offset] = true, true
		}
		for _, at := range x.left { // the server reads these once more before they count as lost
			named[at] = true
		}
		there := m.readable(t)
		where += fmt.Sprintf("; lost %v, left %v", x.lost, x.left)
		last := events.Offset(0) // of those that are there or named: nameLost names the missing ones behind it
		for at := m.first; at < m.behind; at++ {
			if there[at] || named[at] {
				last = at
			}
		}
		for at := m.first; at < m.behind; at++ {
			switch {
			case there[at] && listed[at]:
				t.Errorf("%s: %v is named as lost, and can be read", where, at)
			case !there[at] && !named[at] && at <= min(x.durable, last):
				t.Errorf("%s: %v cannot be read, and is not named", where, at)
			case (there[at] || before[at] || listed[at]) && at > x.seen:
				t.Errorf("%s: %v would be given to another record: the highest offset is %v", where, at, x.seen)
			case before[at] && !there[at] && isIndexed && !named[at]:
				t.Errorf("%s: the examination lost %v", where, at)
			}
		}
		for at := range named {
			if at < m.first || at >= m.behind {
				t.Errorf("%s: %v is named as lost, and there never was such a record", where, at)
			}
		}
	}
	t.Run("net D1 each record is there or named", func(t *testing.T) {
		root := t.TempDir()
		for seed := range testkit.Times(400) {
			random := rand.New(rand.NewPCG(7, uint64(seed)))
			if play(t, random, filepath.Join(root, fmt.Sprint(seed))); t.Failed() {
				return
			}
		}
	})
}

// The subjects of damaged records are found in every stream, however many records are looked for at once.
func TestSubjectsOfDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	var lost []events.Offset
	for n := 1; n <= 3; n++ {
		m := &madeBlocks{dir: dir, stream: fmt.Sprint("TALLY_", n), numbers: []int{1}, records: make(map[int][][]byte)}
		for i := range 3 {
			m.records[1] = append(m.records[1], madeRecord(m.stream, 1, uint64(10*n+i), events.Session("", fmt.Sprint(n)).NATS(), "payload"))
		}
		m.records[1][1][50] ^= 1
		lost = append(lost, events.Offset(10*n+1))
		err := errors.Join(os.MkdirAll(natsfile.Messages(dir, m.stream), 0o700),
			os.WriteFile(filepath.Join(natsfile.Streams(dir), m.stream, natsfile.MetaFile), fmt.Appendf(nil, `{"first_seq":%d}`, 10*n), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		m.write(t, true)
	}
	found := subjectsAt(dir, lost)
	for i, at := range lost {
		if want := events.Session("", fmt.Sprint(i+1)).NATS(); found[at] != want {
			t.Errorf("the subject of %v is %q, want %q", at, found[at], want)
		}
	}
}

// A copy has the block with the last durable record, also if no record of the block is sound.
func TestImageOfADamagedLastBlock(t *testing.T) {
	dir := t.TempDir()
	m := &madeBlocks{dir: dir, stream: "TALLY_1", first: 1, behind: 4, numbers: []int{1, 2}, records: make(map[int][][]byte)}
	name := events.Session("", "s").NATS()
	m.records[1] = [][]byte{madeRecord(m.stream, 1, 1, name, "a"), madeRecord(m.stream, 1, 2, name, "b")}
	m.records[2] = [][]byte{madeRecord(m.stream, 2, 3, name, "c")}
	m.records[2][0][30] ^= 0xff
	stream, meta := filepath.Join(natsfile.Streams(dir), m.stream), []byte(`{"created":"2026-01-01T00:00:00Z","first_seq":1}`)
	err := errors.Join(os.MkdirAll(natsfile.Messages(dir, m.stream), 0o700), storedir.WriteMark(dir, storedir.Mark{Streams: []string{m.stream}}),
		os.WriteFile(filepath.Join(stream, natsfile.MetaFile), meta, 0o600),
		os.WriteFile(filepath.Join(stream, natsfile.SumFile), []byte(natsfile.Checksum(m.stream, meta)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, true)
	image, err := storedir.ImageOf(dir, func() (events.Offset, error) { return 3, nil })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(image.Files, func(f storedir.ImageFile) bool { return f.Path == natsfile.Path(natsfile.Messages(dir, m.stream), 2) }) {
		t.Errorf("the block is not among %d files", len(image.Files))
	}
}
