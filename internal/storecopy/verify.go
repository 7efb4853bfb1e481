package storecopy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Difference is a place in which a copy differs from its original.
type Difference struct {
	Offset  events.Offset `json:"offset"`
	Subject string        `json:"subject,omitempty"`
	What    string        `json:"what"`
}

// Verified is the outcome of a comparison.
type Verified struct {
	Records     int             // that are equal
	Personal    int             // in whose place the copy has fillers, like the two below
	Without     int             // of sessions that are left out
	Large       int             // of appends to several subjects, too large for the server
	Lost        []events.Offset // records that the original has lost; at most maxNamed are named
	LostRecords int
	Sessions    int          // whose states were compared
	Differences []Difference // at most maxNamed are named
	Differ      int
}

// maxNamed bounds how many offsets and differences are named.
const maxNamed = 100

// lost notes a record that the original has lost.
func (v *Verified) lost(at events.Offset) {
	if v.LostRecords++; len(v.Lost) < maxNamed {
		v.Lost = append(v.Lost, at)
	}
}

// Add adds the outcome of another part.
func (v *Verified) Add(o Verified) {
	v.Records, v.Personal, v.Without, v.Large = v.Records+o.Records, v.Personal+o.Personal, v.Without+o.Without, v.Large+o.Large
	v.LostRecords, v.Differ, v.Sessions = v.LostRecords+o.LostRecords, v.Differ+o.Differ, v.Sessions+o.Sessions
	v.Lost = append(v.Lost, o.Lost[:min(len(o.Lost), maxNamed-len(v.Lost))]...)
	v.Differences = append(v.Differences, o.Differences[:min(len(o.Differences), maxNamed-len(v.Differences))]...)
}

func (v *Verified) differ(at events.Offset, sub events.Subject, format string, args ...any) {
	if v.Differ++; len(v.Differences) >= maxNamed {
		return
	}
	d := Difference{Offset: at, What: fmt.Sprintf(format, args...)}
	if sub != (events.Subject{}) {
		d.Subject = sub.Name()
	}
	v.Differences = append(v.Differences, d)
}

// Verify reads both logs behind an offset up to another one, and compares each record: event and time of recording. The
// clock of the copy's server may be behind; then a copy has the time of that clock.
func (c *Copier) Verify(ctx context.Context, after, upto events.Offset) (v Verified, err error) {
	if after >= upto {
		return v, nil
	}
	next, stop := iter.Pull2(c.From.Read(ctx, events.Range{After: after, Upto: upto}))
	defer stop()
	original := ahead{next: next}
	at := after
	for rec, failed := range c.To.Read(ctx, events.Range{After: after, Upto: upto}) {
		if failed != nil && !events.IsDamage(failed) {
			return v, failed
		}
		if at++; failed == nil && rec.Offset != at {
			return v, fmt.Errorf("the copy has %v where %v was expected", rec.Offset, at)
		}
		want, there, err := original.at(at)
		if err != nil {
			return v, err
		}
		if there {
			if want, err = c.left(ctx, want); err != nil {
				return v, err
			}
		}
		c.compare(&v, at, rec, failed, want, there)
		if c.Progress != nil && at%progressEvery == 0 {
			c.Progress(at)
		}
	}
	if at < upto {
		v.differ(at+1, events.Subject{}, "the copy ends before %v", upto)
	}
	return v, nil
}

// compare compares the record at an offset of the copy with its original. there reports whether the original can be read.
func (c *Copier) compare(v *Verified, at events.Offset, rec events.Record, damage error, want events.Record, there bool) {
	why := copied
	if there {
		why = c.leavesOut(want)
	}
	switch {
	case damage != nil:
		v.differ(at, want.Subject, "the copy cannot be read: %v", damage)
	case !there && c.isReceipt(rec): // the original has none
	case !there:
		v.lost(at)
	case why != copied && !isFiller(rec):
		v.differ(at, rec.Subject, "the copy has a record that was to be left out")
	case why == personal:
		v.Personal++
	case why == without:
		v.Without++
	case why == large:
		v.Large++
	case !rec.Event.Equal(want.Event):
		v.differ(at, want.Subject, "the copy has another event: %q, the original has %q", rec.ID, want.ID)
	case rec.Recorded.After(want.Recorded):
		v.differ(at, want.Subject, "the copy was recorded at %v, the original at %v", rec.Recorded, want.Recorded)
	default:
		v.Records++
	}
}

// ahead reads the original up to an offset.
type ahead struct {
	next func() (events.Record, error, bool)
	rec  events.Record
	err  error
	has  bool // rec or err was read, and is not used up
}

// at returns the record at an offset, which grows from call to call. there is false if the original has lost it.
func (a *ahead) at(at events.Offset) (rec events.Record, there bool, err error) {
	for {
		if !a.has {
			var more bool
			if a.rec, a.err, more = a.next(); !more {
				return events.Record{}, false, nil
			}
			a.has = true
		}
		if a.err != nil && !events.IsDamage(a.err) {
			return events.Record{}, false, a.err
		}
		switch {
		case a.err != nil: // the offset counts as lost when no record comes for it
			a.has = false
		case a.rec.Offset < at:
			a.has = false
		case a.rec.Offset > at:
			return events.Record{}, false, nil
		default:
			a.has = false
			return a.rec, true, nil
		}
	}
}

// States compares the states of sessions as of an offset, as two loaders fold them: the one of the original, which may
// begin with its snapshots, and the one of the copy.
func (v *Verified) States(ctx context.Context, from, to *projector.Loader, upto events.Offset, sessions []events.Subject) error {
	for _, sub := range sessions {
		want, err := stateOf(ctx, from, sub, upto)
		if _, lost := errors.AsType[*projector.HoleError](err); lost {
			continue // the state of the original is not known
		}
		if err != nil {
			return fmt.Errorf("%s in the original: %w", sub.Name(), err)
		}
		have, err := stateOf(ctx, to, sub, upto)
		if err != nil {
			return fmt.Errorf("%s in the copy: %w", sub.Name(), err)
		}
		if !bytes.Equal(have, want) {
			v.differ(upto, sub, "the state differs: tally verify tells whether a snapshot of the original is wrong")
			continue
		}
		v.Sessions++
	}
	return nil
}

// stateOf returns a text of a session's state: its threads, its live list, and the rejected records.
func stateOf(ctx context.Context, l *projector.Loader, sub events.Subject, upto events.Offset) ([]byte, error) {
	s, err := l.Session(ctx, sub, upto)
	if err != nil {
		return nil, err
	}
	return json.Marshal([]any{s.Threads, s.History.Live(s.Offset()), s.Ledger.Rejected})
}
