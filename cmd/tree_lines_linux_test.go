package cmd_test

import (
	"encoding/json"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The cost of a step of a conversation, for the tree that shows it, hardly grows with the conversation.
func TestTreeLines(t *testing.T) {
	testkit.OnlySoak(t)
	onDisk(t)
	k := newKept(t)
	k.config("namespace = \"project\"\n\n[[tree]]\nlayout = \"tallydir\"\ndir = \"talk\"\nmode = \"sync\"\nbulk = \"never\"\n")
	st := k.keeps()
	s := st.Session("long")
	n := 0
	steps := func(count int) (list []json.RawMessage) {
		for range count {
			n++
			list = append(list, step(n))
		}
		return list
	}
	const first, last = 1_000, 100_000
	cost := make(map[int]times)
	for _, upto := range []int{first, 10_000, last} {
		for n < upto-100 {
			if _, err := s.AppendTurns(t.Context(), "main", steps(min(1000, upto-100-n))...); err != nil {
				t.Fatal(err)
			}
		}
		var list times
		for range 100 {
			one := steps(1)
			list.add(took(func() {
				if _, err := s.AppendTurns(t.Context(), "main", one...); err != nil {
					t.Fatal(err)
				}
			}))
		}
		for info, err := range st.Subjects(t.Context(), "conflict") {
			t.Fatalf("got %v, %v without a change of the folder", info.Subject, err)
		}
		t.Logf("%d lines: a step p50 %v p99 %v", upto, list.part(0.5), list.part(0.99))
		cost[upto] = list
	}
	t.Logf("ratio of p50, %d to %d lines: %.2f (target 1.2)", last, first, ratio(cost[last].part(0.5), cost[first].part(0.5)))
}
