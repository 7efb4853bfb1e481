package claude

import (
	"strconv"
	"testing"
	"time"
)

// The time grows linearly with the file, in any tree of entries. Here each answer has many ancestors, and each prompt
// goes back. If each walk visited all ancestors, the test would take minutes.
func TestLinear(t *testing.T) {
	const n = 100_000
	tr, end, start, rewinds := newTree(), int64(0), time.Now(), 0
	come := func(uuid, parent string, s speech) string {
		e := &entry{uuid: uuid, parent: parent, root: parent == ""}
		if s.prompts() {
			if _, ok := tr.rewound(e); ok {
				rewinds++
			}
		}
		tr.come(e, s, end, end+1)
		end++
		return uuid
	}
	last := ""
	for i := range n {
		last = come("chain-"+strconv.Itoa(i), last, nothing)
	}
	for i := range n {
		come("answer-"+strconv.Itoa(i), come("prompt-"+strconv.Itoa(i), last, asked), answered)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("reading %d entries took %v", 3*n, took)
	}
	if rewinds != n-1 {
		t.Errorf("got %d rewinds, want %d", rewinds, n-1)
	}
}
