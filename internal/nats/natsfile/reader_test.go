package natsfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// stored writes blocks with the given numbers of messages, some of them without a header if headless is set, and
// returns all messages.
func stored(t *testing.T, dir string, first uint64, headless bool, counts map[int]int) (want []Message) {
	t.Helper()
	numbers := []int{}
	for number := range counts {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		var data []byte
		for i := range counts[number] {
			m := Message{Seq: first, Time: 1_700_000_000, Subject: fmt.Sprintf("tally.v1.00.default.session.s%d", i/3), Data: bytes.Repeat([]byte("p"), i%50)}
			if !headless || i%4 > 0 {
				m.Header = "NATS/1.0\r\nid: " + strings.Repeat("h", i%20) + "\r\n\r\n"
			}
			data = appendRecordOf(data, number, m.Seq, m.Subject, m.Header, string(m.Data))
			if i%10 == 5 { // a number that was removed elsewhere
				data = appendRecordOf(data, number, 7|tombstoneBit, "", "", "")
			}
			want = append(want, m)
			first++
		}
		if err := os.WriteFile(Path(dir, number), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return want
}

func readAll(dir string, from, upto uint64, match func(string) bool) (list []Message, err error) {
	r, err := NewReader(dir, stream, from, upto, match)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		m, err := r.Next()
		if err != nil {
			return list, err
		}
		list = append(list, m)
	}
}

func equal(a, b Message) bool {
	return a.Seq == b.Seq && a.Time == b.Time && a.Subject == b.Subject && a.Header == b.Header && bytes.Equal(a.Data, b.Data)
}

func TestReader(t *testing.T) {
	dir := t.TempDir()
	want := stored(t, dir, 1000, true, map[int]int{2: 120, 3: 0, 9: 1, 10: 60, 11: 45})
	for _, from := range []uint64{1000, 1001, 1119, 1120, 1121, 1122, 1180, 1181, 1225} {
		for _, upto := range []uint64{from, from + 1, 1120, 1200, 1225} {
			if upto < from || upto > 1225 {
				continue
			}
			got, err := readAll(dir, from, upto, nil)
			if part := want[from-1000 : upto-1000+1]; !errors.Is(err, io.EOF) || !slices.EqualFunc(got, part, equal) {
				t.Errorf("from %d to %d: got %d messages, want %d, error %v", from, upto, len(got), len(part), err)
			}
		}
	}
	got, err := readAll(dir, 1000, 1225, func(subject string) bool { return subject == want[0].Subject })
	if !errors.Is(err, io.EOF) || len(got) != len(want) {
		t.Fatalf("got %d messages, error %v", len(got), err)
	}
	for i, m := range got {
		if w := want[i]; w.Subject != want[0].Subject && (m.Seq != w.Seq || m.Subject != w.Subject || m.Data != nil) || w.Subject == want[0].Subject && !equal(m, w) {
			t.Errorf("message %d of a subject that is not read whole: %+v", w.Seq, m)
		}
	}
	for _, missing := range [][2]uint64{{999, 1100}, {1200, 1226}, {1226, 1227}, {1, 2}} {
		if got, err := readAll(dir, missing[0], missing[1], nil); !errors.Is(err, ErrUnsound) {
			t.Errorf("without %v: got %d messages, error %v", missing, len(got), err)
		}
	}
	if err := os.Remove(Path(dir, 10)); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(dir, 1000, 1225, nil); !errors.Is(err, ErrUnsound) || !slices.EqualFunc(got, want[:121], equal) {
		t.Errorf("without a block in the middle: got %d messages, error %v", len(got), err)
	}
	if _, err := readAll(dir+"/none", 1, 2, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read a missing folder: %v", err)
	}
}

// A message may be larger than readAhead.
func TestReaderOfLargeMessages(t *testing.T) {
	dir := t.TempDir()
	var data []byte
	sizes := []int{10, 3 << 20, 5, readAhead - 200, readAhead, 2 << 20, 7}
	for i, size := range sizes {
		data = appendRecord(data, uint64(1+i), "s", "NATS/1.0\r\n\r\n", strings.Repeat(fmt.Sprint(i), size))
	}
	if err := os.WriteFile(Path(dir, 2), data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(dir, 1, uint64(len(sizes)), nil)
	if !errors.Is(err, io.EOF) || len(got) != len(sizes) {
		t.Fatalf("got %d messages, error %v", len(got), err)
	}
	for i, m := range got {
		if string(m.Data) != strings.Repeat(fmt.Sprint(i), sizes[i]) {
			t.Errorf("message %d has %d bytes, want %d", m.Seq, len(m.Data), sizes[i])
		}
	}
}

// With any damage, the reader returns the stored messages up to it. (For a message without a header, only its own
// length says where the subject ends.)
func TestReaderOfDamagedBlocks(t *testing.T) {
	dir := t.TempDir()
	want := stored(t, dir, 1000, false, map[int]int{2: 30, 3: 30})
	whole, err := os.ReadFile(Path(dir, 3))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 7 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		for _, data := range [][]byte{damaged, whole[:at]} {
			if err := os.WriteFile(Path(dir, 3), data, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(dir, 1000, 1059, nil)
			if !errors.Is(err, ErrUnsound) {
				t.Fatalf("byte %d: %v", at, err)
			}
			if len(got) < 30 || len(got) >= 60 || !slices.EqualFunc(got, want[:len(got)], equal) {
				t.Fatalf("byte %d: got %d messages, want the beginning of the stored ones", at, len(got))
			}
		}
	}
}

// FuzzReader compares the messages of a Reader with the ones that Scan finds.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 1, 1, 2, 2, 0, 0, 3, 3, 9, 0, 9})
	f.Add([]byte{0, 1, 2, 0, 1, 7, 2, 0, 0, 3})
	for kind := range byte(6) {
		f.Add([]byte{0, 1, 0, 60, 0, 5, 4 + kind, 77, 1, 2, 3, 0, 9})
	}
	f.Fuzz(func(t *testing.T, choice []byte) {
		data, _ := built(choice)
		file, err := os.CreateTemp(t.TempDir(), "")
		if err == nil {
			_, err = file.WriteAt(data, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		records, gaps := Scan(stream, 2, data)
		from := uint64(1)
		if len(records) > 0 {
			from = records[0].Seq
		}
		r := &Reader{stream: stream, next: from, upto: math.MaxUint64 - 1, number: 2, file: file, in: bufio.NewReaderSize(file, readAhead), scanner: newScanner(stream, 2, nil)}
		defer r.Close()
		var got []Message
		m, err := r.Next()
		for ; err == nil; m, err = r.Next() {
			got = append(got, m)
		}
		whole := len(gaps) == 0
		for i, r := range records {
			whole = whole && r.Seq == from+uint64(i)
		}
		if whole && len(got) != len(records) {
			t.Fatalf("got %d messages, want %d, error %v", len(got), len(records), err)
		}
		for i, m := range got {
			records = records[slices.IndexFunc(records, func(r Record) bool { return r.Seq == m.Seq }):]
			r := records[0]
			if n := headerSize + len(m.Subject) + len(m.Header) + len(m.Data) + hashSize; m.Seq != from+uint64(i) || m.Subject != r.Subject || n != r.End-r.Begin && n+4 != r.End-r.Begin ||
				m.Time != int64(binary.LittleEndian.Uint64(data[r.Begin+12:])) || !bytes.HasSuffix(data[r.Begin:r.End-hashSize], m.Data) {
				t.Fatalf("message %d is %+v, but Scan found %+v", i, m, r)
			}
		}
	})
}

func TestBlock(t *testing.T) {
	dir := t.TempDir()
	want := stored(t, dir, 5, true, map[int]int{3: 60})
	data, err := os.ReadFile(Path(dir, 3))
	if err != nil {
		t.Fatal(err)
	}
	places := make(map[uint64]int)
	note := func(seq uint64, at int, subject []byte) {
		if places[seq] = at; string(subject) != want[seq-5].Subject {
			t.Errorf("message %d: got subject %s", seq, subject)
		}
	}
	if !Walk(stream, 3, data, note) || len(places) != len(want) {
		t.Fatalf("got %d messages, want %d", len(places), len(want))
	}
	lost := uint64(30)
	data[places[lost]+headerSize+3] ^= 1
	if err := os.WriteFile(Path(dir, 3), data[:len(data)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBlock(dir, stream, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	last := want[len(want)-1].Seq
	for _, m := range want {
		got, err := b.Message(places[m.Seq])
		if isLost := m.Seq == lost || m.Seq == last; errors.Is(err, ErrUnsound) != isLost || !isLost && !equal(got, m) {
			t.Errorf("message %d: got %v, %v", m.Seq, got, err)
		}
	}
	places = make(map[uint64]int)
	if Walk(stream, 3, data[:len(data)-1], note) || len(places) != len(want)-2 || places[lost] != 0 {
		t.Errorf("a damaged block: got %d messages, want %d", len(places), len(want)-2)
	}
}
