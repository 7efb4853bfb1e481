package sessiondir_test

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// repeated reads as n equal bytes.
type repeated byte

func (c repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

// The reader frees a line that is too long while it reads the rest of the file, and a large line after the next one
// is read. The memory for either stays close to the limit of a line.
func TestLargeLinesAreLetGo(t *testing.T) {
	const limit, slack = 16 << 20, 2 << 20
	line := func(n int64) io.Reader {
		return io.MultiReader(strings.NewReader(`{"a":"`), io.LimitReader(repeated('x'), n), strings.NewReader("\"}\n"))
	}
	for _, of := range []struct {
		name       string
		size, most int64 // bytes of the line; maximal memory for reading it
	}{
		{"too long", 4 * limit, limit},
		{"large", limit - 100, 2 * limit},
	} {
		t.Run(of.name, func(t *testing.T) {
			before := memory()
			var behind runtime.MemStats
			err := sessiondir.EachLine(io.MultiReader(line(of.size), strings.NewReader("{}\n")), limit, func(l sessiondir.TurnLine) error {
				if tooLong := of.size > limit; l.Line == 1 && (l.Err != nil) != tooLong {
					t.Errorf("line 1: %v", l.Err)
				}
				if l.Line == 2 {
					behind = memory()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if stays := int64(behind.HeapAlloc) - int64(before.HeapAlloc); stays > slack {
				t.Errorf("%d bytes stay in memory", stays)
			}
			if taken := int64(behind.TotalAlloc - before.TotalAlloc); taken > of.most+slack {
				t.Errorf("reading took %d bytes, want at most %d", taken, of.most)
			}
		})
	}
}

func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
