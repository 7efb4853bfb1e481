package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Source is the log as folds see it. Read yields records in the order of their
// offsets, and a *events.DamageError in the place of one that cannot be read;
// any other error ends the read. Record reads one, whatever its subject.
type Source interface {
	Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Record(ctx context.Context, at events.Offset) (events.Record, error)
}

// ErrNotFound says that there is no such session, document or position.
var ErrNotFound = errors.New("not found")

// Loader loads sessions and documents from a log, with the help of snapshots.
// It is safe for concurrent use.
type Loader struct {
	Source    Source
	Snapshots snapshot.Store // nil: fold from the first record
	Logger    *slog.Logger   // default: discard
	MaxValue  int64          // largest value kept by reference, in bytes; default events.MaxValue

	most int64 // bytes of data that one load folds at most; 0: any number
}

// errTooLarge ends a load that would fold more than Loader.most.
var errTooLarge = errors.New("the session is too large")

func (l *Loader) logger() *slog.Logger {
	return cmp.Or(l.Logger, slog.New(slog.DiscardHandler))
}

func (l *Loader) maxValue() int64 { return cmp.Or(l.MaxValue, events.MaxValue) }

// read yields the records of a range with their data resolved.
func (l *Loader) read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range l.Source.Read(ctx, r) {
			if err == nil {
				rec, err = Resolve(ctx, l.Source, rec, l.maxValue())
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Session loads a session as of an offset: with what happened up to there and
// nothing later. 0 is the head. A session without a record up to there is
// ErrNotFound.
func (l *Loader) Session(ctx context.Context, sub events.Subject, at events.Offset) (*Session, error) {
	ld := loading{Loader: l, sub: sub, at: at}
	s, err := ld.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", sub, err)
	}
	if s.History.Last() == 0 && len(s.Damaged) == 0 {
		return nil, fmt.Errorf("load %s: %w", sub, ErrNotFound)
	}
	return s, nil
}

// loading is one load of one session.
type loading struct {
	*Loader
	sub events.Subject
	at  events.Offset // 0: head
	s   *Session

	folded int64 // bytes of data so far
	// behind says that the threads of s are not those of its live list any more.
	behind bool
}

func (ld *loading) session(ctx context.Context) (*Session, error) {
	ld.s = ld.newest(ctx, func(m snapshot.Meta) bool { return ld.at == 0 || m.Offset <= ld.at })
	if ld.s == nil {
		ld.s = NewSession(ld.sub)
	}
	if err := ld.rest(ctx); err != nil {
		return nil, err
	}
	if ld.behind {
		threads, err := ld.threads(ctx)
		if err != nil {
			return nil, err
		}
		ld.s.Threads = threads
	}
	return ld.s, nil
}

// rest folds the records after those that the state has.
func (ld *loading) rest(ctx context.Context) error {
	s := ld.s
	for rec, err := range ld.read(ctx, events.Range{Subject: ld.sub, After: s.Offset(), Upto: ld.at}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			s.Damaged = append(s.Damaged, damage.Offset)
			continue
		}
		if err != nil {
			return err
		}
		if ld.folded += int64(len(rec.Data)); ld.most > 0 && ld.folded > ld.most {
			return errTooLarge
		}
		f := Decode(rec)
		if fork := f.ForkOf(s.History); fork != nil {
			if err := ld.inherit(ctx, *fork, f.Offset); err != nil {
				return err
			}
		}
		v := s.Apply(f)
		_, rewound := f.Payload.(*events.SessionRewound)
		switch {
		case rewound && v.Void == "":
			ld.behind = true
		case v.Live && !ld.behind:
			if err := s.Threads.Apply(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit begins a fork, born at an offset, with what its parent was at the fork
// offset.
func (ld *loading) inherit(ctx context.Context, fork events.Fork, born events.Offset) error {
	sub, at, err := ld.origin(ctx, events.Session(ld.sub.Namespace, fork.Session), fork.Offset, born)
	var parent *Session
	if err == nil {
		parent, err = ld.Session(ctx, sub, at)
	}
	if errors.Is(err, ErrNotFound) {
		return nil // a fork of nothing inherits nothing
	}
	if err != nil {
		return err
	}
	ld.s.History.Inherit(parent.History, parent.History.lastOffset())
	ld.s.Threads = parent.Threads
	ld.s.Damaged = append(ld.s.Damaged, parent.Damaged...)
	return nil
}

// origin gives the session, and the offset in it, that a session consisted of at
// an offset: itself there, or before its first record what it had inherited up to
// there. A session that begins at born or later is ErrNotFound: it was not there
// when somebody forked it at born, and so nobody descends from himself.
func (ld *loading) origin(ctx context.Context, sub events.Subject, at, born events.Offset) (events.Subject, events.Offset, error) {
	for rec, err := range ld.Source.Read(ctx, events.Range{Subject: sub, Limit: 1}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged || err == nil && rec.Offset <= at {
			break
		}
		if err != nil {
			return sub, at, err
		}
		if rec.Offset >= born {
			return sub, at, ErrNotFound
		}
		begun, err := ld.Session(ctx, sub, rec.Offset)
		if err != nil {
			return sub, at, err
		}
		if n := begun.History.numberAt(at); n >= 0 {
			return begun.History.sourceOf(n), begun.History.offsets[n], nil
		}
	}
	return sub, at, nil
}

// threads folds the live list of a history that is known: from the newest
// snapshot whose list is a prefix of it, else from what a fork inherited, else
// from the first record.
func (ld *loading) threads(ctx context.Context) (Threads, error) {
	h := ld.s.History
	last := h.lastLive(len(h.offsets) - 1)
	if last < 0 {
		return make(Threads), nil
	}
	if last < h.inherited() {
		return ld.threadsOf(ctx, h.sourceOf(last), h.offsets[last])
	}
	threads, after, err := ld.prefix(ctx)
	if err != nil {
		return nil, err
	}
	for rec, err := range ld.read(ctx, events.Range{Subject: ld.sub, After: after, Upto: h.offsets[last]}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue // counted when the history was read
		}
		if err != nil {
			return nil, err
		}
		if !events.IsThread(rec.Type) || !h.IsLive(rec.Offset) {
			continue
		}
		if err := threads.Apply(Decode(rec)); err != nil {
			return nil, err
		}
	}
	return threads, nil
}

// prefix gives threads of which the live list is a continuation, and the offset
// after which it goes on.
func (ld *loading) prefix(ctx context.Context) (Threads, events.Offset, error) {
	h := ld.s.History
	usable := func(m snapshot.Meta) bool {
		if len(m.Live) == 0 {
			return false
		}
		last := m.Live[len(m.Live)-1].To
		return last >= h.First() && h.IsLive(last) // what is inherited is its own session's to know
	}
	if s := ld.newest(ctx, usable); s != nil {
		return s.Threads, s.History.LastLive(s.Offset()), nil
	}
	inherited := -1 // the last inherited record that is live
	for _, s := range h.stretches(len(h.offsets) - 1) {
		if s.from < h.inherited() {
			inherited = min(s.to, h.inherited()-1)
		}
	}
	if inherited < 0 {
		return make(Threads), 0, nil
	}
	threads, err := ld.threadsOf(ctx, h.sourceOf(inherited), h.offsets[inherited])
	return threads, h.offsets[h.inherited()-1], err
}

// threadsOf gives the threads of a session right after one of its live records.
func (ld *loading) threadsOf(ctx context.Context, sub events.Subject, at events.Offset) (Threads, error) {
	s, err := ld.Session(ctx, sub, at)
	if err != nil {
		return nil, err
	}
	return s.Threads, nil
}

// newest gives the newest sound snapshot that the caller accepts, nil if there is
// none. What is not sound is named once and removed.
func (ld *loading) newest(ctx context.Context, accept func(snapshot.Meta) bool) *Session {
	if ld.Snapshots == nil {
		return nil
	}
	metas, err := ld.Snapshots.List(ctx, ld.sub, SessionFold)
	if err != nil {
		ld.logger().Warn("snapshots cannot be listed", "subject", ld.sub.String(), "err", err)
		return nil
	}
	for _, m := range metas {
		if !accept(m) {
			continue
		}
		s, err := ld.verified(ctx, m)
		if err == nil {
			return s
		}
		if ctx.Err() != nil {
			return nil
		}
		ld.logger().Warn("snapshot discarded", "subject", ld.sub.String(), "offset", uint64(m.Offset), "reason", err.Error())
		if err := ld.Snapshots.Delete(ctx, m); err != nil {
			ld.logger().Warn("snapshot cannot be removed", "subject", ld.sub.String(), "offset", uint64(m.Offset), "err", err)
		}
	}
	return nil
}

// verified reads a snapshot and holds it against the log.
func (ld *loading) verified(ctx context.Context, m snapshot.Meta) (*Session, error) {
	if m.Version != SessionFoldVersion {
		return nil, fmt.Errorf("made by version %d of the fold, this is %d", m.Version, SessionFoldVersion)
	}
	rec, err := ld.Source.Record(ctx, m.Offset)
	if err != nil {
		return nil, fmt.Errorf("the log has no record %v: %v", m.Offset, err)
	}
	if rec.ID != m.EventID || rec.Subject != ld.sub {
		return nil, fmt.Errorf("the log has event %q of %s at %v, not %q", rec.ID, rec.Subject, m.Offset, m.EventID)
	}
	snap, err := ld.Snapshots.Get(ctx, m)
	if err != nil {
		return nil, err
	}
	s, err := DecodeSession(snap.Data)
	if err != nil {
		return nil, err
	}
	if s.Subject != ld.sub || s.Offset() != m.Offset || !equalLive(s.History.Live(m.Offset), m.Live) {
		return nil, errors.New("the state is of another subject, offset or live list")
	}
	return s, nil
}

func equalLive(live []Interval, stored []snapshot.Interval) bool {
	if len(live) != len(stored) {
		return false
	}
	for i := range live {
		if live[i].From != stored[i].From || live[i].To != stored[i].To {
			return false
		}
	}
	return true
}

// Snapshot gives the session in the form in which it is kept between loads. A
// session with damaged records has none: it would hide them.
func (s *Session) Snapshot(kept string) (snapshot.Snapshot, error) {
	if len(s.Damaged) > 0 {
		return snapshot.Snapshot{}, fmt.Errorf("projector: %s has damaged records", s.Subject)
	}
	data, err := s.Encode()
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	m := snapshot.Meta{Subject: s.Subject, Fold: SessionFold, Version: SessionFoldVersion, Offset: s.Offset(), EventID: s.Ledger.LastID, Kept: kept}
	for _, i := range s.History.Live(s.Offset()) {
		m.Live = append(m.Live, snapshot.Interval(i))
	}
	return snapshot.Snapshot{Meta: m, Data: data}, nil
}

// InheritedThreads gives the threads of a fork as of an offset below its own
// first record: those of the session whose record the last inherited one is.
func (l *Loader) InheritedThreads(ctx context.Context, s *Session, at events.Offset) (Threads, error) {
	n := s.History.numberAt(at)
	if n < 0 {
		return make(Threads), nil
	}
	from, err := l.Session(ctx, s.History.sourceOf(n), s.History.offsets[n])
	if err != nil {
		return nil, err
	}
	return from.Threads, nil
}
