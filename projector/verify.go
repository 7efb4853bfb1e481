package projector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Finding is a fault that verification found.
type Finding struct {
	Subject string        `json:"subject,omitempty"`
	Offset  events.Offset `json:"offset,omitempty"`
	What    string        `json:"what"`
}

// Verified is the result of a verification.
type Verified struct {
	Records   int       `json:"records"`
	Sessions  int       `json:"sessions"`
	Snapshots int       `json:"snapshots"`        // number of heads; their chunks are checked with them
	Erased    int       `json:"erased,omitempty"` // number of records whose content was erased
	Findings  []Finding `json:"findings"`
}

// Verify reads the whole log, folds every session that has a snapshot from its first record, and compares heads and
// chunks. It changes nothing. progress, if not nil, is called with the number of records read.
func (l *Loader) Verify(ctx context.Context, progress func(records int)) (Verified, error) {
	v := Verified{Findings: []Finding{}}
	seen, gone := make(map[events.Subject]bool), make(map[events.Subject][]Finding)
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
		if rec.Erased() != "" {
			v.Erased++
		}
		if !rec.Subject.IsSession() && isPurge(rec) {
			delete(gone, rec.Subject) // the purge may have removed its content
		}
		if _, err := Resolve(ctx, l.Source, rec, l.maxValue()); err != nil {
			if !events.IsDamage(err) {
				return v, err
			}
			gone[rec.Subject] = append(gone[rec.Subject], Finding{rec.Subject.String(), rec.Offset, err.Error()})
		}
	}
	v.Findings = slices.AppendSeq(v.Findings, inOrder(gone))
	if l.Snapshots == nil {
		return v, nil
	}
	c := checking{Loader: l, v: &v, afresh: l.refolding(), seen: make(map[partID]bool), corrupt: make(map[string]bool)}
	return v, c.all(ctx)
}

// inOrder yields findings in offset order.
func inOrder(gone map[events.Subject][]Finding) iter.Seq[Finding] {
	var list []Finding
	for _, found := range gone {
		list = append(list, found...)
	}
	slices.SortFunc(list, func(a, b Finding) int { return cmp.Compare(a.Offset, b.Offset) })
	return slices.Values(list)
}

// refolding returns a loader that ignores snapshots and changes nothing.
func (l *Loader) refolding() *Loader {
	return &Loader{Source: l.Source, Snapshots: l.Snapshots, Logger: l.Logger, MaxValue: l.MaxValue, ReadOnly: true, sizes: l.sizes, afresh: true}
}

// partID identifies a stored part of a session: a head, a chunk or an index.
type partID struct {
	subject events.Subject
	fold    string
	offset  events.Offset
}

func partOf(m snapshot.Meta) partID { return partID{m.Subject, m.Fold, m.Offset} }

// checking compares stored snapshots with folds from the first record.
type checking struct {
	*Loader
	v       *Verified
	afresh  *Loader
	seen    map[partID]bool // parts that were compared
	corrupt map[string]bool // names of files that are not valid snapshots
}

func (c *checking) found(m snapshot.Meta, err error) {
	if corrupt, ok := errors.AsType[*snapshot.CorruptError](err); ok {
		if c.corrupt[corrupt.Name] {
			return
		}
		c.corrupt[corrupt.Name] = true
	}
	c.v.Findings = append(c.v.Findings, Finding{m.Subject.String(), m.Offset, err.Error()})
}

