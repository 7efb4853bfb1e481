// Package storecopy copies a store record by record: each record of the copy has the offset of its original. So every
// position, cursor and reference of the original is right in the copy, and equal records prove equal states.
//
// A [Merger] copies subjects into a store that has records of its own. There they get new offsets.
//
// A copy is at every moment a beginning of its original, with fillers ([log.Filler]) in the places of lost
// records, personal ones, and sessions that are left out. A copy that was interrupted continues behind its last record.
package storecopy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Source is the original: a log or a backup.
type Source interface {
	// Durable returns the offset up to which the original can be copied.
	Durable(ctx context.Context) (events.Offset, error)
	// Read yields the records of the original as log.Log does.
	Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	// Record returns the record at an offset as log.Log does.
	Record(ctx context.Context, at events.Offset) (events.Record, error)
}

// Copier copies From to To.
type Copier struct {
	From Source
	To   *log.Log

	// Without are sessions that are left out, their ids included. Their forks must be left out too.
	Without []events.Subject

	// Forget is an erasure that the copy carries out: it never has the content. nil: none.
	Forget *erasure.Plan

	// Progress is called now and then with the offset that was reached. Default: no calls.
	Progress func(at events.Offset)
}

// ForkError reports a session that cannot be left out, because the copy has a fork of it.
type ForkError struct {
	Session, Fork events.Subject
	Offset        events.Offset // of the fork's first record
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("%s cannot be left out: %s, at %v, is a fork of it", e.Session.Name(), e.Fork.Name(), e.Offset)
}

// SizeError reports a record that exceeds the max_payload of the server of the copy.
type SizeError struct {
	Offset    events.Offset
	Size, Max int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("record %v has %d bytes of data, and the target takes %d: raise the server's max_payload", e.Offset, e.Size, e.Max)
}

// Begin checks that the copy is a beginning of the original, and returns the offset where it ends. Otherwise the error
// is a *log.OtherLogError. Begin writes nothing.
func (c *Copier) Begin(ctx context.Context) (events.Offset, error) {
	at, err := c.To.Head(ctx)
	if err != nil || at == 0 {
		return at, err
	}
	end, err := c.From.Durable(ctx)
	if err != nil {
		return at, err
	}
	for rec, err := range c.To.ReadBack(ctx, events.Range{}) {
		if err != nil {
			return at, err
		}
		if rec.Offset == end+1 && c.isReceipt(rec) {
			continue // the copy was complete
		}
		if rec.Offset > end {
			return at, &log.OtherLogError{Offset: rec.Offset, Have: rec.ID}
		}
		if isFiller(rec) {
			continue // an original stands for nothing here
		}
		original, err := c.From.Record(ctx, rec.Offset)
		if err == nil {
			original, err = c.left(ctx, original)
		}
		switch {
		case events.IsDamage(err):
			continue // lost since it was copied
		case errors.Is(err, events.ErrNotFound):
			return at, &log.OtherLogError{Offset: rec.Offset, Have: rec.ID}
		case err != nil:
			return at, err
		case !original.Event.Equal(rec.Event):
			return at, &log.OtherLogError{Offset: rec.Offset, Have: rec.ID, Want: original.ID}
		}
		return at, nil
	}
	return at, nil
}

func isFiller(rec events.Record) bool { return rec.Event.Equal(log.Filler(rec.Offset)) }

// Survey reads the original before anything is copied behind an offset. It returns the *ForkError or *SizeError with which
// the copy would end, or events.ErrNotFound if a session that is to be left out does not exist. It reads nothing if none
// of these can be.
func (c *Copier) Survey(ctx context.Context, after events.Offset) error {
	if len(c.Without) == 0 && c.To.MaxMirrored() >= events.MaxData {
		return nil
	}
	found := make(map[events.Subject]bool, len(c.Without))
	for rec, err := range events.Readable(c.From.Read(ctx, events.Range{})) {
		if err == nil && rec.Offset > after {
			_, err = c.wanted(rec)
		}
		if err != nil {
			return err
		}
		if c.leavesOut(rec) == without {
			found[rec.Subject] = true
		}
	}
	for _, sub := range c.Without {
		if !found[sub] {
			return fmt.Errorf("%s: %w", sub.Name(), events.ErrNotFound)
		}
	}
	return nil
}

// Run copies everything up to the durable end of the original, and returns the offset where the copy ends.
func (c *Copier) Run(ctx context.Context) (events.Offset, error) {
	return c.To.Mirror(ctx, func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error] {
		return c.all(ctx, c.From.Read(ctx, events.Range{After: after}))
	})
}

// Receipt appends the receipt of Forget behind a complete copy. If the copy has it already, Receipt does nothing.
func (c *Copier) Receipt(ctx context.Context) error {
	if c.Forget == nil {
		return nil
	}
	receipt, err := c.Forget.Event()
	if err != nil {
		return err
	}
	_, err = c.To.Last(ctx, receipt.Subject)
	if !errors.Is(err, events.ErrNotFound) {
		return err
	}
	_, err = c.To.Mirror(ctx, func(_ context.Context, after events.Offset) iter.Seq2[events.Record, error] {
		return func(yield func(events.Record, error) bool) {
			if _, err := c.To.Last(ctx, receipt.Subject); errors.Is(err, events.ErrNotFound) {
				yield(events.Record{Event: receipt, Offset: after + 1, Recorded: time.Now()}, nil)
			}
		}
	})
	return err
}

