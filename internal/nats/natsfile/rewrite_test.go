package natsfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const erasedHeader = "NATS/1.0\r\nid: 1\r\n\r\n"

// blanked replaces the messages of some sequences by a short header and an empty object.
func blanked(seqs ...uint64) Rewriter {
	return Rewriter{
		Change: func(m Message) (string, []byte, bool, error) {
			return erasedHeader, []byte(`{}`), !slices.Contains(seqs, m.Seq), nil
		},
		Lost: func(from, upto uint64) bool {
			return slices.ContainsFunc(seqs, func(seq uint64) bool { return from <= seq && seq <= upto })
		},
	}
}

// block returns a block of messages with a word each.
func block() (data []byte, records []Record) {
	for seq := uint64(100); seq < 110; seq++ {
		begin, subject := len(data), "tally.v1.00.default.session.s1"
		data = appendRecord(data, seq, subject, "NATS/1.0\r\nid: "+strings.Repeat("h", 30)+"\r\n\r\n", `{"a":"word`+string(rune('0'+seq-100))+`"}`)
		records = append(records, Record{seq, subject, begin, len(data)})
	}
	return data, records
}

func TestRewrite(t *testing.T) {
	data, want := block()
	before := slices.Clone(data)
	changed, err := blanked(103, 109).Rewrite(stream, 2, data)
	if err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	records, gaps := Scan(stream, 2, data)
	if !slices.Equal(records, want) || len(gaps) > 0 {
		t.Fatalf("got %d records, gaps %v", len(records), gaps)
	}
	for i, r := range want {
		seq := r.Seq
		isSame := bytes.Equal(data[r.Begin:r.End], before[r.Begin:r.End])
		if goes := seq == 103 || seq == 109; goes == isSame || goes == bytes.Contains(data[r.Begin:r.End], []byte("word")) {
			t.Errorf("message %d, record %d: the same bytes: %v", seq, i, isSame)
		}
	}
	VisitMessages(stream, 2, data, func(m Message) {
		if m.Seq != 103 && m.Seq != 109 {
			return
		}
		if m.Header != erasedHeader || !strings.HasPrefix(string(m.Data), "{ ") || strings.ReplaceAll(string(m.Data), " ", "") != "{}" || m.Time != 1_700_000_000 {
			t.Errorf("message %d: %q %q at %d", m.Seq, m.Header, m.Data, m.Time)
		}
	})
	if changed, err := blanked().Rewrite(stream, 2, data); changed || err != nil {
		t.Errorf("nothing to change: %v, %v", changed, err)
	}
	long := Rewriter{Change: func(Message) (string, []byte, bool, error) { return erasedHeader, make([]byte, 1000), false, nil }}
	if _, err := long.Rewrite(stream, 2, data); !errors.Is(err, ErrNoRoom) {
		t.Errorf("longer than the message: %v", err)
	}
	headless := appendRecord(nil, 100, "tally.v1.00.default.session.s1", "", strings.Repeat("p", 100))
	if _, err := blanked(100).Rewrite(stream, 2, headless); !errors.Is(err, ErrNoRoom) {
		t.Errorf("without a header: %v", err)
	}
}

// Damaged records keep their place and lose their bytes, if they are among those that go.
func TestRewriteDamaged(t *testing.T) {
	for name, damage := range map[string]func(data []byte, r Record) (left []byte){
		"of a byte":    func(data []byte, r Record) []byte { data[r.End-12] ^= 0xff; data[r.End-13] ^= 0xff; return data },
		"of a length":  func(data []byte, r Record) []byte { data[r.Begin] ^= 0x55; return data },
		"of the place": func(data []byte, r Record) []byte { return slices.Delete(data, r.Begin, r.Begin+3) },
	} {
		for _, goes := range []bool{true, false} {
			data, want := block()
			data = damage(data, want[4])
			seqs := []uint64{105}
			if goes {
				seqs = append(seqs, 104)
			}
			if _, err := blanked(seqs...).Rewrite(stream, 2, data); err != nil {
				t.Fatal(err)
			}
			records, gaps := Scan(stream, 2, data)
			if len(records) != 9 || len(gaps) != 1 {
				t.Errorf("damage %s: %d records, gaps %+v", name, len(records), gaps)
			}
			if bytes.Contains(data, []byte("word5")) || !bytes.Contains(data, []byte("word6")) {
				t.Errorf("damage %s: the next records are wrong", name)
			}
			if g := gaps[0]; goes == (len(bytes.Trim(data[g.Begin+60:g.End], "\x00")) > 0) {
				t.Errorf("damage %s, goes %v: the stretch has %q", name, goes, data[g.Begin:g.End])
			}
		}
	}
	junk := bytes.Repeat([]byte("junk"), 100)
	if changed, err := blanked(1, 2, 3).Rewrite(stream, 2, junk); changed || err != nil {
		t.Errorf("a block without a sound record: %v, %v", changed, err)
	}
}

// A reader that has a block open while it is replaced reads the other one, and no reader reads the old bytes again.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	data, want := block()
	path := Path(dir, 2)
	if err := os.WriteFile(path, data, 0o640); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.Link(path, old); err != nil {
		t.Skip(err)
	}
	index := slices.Concat([]byte("index of the stream"), data[len(data)-8:])
	index = append(index, indexHash(stream, index)...)
	if err := os.WriteFile(filepath.Join(dir, IndexFile), index, 0o640); err != nil {
		t.Fatal(err)
	}
	opened, err := OpenBlock(dir, stream, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	r, err := NewReader(dir, stream, 100, 109, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.in = bufio.NewReaderSize(nil, headerSize) // nothing is read ahead
	for range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	changed := slices.Clone(data)
	if _, err := blanked(105, 109).Rewrite(stream, 2, changed); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, stream, changed); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil || !after.ModTime().Equal(info.ModTime()) || after.Mode() != info.Mode() {
		t.Errorf("the block is %v, was %v: %v", after, info, err)
	}
	if left, err := os.ReadFile(old); err != nil || len(left) != len(data) || len(bytes.Trim(left, "\x00")) > 0 {
		t.Errorf("the old file has %d bytes that are not zero: %v", len(bytes.Trim(left, "\x00")), err)
	}
	for seq := uint64(103); ; seq++ {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			if seq != 110 {
				t.Errorf("the reader ended before %d", seq)
			}
			break
		}
		if err != nil || m.Seq != seq || strings.Contains(string(m.Data), "word") == (seq == 105 || seq == 109) {
			t.Fatalf("the reader has %d %q, %v", m.Seq, m.Data, err)
		}
	}
	for _, rec := range want {
		if m, err := opened.Message(rec.Begin); err != nil || m.Seq != rec.Seq || strings.Contains(string(m.Data), "word") == (m.Seq == 105 || m.Seq == 109) {
			t.Errorf("the open block has %d %q, %v", m.Seq, m.Data, err)
		}
	}
	want9 := slices.Concat([]byte("index of the stream"), changed[len(changed)-8:])
	if got, err := os.ReadFile(filepath.Join(dir, IndexFile)); err != nil || !bytes.Equal(got, append(want9, indexHash(stream, want9)...)) {
		t.Errorf("the index does not have the hash of the last message: %q, %v", got, err)
	}
	if got, err := Load(path, nil); err != nil || !bytes.Equal(got, changed) {
		t.Errorf("Load: %v", err)
	}
}