func (c *checking) all(ctx context.Context) error {
	var heads, parts []snapshot.Meta
	documents := make(map[events.Subject][]snapshot.Meta)
	for m, err := range c.Snapshots.All(ctx) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.found(m, err)
		case m.Fold == SessionFold:
			c.v.Snapshots++
			heads = append(heads, m)
		case m.Fold == documentFold:
			documents[m.Subject] = append(documents[m.Subject], m)
		default:
			parts = append(parts, m)
		}
	}
	for _, m := range heads {
		if m.Version != SessionFoldVersion {
			continue // no load uses it
		}
		if err := c.head(ctx, m); err != nil {
			c.found(m, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, m := range parts { // parts without a head that refers to them
		if c.seen[partOf(m)] || m.Version != SessionFoldVersion {
			continue
		}
		if _, err := c.Snapshots.Get(ctx, m); err != nil {
			c.found(m, err)
		}
	}
	for sub, list := range documents {
		if err := c.document(ctx, sub, list); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// document compares the stored chunks of a document's revisions with a fold from the first record. Not all chunks need
// to exist: readers store them.
func (c *checking) document(ctx context.Context, sub events.Subject, list []snapshot.Meta) error {
	want := make(map[events.Offset][]byte)
	r := &revisions{Loader: c.afresh, sub: sub, into: func(_ context.Context, s snapshot.Snapshot) error {
		want[s.Offset] = s.Data
		return nil
	}}
	r.reopen(0, 0, false)
	if err := r.rest(ctx, 0); err != nil {
		return err
	}
	for _, m := range list {
		if m.Version != documentFoldVersion {
			continue // no load uses it
		}
		have, err := c.Snapshots.Get(ctx, m)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, snapshot.ErrNotFound): // removed meanwhile
		case err != nil:
			c.found(m, err)
		case m.Offset < r.purge:
			c.found(m, errors.New("the snapshot of the document's revisions has purged data"))
		case !bytes.Equal(have.Data, want[m.Offset]):
			c.found(m, errors.New("the snapshot of the document's revisions differs from the log: "+difference(have.Data, want[m.Offset])))
		}
	}
	return nil
}

// head compares one head, and the stored chunks, with a fold from the first record.
func (c *checking) head(ctx context.Context, m snapshot.Meta) error {
	snap, err := c.Snapshots.Get(ctx, m)
	if err != nil {
		return err
	}
	want, err := c.afresh.head(ctx, m.Subject, m.Offset, m.Kept, c.part)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	switch {
	case want.EventID != m.EventID || want.Offset != m.Offset:
		return fmt.Errorf("snapshot is of event %q at %v, the log has %q at %v", m.EventID, m.Offset, want.EventID, want.Offset)
	case !slices.Equal(want.Live, m.Live):
		return fmt.Errorf("snapshot is of the live list %v, the log has %v", m.Live, want.Live)
	case !bytes.Equal(want.Data, snap.Data):
		return errors.New("snapshot differs from the fold of the log: " + difference(snap.Data, want.Data))
	}
	return nil
}

// part compares a chunk or an index with the stored one, once.
func (c *checking) part(ctx context.Context, want snapshot.Snapshot) error {
	if c.seen[partOf(want.Meta)] {
		return nil
	}
	c.seen[partOf(want.Meta)] = true
	have, err := c.Snapshots.Get(ctx, want.Meta)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, snapshot.ErrNotFound):
		c.found(want.Meta, fmt.Errorf("%s of the snapshots is missing", want.Fold))
	case err != nil:
		c.found(want.Meta, err)
	case !bytes.Equal(want.Data, have.Data):
		c.found(want.Meta, fmt.Errorf("%s of the snapshots differs from the log: %s", want.Fold, difference(have.Data, want.Data)))
	}
	return nil
}

// difference describes where two states begin to differ.
func difference(have, want []byte) string {
	n := 0
	for n < min(len(have), len(want)) && have[n] == want[n] {
		n++
	}
	cut := func(b []byte) []byte { return b[max(0, min(n-20, len(b))):min(len(b), n+20)] }
	return fmt.Sprintf("byte %d, %q, should be %q", n, cut(have), cut(want))
}

// Rebuild folds every session from its first record, and replaces all stored snapshots with its head and chunks.
// Sessions with fewer records than the policy requires get no snapshot.
func (l *Loader) Rebuild(ctx context.Context, p Policy, progress func(sessions int)) (rebuilt int, err error) {
	p = p.withDefaults()
	counts := make(map[events.Subject]int)
	var order []events.Subject
	for rec, err := range events.Readable(l.Source.Read(ctx, events.Range{Kind: events.KindSession})) {
		if err != nil {
			return 0, err
		}
		if counts[rec.Subject]++; counts[rec.Subject] == 1 {
			order = append(order, rec.Subject)
		}
	}
	fromZero, fresh, to := l.refolding(), make(map[partID]bool), l.since()
	put := func(ctx context.Context, s snapshot.Snapshot) error {
		if fresh[partOf(s.Meta)] {
			return nil
		}
		fresh[partOf(s.Meta)] = true
		return putTo(ctx, to, s)
	}
	for i, sub := range order {
		if progress != nil {
			progress(i)
		}
		if p.Records < 0 || counts[sub] < p.Records {
			continue
		}
		snap, err := fromZero.head(ctx, sub, 0, "", put)
		if errors.Is(err, errDamaged) {
			continue // loads fold it
		}
		if err == nil {
			err = put(ctx, snap)
		}
		if err != nil {
			return rebuilt, err
		}
		rebuilt++
	}
	return rebuilt, l.dropOthers(ctx, fresh)
}

// dropOthers removes all snapshots but the fresh ones, and all files that are not valid snapshots.
func (l *Loader) dropOthers(ctx context.Context, fresh map[partID]bool) error {
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
		if fresh[partOf(m)] && m.Version == SessionFoldVersion {
			continue
		}
		if err := l.Snapshots.Delete(ctx, m); err != nil {
			return err
		}
	}
	return ctx.Err()
}
