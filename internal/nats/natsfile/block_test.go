package natsfile

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const stream = "TALLY_1"

func appendRecord(b []byte, seq uint64, subject, headers, payload string) []byte {
	return appendRecordOf(b, 2, seq, subject, headers, payload)
}

// appendRecordOf writes a record of a block as the server does.
func appendRecordOf(b []byte, number int, seq uint64, subject, headers, payload string) []byte {
	s := newScanner(stream, number, nil)
	size := headerSize + len(subject) + len(payload) + hashSize
	length := uint32(size)
	if headers != "" {
		length = uint32(size+4+len(headers)) | headersBit
	}
	b = binary.LittleEndian.AppendUint32(b, length)
	from := len(b)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, 1_700_000_000)
	s.hash.Write(b[from:])
	b = binary.LittleEndian.AppendUint16(b, uint16(len(subject)))
	b = append(b, subject...)
	if headers != "" {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(headers)))
		b = append(b, headers...)
	}
	b = append(b, payload...)
	s.hash.Write([]byte(subject + headers + payload))
	return s.hash.Sum(b)
}

func sound(n int) (data []byte, want []Record) {
	for i := range n {
		begin, subject := len(data), fmt.Sprintf("tally.v1.00.default.session.s%d", i%3)
		data = appendRecord(data, uint64(100+i), subject, "NATS/1.0\r\nid: "+strings.Repeat("h", i%20)+"\r\n\r\n", strings.Repeat("p", i%50))
		want = append(want, Record{uint64(100 + i), subject, begin, len(data)})
	}
	return data, want
}

func TestScanOfASoundBlock(t *testing.T) {
	data, want := sound(200)
	records, gaps := Scan(stream, 2, data)
	if !slices.Equal(records, want) || len(gaps) != 0 {
		t.Errorf("got %d records, want %d; gaps %v", len(records), len(want), gaps)
	}
	if last, ok := Sound(stream, 2, data); !ok || last != want[len(want)-1].Seq {
		t.Errorf("the last sequence is %d, sound %v", last, ok)
	}
	if records, gaps := Scan(stream, 3, data); len(records) != 0 || len(gaps) == 0 {
		t.Error("the records of one block were accepted as those of another")
	}
}

// Wherever a bit is flipped, Scan finds all records except the damaged one.
func TestScanFindsWhatIsNotDamaged(t *testing.T) {
	data, want := sound(60)
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		bit := random.IntN(len(data) * 8)
		bad := slices.Clone(data)
		bad[bit/8] ^= 1 << (bit % 8)
		records, gaps := Scan(stream, 2, bad)
		var left []Record
		var damaged Record
		for _, r := range want {
			if bit/8 < r.Begin || bit/8 >= r.End {
				left = append(left, r)
			} else {
				damaged = r
			}
		}
		if !slices.Equal(records, left) || len(gaps) != 1 || bit/8 < gaps[0].Begin || bit/8 >= gaps[0].End {
			t.Fatalf("bit %d: got %d records, want %d; gaps %v", bit, len(records), len(left), gaps)
		}
		if _, ok := Sound(stream, 2, bad); ok {
			t.Fatalf("bit %d: the damaged block is reported as sound", bit)
		}
		if gaps[0].Subject != damaged.Subject || gaps[0].Bit != bit {
			t.Fatalf("bit %d: the gap has the subject %q, want %q, and the flipped bit %d", bit, gaps[0].Subject, damaged.Subject, gaps[0].Bit)
		}
	}
}

func TestScanOfATornBlock(t *testing.T) {
	data, want := sound(20)
	for cut := range data {
		records, gaps := Scan(stream, 2, data[:cut])
		n := 0
		for n < len(want) && want[n].End <= cut {
			n++
		}
		if !slices.Equal(records, want[:n]) || len(gaps) > 1 {
			t.Fatalf("cut at %d: got %d records, want %d; gaps %v", cut, len(records), n, gaps)
		}
	}
}

// built makes a block from a fuzzer's choice: messages and tombstones, each with the right hash, and damage to the last
// bytes. It returns the undamaged messages.
func built(choice []byte) (data []byte, whole []Record) {
	next := func() int {
		if len(choice) == 0 {
			return 0
		}
		c := choice[0]
		choice = choice[1:]
		return int(c)
	}
	choice = choice[:min(len(choice), 48)] // the time to look for flipped bits grows with the square of a block's size
	seq, begin := uint64(100), 0
	for len(choice) > 0 {
		kind, n := next(), next()
		subject, header := fmt.Sprintf("tally.v1.00.default.session.s%d", n%3), "NATS/1.0\r\nid: "+strings.Repeat("h", n%20)+"\r\n\r\n"
		if kind%10 < 4 {
			begin = len(data)
		} else if len(data)-begin < headerSize {
			continue // no bytes left to damage
		} else if len(whole) > 0 && whole[len(whole)-1].End > begin {
			whole = whole[:len(whole)-1]
		}
		last := data[begin:]
		switch kind % 10 {
		case 0, 1:
			if kind%10 == 1 {
				header = ""
			}
			data = appendRecord(data, seq, subject, header, strings.Repeat("p", n%100))
			whole = append(whole, Record{seq, subject, begin, len(data)})
			seq++
		case 2: // a tombstone
			data = appendRecord(data, seq|tombstoneBit, "", "", "")
		case 3: // an erased message
			data = appendRecord(data, seq|erasedBit, subject, "", strings.Repeat("e", n%100))
			seq++
		case 4: // flip a bit
			bit := (next()<<8 + n) % (len(last) * 8)
			last[bit/8] ^= 1 << (bit % 8)
		case 5: // a sequence far ahead
			last[10] ^= 1 << (n % 8)
			last[len(last)-1] ^= 1
		case 6: // the lengths, which the hash does not cover
			binary.LittleEndian.PutUint16(last[20:], binary.LittleEndian.Uint16(last[20:])+uint16(n))
		case 7: // overwrite some bytes
			for i := range min(n, len(last)) {
				last[len(last)-1-i] ^= byte(next())
			}
		case 8: // cut off the end
			data = data[:begin+n%len(last)]
		case 9: // insert arbitrary bytes
			for range n % 50 {
				data = append(data, byte(next()))
			}
		}
	}
	return data, whole
}

