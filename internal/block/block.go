// Package block reads the files in which nats-server keeps messages, without the
// server: to find damage before the server does, since it throws away what follows.
// The layout is that of version 2.15 (server/filestore.go, writeMsgRecordLocked):
//
//	length of the record u32 (highest bit: it has headers), sequence u64, time i64,
//	length of the subject u16, subject, [length of the headers u32, headers], payload,
//	HighwayHash-64 over all of it but the lengths
//
// in little endian. The hash's key is SHA-256 of "<stream>-<number of the block>".
package block

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
	tombstoneBit = 1 << 62 // it was removed; the record only remembers the number
)

// Record is a message in a block.
type Record struct {
	Seq     uint64
	Subject string
	Begin   int // of the record in the block
	End     int
}

// Gap is a stretch of a block that is no sequence of sound records.
type Gap struct {
	Begin, End int

	// Whole says that the stretch looks like exactly one record, of which something is
	// damaged.
	Whole bool

	// Bit is the bit of the block that was flipped, if one explains the damage; else -1.
	Bit int

	// Subject is that of the record with which the stretch begins: what stood there, if
	// Bit is known, or what stands there.
	Subject string

	// Misleading says that the record seems to be of a sequence far ahead, so that the
	// server takes very much memory to read the block.
	Misleading bool

	// Taken says that the record's hash is right nevertheless: it does not cover the
	// lengths, so the server takes the record for what it is not. Then Seq is right.
	Taken bool
	Seq   uint64
}

// Scan looks through a block. It gives the sound records in their order, and the
// stretches between them that are damaged; the last one may be the torn end of a
// block that was being written.
func Scan(stream string, number int, data []byte) (records []Record, gaps []Gap) {
	s := newScanner(stream, number, data)
	for at := 0; at < len(data); {
		r, sound := s.record(at)
		if sound {
			if r.Seq&(erasedBit|tombstoneBit) == 0 {
				records = append(records, r)
			}
			at = r.End
			continue
		}
		gap := Gap{Begin: at, End: s.resume(at)}
		if r.End == gap.End {
			gap.Whole, gap.Taken, gap.Seq = true, s.hashed(r), r.Seq
		}
		bit, mended := s.mend(at, gap.End)
		if gap.Bit = bit; bit >= 0 {
			gap.Subject = mended.Subject
		} else {
			gap.Subject = s.subject(at)
		}
		if n := len(records); n > 0 {
			gap.Misleading = s.misleading(at, records[n-1].Seq)
		}
		gaps = append(gaps, gap)
		at = gap.End
	}
	return records, gaps
}

type scanner struct {
	data []byte
	hash hash.Hash64
}

func newScanner(stream string, number int, data []byte) *scanner {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, number))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	return &scanner{data, h}
}

// record reads the record at a place. It is not sound if it cannot be one (End is 0
// then) or its hash is wrong.
func (s *scanner) record(at int) (r Record, sound bool) {
	if at+headerSize > len(s.data) {
		return r, false
	}
	head := s.data[at : at+headerSize]
	length, subject := binary.LittleEndian.Uint32(head), int(binary.LittleEndian.Uint16(head[20:]))
	size, skip := int(length&^headersBit), 0
	if length&headersBit != 0 {
		skip = 4
	}
	if size > maxRecord || size < headerSize+subject+skip+hashSize || at+size > len(s.data) {
		return r, false
	}
	body := s.data[at+headerSize : at+size-hashSize]
	r = Record{Seq: binary.LittleEndian.Uint64(head[4:]), Subject: string(body[:subject]), Begin: at, End: at + size}
	return r, s.hashed(r) && (skip == 0 || framed(body[subject:]))
}

// hashed reports whether a record's hash is right.
func (s *scanner) hashed(r Record) bool {
	head, body := s.data[r.Begin:r.Begin+headerSize], s.data[r.Begin+headerSize:r.End-hashSize]
	skip := 0
	if binary.LittleEndian.Uint32(head)&headersBit != 0 {
		skip = 4
	}
	s.hash.Reset()
	s.hash.Write(head[4:20])
	s.hash.Write(body[:len(r.Subject)])
	s.hash.Write(body[len(r.Subject)+skip:])
	return bytes.Equal(s.hash.Sum(nil), s.data[r.End-hashSize:r.End])
}

// framed reports whether what follows a subject begins with headers of the length
// that it says.
func framed(b []byte) bool {
	n := int(binary.LittleEndian.Uint32(b))
	return n <= len(b)-4 && bytes.HasPrefix(b[4:4+n], []byte("NATS/1.0\r\n")) && bytes.HasSuffix(b[4:4+n], []byte("\r\n\r\n"))
}

// resume finds the next sound record behind a place that holds none.
func (s *scanner) resume(at int) int {
	if r, _ := s.record(at); r.End != 0 {
		if _, sound := s.record(r.End); sound || r.End == len(s.data) {
			return r.End // only what it holds is damaged, not how long it is
		}
	}
	for next := at + 1; next+headerSize <= len(s.data); next++ {
		if !s.likely(next) {
			continue
		}
		if _, sound := s.record(next); sound {
			return next
		}
	}
	return len(s.data)
}

// likely says cheaply whether a record may begin at a place: the subjects of a log
// begin alike.
func (s *scanner) likely(at int) bool {
	return bytes.HasPrefix(s.data[at+headerSize:], []byte("tally."))
}

// mostMended bounds the size of a record of which each bit is tried.
const mostMended = 16 << 10

// mend looks for the one bit that makes the record at a place sound, such that it
// ends at another; -1 if none does. That a wrong one does is as likely as a collision
// of the hash.
func (s *scanner) mend(at, end int) (bit int, r Record) {
	if end-at > mostMended {
		return -1, r
	}
	for bit := at * 8; bit < end*8; bit++ {
		s.data[bit/8] ^= 1 << (bit % 8)
		r, sound := s.record(at)
		s.data[bit/8] ^= 1 << (bit % 8)
		if sound && r.End == end {
			return bit, r
		}
	}
	return -1, r
}

// subject gives what stands where the subject of the record at a place does.
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

// farAhead is a step of the sequence that no log makes, and for each number of which
// the server takes memory.
const farAhead = 1 << 20

// misleading reports whether the server would take a damaged record for one of a
// sequence far ahead.
func (s *scanner) misleading(at int, last uint64) bool {
	r, _ := s.record(at)
	seq := r.Seq &^ erasedBit
	return r.End != 0 && seq&tombstoneBit == 0 && seq > last+farAhead
}
