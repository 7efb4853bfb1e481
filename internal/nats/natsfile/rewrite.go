package natsfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/highwayhash"

	"github.com/tallylog/tally/internal/disk/durable"
)

// A Rewriter replaces headers and data of messages, in blocks that no server has open.
type Rewriter struct {
	// Change returns the header and the data of a message in a block. same reports that the message stays as it is. With
	// the blanks that Rewrite adds, header and data have the length that they had.
	Change func(m Message) (header string, data []byte, same bool, err error)

	// Lost reports whether a damaged record between two sequences, both inclusive, is one that loses its content.
	Lost func(from, upto uint64) bool
}

// Rewrite changes a block in memory, and reports whether it did. Records that it does not change keep their bytes, and so
// do damaged stretches, except that those for which Lost returns true lose all bytes behind their subject. If blanks are
// missing, they follow the first brace of the data, or are the data. If an error is returned, the block is of no use.
func (w Rewriter) Rewrite(stream string, number int, block []byte) (changed bool, err error) {
	s := newScanner(stream, number, block)
	records, gaps := Scan(stream, number, block)
	for _, r := range records {
		e, _ := s.extent(r.Begin)
		one := scanner{data: block[r.Begin:r.End]}
		m := one.message(extent{end: r.End - r.Begin, subject: e.subject, skip: e.skip, seq: e.seq}, r.Subject)
		header, data, same, err := w.Change(m)
		if err == nil && !same {
			changed, err = true, s.replace(e, header, data)
		}
		if err != nil {
			return false, fmt.Errorf("message %d: %w", r.Seq, err)
		}
	}
	for _, g := range gaps {
		changed = s.blank(g, records, w.Lost) || changed
	}
	return changed, nil
}

// ErrNoRoom reports that a message is longer than the one whose place it takes.
var ErrNoRoom = errors.New("what remains of the message is longer than the message")

// replace writes a header and data over those of a record, and its hash.
func (s *scanner) replace(e extent, header string, data []byte) error {
	at := e.begin + headerSize + e.subject
	body := s.data[at+e.skip : e.end-hashSize]
	room := len(body) - len(header) - len(data)
	if room < 0 || e.skip == 0 {
		return ErrNoRoom
	}
	binary.LittleEndian.PutUint32(s.data[at:], uint32(len(header)))
	n := copy(body, header)
	if bytes.HasPrefix(data, []byte("{")) {
		n += copy(body[n:], data[:1])
		data = data[1:]
	}
	for i := range room {
		body[n+i] = ' '
	}
	copy(body[n+room:], data)
	s.hash.Reset()
	s.hash.Write(s.data[e.begin+4 : e.begin+20])
	s.hash.Write(s.data[e.begin+headerSize : at])
	s.hash.Write(body)
	s.hash.Sum(s.data[e.end-hashSize : e.end-hashSize])
	if !s.whole(e) {
		return errors.New("the header is not one of NATS")
	}
	return nil
}

// between returns the first and the last sequence that a record of the gap can have. The records around the gap bound
// them. If no sequence is left, from is greater than upto.
func between(records []Record, g Gap) (from, upto uint64) {
	i := slices.IndexFunc(records, func(r Record) bool { return r.Begin >= g.End })
	if i < 0 {
		i = len(records)
	}
	most := uint64(g.End-g.Begin) / (headerSize + hashSize)
	switch {
	case i > 0:
		from = records[i-1].Seq + 1
		upto = from + most
		if i < len(records) {
			upto = min(upto, records[i].Seq-1)
		}
	case i < len(records):
		upto = records[i].Seq - 1
		from = upto - min(upto, most)
	default:
		from = 1
	}
	return from, upto
}

// blank overwrites the lost records of a damaged stretch with zeros, and reports whether they had other bytes. Lengths,
// sequence and subject of a record remain where they can be read, so that the server reads the stretch as before: as
// damaged.
func (s *scanner) blank(g Gap, records []Record, lost func(from, upto uint64) bool) (changed bool) {
	from, upto := between(records, g)
	isLost := from <= upto && lost(from, upto)
	for at := g.Begin; at < g.End; {
		begin, end, goes := at, g.End, isLost
		if e, ok := s.extent(at); ok && e.end <= g.End {
			begin, end, goes = at+headerSize+e.subject, e.end, isLost || lost(e.seq, e.seq)
		}
		if rest := s.data[begin:end]; goes && len(bytes.Trim(rest, "\x00")) > 0 {
			changed = true
			clear(rest)
		}
		at = end
	}
	return changed
}

// Replace replaces a block's file, keeps its time, and overwrites the bytes that it had with zeros. A reader that has
// the file open finds no sound message in it. After a crash the file has the old content or the new.
func Replace(path, stream string, data []byte) error {
	old, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer old.Close()
	info, err := old.Stat()
	if err != nil {
		return err
	}
	var last [hashSize]byte
	if info.Size() >= hashSize && len(data) >= hashSize {
		if _, err := old.ReadAt(last[:], info.Size()-hashSize); err != nil {
			return err
		}
		// The index comes first: after a crash the block is replaced again, and the index is right then.
		if err := relabel(filepath.Join(filepath.Dir(path), IndexFile), stream, last[:], data[len(data)-hashSize:]); err != nil {
			return err
		}
	}
	if err := replaceFile(path, data, info); err != nil {
		return err
	}
	return durable.Zero(old, info.Size())
}

// replaceFile replaces a file and keeps its time: the server compares those of the index and the blocks.
func replaceFile(path string, data []byte, info os.FileInfo) error {
	staged, err := durable.Stage(path, data, info.Mode().Perm(), durable.WithSync, info.ModTime())
	if err != nil {
		return err
	}
	return staged.Commit()
}

// relabel replaces the hash of the stream's last record in its index. With another hash there, the server would read the
// whole stream again, and discard what follows a damaged record in its block. relabel leaves an index alone that has
// neither this hash nor the form that it knows: the server reads the stream then.
func relabel(path, stream string, from, to []byte) error {
	index, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || bytes.Equal(from, to) {
		return nil
	}
	if err != nil {
		return err
	}
	at := len(index) - 2*hashSize
	if at < 0 || !bytes.Equal(index[at:at+hashSize], from) || !bytes.Equal(index[at+hashSize:], indexHash(stream, index[:at+hashSize])) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	copy(index[at:], to)
	copy(index[at+hashSize:], indexHash(stream, index[:at+hashSize]))
	return replaceFile(path, index, info)
}

// indexHash returns the hash at the end of an index.
func indexHash(stream string, index []byte) []byte {
	key := sha256.Sum256([]byte(stream))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	h.Write(index)
	return h.Sum(nil)
}

// isReplaced reports whether a path names another file than f.
func isReplaced(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && !os.SameFile(have, named)
}
