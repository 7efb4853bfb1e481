package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Finding is something that verification found wrong.
type Finding struct {
	Subject string        `json:"subject,omitempty"`
	Offset  events.Offset `json:"offset,omitempty"`
	What    string        `json:"what"`
}

// Verified counts what verification looked at.
type Verified struct {
	Records   int       `json:"records"`
	Sessions  int       `json:"sessions"`
	Snapshots int       `json:"snapshots"`
	Findings  []Finding `json:"findings"`
}

// Verify reads the whole log, folds every session that has a snapshot from zero
// and compares. It changes nothing. progress, if not nil, is told how many
// records were read.
func (l *Loader) Verify(ctx context.Context, progress func(records int)) (Verified, error) {
	v := Verified{Findings: []Finding{}}
	seen := make(map[events.Subject]bool)
	for rec, err := range l.Source.Read(ctx, events.Range{}) {
		v.Records++
		if progress != nil {
			progress(v.Records)
		}
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			v.Findings = append(v.Findings, Finding{Offset: damage.Offset, What: damage.Error()})
			continue
		}
		if err != nil {
			return v, err
		}
		if rec.Subject.IsSession() && !seen[rec.Subject] {
			seen[rec.Subject] = true
			v.Sessions++
		}
		if _, err := Resolve(ctx, l.Source, rec, l.maxValue()); err != nil {
			if _, damaged := errors.AsType[*events.DamageError](err); !damaged {
				return v, err
			}
			v.Findings = append(v.Findings, Finding{rec.Subject.String(), rec.Offset, err.Error()})
		}
	}
	if l.Snapshots == nil {
		return v, nil
	}
	fromZero := &Loader{Source: l.Source, Logger: l.Logger, MaxValue: l.MaxValue}
	for m, err := range l.Snapshots.All(ctx) {
		v.Snapshots++
		if err == nil {
			err = l.compare(ctx, fromZero, m)
		}
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		if err != nil {
			v.Findings = append(v.Findings, Finding{m.Subject.String(), m.Offset, err.Error()})
		}
	}
	return v, nil
}

// compare holds one snapshot against a fold from zero.
func (l *Loader) compare(ctx context.Context, fromZero *Loader, m snapshot.Meta) error {
	if m.Fold != SessionFold || m.Version != SessionFoldVersion {
		return nil // no load would use it
	}
	snap, err := l.Snapshots.Get(ctx, m)
	if err != nil {
		return err
	}
	s, err := fromZero.Session(ctx, m.Subject, m.Offset)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	want, err := s.Snapshot(m.Kept)
	switch {
	case err != nil:
		return err
	case want.EventID != m.EventID || want.Offset != m.Offset:
		return fmt.Errorf("snapshot is of event %q at %v, the log has %q at %v", m.EventID, m.Offset, want.EventID, want.Offset)
	case !slices.Equal(want.Live, m.Live):
		return fmt.Errorf("snapshot is of the live list %v, the log has %v", m.Live, want.Live)
	case !bytes.Equal(want.Data, snap.Data):
		return errors.New("snapshot differs from the fold of the log: " + difference(snap.Data, want.Data))
	}
	return nil
}

// difference says where two states begin to differ.
func difference(have, want []byte) string {
	n := 0
	for n < min(len(have), len(want)) && have[n] == want[n] {
		n++
	}
	cut := func(b []byte) []byte { return b[max(0, min(n-20, len(b))):min(len(b), n+20)] }
	return fmt.Sprintf("byte %d, %q, should be %q", n, cut(have), cut(want))
}

// Rebuild folds every session from zero and stores its state in the place of all
// its snapshots. Sessions of fewer records than the policy asks for get none.
func (l *Loader) Rebuild(ctx context.Context, p Policy, progress func(sessions int)) (rebuilt int, err error) {
	p = p.withDefaults()
	counts := make(map[events.Subject]int)
	var order []events.Subject
	for rec, err := range l.Source.Read(ctx, events.Range{Kind: events.KindSession}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue
		}
		if err != nil {
			return 0, err
		}
		if counts[rec.Subject]++; counts[rec.Subject] == 1 {
			order = append(order, rec.Subject)
		}
	}
	fromZero := &Loader{Source: l.Source, Logger: l.Logger, MaxValue: l.MaxValue}
	fresh := make(map[events.Subject]events.Offset)
	for i, sub := range order {
		if progress != nil {
			progress(i)
		}
		if p.Records < 0 || counts[sub] < p.Records {
			continue
		}
		s, err := fromZero.Session(ctx, sub, 0)
		if err != nil {
			return rebuilt, err
		}
		snap, err := s.Snapshot("")
		if err != nil || int64(len(snap.Data)) > p.MaxSize {
			continue // damaged or too large: loads fold it
		}
		if err := l.Snapshots.Put(ctx, snap); err != nil {
			return rebuilt, err
		}
		fresh[sub] = snap.Offset
		rebuilt++
	}
	return rebuilt, l.dropOthers(ctx, fresh)
}

// dropOthers removes every snapshot but the fresh ones, and what is none.
func (l *Loader) dropOthers(ctx context.Context, fresh map[events.Subject]events.Offset) error {
	for m, err := range l.Snapshots.All(ctx) {
		if corrupt, ok := errors.AsType[*snapshot.CorruptError](err); ok {
			if err := l.Snapshots.Discard(ctx, corrupt.Name); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if fresh[m.Subject] == m.Offset && m.Version == SessionFoldVersion {
			continue
		}
		if err := l.Snapshots.Delete(ctx, m); err != nil {
			return err
		}
	}
	return ctx.Err()
}
