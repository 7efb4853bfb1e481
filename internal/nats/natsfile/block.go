// Package natsfile reads and syncs the files in which nats-server keeps streams, without the server. It finds damage
// before the server does, which would discard everything behind it. It makes written messages durable. It reads full
// segments, because the server would keep its notes on each block that it reads for minutes. docs/nats-server.md lists
// the facts about these files that it relies on.
//
// The layout of a block is that of version 2.15 (server/filestore.go, writeMsgRecordLocked):
//
//	length of the record u32 (highest bit: it has headers), sequence u64, time i64, length of the subject u16,
//	subject, [length of the headers u32, headers], payload, HighwayHash-64 over all of it but the lengths
//
// in little endian. The hash's key is SHA-256 of "<stream>-<number of the block>".
package natsfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/minio/highwayhash"
)

const (
	headerSize = 4 + 8 + 8 + 2
	hashSize   = 8
	headersBit = 1 << 31
	maxRecord  = 32 << 20

	erasedBit    = 1 << 63 // of a sequence: the message was erased
	tombstoneBit = 1 << 62 // the message was removed; the record only keeps the number
)

// Record is a message in a block.
type Record struct {
	Seq     uint64
	Subject string
	Begin   int // position of the record in the block
	End     int
}

// Gap is a stretch of a block that is not a sequence of sound records.
type Gap struct {
	Begin, End int

	// Whole reports that the stretch looks like exactly one record with damage inside.
	Whole bool

	// Bit is the bit of the block that was flipped, if a single one explains the damage; else -1.
	Bit int

	// Subject is the subject of the stretch's first record: the original one if Bit is known, else the present bytes.
	Subject string

	// Misleading reports that the record seems to have a sequence far ahead, so that the server would need very much
	// memory to read the block.
	Misleading bool

	// Taken reports that the record's hash is right although its lengths are wrong, which it does not cover. The server
	// reads such a record wrongly. Seq is right then.
	Taken bool
	Seq   uint64
}

// Scan reads a block. It returns the sound records in their order, and the damaged stretches between them. The last
// stretch may be the torn end of a block that was being written.
func Scan(stream string, number int, data []byte) (records []Record, gaps []Gap) {
	s := newScanner(stream, number, data)
	for at := 0; at < len(data); {
		e, sound := s.sound(at)
		if sound {
			if e.seq&(erasedBit|tombstoneBit) == 0 {
				records = append(records, Record{Seq: e.seq, Subject: s.subject(at), Begin: at, End: e.end})
			}
			at = e.end
			continue
		}
		gap := Gap{Begin: at, End: s.resume(at)}
		if e, ok := s.extent(at); ok && e.end == gap.End {
			gap.Whole, gap.Taken, gap.Seq = true, s.hashed(e), e.seq
		}
		gap.Bit, gap.Subject = s.mend(at, gap.End)
		if n := len(records); n > 0 {
			gap.Misleading = s.misleading(at, records[n-1].Seq)
		}
		gaps = append(gaps, gap)
		at = gap.End
	}
	return records, gaps
}

// Sound reports whether a block has only sound records, and returns the highest sequence of a message in it, or 0. It
// costs much less than Scan.
func Sound(stream string, number int, data []byte) (last uint64, sound bool) {
	sound = Walk(stream, number, data, func(seq uint64, _ int, _ []byte) { last = seq })
	if !sound {
		return 0, false
	}
	return last, true
}

// Walk calls visit for each sound message of a block, with its sequence, its position in the block and its subject, which
// visit may not keep. Walk skips damaged bytes, and reports whether the whole block is sound.
func Walk(stream string, number int, data []byte, visit func(seq uint64, at int, subject []byte)) (sound bool) {
	s := newScanner(stream, number, data)
	sound = true
	for at := 0; at < len(data); {
		e, ok := s.sound(at)
		if !ok {
			sound, at = false, s.resume(at)
			continue
		}
		if e.seq&(erasedBit|tombstoneBit) == 0 {
			visit(e.seq, at, data[at+headerSize:at+headerSize+e.subject])
		}
		at = e.end
	}
	return sound
}

// VisitMessages calls visit for each sound message of a block. It skips damaged bytes.
func VisitMessages(stream string, number int, data []byte, visit func(Message)) {
	s := newScanner(stream, number, data)
	for at := 0; at < len(data); {
		e, ok := s.sound(at)
		if !ok {
			at = s.resume(at)
			continue
		}
		if e.seq&(erasedBit|tombstoneBit) == 0 {
			one := scanner{data: data[at:e.end]}
			visit(one.message(extent{end: e.end - at, subject: e.subject, skip: e.skip, seq: e.seq}, s.subject(at)))
		}
		at = e.end
	}
}

// Frame makes a stretch of a block look like records of some sequences, both ends inclusive, and reports whether it has
// room for them. Their hashes are wrong, so the server treats each one as damaged.
func Frame(data []byte, from, upto uint64) bool {
	const smallest = headerSize + hashSize
	if upto < from || upto-from >= uint64(len(data)/smallest) {
		return false
	}
	for seq := from; seq <= upto; seq++ {
		r := data[:smallest]
		if seq == upto {
			r = data
		}
		binary.LittleEndian.PutUint32(r, uint32(len(r)))
		binary.LittleEndian.PutUint64(r[4:], seq)
		binary.LittleEndian.PutUint16(r[20:], 0)
		sum := r[len(r)-hashSize:]
		for i := range sum {
			sum[i] = ^sum[i]
		}
		data = data[len(r):]
	}
	return true
}

