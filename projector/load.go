package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/snapshot"
)

// Source is the log that folds read. Read yields records in offset order, and a *events.DamageError instead of a record
// that cannot be read. Any other error ends the read. Record reads one record of any subject.
type Source interface {
	Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Record(ctx context.Context, at events.Offset) (events.Record, error)
}

// firsts is a Source that finds the first record of a subject without reading it.
type firsts interface {
	// First returns the offset, or ErrNotFound if no record can be read.
	First(ctx context.Context, sub events.Subject) (events.Offset, error)
}

// First returns the offset of the first readable record of a subject, or ErrNotFound.
func (l *Loader) First(ctx context.Context, sub events.Subject) (events.Offset, error) {
	if s, ok := l.Source.(firsts); ok {
		return s.First(ctx, sub)
	}
	for rec, err := range l.Source.Read(ctx, events.Range{Subject: sub}) {
		if !events.IsDamage(err) {
			return rec.Offset, err
		}
	}
	return 0, ErrNotFound
}

// ErrNotFound reports a missing session, document or position.
var ErrNotFound = events.ErrNotFound

// Loader loads sessions and documents from a log, with the help of snapshots. It is safe for concurrent use. Do not
// copy it.
type Loader struct {
	Source    Source
	Snapshots snapshot.Store // nil: fold from the first record
	Logger    *slog.Logger   // default: discard
	MaxValue  int64          // largest value stored by reference, in bytes; default events.MaxValue

	// Upto is the end of the log for Session, Outline and Document. If the caller asks for a later state or the current
	// one, they load the state as of Upto. 0: no bound.
	Upto events.Offset

	// Now returns the log's time, which decides when documents expire. Default: the time of the newest record.
	Now func(context.Context) (time.Time, error)

	// ReadOnly leaves the snapshots unchanged. By default, the loader removes damaged parts and rebuilds them from the
	// log if possible.
	ReadOnly bool

	cache  cache
	sizes  sizes // zero: standardSizes
	afresh bool  // ignore snapshots and fold from the first record
}

func (l *Loader) chunkSizes() sizes { return cmp.Or(l.sizes, standardSizes) }

func (l *Loader) logger() *slog.Logger {
	return cmp.Or(l.Logger, slog.New(slog.DiscardHandler))
}

func (l *Loader) maxValue() int64 { return cmp.Or(l.MaxValue, events.MaxValue) }

// bounded returns the offset to load for a requested one.
func (l *Loader) bounded(at events.Offset) events.Offset {
	if l.Upto != 0 && (at == 0 || at > l.Upto) {
		return l.Upto
	}
	return at
}

