package log

import (
	"fmt"
	"testing"
)

// A filter denies no subject that it holds, in whatever layer, and few others.
func TestSubjectFilter(t *testing.T) {
	f := newSubjectFilter()
	const held = 50_000
	wrong := 0
	for i := range held {
		if f.mayHave(fmt.Sprint("new", i)) {
			wrong++
		}
		f.add(fmt.Sprint("held", i))
	}
	for i := range held {
		if !f.mayHave(fmt.Sprint("held", i)) {
			t.Fatalf("subject %d of %d is denied", i, held)
		}
	}
	if wrong > held/100 {
		t.Errorf("%d of %d absent subjects are taken for present, want at most 1 %%", wrong, held)
	}
}

func BenchmarkSubjectFilter(b *testing.B) {
	f := newSubjectFilter()
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprint("tally.session.default.", i)
	}
	b.ResetTimer()
	for i := range b.N {
		f.add(names[i%len(names)])
	}
}
