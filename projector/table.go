package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/snapshot"
)

// ChunkFold names the chunks of sessions in snapshots. Indexes of chunks are named by their level, from index1.
const ChunkFold = "chunk"

// foldOf returns the snapshot name of a table's level. Level 0 are the chunks.
func foldOf(level int) string {
	if level == 0 {
		return ChunkFold
	}
	return fmt.Sprintf("index%d", level)
}

// table locates the records of one session: in chunks, which never change, and in an open chunk behind them.
//
// Every sizes.fan chunks are listed in an index. Like a chunk, an index is written once. Every sizes.fan indexes are
// listed in an index of the next level, and so on. So the table of a session of any length is a short list per level.
type table struct {
	subject events.Subject
	levels  [][]*entry // from the chunks up; the higher the level, the older the records
	open    *chunkContent
	next    map[string]int // number of turns ever added to each thread
}

// entry is a chunk or index in a table.
type entry struct {
	First   int               `json:"first"` // number of the first record
	Records int               `json:"records"`
	From    events.Offset     `json:"from"`
	To      events.Offset     `json:"to"`
	Hash    string            `json:"hash"`            // of the stored data
	Turns   map[string][2]int `json:"turns,omitempty"` // number of the first turn, and count, by thread
	Mark    *strandsMark      `json:"mark,omitempty"`

	chunk *chunkContent // nil if it is stored
}

// strandsMark holds the threads right after a record of a chunk, so that a rewind need not fold them from the start. In
// place of threads that are too large, it holds their lengths.
type strandsMark struct {
	Record  int                    `json:"record"` // number of the record
	Threads map[string]strandState `json:"threads,omitempty"`
	Lengths map[string]int         `json:"lengths,omitempty"`
}

// lengthsOf returns the lengths of the threads in the order of names. sources is the number of sources.
func (m *strandsMark) lengthsOf(names []string, sources int) (threadLengths, error) {
	if m.Lengths == nil {
		threads, err := strandsOf(m.Threads, sources)
		return threads.lengths(names), err
	}
	l := make(threadLengths, len(names))
	for i, name := range names {
		n, is := m.Lengths[name]
		if !is {
			n = absent
		}
		l[i] = n
	}
	return l, nil
}

// maxMark is the size of the largest mark, in bytes. A larger mark would be out of proportion to the chunk.
const maxMark = 512

// lostError reports that a part of a snapshot is missing and cannot be rebuilt alone. The heads that refer to it are
// useless.
type lostError struct{ reason string }

func (e *lostError) Error() string { return e.reason }

func lostf(format string, args ...any) error { return &lostError{fmt.Sprintf(format, args...)} }

func newTable(sub events.Subject) *table {
	return &table{subject: sub, open: &chunkContent{}, next: make(map[string]int)}
}

// close ends the open chunk.
func (t *table) close(m *strandsMark) {
	c := t.open
	e := &entry{First: c.first, Records: len(c.offsets), From: c.offsets[0], To: c.offsets[len(c.offsets)-1], Turns: c.numbered(), Mark: m, chunk: c}
	if len(t.levels) == 0 {
		t.levels = make([][]*entry, 1)
	}
	t.levels[0] = append(t.levels[0], e)
	t.open = &chunkContent{first: c.end()}
}

// sealed returns a table of the same records without an open chunk. Later changes of t do not affect it.
func (t *table) sealed(m *strandsMark) *table {
	s := &table{subject: t.subject, open: t.open, next: maps.Clone(t.next)}
	for _, level := range t.levels {
		s.levels = append(s.levels, slices.Clone(level))
	}
	if len(s.open.offsets) > 0 {
		s.close(m)
	}
	return s
}

// sink stores a part of a snapshot.
type sink func(ctx context.Context, s snapshot.Snapshot) error

// save stores the chunks that are not stored yet, and the indexes that they fill. It calls stored for each chunk.
func (t *table) save(ctx context.Context, s sizes, into sink, stored func(*entry)) error {
	if len(t.levels) == 0 {
		return nil
	}
	pending := t.levels[0]
	t.levels[0] = []*entry{}
	for i, e := range pending {
		if e.chunk != nil {
			data, err := e.chunk.encode()
			if err == nil {
				e.Hash = snapshot.Sum(data)
				err = into(ctx, snapshot.Snapshot{Meta: e.meta(t.subject, ChunkFold), Data: data})
			}
			if err != nil {
				t.levels[0] = append(t.levels[0], pending[i:]...)
				return err
			}
			e.chunk = nil
			stored(e)
		}
		if err := t.push(ctx, e, s, into); err != nil {
			return err
		}
	}
	return nil
}