// read yields the records of a range with their data resolved.
func (l *Loader) read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		var kept blobs
		for rec, err := range l.Source.Read(ctx, r) {
			if err == nil {
				rec, err = kept.resolve(ctx, l.Source, rec, l.maxValue())
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Session loads a session as of an offset: all records up to there, and no later ones. 0 is the head. If the session
// has no record up to there, Session returns ErrNotFound. If records cannot be read, it returns the session with a
// *HoleError.
func (l *Loader) Session(ctx context.Context, sub events.Subject, at events.Offset) (s *Session, err error) {
	err = l.load(ctx, sub, l.bounded(at), nil, func(ld *loading) error {
		s, err = ld.complete(ctx)
		return err
	})
	if err == nil {
		err = HoleOf(sub, s.Damaged)
	}
	return s, err
}

// Fold folds the facts of a new session, without a log or snapshots. The facts must not fork the session or move its
// head.
func Fold(ctx context.Context, sub events.Subject, facts []Fact) (s *Session, err error) {
	ld := &loading{Loader: new(Loader), sub: sub}
	ld.begin(ctx)
	for _, f := range facts {
		if f.ForkOf(ld.s.history) != nil {
			return nil, fmt.Errorf("fold %s: a fork needs the log", sub.Name())
		}
		if err := ld.s.apply(f, func() error { return nil }); err != nil {
			return nil, fmt.Errorf("fold %s: %w", sub.Name(), err)
		}
		if ld.s.behind {
			return nil, fmt.Errorf("fold %s: a rewind needs the log", sub.Name())
		}
	}
	return ld.complete(ctx)
}

// begin creates the state of a session without records.
func (ld *loading) begin(ctx context.Context) {
	ld.s = newState(ld.sub, ld.chunkSizes())
	ld.s.history.older = &pager{pages: &chunkPages{ctx, ld.Loader, ld.s}}
}

// head loads a session, stores its chunks and returns the head that refers to them.
func (l *Loader) head(ctx context.Context, sub events.Subject, at events.Offset, kept string, into sink) (snap snapshot.Snapshot, err error) {
	err = l.load(ctx, sub, at, into, func(ld *loading) error {
		if len(ld.s.damaged) == 0 {
			if err := ld.s.save(ctx, into); err != nil {
				return err
			}
		}
		snap, err = ld.s.snapshot(kept)
		return err
	})
	return snap, err
}

// Keep stores the session as of an offset, 0 for its head, as a snapshot: first the missing chunks, then the head. kept
// is the reason to exempt it from pruning. If the session has damaged records, Keep returns an error, because the
// snapshot would hide them. The loader must have snapshots.
func (l *Loader) Keep(ctx context.Context, sub events.Subject, at events.Offset, kept string) (snapshot.Meta, error) {
	st := storing{l: l, to: l.since()}
	snap, err := l.head(ctx, sub, at, kept, st.put)
	if err == nil {
		err = st.put(ctx, snap)
	}
	return snap.Meta, err
}

// storing stores the parts of one load. It does not rewrite chunks that exist, for example when the target of a rewind
// is folded from the first record. If an existing chunk is damaged, its next reader detects that.
type storing struct {
	l      *Loader
	to     snapshot.Store         // takes nothing once content was erased
	chunks map[events.Subject]int // number of chunks that the load produced
	there  map[partID]string      // hashes of the stored parts
}

// looksUp is the number of chunks after which a load checks which chunks exist. The check takes time, and a load that
// follows a session has at most one chunk.
const looksUp = 3

func (st *storing) put(ctx context.Context, s snapshot.Snapshot) error {
	if s.Fold != ChunkFold { // a damaged index cannot be rebuilt alone, so it is always written
		return putTo(ctx, st.to, s)
	}
	if st.chunks == nil {
		st.chunks, st.there = make(map[events.Subject]int), make(map[partID]string)
	}
	if st.chunks[s.Subject]++; st.chunks[s.Subject] == looksUp {
		list, err := st.l.Snapshots.List(ctx, s.Subject, ChunkFold)
		if err != nil {
			return &storeError{err}
		}
		for _, m := range list {
			if m.Version == SessionFoldVersion {
				st.there[partOf(m)] = m.Hash
			}
		}
	}
	if st.there[partOf(s.Meta)] == s.Hash {
		return nil
	}
	return putTo(ctx, st.to, s)
}

// putTo stores a part of a snapshot.
func putTo(ctx context.Context, to snapshot.Store, s snapshot.Snapshot) error {
	if err := to.Put(ctx, s); err != nil {
		return &storeError{err}
	}
	return nil
}

// storeError reports that a snapshot cannot be written. The session is not at fault.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }

func (e *storeError) Unwrap() error { return e.err }

// load folds a session as of an offset and passes it to use. If a part of a snapshot turns out to be lost, load starts
// again without that snapshot. With a sink, it stores chunks as soon as they are full, so a session of any length needs
// little memory.
func (l *Loader) load(ctx context.Context, sub events.Subject, at events.Offset, into sink, use func(*loading) error) error {
	return l.loadWithout(ctx, sub, at, into, nil, use)
}

// loadWithout is load without the useless heads. These refer to lost parts, and the store may fail to remove them.
func (l *Loader) loadWithout(ctx context.Context, sub events.Subject, at events.Offset, into sink, useless []partID, use func(*loading) error) error {
	for attempt := 0; ; attempt++ {
		ld := &loading{Loader: l, sub: sub, at: at, sink: into, useless: useless}
		err := ld.session(ctx)
		if err == nil {
			err = use(ld)
		}
		if err == nil {
			ld.keepFork(ctx)
			return nil
		}
		if gone, ok := errors.AsType[*lostError](err); ok && (len(ld.used) > 0 || attempt < 3) { // without a head, the lost part was stored by this load
			for _, m := range ld.used {
				l.discarded(ctx, m, gone)
				useless = append(useless, partOf(m))
			}
			continue
		}
		if errors.Is(err, errNoRecord) {
			err = ErrNotFound
		}
		return fmt.Errorf("load %s: %w", sub.Name(), err)
	}
}

// keepFork stores a snapshot of a fork at its first load, so that later loads need not resolve its inherited records
// again.
func (ld *loading) keepFork(ctx context.Context) {
	if !ld.newFork || ld.sink != nil || ld.ReadOnly || ld.Snapshots == nil || len(ld.s.damaged) > 0 {
		return
	}
	if _, err := ld.Keep(ctx, ld.sub, ld.at, ""); err != nil && ctx.Err() == nil {
		ld.logger().Warn("cannot write a snapshot of this fork", "subject", ld.sub, "err", err)
	}
}

// errNoRecord ends the load of a session without records.
var errNoRecord = errors.New("no record")

// loading is one load of one session.
type loading struct {
	*Loader
	sub  events.Subject
	at   events.Offset // 0: head
	sink sink          // nil: nothing is stored
	s    *state
	used []snapshot.Meta // heads that s was made from, including those of its ancestors

	useless []partID // heads that must not be used
	heads   int      // number of heads of the session
	newFork bool     // the session is a fork without heads
}

func (ld *loading) session(ctx context.Context) error {
	ld.s = ld.newest(ctx, func(m snapshot.Meta) bool { return ld.at == 0 || m.Offset <= ld.at })
	if ld.s == nil {
		ld.begin(ctx)
	}
	if err := ld.rest(ctx); err != nil {
		return err
	}
	if ld.s.offset() == 0 && len(ld.s.damaged) == 0 {
		return errNoRecord
	}
	return ld.resolve(ctx)
}

// rest folds the records after the state's last one.
func (ld *loading) rest(ctx context.Context) (err error) {
	s := ld.s
	for rec, err := range ld.read(ctx, events.Range{Subject: ld.sub, After: s.offset(), Known: s.history.Len() - s.history.inherited(), Upto: ld.at}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			s.damaged = append(s.damaged, damage.Offset)
			continue
		}
		if err != nil {
			return err
		}
		f := Decode(rec)
		if fork := f.ForkOf(s.history); fork != nil {
			if err := ld.inherit(ctx, *fork, f.Offset); err != nil {
				return err
			}
		}
		if err := s.apply(f, func() error { return ld.resolve(ctx) }); err != nil {
			return err
		}
		if ld.sink != nil && len(s.own().open.offsets) == 0 && len(s.damaged) == 0 {
			if err := s.save(ctx, ld.sink); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit starts a fork, born at an offset, with the state of its parent at the fork offset.
func (ld *loading) inherit(ctx context.Context, fork events.Fork, born events.Offset) error {
	sub, at, err := ld.origin(ctx, events.Session(ld.sub.Namespace, fork.Session), fork.Offset, born)
	if err == nil {
		err = ld.loadWithout(ctx, sub, at, ld.sink, ld.useless, func(parent *loading) error {
			ld.used, ld.newFork = append(ld.used, parent.used...), ld.heads == 0
			ld.s.inherit(parent.s)
			return nil
		})
	}
	if errors.Is(err, ErrNotFound) {
		return nil // a fork of a missing session inherits nothing
	}
	return err
}

// origin returns the session and offset that hold a session's state at an offset. Before its first record a fork
// consists of inherited records, so origin returns an ancestor. If the session begins at born or later, origin returns
// ErrNotFound: the session did not exist when the fork was made. So no session descends from itself.
func (ld *loading) origin(ctx context.Context, sub events.Subject, at, born events.Offset) (from events.Subject, there events.Offset, err error) {
	from, there = sub, at
	for rec, err := range ld.Source.Read(ctx, events.Range{Subject: sub, Limit: 1}) {
		if events.IsDamage(err) || err == nil && rec.Offset <= at {
			break
		}
		if err != nil {
			return sub, at, err
		}
		if rec.Offset >= born {
			return sub, at, ErrNotFound
		}
		err := ld.loadWithout(ctx, sub, rec.Offset, ld.sink, ld.useless, func(begun *loading) error {
			n, err := begun.s.history.numberAt(at)
			if n < 0 || err != nil {
				return err
			}
			from = begun.s.history.sourceOf(n)
			there, err = begun.s.history.offset(n)
			return err
		})
		return from, there, err
	}
	return from, there, nil
}

// resolve updates the threads to the live list after the head moved. It starts from the newest usable mark of a chunk,
// else from the newest snapshot whose list is a prefix of the live one, else from the first record.
func (ld *loading) resolve(ctx context.Context) (err error) {
	s := ld.s
	if !s.behind {
		return nil
	}
	list := s.segmentsAfter(s.history.Len() - 1)
	threads, rest, err := ld.marked(ctx, list)
	if err == nil && threads == nil {
		threads, rest, err = ld.prefix(ctx, list)
	}
	if err != nil {
		return err
	}
	for _, seg := range rest {
		if err := ld.replay(ctx, threads, seg); err != nil {
			return err
		}
	}
	s.strands, s.behind = threads, false
	return nil
}

// marked returns the threads at the newest mark in a list, and the rest of the list after the mark. Without a mark it
// returns nil.
func (ld *loading) marked(ctx context.Context, list []segment) (strands, []segment, error) {
	for i, seg := range slices.Backward(list) {
		t := ld.s.sources[seg.source]
		for to := min(seg.to, t.open.first-1); to >= seg.from; {
			e, err := t.find(ctx, ld.Loader, hasRecord(to))
			if err != nil {
				return nil, nil, err
			}
			if m := e.Mark; m != nil && m.Lengths == nil && m.Record >= seg.from && m.Record <= to {
				threads, err := strandsOf(m.Threads, seg.source+1)
				if err != nil {
					return nil, nil, lostf("a mark at %v: %v", e.To, err)
				}
				seg.from = m.Record + 1
				return threads, append([]segment{seg}, list[i+1:]...), nil
			}
			to = e.First - 1
		}
	}
	return nil, nil, nil
}

// prefix returns the threads of the newest snapshot whose live list is a prefix of this one, and the rest of the list.
// Without such a snapshot the rest is the whole list.
func (ld *loading) prefix(ctx context.Context, list []segment) (strands, []segment, error) {
	h := ld.s.history
	var failed error // error of the check whether a snapshot is usable
	usable := func(m snapshot.Meta) bool {
		if len(m.Live) == 0 || failed != nil {
			return false
		}
		last := m.Live[len(m.Live)-1].To
		if last < h.First() {
			return false
		}
		var live bool
		live, failed = h.IsLive(last)
		return live
	}
	earlier := ld.newest(ctx, usable)
	if earlier == nil || failed != nil {
		return make(strands), list, failed
	}
	last, err := earlier.history.LastLive(earlier.offset())
	if err != nil {
		return nil, nil, err
	}
	n, err := h.numberAt(last)
	if err != nil {
		return nil, nil, err
	}
	n -= h.inherited()
	for i, seg := range list {
		if seg.source == len(ld.s.sources)-1 && seg.from <= n && n <= seg.to {
			seg.from = n + 1
			return earlier.strands, append([]segment{seg}, list[i+1:]...), nil
		}
	}
	return make(strands), list, nil
}

// replay folds the live records of a segment onto threads.
func (ld *loading) replay(ctx context.Context, threads strands, seg segment) error {
	if seg.from > seg.to {
		return nil
	}
	t := ld.s.sources[seg.source]
	again := func(c *chunkContent) error {
		from, to := max(seg.from, c.first)-c.first, min(seg.to, c.end()-1)-c.first
		if from > to {
			return nil
		}
		for rec, err := range events.Readable(ld.read(ctx, events.Range{Subject: t.subject, After: c.offsets[from] - 1, Upto: c.offsets[to]})) { // damage was counted with the history
			if err != nil {
				return err
			}
			if !events.IsThread(rec.Type) {
				continue
			}
			if err := threads.apply(Decode(rec), seg.source, func(name string) int { return c.firstOf(name, rec.Offset) }); err != nil {
				return err
			}
		}
		return nil
	}
	err := t.chunks(ctx, ld.Loader, seg.from, seg.to, func(e *entry) error {
		c, err := ld.chunk(ctx, t.subject, e)
		if err != nil {
			return err
		}
		return again(c)
	})
	if err != nil {
		return err
	}
	return again(t.open)
}

// newest returns the newest sound snapshot that accept allows, or nil. It logs and removes damaged ones.
func (ld *loading) newest(ctx context.Context, accept func(snapshot.Meta) bool) *state {
	if ld.Snapshots == nil || ld.afresh {
		return nil
	}
	metas, err := ld.Snapshots.List(ctx, ld.sub, SessionFold)
	if err != nil {
		ld.logger().Warn("snapshots cannot be listed", "subject", ld.sub, "err", err)
		return nil
	}
	ld.heads = len(metas)
	for _, m := range metas {
		if !accept(m) || slices.Contains(ld.useless, partOf(m)) {
			continue
		}
		s, err := ld.verified(ctx, m)
		if err == nil {
			ld.used = append(ld.used, m)
			return s
		}
		if ctx.Err() != nil {
			return nil
		}
		ld.discarded(ctx, m, err)
		if m.Version != SessionFoldVersion {
			ld.removeChunks(ctx, m.Version)
		}
	}
	return nil
}

// removeChunks removes the session's chunks of another version of the fold.
func (ld *loading) removeChunks(ctx context.Context, version int) {
	for level, more := 0, true; more; level++ {
		list, err := ld.Snapshots.List(ctx, ld.sub, foldOf(level))
		if err != nil {
			ld.logger().Warn("chunks cannot be listed", "subject", ld.sub, "err", err)
			return
		}
		for _, m := range list {
			if m.Version == version {
				ld.removed(ctx, m)
			}
		}
		more = len(list) > 0
	}
}

// verified reads a snapshot and compares it with the log.
func (ld *loading) verified(ctx context.Context, m snapshot.Meta) (*state, error) {
	if m.Version != SessionFoldVersion {
		return nil, fmt.Errorf("made by version %d of the fold, this is %d", m.Version, SessionFoldVersion)
	}
	rec, err := ld.Source.Record(ctx, m.Offset)
	if err != nil {
		return nil, fmt.Errorf("the log has no record %v: %v", m.Offset, err)
	}
	if rec.ID != m.EventID || rec.Subject != ld.sub {
		return nil, fmt.Errorf("the log has event %q of %s at %v, not %q", rec.ID, rec.Subject.Name(), m.Offset, m.EventID)
	}
	data, err := ld.stored(ctx, m)
	if err != nil {
		return nil, err
	}
	s, err := decodeState(data, ld.chunkSizes())
	if err != nil {
		return nil, err
	}
	s.history.older = &pager{pages: &chunkPages{ctx, ld.Loader, s}}
	live, err := s.history.Live(m.Offset)
	if err != nil {
		return nil, err
	}
	sameLive := slices.EqualFunc(live, m.Live, func(a Interval, b snapshot.Interval) bool { return a == Interval(b) })
	if s.subject != ld.sub || s.offset() != m.Offset || !sameLive {
		return nil, errors.New("the state is of another subject, offset or live list")
	}
	return s, nil
}
