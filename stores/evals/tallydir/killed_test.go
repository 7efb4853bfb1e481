package tallydir_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// dying is a store that fails after a number of events.
type dying struct {
	layouttest.Store
	left *int
}

var errDead = errors.New("the store is gone")

func (d dying) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	if len(evs) <= *d.left {
		*d.left -= len(evs)
		return d.Store.AppendSeries(ctx, sub, expect, evs...)
	}
	n := *d.left
	*d.left = 0
	if n > 0 {
		if _, n, err := d.Store.AppendSeries(ctx, sub, expect, evs[:n]...); err != nil {
			return log.Ack{}, n, err
		}
	}
	return log.Ack{}, n, errDead
}

// An import was killed in the middle of a session. The next import completes the session, from the same folder or
// from one that has grown since. The session counts as imported, so no merge is needed.
func TestImportGoesOnInTheMiddleOfASession(t *testing.T) {
	for _, grown := range []bool{false, true} {
		for kill := 1; ; kill++ {
			st := openStore(t)
			files := smallTree()
			root := writeTree(t, t.TempDir(), files)
			left := kill
			first, err := (tallydir.Layout{}).Import(t.Context(), dying{st, &left}, root, layouts.ImportOptions{})
			if err == nil {
				if kill < 4 {
					t.Fatalf("the whole folder is %d events, want enough for a cut", first.Events)
				}
				break
			}
			if !errors.Is(err, errDead) || first.Events != kill {
				t.Fatalf("killed after %d events: %+v, %v", kill, first, err)
			}
			if grown {
				files[conv+"conversation.jsonl"] += "\n" + step(3)
				writeTree(t, root, files)
			}
			r, err := (tallydir.Layout{}).Import(t.Context(), st, root, layouts.ImportOptions{})
			if err != nil || len(r.Refused) > 0 || len(r.Problems) > 0 || r.Events == 0 {
				t.Fatalf("the import after a kill at %d events: %+v, error %v", kill, r, err)
			}
			mustEqual(t, files, exported(t, st))
			if r, err := (tallydir.Layout{}).Import(t.Context(), st, root, layouts.ImportOptions{}); err != nil || r.Events != 0 {
				t.Errorf("a third import: %+v, error %v", r, err)
			}
		}
	}
}
