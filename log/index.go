package log

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"sync"
	"unique"

	"github.com/tallylog/tally/events"
)

// maxIndexed bounds the memory of all subjects' ids, in bytes.
const maxIndexed = 16 << 20

// idIndex keeps, for the subjects appended to last, a hash of each identity and
// its offset.
type idIndex struct {
	seed maphash.Seed
	max  int // bytes

	mu       sync.Mutex             // guards the fields below, and the links of the subjects
	subjects map[uint64]*subjectIDs // by the hash of the subject
	ends     subjectIDs             // closes the ring of subjects: older is the most recently used, newer the oldest
	total    int                    // bytes of all of them
}

// subjectIDs holds the identities of one subject up to an offset. Only the append whose turn it is uses it.
type subjectIDs struct {
	sub     events.Subject
	from    events.Offset // offsets starts behind this one; below it, the backend's own index is asked
	upto    events.Offset // the subject's last offset, when it was read
	whole   bool          // the subject was read
	offsets idSet
	types   []newestOfType // the newest event of each type behind from and forgot
	forgot  events.Offset  // types starts behind this offset: there were too many

	counted      int // bytes that the index has counted
	newer, older *subjectIDs
}

// idSet maps hashes of identities to offsets. Most subjects have few, and need no map.
type idSet struct {
	few  [4]indexedID
	n    int
	many map[uint64]events.Offset // every id, if there are more than few holds; nil: few has the first n
}

type indexedID struct {
	hash uint64
	at   events.Offset
}

func (s *idSet) add(hash uint64, at events.Offset) {
	if s.many == nil {
		i := slices.IndexFunc(s.few[:s.n], func(id indexedID) bool { return id.hash == hash })
		switch {
		case i >= 0:
			s.few[i].at = at
			return
		case s.n < len(s.few):
			s.few[s.n] = indexedID{hash, at}
			s.n++
			return
		}
		s.many = make(map[uint64]events.Offset, 2*s.n)
		for _, id := range s.few {
			s.many[id.hash] = id.at
		}
	}
	s.many[hash] = at
}

func (s *idSet) find(hash uint64) (events.Offset, bool) {
	if s.many != nil {
		at, there := s.many[hash]
		return at, there
	}
	for _, id := range s.few[:s.n] {
		if id.hash == hash {
			return id.at, true
		}
	}
	return 0, false
}

// newestOfType is a type and the offset of its newest event.
type newestOfType struct {
	typ string
	at  events.Offset
}

// maxTypes bounds the types that are kept for a subject: producers choose them freely.
const maxTypes = 64

// note adds an event that is behind all noted ones.
func (ids *subjectIDs) note(hash uint64, typ string, at events.Offset) {
	ids.offsets.add(hash, at)
	for i := range ids.types {
		if ids.types[i].typ == typ {
			ids.types[i].at = at
			return
		}
	}
	if len(ids.types) == maxTypes {
		ids.types, ids.forgot = ids.types[:0], at
		return
	}
	ids.types = append(ids.types, newestOfType{unique.Make(typ).Value(), at})
}

// knows reports whether all types that came since an offset are known.
func (ids *subjectIDs) knows(since events.Offset) bool { return since >= max(ids.from, ids.forgot) }

// clash reports whether an event came that an expectation excludes. The caller has checked knows.
func (ids *subjectIDs) clash(expect Expect) bool {
	return slices.ContainsFunc(ids.types, func(t newestOfType) bool { return t.at > expect.at && expect.concerns(t.typ) })
}

// Approximate memory, in bytes, of a subject with few ids, and of an id in a map.
const (
	subjectCost = 288
	idCost      = 36
)

func (ids *subjectIDs) cost() int { return subjectCost + idCost*len(ids.offsets.many) }

func newIDIndex(bytes int) *idIndex {
	x := &idIndex{seed: maphash.MakeSeed(), max: bytes}
	x.forget()
	return x
}

func (x *idIndex) hash(e events.Event) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	h.WriteString(e.Source)
	h.WriteByte(0)
	h.WriteString(e.ID)
	return h.Sum64()
}

func (x *idIndex) key(sub events.Subject) uint64 { return maphash.Comparable(x.seed, sub) }