// push adds a chunk to the table, and stores full indexes.
func (t *table) push(ctx context.Context, e *entry, s sizes, into sink) error {
	t.levels[0] = append(t.levels[0], e)
	for k := 0; len(t.levels[k]) >= s.fan; k++ {
		data, err := rawjson.Marshal(t.levels[k])
		if err != nil {
			return fmt.Errorf("projector: encode an index: %v", err)
		}
		up := indexOf(t.levels[k])
		up.Hash = snapshot.Sum(data)
		if err := into(ctx, snapshot.Snapshot{Meta: up.meta(t.subject, foldOf(k+1)), Data: data}); err != nil {
			return err
		}
		if t.levels[k] = []*entry{}; k+1 == len(t.levels) {
			t.levels = append(t.levels, nil)
		}
		t.levels[k+1] = append(t.levels[k+1], up)
	}
	return nil
}

// follow checks that the turns of a part of the table continue those of the parts before it, and counts them.
func (t *table) follow(turns map[string][2]int) error {
	for name, v := range turns {
		if v[0] != t.next[name] || v[1] < 0 || v[1] > math.MaxInt-v[0] {
			return fmt.Errorf("the turns of thread %q do not continue those before them", name)
		}
		t.next[name] += v[1]
	}
	return nil
}

// indexOf returns the entry for an index of these entries.
func indexOf(list []*entry) *entry {
	first, last := list[0], list[len(list)-1]
	up := &entry{First: first.First, Records: last.First + last.Records - first.First, From: first.From, To: last.To}
	for _, e := range list {
		for name, turns := range e.Turns {
			if up.Turns == nil {
				up.Turns = make(map[string][2]int)
			}
			have, ok := up.Turns[name]
			if !ok {
				have[0] = turns[0]
			}
			have[1] += turns[1]
			up.Turns[name] = have
		}
	}
	return up
}

func (e *entry) meta(sub events.Subject, fold string) snapshot.Meta {
	return snapshot.Meta{Subject: sub, Fold: fold, Version: SessionFoldVersion, Offset: e.To, Hash: e.Hash}
}

// hasRecord, hasTurn and reaches are the conditions for find.
func hasRecord(n int) func(*entry) bool {
	return func(e *entry) bool { return e.First <= n && n < e.First+e.Records }
}

func hasTurn(thread string, n int) func(*entry) bool {
	return func(e *entry) bool {
		turns, ok := e.Turns[thread]
		return ok && turns[0] <= n && n < turns[0]+turns[1]
	}
}

func reaches(at events.Offset) func(*entry) bool {
	return func(e *entry) bool { return e.From <= at }
}

// find returns the newest matching chunk, with its entry. It descends into an index if the index matches.
func (t *table) find(ctx context.Context, l *Loader, match func(*entry) bool) (*entry, error) {
	for level, list := range t.levels {
		for _, e := range slices.Backward(list) {
			if !match(e) {
				continue
			}
			for k := level; k > 0; k-- {
				below, err := l.index(ctx, t.subject, e, k)
				if err != nil {
					return nil, err
				}
				i := len(below) - 1
				for i >= 0 && !match(below[i]) {
					i--
				}
				if i < 0 {
					return nil, lostf("the index of %s at %v lacks a chunk that it should have", t.subject.Name(), e.To)
				}
				e = below[i]
			}
			return e, nil
		}
	}
	return nil, lostf("no chunk of %s has the requested record or turn", t.subject.Name())
}

