package storecopy_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A copy with a plan has every record at its offset, and never the content. Its last record is the receipt.
func TestCopyForgets(t *testing.T) {
	testkit.NotUnderRace(t)
	ctx := t.Context()
	from, to := mustStart(t, t.TempDir(), false), mustStart(t, t.TempDir(), true)
	fill(t, from.Log(), rand.New(rand.NewPCG(3, 4)), 150)
	st, err := tally.Open(ctx, from.Log(), tally.Config{}) // the server closes the log
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.Forget(ctx, tally.Forget{Session: "s1", Dry: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.Plan()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := erasure.Decode("plan", text)
	if err != nil {
		t.Fatal(err)
	}
	copier := func() *storecopy.Copier {
		return &storecopy.Copier{From: from.Log(), To: to.Log(), Forget: &plan}
	}
	copyAll := func() events.Offset {
		t.Helper()
		c := copier()
		if _, err := c.Begin(ctx); err != nil {
			t.Fatal(err)
		}
		at, err := c.Run(ctx)
		if err == nil {
			var v storecopy.Verified
			if v, err = c.Verify(ctx, 0, at); v.Differ+v.LostRecords > 0 {
				t.Errorf("the copy differs: %+v, lost %v", v.Differences, v.Lost)
			}
		}
		if err == nil {
			err = c.Receipt(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		head, err := to.Log().Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	end, err := from.Log().Durable(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("X-23 the receipt follows the last record, once", func(t *testing.T) {
		for range 2 {
			if head := copyAll(); head != end+1 {
				t.Errorf("the copy ends at %v, want %v", head, end+1)
			}
		}
		last, err := to.Log().Record(ctx, end+1)
		if want, _ := plan.Event(); err != nil || !bytes.Equal(last.Data, want.Data) || last.Subject != plan.Document() {
			t.Errorf("%v: the last record is %s of %s", err, last.Data, last.Subject)
		}
	})
	t.Run("X-23 planned records have lost their content, and no other", func(t *testing.T) {
		gone := 0
		for rec, err := range to.Log().Read(ctx, events.Range{Upto: end}) {
			if err != nil {
				t.Fatal(err)
			}
			planned, isPlanned := plan.Find(rec.Offset)
			if strings.Contains(string(rec.Data), `"content":"s1 `) {
				t.Errorf("%v: %s", rec.Offset, rec.Data)
			}
			original, err := from.Log().Record(ctx, rec.Offset)
			if err != nil {
				t.Fatal(err)
			}
			if isPlanned {
				gone++
				original.Event, err = planned.Apply(plan.Receipt, original.Event)
			}
			if err != nil || !rec.Event.Equal(original.Event) && rec.Source != log.Filler(rec.Offset).Source {
				t.Errorf("%v: %v %s, want %s", rec.Offset, err, rec.Data, original.Data)
			}
		}
		if gone != len(plan.Records) || gone < 5 {
			t.Errorf("%d records have lost content, the plan names %d", gone, len(plan.Records))
		}
	})
	t.Run("X-23 a plan of another store", func(t *testing.T) {
		other := plan
		other.Records = []erasure.Record{{Offset: 1, Subject: events.Session("", "elsewhere")}}
		c := &storecopy.Copier{From: from.Log(), To: mustStart(t, t.TempDir(), true).Log(), Forget: &other}
		if _, err := c.Run(ctx); err == nil || errors.Is(err, events.ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}
