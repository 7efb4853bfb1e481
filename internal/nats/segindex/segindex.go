// Package segindex keeps an index file beside each full segment of the log: its subjects, with the first and last
// offset and the number of records of each, and a filter of its ids. A question about one subject then reads only the
// segments that hold it. The file is disposable: it can be made again from the segment, and is refused if a part that
// is read is damaged.
package segindex

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"sort"

	"github.com/tallylog/tally/internal/disk/durable"
)

// Segment identifies the segment of an index. An index of another segment, or of another state of the same one, is
// refused.
type Segment struct {
	Name        string // of the stream
	Made        int64  // when the stream was made, in nanoseconds since 1970
	First, Last uint64 // the possible offsets
}

// Entry describes one subject's records in a segment.
type Entry struct {
	First, Last uint64 // offsets
	Count       uint64 // of records that were readable when the index was made
}

// ErrDamaged reports that a file is not an index, is of another version, or is damaged.
var ErrDamaged = errors.New("the index of a segment is damaged")

// The file consists of pages, each with its own checksum, so that a look-up reads and checks only one or two of them: a
// head, the entries by the hash of their subject, the filter of ids. A page ends in the CRC-32C of the bytes before.
const (
	pageSize  = 4096
	pageData  = pageSize - 4
	entrySize = 16 + 3*8
	perPage   = pageData / entrySize

	magic = "tally segment index 1\n"

	// With ten bits for each id and seven probes, about one in a hundred absent ids passes the filter. All probes of an
	// id are in one page, which makes that slightly worse.
	bitsPerID = 10
	probes    = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type hash [16]byte

func hashOf(s string) hash {
	sum := sha256.Sum256([]byte(s))
	return hash(sum[:16])
}

// Builder collects the content of an index, with about 80 bytes for each subject and 20 for each record. It has no
// pointers to them, so a garbage collection does not scan them.
type Builder struct {
	subjects map[hash]Entry
	ids      []hash
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder { return &Builder{subjects: make(map[hash]Entry)} }

// Add adds a record: its subject, the id of its identity, its offset.
func (b *Builder) Add(subject, id string, at uint64) {
	h := hashOf(subject)
	e, there := b.subjects[h]
	if !there {
		e.First = at
	}
	b.subjects[h] = Entry{First: min(e.First, at), Last: max(e.Last, at), Count: e.Count + 1}
	b.ids = append(b.ids, hashOf(id))
}

// Subjects returns the number of subjects.
func (b *Builder) Subjects() int { return len(b.subjects) }

// Write writes the index to path, atomically.
func (b *Builder) Write(path string, of Segment) error {
	rows := slices.SortedFunc(maps.Keys(b.subjects), func(x, y hash) int { return bytes.Compare(x[:], y[:]) })

	tablePages := (len(rows) + perPage - 1) / perPage
	filterPages := max(1, (len(b.ids)*bitsPerID+pageData*8-1)/(pageData*8))
	file := make([]byte, (1+tablePages+filterPages)*pageSize)
	page := func(n int) []byte { return file[n*pageSize : n*pageSize+pageData] }
	copy(page(0), head(of, len(rows), filterPages))
	for i, h := range rows {
		at, e := page(1 + i/perPage)[i%perPage*entrySize:], b.subjects[h]
		copy(at, h[:])
		for j, v := range [...]uint64{e.First, e.Last, e.Count} {
			binary.BigEndian.PutUint64(at[16+8*j:], v)
		}
	}
	for _, id := range b.ids {
		n, bits := bitsOf(id, filterPages)
		p := page(1 + tablePages + n)
		for _, bit := range bits {
			p[bit/8] |= 1 << (bit % 8)
		}
	}
	for n := range len(file) / pageSize {
		binary.BigEndian.PutUint32(file[(n+1)*pageSize-4:], crc32.Checksum(page(n), castagnoli))
	}
	return durable.Replace(path, file, 0o600, durable.NoSync)
}

// head returns the first page: the segment, and how many entries and pages of the filter follow.
func head(of Segment, subjects, filterPages int) []byte {
	p := []byte(magic)
	for _, v := range [...]uint64{uint64(of.Made), of.First, of.Last, uint64(subjects), uint64(filterPages)} {
		p = binary.BigEndian.AppendUint64(p, v)
	}
	return append(p, of.Name...)
}

// bitsOf returns the page of the filter and the bits in it for an id.
func bitsOf(id hash, pages int) (page int, bits [probes]uint32) {
	a, b := binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(id[8:])
	step := uint32(b) | 1
	at := uint32(b >> 32)
	for i := range bits {
		bits[i] = at % (pageData * 8)
		at += step
	}
	return int(a % uint64(pages)), bits
}

// Index answers questions from a file. It is safe for concurrent use.
type Index struct {
	file     *os.File
	subjects int
	filter   int // number of pages
}

// Open opens the index of a segment. The error is ErrDamaged if the file belongs to another segment, and fs.ErrNotExist
// if it is missing.
func Open(path string, of Segment) (*Index, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	x := &Index{file: f}
	if err := x.readHead(of); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return x, nil
}

func (x *Index) readHead(of Segment) error {
	p, err := x.page(0)
	if err != nil {
		return err
	}
	counts := p[len(magic)+3*8:]
	subjects, filter := binary.BigEndian.Uint64(counts), binary.BigEndian.Uint64(counts[8:])
	info, err := x.file.Stat()
	if err != nil {
		return err
	}
	if pages := uint64(info.Size() / pageSize); subjects > pages*perPage || filter == 0 || filter > pages {
		return ErrDamaged
	}
	x.subjects, x.filter = int(subjects), int(filter)
	want := make([]byte, pageData)
	if len(magic)+5*8+len(of.Name) > pageData {
		return ErrDamaged
	}
	copy(want, head(of, x.subjects, x.filter))
	if !bytes.Equal(p, want) || info.Size() != int64(1+x.tablePages()+x.filter)*pageSize {
		return ErrDamaged
	}
	return nil
}

func (x *Index) tablePages() int { return (x.subjects + perPage - 1) / perPage }

// page reads a page and checks it.
func (x *Index) page(n int) ([]byte, error) {
	p := make([]byte, pageSize)
	if _, err := x.file.ReadAt(p, int64(n)*pageSize); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if crc32.Checksum(p[:pageData], castagnoli) != binary.BigEndian.Uint32(p[pageData:]) {
		return nil, ErrDamaged
	}
	return p[:pageData], nil
}

// Find returns the segment's entry of a subject.
func (x *Index) Find(subject string) (Entry, bool, error) {
	h := hashOf(subject)
	// The hashes are spread evenly, so the page can be guessed well.
	for lo, hi := 0, x.tablePages()-1; lo <= hi; {
		n := guess(h, x.tablePages(), lo, hi)
		p, err := x.page(1 + n)
		if err != nil {
			return Entry{}, false, err
		}
		rows := min(perPage, x.subjects-n*perPage)
		i, found := find(p, rows, h)
		switch {
		case found:
			at := p[i*entrySize+16:]
			return Entry{binary.BigEndian.Uint64(at), binary.BigEndian.Uint64(at[8:]), binary.BigEndian.Uint64(at[16:])}, true, nil
		case i == 0:
			hi = n - 1
		case i == rows:
			lo = n + 1
		default:
			return Entry{}, false, nil
		}
	}
	return Entry{}, false, nil
}

// guess returns the page between lo and hi that would have a hash if all hashes were spread evenly.
func guess(h hash, pages, lo, hi int) int {
	share := float64(binary.BigEndian.Uint64(h[:])) / (1 << 64)
	return min(max(int(share*float64(pages)), lo), hi)
}

// find returns the position of a hash among the rows of a page, or where it would be inserted.
func find(p []byte, rows int, h hash) (int, bool) {
	row := func(i int) []byte { return p[i*entrySize : i*entrySize+len(h)] }
	i := sort.Search(rows, func(i int) bool { return bytes.Compare(row(i), h[:]) >= 0 })
	return i, i < rows && bytes.Equal(row(i), h[:])
}

// MayHold reports whether a record with this id may be in the segment. False is certain.
func (x *Index) MayHold(id string) (bool, error) {
	n, bits := bitsOf(hashOf(id), x.filter)
	p, err := x.page(1 + x.tablePages() + n)
	if err != nil {
		return false, err
	}
	for _, bit := range bits {
		if p[bit/8]&(1<<(bit%8)) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// Close releases the file.
func (x *Index) Close() error { return x.file.Close() }