// Framed reports whether a stretch looks like records of these sequences, whatever their hashes.
func Framed(data []byte, from, upto uint64) bool {
	s := scanner{data: data}
	at := 0
	for seq := from; seq <= upto; seq++ {
		e, ok := s.extent(at)
		if !ok || e.seq != seq {
			return false
		}
		at = e.end
	}
	return at == len(data)
}

type scanner struct {
	data []byte
	hash hash.Hash64
	sum  [hashSize]byte
}

func newScanner(stream string, number int, data []byte) *scanner {
	key := sha256.Sum256(fmt.Appendf(nil, Layout.Key, stream, number))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	return &scanner{data: data, hash: h}
}

// extent is the position of a record, according to its own lengths.
type extent struct {
	begin, end int
	subject    int // in bytes
	skip       int // bytes of the headers' length field, between subject and headers: 0 without headers
	seq        uint64
}

// extent reads the lengths of the record at a position. It returns false if they are impossible.
func (s *scanner) extent(at int) (e extent, ok bool) {
	if at+headerSize > len(s.data) {
		return e, false
	}
	head := s.data[at : at+headerSize]
	length := binary.LittleEndian.Uint32(head)
	e = extent{begin: at, end: at + int(length&^headersBit), seq: binary.LittleEndian.Uint64(head[4:])}
	e.subject = int(binary.LittleEndian.Uint16(head[20:]))
	if length&headersBit != 0 {
		e.skip = 4
	}
	size := e.end - e.begin
	return e, size <= maxRecord && size >= headerSize+e.subject+e.skip+hashSize && e.end <= len(s.data)
}

// sound reads the record at a position, and reports whether it is undamaged.
func (s *scanner) sound(at int) (e extent, ok bool) {
	e, ok = s.extent(at)
	return e, ok && s.whole(e)
}

// whole reports whether a record is undamaged.
func (s *scanner) whole(e extent) bool {
	return s.hashed(e) && (e.skip == 0 || framed(s.data[e.begin+headerSize+e.subject:e.end-hashSize]))
}

// hashed reports whether a record's hash is right.
func (s *scanner) hashed(e extent) bool {
	head, body := s.data[e.begin:e.begin+headerSize], s.data[e.begin+headerSize:e.end-hashSize]
	s.hash.Reset()
	s.hash.Write(head[4:20])
	s.hash.Write(body[:e.subject])
	s.hash.Write(body[e.subject+e.skip:])
	return bytes.Equal(s.hash.Sum(s.sum[:0]), s.data[e.end-hashSize:e.end])
}

// framed reports whether the bytes after a subject begin with headers of the stated length.
func framed(b []byte) bool {
	n := int(binary.LittleEndian.Uint32(b))
	return n <= len(b)-4 && bytes.HasPrefix(b[4:4+n], []byte("NATS/1.0\r\n")) && bytes.HasSuffix(b[4:4+n], []byte("\r\n\r\n"))
}

// resume returns the position of the next sound record behind a damaged one.
func (s *scanner) resume(at int) int {
	if e, ok := s.extent(at); ok {
		if _, sound := s.sound(e.end); sound || e.end == len(s.data) {
			return e.end // only its content is damaged, not its length
		}
	}
	for next := at + 1; next+headerSize <= len(s.data); next++ {
		if !s.likely(next) {
			continue
		}
		if _, sound := s.sound(next); sound {
			return next
		}
	}
	return len(s.data)
}

// likely is a cheap check whether a record may begin at a position: all subjects of a log begin alike.
func (s *scanner) likely(at int) bool {
	return bytes.HasPrefix(s.data[at+headerSize:], []byte("tally."))
}

// maxMended bounds the size of a record whose bits are tried one by one.
const maxMended = 16 << 10

// mend looks for a single bit whose flip makes the record at a position sound and end at end. It returns -1 if there is
// none. A wrong bit is as unlikely as a collision of the hash. It also returns the subject after the flip.
func (s *scanner) mend(at, end int) (bit int, subject string) {
	if end-at > maxMended {
		return -1, s.subject(at)
	}
	for bit := at * 8; bit < end*8; bit++ {
		s.data[bit/8] ^= 1 << (bit % 8)
		e, ok := s.sound(at)
		found := ok && e.end == end
		if found {
			subject = s.subject(at)
		}
		s.data[bit/8] ^= 1 << (bit % 8)
		if found {
			return bit, subject
		}
	}
	return -1, s.subject(at)
}

// subject returns the bytes at the position of a record's subject.
func (s *scanner) subject(at int) string {
	if at+headerSize > len(s.data) {
		return ""
	}
	n := int(binary.LittleEndian.Uint16(s.data[at+20:]))
	if at+headerSize+n > len(s.data) {
		return ""
	}
	return string(s.data[at+headerSize : at+headerSize+n])
}

// farAhead is a jump of the sequence that no log makes. The server needs memory for each number in between.
const farAhead = 1 << 20

// misleading reports whether the server would read a damaged record as one of a sequence far ahead.
func (s *scanner) misleading(at int, last uint64) bool {
	e, ok := s.extent(at)
	seq := e.seq &^ erasedBit
	return ok && seq&tombstoneBit == 0 && seq > last+farAhead
}