func FuzzScan(f *testing.F) {
	f.Add([]byte{0, 1, 1, 2, 2, 0, 0, 3, 3, 9, 0, 9})
	for kind := range byte(6) {
		f.Add([]byte{0, 1, 0, 60, 4 + kind, 77, 1, 2, 3, 0, 9, 1, 1, 2, 0, 0, 30})
		f.Add([]byte{1, 1, 3, 60, 4 + kind, 3, 9, 0, 9})
	}
	f.Fuzz(func(t *testing.T, choice []byte) {
		data, whole := built(choice)
		records, gaps := Scan(stream, 2, data)
		mended := slices.Clone(data)
		at, all := 0, true
		for len(records) > 0 || len(gaps) > 0 {
			begin, end := len(data), 0
			switch {
			case len(gaps) == 0 || len(records) > 0 && records[0].Begin < gaps[0].Begin:
				begin, end = records[0].Begin, records[0].End
				if records[0].Seq >= tombstoneBit {
					t.Fatalf("%+v was removed", records[0])
				}
				if i := slices.IndexFunc(whole, func(r Record) bool { return r.Begin == begin }); i >= 0 {
					if whole[i] != records[0] {
						t.Fatalf("got the record %+[2]v, want %+[1]v", whole[i], records[0])
					}
					whole = slices.Delete(whole, i, i+1)
				}
				records = records[1:]
			default:
				g := gaps[0]
				gaps = gaps[1:]
				begin, end = g.Begin, g.End
				if all = all && g.Bit >= 0; g.Bit >= 0 {
					mended[g.Bit/8] ^= 1 << (g.Bit % 8)
					if _, ok := Sound(stream, 2, mended[begin:end]); !ok {
						t.Fatalf("bit %d does not explain the damage from %d to %d", g.Bit, begin, end)
					}
				}
				// A damaged length may end exactly where a later record ends.
				whole = slices.DeleteFunc(whole, func(r Record) bool { return r.Begin >= begin && r.End <= end })
			}
			// Scan skips nothing except the bytes that removals leave.
			if last, ok := Sound(stream, 2, data[at:begin]); !ok || last != 0 || end <= begin {
				t.Fatalf("the %[3]d bytes before the gap from %[1]d to %[2]d are in no record or gap", begin, end, begin-at)
			}
			at = end
		}
		if last, ok := Sound(stream, 2, data[at:]); !ok || last != 0 {
			t.Fatalf("the last %d bytes are in no record or gap", len(data)-at)
		}
		if len(whole) > 0 {
			t.Fatalf("the records %+v were not found", whole)
		}
		if _, ok := Sound(stream, 2, mended); ok != all {
			t.Fatalf("all gaps have a flipped bit: %v, but the block without these flips is sound: %v", all, ok)
		}
	})
}

func BenchmarkSound(b *testing.B) {
	data, _ := sound(20_000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, ok := Sound(stream, 2, data); !ok {
			b.Fatal("the block is not sound")
		}
	}
}

// Scan reads a framed stretch as damaged records of the framed sequences. The records around it are unchanged.
func TestFrame(t *testing.T) {
	data, want := sound(20)
	for _, c := range []struct {
		first, last int // records of the stretch
		cut         int // length of the remaining stretch, 0: all
		fits        bool
	}{
		{3, 3, 0, true}, {3, 6, 0, true}, {3, 6, 120, true}, {3, 6, 119, false}, {0, 0, 0, true}, {19, 19, 0, true},
	} {
		from, upto := want[c.first], want[c.last]
		stretch := slices.Clone(data[from.Begin:upto.End])
		if c.cut > 0 {
			stretch = stretch[:c.cut]
		}
		for i := range stretch {
			stretch[i] ^= 0x55 // so that no record in it is sound
		}
		if Framed(stretch, from.Seq, upto.Seq+1) {
			t.Errorf("%+v: the frame fits one more record", c)
		}
		if got := Frame(stretch, from.Seq, upto.Seq); got != c.fits {
			t.Errorf("%+v: the frame fits: %v", c, got)
			continue
		}
		if !c.fits {
			continue
		}
		if !Framed(stretch, from.Seq, upto.Seq) {
			t.Errorf("%+v: the frame does not fit its own sequences", c)
		}
		whole := slices.Concat(data[:from.Begin], stretch, data[upto.End:])
		records, gaps := Scan(stream, 2, whole)
		if len(records) != len(want)-(c.last-c.first+1) || len(gaps) != 1 || gaps[0].Begin != from.Begin || gaps[0].End != from.Begin+len(stretch) {
			t.Errorf("%+v: got %d records, gaps %+v", c, len(records), gaps)
		}
	}
}