// chunks calls each for every chunk with records between two numbers, both inclusive, oldest first.
func (t *table) chunks(ctx context.Context, l *Loader, from, to int, each func(*entry) error) error {
	var visit func(level int, list []*entry) error
	visit = func(level int, list []*entry) error {
		for _, e := range list {
			if e.First > to || e.First+e.Records <= from {
				continue
			}
			if level == 0 {
				if err := each(e); err != nil {
					return err
				}
				continue
			}
			below, err := l.index(ctx, t.subject, e, level)
			if err == nil {
				err = visit(level-1, below)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for level := len(t.levels) - 1; level >= 0; level-- {
		if err := visit(level, t.levels[level]); err != nil {
			return err
		}
	}
	return nil
}

// chunk returns the chunk of an entry. Callers share it through the cache.
func (l *Loader) chunk(ctx context.Context, sub events.Subject, e *entry) (*chunkContent, error) {
	if c, ok := l.cache.get(e.Hash).(*chunkContent); ok && e.chunk == nil {
		return c, nil
	}
	c, size, err := l.readChunk(ctx, sub, e)
	if err == nil && size > 0 {
		l.cache.put(e.Hash, c, size)
	}
	return c, err
}

// readChunk reads the chunk of an entry, and returns its stored size, or 0 if it is not stored yet. If the chunk is
// missing or altered, readChunk logs one warning, removes it, rebuilds it from the log and stores it.
func (l *Loader) readChunk(ctx context.Context, sub events.Subject, e *entry) (*chunkContent, int, error) {
	if e.chunk != nil {
		return e.chunk, 0, nil
	}
	data, err := l.stored(ctx, e.meta(sub, ChunkFold))
	var c *chunkContent
	if err == nil {
		c, err = decodeChunk(data)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if l.Snapshots != nil {
			l.discarded(ctx, e.meta(sub, ChunkFold), err)
		}
		if c, data, err = l.remake(ctx, sub, e); err != nil {
			return nil, 0, err
		}
	}
	if c.first != e.First || len(c.offsets) != e.Records {
		return nil, 0, lostf("the chunk of %s at %v has other records than its index says", sub.Name(), e.To)
	}
	for name, turns := range e.Turns {
		if b := c.turns[name]; b == nil || b.First != turns[0] || len(b.Turns) != turns[1] {
			return nil, 0, lostf("the chunk of %s at %v has other turns than its index says", sub.Name(), e.To)
		}
	}
	return c, len(data), nil
}

// index returns the entries of an index.
func (l *Loader) index(ctx context.Context, sub events.Subject, e *entry, level int) ([]*entry, error) {
	if list, ok := l.cache.get(e.Hash).([]*entry); ok {
		return list, nil
	}
	m := e.meta(sub, foldOf(level))
	data, err := l.stored(ctx, m)
	var list []*entry
	if err == nil {
		if err = rawjson.Unmarshal(data, &list); err == nil {
			err = checkEntries(list)
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		l.removed(ctx, m)
		return nil, lostf("%s at %v: %v", m.Fold, e.To, err)
	}
	l.cache.put(e.Hash, list, len(data))
	return list, nil
}

// checkEntries rejects a list that no table could have written.
func checkEntries(list []*entry) error {
	for i, e := range list {
		if e == nil || e.First < 0 || e.Records <= 0 || e.From == 0 || e.To < e.From || i > 0 && (e.First != list[i-1].First+list[i-1].Records || e.From <= list[i-1].To) {
			return errors.New("chunks do not follow each other")
		}
		if m := e.Mark; m != nil {
			if _, err := strandsOf(m.Threads, math.MaxInt); err != nil || m.Threads != nil && m.Lengths != nil || m.Record < e.First || m.Record >= e.First+e.Records {
				return errors.New("a chunk has an invalid mark")
			}
		}
	}
	return nil
}

// stored reads a part of a snapshot and checks its hash against the table.
func (l *Loader) stored(ctx context.Context, m snapshot.Meta) ([]byte, error) {
	if l.Snapshots == nil {
		return nil, snapshot.ErrNotFound
	}
	s, err := l.Snapshots.Get(ctx, m)
	if err != nil {
		return nil, err
	}
	if sum := snapshot.Sum(s.Data); sum != m.Hash {
		return nil, fmt.Errorf("its hash is %s, not %s", sum, m.Hash)
	}
	return s.Data, nil
}

// remake rebuilds a chunk from the log and stores it.
func (l *Loader) remake(ctx context.Context, sub events.Subject, e *entry) (*chunkContent, []byte, error) {
	to := l.since()
	next := make(map[string]int, len(e.Turns))
	for name, turns := range e.Turns {
		next[name] = turns[0]
	}
	c := &chunkContent{first: e.First}
	var before *named
	for rec, err := range l.read(ctx, events.Range{Subject: sub, After: e.From - 1, Upto: e.To}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			return nil, nil, lostf("the chunk at %v cannot be rebuilt: %v", e.To, damage)
		}
		if err != nil {
			return nil, nil, err
		}
		if nameOf(rec) != "" && before == nil {
			if before, err = l.namedBefore(ctx, sub, e.From); err != nil {
				return nil, nil, err
			}
		}
		f := Decode(rec)
		if before != nil {
			f = before.bounded(f)
		}
		c.add(f, next)
	}
	data, err := c.encode()
	if err != nil {
		return nil, nil, err
	}
	if snapshot.Sum(data) != e.Hash {
		return nil, nil, lostf("the chunk at %v, rebuilt from the log, has another hash", e.To)
	}
	if l.Snapshots != nil && !l.ReadOnly {
		if err := to.Put(ctx, snapshot.Snapshot{Meta: e.meta(sub, ChunkFold), Data: data}); err != nil {
			l.logger().Warn("chunk cannot be stored again", "subject", sub, "offset", uint64(e.To), "err", err)
		}
	}
	return c, data, nil
}

// discarded logs a part of a snapshot as unusable, and removes it.
func (l *Loader) discarded(ctx context.Context, m snapshot.Meta, reason error) {
	if l.afresh {
		return // afresh loaders ignore snapshots
	}
	l.logger().Warn(m.Fold+" snapshot discarded", "subject", m.Subject, "offset", uint64(m.Offset), "reason", reason.Error())
	l.removed(ctx, m)
}

func (l *Loader) removed(ctx context.Context, m snapshot.Meta) {
	if l.Snapshots == nil || l.ReadOnly {
		return
	}
	if err := l.Snapshots.Delete(ctx, m); err != nil {
		l.logger().Warn("snapshot cannot be removed", "subject", m.Subject, "offset", uint64(m.Offset), "err", err)
	}
}