func (c *Copier) isReceipt(rec events.Record) bool {
	return c.Forget != nil && rec.Subject == c.Forget.Document()
}

// left returns what remains of a record by Forget.
func (c *Copier) left(ctx context.Context, rec events.Record) (events.Record, error) {
	if c.Forget == nil {
		return rec, nil
	}
	planned, ok := c.Forget.Find(rec.Offset)
	if !ok {
		return rec, nil
	}
	if rec.Subject != planned.Subject {
		return rec, fmt.Errorf("record %v is of %s, and in the plan of %s: the plan is of another store", rec.Offset, rec.Subject.Name(), planned.Subject.Name())
	}
	if whole, err := projector.Resolve(ctx, c.From, rec, events.MaxValue); err == nil {
		rec = whole
	} else if !events.IsDamage(err) {
		return rec, err
	}
	var err error
	if rec.Event, err = planned.Apply(c.Forget.Receipt, rec.Event); err != nil {
		return rec, fmt.Errorf("record %v: %w", rec.Offset, err)
	}
	return rec, nil
}

// Follower is an original that goes on: a log.
type Follower interface {
	Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
}

// Follow copies new records as they are appended, until another context is done, and then everything up to the durable
// end, so that the copy does not end in the middle of an append.
func (c *Copier) Follow(ctx, until context.Context, from Follower) (events.Offset, error) {
	at, err := c.To.Mirror(ctx, func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error] {
		return func(yield func(events.Record, error) bool) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(until, cancel)()
			c.all(ctx, from.Follow(ctx, events.Range{After: after}))(yield)
		}
	})
	if err != nil {
		return at, err
	}
	return c.Run(ctx)
}

// progressEvery is the number of records between two calls of Progress.
const progressEvery = 1024

// all yields records as the copy is to have them.
func (c *Copier) all(ctx context.Context, records iter.Seq2[events.Record, error]) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		n := 0
		for rec, err := range records {
			if err == nil {
				rec, err = c.left(ctx, rec)
			}
			if err == nil {
				rec, err = c.wanted(rec)
			}
			if !yield(rec, err) {
				return
			}
			if n++; n%progressEvery == 0 && c.Progress != nil && err == nil {
				c.Progress(rec.Offset)
			}
		}
	}
}

// wanted returns a record as the copy is to have it: without event where a filler takes its place.
func (c *Copier) wanted(rec events.Record) (events.Record, error) {
	if err := c.forks(rec); err != nil {
		return events.Record{}, err
	}
	if c.leavesOut(rec) != copied {
		return events.Record{Offset: rec.Offset, Recorded: rec.Recorded}, nil
	}
	if most := c.To.MaxMirrored(); len(rec.Data) > most {
		return events.Record{}, &SizeError{Offset: rec.Offset, Size: len(rec.Data), Max: most}
	}
	return rec, nil
}

// forks returns a *ForkError if a record that is copied makes a fork of a session that is left out.
func (c *Copier) forks(rec events.Record) error {
	if len(c.Without) == 0 || rec.Type != events.TypeSessionCreated || c.leavesOutSubject(rec.Subject) != copied {
		return nil
	}
	p, err := events.Decode(rec.Type, rec.Data)
	made, ok := p.(*events.SessionCreated)
	if err != nil || !ok || made.Fork == nil {
		return nil // readers reject it, or it is no fork
	}
	if source := events.Session(rec.Subject.Namespace, made.Fork.Session); c.leavesOutSubject(source) != copied {
		return &ForkError{Session: source, Fork: rec.Subject, Offset: rec.Offset}
	}
	return nil
}

// reason is the reason why a filler takes the place of a record.
type reason int

const (
	copied   reason = iota // none does
	personal               // it has personal events
	without                // it has events of a session that is left out
	large                  // it is of an append to several subjects, and the server of the copy does not take it
)

// leavesOut returns the reason why a record is not copied. The record of an append to several subjects has copies of all
// its events, which are needed only while the append is under way.
func (c *Copier) leavesOut(rec events.Record) reason {
	if rec.Type != events.TypeUnitAppended || rec.Subject.Kind != events.KindUnit {
		return c.leavesOutSubject(rec.Subject)
	}
	var unit struct {
		Events []struct {
			Subject string `json:"subject"`
		} `json:"events"`
	}
	if len(rec.Data) > c.To.MaxMirrored() || rawjson.Unmarshal(rec.Data, &unit) != nil {
		return large // or its events cannot be read
	}
	why := copied
	for _, e := range unit.Events {
		sub, err := events.ParseNATS(e.Subject)
		if err != nil {
			return large
		}
		if of := c.leavesOutSubject(sub); of != copied && why != personal {
			why = of
		}
	}
	return why
}

func (c *Copier) leavesOutSubject(sub events.Subject) reason {
	switch {
	case sub.Namespace == events.PersonalNamespace:
		return personal
	case slices.Contains(c.Without, sub):
		return without
	}
	return copied
}
