package tail

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/tallylog/tally/internal/disk/durable"
)

// The state is a file of lines: a checksum in hex, a space, JSON. The first line has the key of the fingerprints. Each
// other line is the position of a file, and replaces earlier lines of that file. An incomplete line after a crash is
// ignored. The file is rewritten when most lines are out of date. It is not synced: positions lost in a power failure
// lead to repeated deliveries.

// header is the first line of the state.
type header struct {
	Version int    `json:"tail"`
	Key     []byte `json:"key"`
}

// A record is the read position of a file. Path and prints are in base64, because names are arbitrary bytes.
type record struct {
	Root    string `json:"root"`
	Path    []byte `json:"path"`
	Dev     uint64 `json:"dev,omitempty"`
	Ino     uint64 `json:"ino,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Time    int64  `json:"mtime,omitempty"`
	Born    int64  `json:"born,omitempty"`
	End     int64  `json:"end,omitempty"` // length of the content of a compressed file
	Offset  int64  `json:"offset,omitempty"`
	Head    []byte `json:"head,omitempty"`
	Tail    []byte `json:"tail,omitempty"`
	Chain   []byte `json:"chain,omitempty"`
	Weak    bool   `json:"weak,omitempty"`
	Settled bool   `json:"settled,omitempty"`
	Gone    int64  `json:"gone,omitempty"` // since when it is missing, in s since 1970
	Note    string `json:"note,omitempty"`
	Left    bool   `json:"left,omitempty"` // the file has another path, or was forgotten
}

// remembered is how long the state keeps a missing file.
const remembered = 30 * 24 * time.Hour

// location identifies a file in the state.
type location struct{ root, path string }

func (r *record) location() location { return location{r.Root, string(r.Path)} }

// A journal is the open state file.
type journal struct {
	path    string
	key     [32]byte
	f       *os.File
	lines   int       // number of lines in the file
	due     time.Time // it must not be written before
	records int       // number of records at the last rewrite
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(b), b), nil
}

// decode decodes a line of the state. It returns false if the line is incomplete.
func decode(line []byte, v any) bool {
	sum, b, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	return ok && string(sum) == fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)) && json.Unmarshal(b, v) == nil
}

// readJournal reads the state. If the file or its first line is missing, it returns no records and the given key.
func readJournal(path string, key [32]byte) (map[location]record, [32]byte, error) {
	records := make(map[location]record)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return records, key, nil
	}
	if err != nil {
		return nil, key, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	line, _ := in.ReadBytes('\n')
	var h header
	if !decode(line, &h) || h.Version != 1 || len(h.Key) != len(key) {
		return records, key, nil
	}
	copy(key[:], h.Key)
	for err == nil {
		line, err = in.ReadBytes('\n')
		var r record
		switch {
		case !decode(line, &r):
		case r.Left:
			delete(records, r.location())
		default:
			records[r.location()] = r
		}
	}
	return records, key, nil
}

// writeJournal rewrites the state and opens it for appends.
func writeJournal(path string, key [32]byte, records map[location]record) (*journal, error) {
	all, err := encode(header{1, key[:]})
	for _, r := range records {
		line, lineErr := encode(r)
		all, err = append(all, line...), errors.Join(err, lineErr)
	}
	if err == nil {
		err = durable.Replace(path, all, 0o600, durable.NoSync)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return &journal{path: path, key: key, f: f, lines: len(records), records: len(records)}, nil
}

func (j *journal) close() error { return j.f.Close() }

// append appends records. It starts with a line feed, so that an incomplete last line stays separate.
func (j *journal) append(list []record) error {
	if err := durable.Refused(j.path); err != nil {
		return err
	}
	all := []byte("\n")
	for _, r := range list {
		line, err := encode(r)
		if err != nil {
			return err
		}
		all = append(all, line...)
	}
	j.lines += len(list)
	_, err := j.f.Write(all)
	return err
}

// restore adds a file from the state.
func (t *Tailer) restore(r record) {
	for _, root := range t.roots {
		if root.id != r.Root {
			continue
		}
		f := t.newFile(fileKey{root, string(r.Path)})
		f.now = meta{node{r.Dev, r.Ino}, r.Size, r.Time}
		f.read, f.end, f.settled, f.born = f.now, r.Size, r.Settled, r.Born
		if f.packed {
			f.end = r.End
		}
		f.mark = mark{Offset: r.Offset, Weak: r.Weak}
		copy(f.mark.Head[:], r.Head)
		copy(f.mark.Tail[:], r.Tail)
		copy(f.mark.Chain[:], r.Chain)
		f.acked, f.isTold, f.saved, f.note = f.mark, true, r.location(), r.Note
		if r.Gone != 0 {
			f.gone, f.goneAcked, f.missing = true, true, time.Unix(r.Gone, 0)
		}
		t.lost[f.fileKey] = f
		t.index(f)
		return
	}
}

// Notes lists the files of the state that were not examined yet, with the caller's notes: after Open, the whole state.
// The loop must not call t.
func (t *Tailer) Notes() iter.Seq2[File, string] {
	return func(yield func(File, string) bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, f := range t.lost {
			if !f.isKnown && !yield(f.File(), f.note) {
				return
			}
		}
	}
}

// record returns the state's record of a file.
func (f *file) record() record {
	r := record{
		Root: f.at.root, Path: []byte(f.at.path),
		Dev: f.read.node.dev, Ino: f.read.node.ino, Size: f.read.size, Time: f.read.mtime,
		Offset: f.acked.Offset, Head: f.acked.Head[:], Tail: f.acked.Tail[:], Chain: f.acked.Chain[:], Weak: f.acked.Weak,
		Settled: f.settled, Born: f.born, Note: f.note,
	}
	if f.packed {
		r.End = f.end
	}
	if f.goneAcked {
		r.Gone = f.missing.Unix()
	}
	return r
}

// saveIfDue writes changes when they are due.
func (t *Tailer) saveIfDue(now time.Time) {
	if len(t.dirty) == 0 || t.journal == nil || !reached(now, t.journal.due, t.o.Save) {
		return
	}
	t.journal.due = now.Add(t.o.Save)
	t.stateErr = t.save()
}

// save writes the changes since the last write. After an error they stay pending.
func (t *Tailer) save() error {
	if t.journal == nil {
		clear(t.dirty)
		return nil
	}
	var list []record
	for f := range t.dirty {
		if f.ackedTurn != f.turn || f.rewriting || f.acked.Offset == 0 && f.saved == (location{}) {
			continue // the stored state still leads to a rewrite
		}
		if f.saved != f.at && f.saved != (location{}) {
			list = append(list, record{Root: f.saved.root, Path: []byte(f.saved.path), Left: true})
		}
		list = append(list, f.record())
	}
	if len(list) > 0 {
		if err := t.write(list); err != nil {
			return fmt.Errorf("tail: state %s: %w", t.journal.path, err)
		}
	}
	for f := range t.dirty {
		if f.ackedTurn == f.turn && !f.rewriting {
			f.saved = f.at
			delete(t.dirty, f)
		}
	}
	return nil
}

// write appends records to the state, or rewrites it if that halves its length.
func (t *Tailer) write(list []record) error {
	if t.journal.lines < 2*t.journal.records+1000 {
		return t.journal.append(list)
	}
	records, key, err := readJournal(t.journal.path, t.journal.key)
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.Left {
			delete(records, r.location())
		} else {
			records[r.location()] = r
		}
	}
	for at, r := range records {
		if r.Gone != 0 && (t.since(time.Unix(r.Gone, 0)) > remembered || len(records) > 2*t.o.MaxFiles) {
			delete(records, at)
		}
	}
	next, err := writeJournal(t.journal.path, key, records)
	if err != nil {
		return err
	}
	next.due = t.journal.due
	t.journal.close()
	t.journal = next
	return nil
}

// Known is the position of a file in a state.
type Known struct {
	Size   int64 // of the file at that time
	Offset int64 // acknowledged position, in the content of a compressed file
	Gone   bool  // the file is missing
}

// ReadState returns the positions in a state file, by root ID and path below the root. It takes no lock: a Tailer may
// have unsaved changes.
func ReadState(path string) (map[string]map[string]Known, error) {
	records, _, err := readJournal(path, [32]byte{})
	roots := make(map[string]map[string]Known)
	for at, r := range records {
		if roots[at.root] == nil {
			roots[at.root] = make(map[string]Known)
		}
		roots[at.root][at.path] = Known{r.Size, r.Offset, r.Gone != 0}
	}
	return roots, err
}
