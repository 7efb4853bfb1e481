package erratadir_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// Growth between any two records returns exactly the bytes by which the prompts' file grew, or reports that it
// cannot.
func TestGrowth(t *testing.T) {
	known := 0
	for seed := range layouttest.Seeds(3) {
		st, root, r := openStore(t), layouts.Root{Name: layouts.LiveRoot, Marker: "m"}, rand.New(rand.NewPCG(seed, 4))
		live(t, st, "prompts", log.Any, &events.SessionCreated{Kind: events.KindPrompts, CreatedAt: "2026-08-22T10:00:00Z"})
		sub := events.Session(st.Name, "prompts")
		for n := range 30 {
			add := &events.TurnAppended{Entries: []events.Entry{{Thread: "prompts", Turn: events.Raw(fmt.Sprintf("{\"prompt\":\"%d\",\n\"n\":1}", n))}}}
			var p events.Payload = add
			o, err := st.Loader().Outline(t.Context(), sub, 0)
			if err != nil {
				t.Fatal(err)
			}
			switch r.IntN(10) {
			case 0:
				p = &events.ThreadTruncated{Lengths: map[string]int{"prompts": o.Len("prompts") / 2}, Reason: "test"}
			case 1:
				add.Formats = map[string]events.FileFormat{"prompt_history.jsonl": {FinalNewline: r.IntN(2) == 0, BOM: r.IntN(2) == 0, Mode: 0o600}}
			case 2:
				add.Entries = append(add.Entries, events.Entry{Thread: "prompts", Bytes: []byte{0xff}}, events.Entry{Thread: "other", Turn: events.Raw(`1`)})
			case 3:
				p = &events.SessionUpdated{Set: events.Fields{{Name: "status", Value: events.Raw([]string{`null`, `"archived"`}[r.IntN(2)])}}}
			}
			live(t, st, "prompts", log.At(o.Offset()), p)
		}
		known += layouttest.CheckGrowth(t, st, erratadir.Layout{}, root)
	}
	if known < 10 {
		t.Errorf("Growth returned data %d times, want more", known)
	}
	t.Log(known)
}