// known returns the ids of a subject, nil if none are kept.
func (x *idIndex) known(sub events.Subject) *subjectIDs {
	x.mu.Lock()
	defer x.mu.Unlock()
	ids := x.subjects[x.key(sub)]
	if ids == nil || ids.sub != sub {
		return nil
	}
	ids.unlink()
	x.link(ids)
	return ids
}

// of returns the ids of a subject, and starts empty ones if none are kept.
func (x *idIndex) of(sub events.Subject) *subjectIDs {
	if ids := x.known(sub); ids != nil {
		return ids
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	key := x.key(sub)
	if ids := x.subjects[key]; ids != nil {
		if ids.sub == sub {
			return ids
		}
		x.drop(ids) // two subjects with one hash
	}
	ids := &subjectIDs{sub: sub, counted: subjectCost}
	x.subjects[key] = ids
	x.link(ids)
	x.total += subjectCost
	return ids
}

// grew accounts for a subject's new ids and forgets the subjects that were not used for longest.
func (x *idIndex) grew(ids *subjectIDs) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.subjects[x.key(ids.sub)] != ids {
		return // forgotten meanwhile
	}
	x.total += ids.cost() - ids.counted
	ids.counted = ids.cost()
	for x.total > x.max && len(x.subjects) > 1 {
		x.drop(x.ends.newer)
	}
}

// drop forgets a subject. The caller holds mu.
func (x *idIndex) drop(ids *subjectIDs) {
	ids.unlink()
	delete(x.subjects, x.key(ids.sub))
	x.total -= ids.counted
}

// link adds a subject to the ring as the most recently used. The caller holds mu.
func (x *idIndex) link(ids *subjectIDs) {
	ids.newer, ids.older = &x.ends, x.ends.older
	ids.newer.older, ids.older.newer = ids, ids
}

// unlink takes a subject out of the ring. The caller holds the index's mu.
func (ids *subjectIDs) unlink() { ids.newer.older, ids.older.newer = ids.older, ids.newer }

// forget drops all ids, so that the subjects are read again.
func (x *idIndex) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.subjects, x.total = make(map[uint64]*subjectIDs), 0
	x.ends.newer, x.ends.older = &x.ends, &x.ends
}

// stored notes an append of this Log. If the append expected the offset up to which the subject is known, or nobody
// else writes, the subject stays known.
func (x *idIndex) stored(p *appending, exact Exactly, first events.Offset, alone bool) {
	if !exact.Set && !alone {
		return // others may have written before it: the next look-up continues from there
	}
	if x.known(p.sub) == nil && (!exact.Set || exact.At != 0) {
		return
	}
	ids := x.of(p.sub)
	if exact.Set && ids.upto != exact.At || !exact.Set && !ids.whole {
		return
	}
	for i, e := range p.events {
		ids.note(x.hash(e), e.Type, first+events.Offset(i))
	}
	ids.upto = first + events.Offset(len(p.events)-1)
	x.grew(ids)
}

// lookUp finds the events of an append among all events of their subject, and
// returns the subject's last offset.
func (l *Log) lookUp(ctx context.Context, p *appending, found []located) (events.Offset, error) {
	ids := l.ids.of(p.sub)
	if err := l.fill(ctx, ids, p.behind); err != nil {
		return 0, err
	}
	for i, e := range p.events {
		at, hit := ids.offsets.find(l.ids.hash(e))
		if !hit {
			var err error
			if found[i], err = l.lookBelow(ctx, e, p.msgs[i].ID, ids.from); err != nil {
				return 0, err
			}
			continue
		}
		rec, err := l.record(ctx, at)
		switch {
		case err == nil && rec.Source == e.Source && rec.ID == e.ID:
			found[i] = located{at: at, same: sameEvent(rec.Event, e)}
		case err == nil: // two identities with one hash
			if found[i], err = l.search(ctx, e, 0, 0); err != nil {
				return 0, err
			}
		case !events.IsDamage(err):
			return 0, err
		}
	}
	return ids.upto, nil
}

