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
		t.Errorf("%d records, want %d; gaps %v", len(records), len(want), gaps)
	}
	if last, ok := Sound(stream, 2, data); !ok || last != want[len(want)-1].Seq {
		t.Errorf("the last is %d, sound %v", last, ok)
	}
	if records, gaps := Scan(stream, 3, data); len(records) != 0 || len(gaps) == 0 {
		t.Error("the records of one block are taken for those of another")
	}
}

// Wherever a bit is flipped: all other records are found, and the damaged one is not.
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
			t.Fatalf("bit %d: %d records, want %d; gaps %v", bit, len(records), len(left), gaps)
		}
		if _, ok := Sound(stream, 2, bad); ok {
			t.Fatalf("bit %d: the block is called sound", bit)
		}
		if gaps[0].Subject != damaged.Subject || gaps[0].Bit != bit {
			t.Fatalf("bit %d: the damaged record is %q's, want %q, and bit %d is wrong", bit, gaps[0].Subject, damaged.Subject, gaps[0].Bit)
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
			t.Fatalf("cut at %d: %d records, want %d; gaps %v", cut, len(records), n, gaps)
		}
	}
}

func FuzzScan(f *testing.F) {
	data, _ := sound(5)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		records, gaps := Scan(stream, 2, data)
		covered := 0
		for _, r := range records {
			covered += r.End - r.Begin
		}
		for _, g := range gaps {
			covered += g.End - g.Begin
		}
		if covered > len(data) {
			t.Errorf("%d of %d bytes are accounted for", covered, len(data))
		}
	})
}

func BenchmarkSound(b *testing.B) {
	data, _ := sound(20_000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, ok := Sound(stream, 2, data); !ok {
			b.Fatal("not sound")
		}
	}
}

// A stretch that was framed is damaged records of the sequences it was framed for, and
// those around it are as they were.
func TestFrame(t *testing.T) {
	data, want := sound(20)
	for _, c := range []struct {
		first, last int // records of the stretch
		cut         int // bytes that are left of it, 0: all
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
			stretch[i] ^= 0x55 // nothing in it is sound
		}
		if Framed(stretch, from.Seq, upto.Seq+1) {
			t.Errorf("%+v: it looks like one record more", c)
		}
		if got := Frame(stretch, from.Seq, upto.Seq); got != c.fits {
			t.Errorf("%+v: fits %v", c, got)
			continue
		}
		if !c.fits {
			continue
		}
		if !Framed(stretch, from.Seq, upto.Seq) {
			t.Errorf("%+v: it does not look like what it was framed for", c)
		}
		whole := slices.Concat(data[:from.Begin], stretch, data[upto.End:])
		records, gaps := Scan(stream, 2, whole)
		if len(records) != len(want)-(c.last-c.first+1) || len(gaps) != 1 || gaps[0].Begin != from.Begin || gaps[0].End != from.Begin+len(stretch) {
			t.Errorf("%+v: %d records, gaps %+v", c, len(records), gaps)
		}
	}
}
