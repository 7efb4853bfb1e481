package segindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// FuzzOpen checks a changed index against the promise of TestDamageIsNoticed: its answers are right, or it returns
// ErrDamaged. If pages get valid checksums after the change, any answer is allowed, but no panic and no endless loop.
func FuzzOpen(f *testing.F) {
	const records, subjects, filterPages = 3_500, 300, 2
	path, want := build(f, records, subjects)
	sound, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	counts := len(magic) + 3*8
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	const around = 1 << 52 // pages: their size in bytes overflows 64 bits
	for _, seed := range []struct {
		at   int
		edit []byte
		size int
		seal bool
	}{
		{0, nil, len(sound), false},
		{0, []byte("TALLY"), len(sound), false},
		{counts, number(1 << 60), len(sound), true},
		{counts, number(subjects + around*perPage), len(sound), true},
		{counts, number(perPage), len(sound), true},
		{counts + 8, number(0), len(sound) - filterPages*pageSize, true},
		{counts + 8, number(filterPages + around), len(sound), true},
		{pageSize + 16, []byte{0xff}, len(sound), false},            // an offset
		{2 * pageSize, make([]byte, pageSize), len(sound), true},    // hashes in no order
		{2*pageSize - 4, []byte{1, 2, 3, 4}, len(sound), false},     // a checksum
		{len(sound) - pageSize, make([]byte, 8), len(sound), false}, // the filter
		{0, nil, len(sound) - pageSize, false},
		{0, nil, len(sound) + pageSize, false},
		{0, nil, 0, false},
	} {
		f.Add(seed.at, seed.edit, seed.size, seed.seal)
	}
	file := filepath.Join(f.TempDir(), fmt.Sprint("changed-", os.Getpid()))
	f.Fuzz(func(t *testing.T, at int, edit []byte, size int, seal bool) {
		changed := make([]byte, min(max(size, 0), 2*len(sound)))
		copy(changed, sound)
		if at >= 0 && at < len(changed) {
			copy(changed[at:], edit)
		}
		for p := 0; seal && p+pageSize <= len(changed); p += pageSize {
			binary.BigEndian.PutUint32(changed[p+pageData:], crc32.Checksum(changed[p:p+pageData], castagnoli))
		}
		if err := os.WriteFile(file, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := Open(file, segment)
		if err != nil {
			if !errors.Is(err, ErrDamaged) || string(changed) == string(sound) {
				t.Fatal(err)
			}
			return
		}
		defer x.Close()
		noticed := false
		say := func(err error, right bool, what string) {
			noticed = noticed || err != nil
			if err != nil && !errors.Is(err, ErrDamaged) || err == nil && !right && !seal {
				t.Fatalf("%s: %v", what, err)
			}
		}
		for i := range subjects {
			name := fmt.Sprintf("subject-%d", i)
			e, there, err := x.Find(name)
			known, was := want[name]
			say(err, there == was && e == known, name)
		}
		for i := range records {
			id := fmt.Sprintf("id-%d", i)
			may, err := x.MayHold(id)
			say(err, may, id)
		}
		if changed := string(changed) != string(sound); !seal && changed != noticed {
			t.Fatalf("changed: %v, reported as damaged: %v", changed, noticed)
		}
	})
}
