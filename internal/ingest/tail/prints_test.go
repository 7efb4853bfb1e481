package tail

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// A mark that is adopted at a caller's position is worth as much as one that was reached by reading: after more lines
// came, both agree about the content, and both notice that its beginning or its end has changed. Positions and lengths
// are around whole spans.
func TestAdoptedMark(t *testing.T) {
	length := rapid.Custom(func(t *rapid.T) int {
		return max(0, rapid.IntRange(0, 3).Draw(t, "spans")*span+rapid.IntRange(-1, 1).Draw(t, "more"))
	})
	rapid.Check(t, func(t *rapid.T) {
		from, more := length.Draw(t, "position"), 1+length.Draw(t, "length")
		content := bytes.Repeat([]byte("line\n"), (from+more)/5+1)[:from+more]
		for i := range content {
			content[i] ^= byte(i / span)
		}
		p := newPrints([32]byte{1})
		m, err := p.adopt(Position{Offset: int64(from)}, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		read := p.advance(mark{}, nil, content[:from])
		for _, what := range []string{"at the position", "behind it"} {
			if m.Offset != read.Offset || m.Head != read.Head || m.Tail != read.Tail {
				t.Fatalf("%s, %d and %d more: adopted %+v, read %+v", what, from, more, m, read)
			}
			before, err := p.check(m, bytes.NewReader(content), true)
			if err != nil {
				t.Fatalf("%s, %d and %d more: %v", what, from, more, err)
			}
			for _, at := range []int64{0, m.Offset - 1} {
				if at < 0 || m.Offset == 0 {
					continue
				}
				changed := bytes.Clone(content)
				changed[at] ^= 1
				if _, err := p.check(m, bytes.NewReader(changed), true); err == nil {
					t.Fatalf("%s, %d and %d more: the byte at %d has changed, and nobody notices", what, from, more, at)
				}
			}
			m, read = p.advance(m, before, content[m.Offset:]), p.advance(read, before, content[read.Offset:])
		}
	})
}
