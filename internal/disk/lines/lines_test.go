package lines_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/disk/lines"
)

// For any split into reads, the lines equal those of strings.Split. A line over the limit is reported and skipped.
func TestReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.StringMatching(`[a-c]{0,20}`)).Draw(t, "lines"), "\n")
		limit := rapid.IntRange(1, 25).Draw(t, "limit")
		want := strings.Split(text, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1] // no line follows the last \n
		}
		r := lines.NewReader(iotest.OneByteReader(strings.NewReader(text)), limit)
		for i, line := range want {
			got, err := r.Next()
			if tooLong, ok := errors.AsType[*lines.TooLongError](err); ok && len(line) > limit && tooLong.Bytes == int64(len(line)) && tooLong.Line == i+1 {
				continue
			}
			if err != nil || string(got) != line || r.Line() != i+1 {
				t.Fatalf("line %d is %q, %v; want %q", r.Line(), got, err, line)
			}
		}
		if _, err := r.Next(); !errors.Is(err, lines.ErrEnd) {
			t.Fatalf("after the last line: %v", err)
		}
	})
}

// Skipping a long line takes bounded memory.
func TestReaderSkipsInBoundedMemory(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 8<<20)
	allocated := testing.AllocsPerRun(1, func() {
		r := lines.NewReader(bytes.NewReader(long), 1000)
		if _, err := r.Next(); err == nil {
			t.Error("a line of 8 MiB was returned despite the limit of 1000 bytes")
		}
	})
	if allocated > 50 {
		t.Errorf("got %v allocations", allocated)
	}
}