// fill reads the events that came to the subject since it was read last. last, unless 0, is the subject's last offset
// as far as the caller knows; the append will expect it.
func (l *Log) fill(ctx context.Context, ids *subjectIDs, last events.Offset) error {
	if ids.whole && (l.alone() || last > 0 && last == ids.upto) {
		return nil
	}
	if ids.upto == 0 {
		isNew, err := l.isNew(ctx, ids.sub.NATS())
		if isNew || err != nil {
			ids.whole = isNew
			return err
		}
		if done, err := l.fillFew(ctx, ids); done || err != nil {
			return err
		}
	}
	newest, err := l.lastOf(ctx, ids.sub.NATS())
	switch {
	case err != nil:
		return err
	case newest < ids.upto:
		damaged, err := l.cannotRead(ctx, ids.upto)
		if err != nil {
			return err
		}
		if damaged {
			ids.whole = true
			return nil
		}
		ids.offsets = idSet{} // the record is gone: see Recover
		ids.from, ids.upto, ids.types, ids.forgot = 0, 0, nil, 0
	case newest > 0 && newest == ids.upto:
		ids.whole = true
		return nil
	}
	if b, ok := l.backend.(indexed); ok && ids.upto == 0 {
		ids.from = b.Indexed()
	}
	defer l.ids.grew(ids)
	for rec, err := range l.readPast(ctx, events.Range{Subject: ids.sub, After: max(ids.upto, ids.from)}, newest) {
		if err != nil {
			return err
		}
		ids.note(l.ids.hash(rec.Event), rec.Type, rec.Offset)
		ids.upto = rec.Offset
	}
	ids.upto, ids.whole = max(ids.upto, newest), true
	return nil
}

// remembers does a survey without reading, if this Log stored or read all records after the expectation, and none of
// the append's events is among them.
func (l *Log) remembers(p *appending, s *survey) bool {
	if !l.alone() {
		return false
	}
	ids := l.ids.known(p.sub)
	if ids == nil || !ids.whole || !ids.knows(p.expect.at) {
		return false
	}
	for _, e := range p.events {
		if _, hit := ids.offsets.find(l.ids.hash(e)); hit {
			return false
		}
	}
	s.last, s.clash = ids.upto, ids.clash(p.expect)
	return true
}

// readPast yields the readable records of one subject, durable or not. It reads at least up to known, which exists: a
// caller takes a record that is not yielded as not stored.
func (l *Log) readPast(ctx context.Context, r events.Range, known events.Offset) iter.Seq2[events.Record, error] {
	r.Buffered = true
	return func(yield func(events.Record, error) bool) {
		at := r.After
		for rec, err := range l.Read(ctx, r) {
			if damage, ok := errors.AsType[*events.DamageError](err); ok {
				at = max(at, damage.Offset) // a damaged record has no identity any more
				continue
			}
			if !yield(rec, err) || err != nil {
				return
			}
			at = rec.Offset
		}
		if at < known {
			yield(events.Record{}, fmt.Errorf("log: read %s: %w: the read ended at %v, but the last record is %v", r.Subject.Name(), ErrUnavailable, at, known))
		}
	}
}

// alone reports whether this log knows everything about its subjects: nobody else writes, and the outcome of all its
// appends is known.
func (l *Log) alone() bool { return l.config.Host.Owner && !l.doubtful.Load() }

// lookBelow looks for an identity among the records up to an offset, using the backend's index.
func (l *Log) lookBelow(ctx context.Context, e events.Event, id string, upto events.Offset) (located, error) {
	b, ok := l.backend.(indexed)
	if !ok || upto == 0 {
		return located{}, nil
	}
	for _, s := range b.MayHold(e.Subject.NATS(), id, upto) {
		found, err := l.search(ctx, e, s.After, s.Upto)
		if found.at != 0 || err != nil {
			return found, err
		}
	}
	return located{}, nil
}

// search looks for an identity in every record of its subject between two offsets; upto 0: to the end.
func (l *Log) search(ctx context.Context, e events.Event, after, upto events.Offset) (located, error) {
	for rec, err := range events.Readable(l.Read(ctx, events.Range{Subject: e.Subject, After: after, Upto: upto, Buffered: true})) {
		if err != nil {
			return located{}, err
		}
		if rec.Source == e.Source && rec.ID == e.ID {
			return located{at: rec.Offset, same: sameEvent(rec.Event, e)}, nil
		}
	}
	return located{}, nil
}
