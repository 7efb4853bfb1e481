package catalog

import (
	"cmp"
	"container/list"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Catalog is the view over all documents and all sessions but those of items, for the process that writes it. It is a
// projector.View. Reader reads it. The view Work has the items: a row here for each of them would be useless work.
type Catalog struct {
	viewFile
	opening   Opening
	lastKey   int64
	sessions  map[events.Subject]*list.Element // of *session
	recent    *list.List                       // most recently used first
	dirty     []*sessionRow                    // in the order of their first change
	footprint int                              // memory of all sessions in memory that are not dirty, in bytes
	held      int64                            // approximate memory of the changes, in bytes
	documents map[events.Subject]*document     // changed since the last commit
	aside     map[events.Subject]bool
	gone      map[events.Subject]int64       // subjects that are folded again from the start, with the keys of sessions
	paid      map[responseKey][]paidResponse // costs since the last commit that name a response

	known    filter // sessions that were begun since Begin and, if complete is set, all others of the table
	complete bool
	missed   int64 // number of searches of the table for a session that it does not have
}

// memory is the approximate size of the cache of folded sessions. perRecord is the approximate memory that a record
// adds to the uncommitted changes. Both are in bytes.
const (
	memory    = 8 << 20
	perRecord = 64
)

// New returns the catalog in a directory, for a projector.Runner.
func New(dir string, opening Opening, lg *slog.Logger) *Catalog {
	return newCatalog(filepath.Join(dir, FileName), current, opening, lg)
}

func newCatalog(path, set string, opening Opening, lg *slog.Logger) *Catalog {
	c := &Catalog{viewFile: viewFile{form: catalogForm, path: path, set: set, logger: lg}, opening: opening}
	c.clear()
	return c
}

// Name implements projector.View.
func (c *Catalog) Name() string { return c.view }

// clear drops all state in memory.
func (c *Catalog) clear() {
	c.sessions, c.recent, c.dirty, c.footprint = make(map[events.Subject]*list.Element), list.New(), nil, 0
	c.held, c.paid = 0, nil
	c.known, c.complete, c.missed = filter{}, false, 0
	c.documents, c.aside, c.gone = make(map[events.Subject]*document), make(map[events.Subject]bool), make(map[events.Subject]int64)
}

// Begin implements projector.View.
func (c *Catalog) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	c.clear()
	cursor, quarantined, err := c.begin(ctx)
	if err != nil {
		return cursor, nil, err
	}
	for _, q := range quarantined {
		c.aside[q.Subject] = true
	}
	var key sql.NullInt64
	if _, err := c.find(ctx, "SELECT max(session) FROM sessions{set}", nil, []any{&key}); err != nil {
		return cursor, nil, c.wrap(err)
	}
	c.lastKey = key.Int64
	c.complete = c.lastKey == 0
	return cursor, quarantined, nil
}

// Reset implements projector.View.
func (c *Catalog) Reset(ctx context.Context) error {
	c.clear()
	c.lastKey, c.complete = 0, true
	return c.reset(ctx)
}

// Wants implements projector.Selective.
func (c *Catalog) Wants(sub events.Subject) bool { return !projector.IsItem(sub) }

// Apply implements projector.View.
func (c *Catalog) Apply(ctx context.Context, f projector.Fact) error {
	if !c.Wants(f.Subject) {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	c.held += perRecord
	if f.Subject.Kind == events.KindUnit {
		return nil // its events arrive as records of their own
	}
	if !f.Subject.IsSession() {
		return c.applyDocument(ctx, f.Record)
	}
	s, err := c.session(ctx, f.Subject)
	if err != nil {
		return err
	}
	if s == nil {
		s = c.begins(f.Subject)
	}
	if s.history.Last() >= f.Offset {
		return c.wrap(projector.ErrMoved) // another process has stored it already
	}
	c.touch(s)
	return c.applyTo(ctx, s, f)
}

// touch marks a session for the next commit.
func (c *Catalog) touch(s *sessionRow) {
	if !s.dirty {
		s.dirty = true
		c.dirty = append(c.dirty, s)
		c.footprint -= s.footprint()
		c.held += int64(s.footprint())
	}
}

func (c *Catalog) applyTo(ctx context.Context, s *sessionRow, f projector.Fact) error {
	if fork := f.ForkOf(s.history); fork != nil {
		if err := c.inherit(ctx, s, fork, f.Offset); err != nil {
			return err
		}
	}
	v, err := s.apply(f)
	if v.Rejected != "" || err != nil {
		return err
	}
	if s.Opening == "" && !v.Stale && s.opens(f) {
		s.open(c.opening(f), f.Offset)
	}
	if ref := projector.RunOf(f.Payload); ref != nil {
		return c.applyRun(ctx, s, *ref, f)
	}
	if p, ok := f.Payload.(*events.CostAccrued); ok {
		return c.applyCost(ctx, s, projector.CostOf(f, p))
	}
	return nil
}

// inherit starts a fork, born at an offset, with the state of its parent. A fork of a session that was missing then
// inherits nothing, also if the fork is folded again later.
func (c *Catalog) inherit(ctx context.Context, s *sessionRow, fork *events.Fork, born events.Offset) error {
	sub := events.Session(s.Namespace, fork.Session)
	if c.aside[sub] {
		return &projector.FoldError{Err: fmt.Errorf("the session is a fork of %s, which is quarantined", sub)}
	}
	parent, err := c.session(ctx, sub)
	if err != nil || parent == nil || parent.history.First() >= born || parent == s {
		return err
	}
	if parent.opened <= fork.Offset && parent.history.First() <= fork.Offset {
		s.open(parent.Opening, parent.opened)
	}
	if parent.content <= fork.Offset {
		s.content = parent.content
	}
	err = s.history.Inherit(parent.history, fork.Offset)
	c.held += int64(s.history.Footprint())
	return err
}

// begins creates a session without records.
func (c *Catalog) begins(sub events.Subject) *sessionRow {
	s := newSession(sub)
	if s.key = c.gone[sub]; s.key == 0 {
		c.lastKey++
		s.key = c.lastKey
	}
	c.known.add(sub)
	c.keep(s)
	return s
}

// keep adds a session to the cache.
func (c *Catalog) keep(s *sessionRow) {
	c.sessions[s.subject] = c.recent.PushFront(s)
	c.footprint += s.footprint()
}

// session returns the folded state of a session, or nil.
func (c *Catalog) session(ctx context.Context, sub events.Subject) (*sessionRow, error) {
	if e := c.sessions[sub]; e != nil {
		c.recent.MoveToFront(e)
		return e.Value.(*sessionRow), nil
	}
	if _, gone := c.gone[sub]; gone {
		return nil, nil
	}
	if c.complete && !c.known.has(sub) {
		return nil, nil
	}
	s := newSession(sub)
	var state []byte
	found, err := c.find(ctx, "SELECT session, fold, "+sessionColumns+" FROM sessions{set} WHERE namespace=? AND id=?",
		[]any{sub.Namespace, sub.ID}, append([]any{&s.key, &state}, s.columns()...))
	if err != nil {
		return nil, c.wrap(err)
	}
	if !found {
		if err := c.learn(ctx); err != nil {
			return nil, c.wrap(err)
		}
		return nil, nil
	}
	blocks, err := c.loadBlocks(ctx, s.key)
	if err != nil {
		return nil, c.wrap(err)
	}
	if err := s.restore(state, blocks); err != nil {
		return nil, &projector.FoldError{Err: err}
	}
	s.stored = true
	c.shorten(ctx, s)
	c.keep(s)
	return s, nil
}

// searchRows is the number of rows that are read in the time of a search.
const searchRows = 8

// learn notes a search for a session that the table does not have. Once these searches have taken as long as reading
// the names of all sessions, learn reads the names, and no new session is searched for after that. A process that only
// looks does not read them.
func (c *Catalog) learn(ctx context.Context) error {
	if c.missed++; c.complete || c.missed*searchRows < c.lastKey {
		return nil
	}
	rows, err := c.conn.QueryContext(ctx, "SELECT namespace, id FROM sessions"+c.set)
	var namespace, id string
	err = each(rows, err, func() error {
		err := rows.Scan(&namespace, &id)
		c.known.add(events.Session(namespace, id))
		return err
	})
	c.complete = err == nil
	return err
}

// shorten drops the stored blocks of a long history from memory. So neither the memory of a session nor its commits
// grow with its length.
func (c *Catalog) shorten(ctx context.Context, s *sessionRow) {
	ctx = context.WithoutCancel(ctx)
	s.history.Shorten(func(n int) (block []byte, err error) {
		found, err := c.find(ctx, "SELECT data FROM marks{set} WHERE session=? AND number=?", []any{s.key, n}, []any{&block})
		if err == nil && !found {
			err = fmt.Errorf("block %d of the history of session %s is missing", n, s.ID)
		}
		if err != nil {
			err = c.wrap(err)
		}
		return block, err
	})
}

func (c *Catalog) loadBlocks(ctx context.Context, key int64) ([][]byte, error) {
	st, err := c.prepare(ctx, "SELECT data FROM marks{set} WHERE session=? ORDER BY number")
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, key)
	return collect(rows, err, oneColumn[[]byte])
}

// Held implements projector.View.
func (c *Catalog) Held() int64 { return c.held }

// Quarantine implements projector.View.
func (c *Catalog) Quarantine(q projector.Quarantine) {
	c.aside[q.Subject] = true
	c.viewFile.aside = append(c.viewFile.aside, q)
	delete(c.documents, q.Subject)
	c.undefer(q.Subject)
	e := c.sessions[q.Subject]
	if e == nil {
		return
	}
	s := e.Value.(*sessionRow)
	c.dirty = slices.DeleteFunc(c.dirty, func(d *sessionRow) bool { return d == s })
	delete(c.sessions, q.Subject)
	c.recent.Remove(e)
}

// Commit implements projector.View.
func (c *Catalog) Commit(ctx context.Context, cursor projector.Cursor) error {
	if err := c.commit(ctx, cursor, c.store); err != nil {
		return err
	}
	for _, s := range c.dirty {
		s.stored, s.dirty, s.blocks = true, false, s.history.Blocks()
		s.runs, s.costs, s.progress = nil, nil, nil
		c.shorten(ctx, s)
		c.footprint += s.footprint()
	}
	c.dirty, c.held = c.dirty[:0], 0
	clear(c.documents)
	clear(c.gone)
	c.scrub(ctx)
	clear(c.paid)
	for c.footprint > memory && c.recent.Len() > 1 {
		s := c.recent.Remove(c.recent.Back()).(*sessionRow)
		delete(c.sessions, s.subject)
		c.footprint -= s.footprint()
	}
	return nil
}

// Forget implements projector.View. A session keeps its key.
func (c *Catalog) Forget(ctx context.Context, sub events.Subject) error {
	var key int64
	if sub.IsSession() {
		if _, err := c.find(context.WithoutCancel(ctx), "SELECT session FROM sessions{set} WHERE namespace=? AND id=?", []any{sub.Namespace, sub.ID}, []any{&key}); err != nil {
			return c.wrap(err)
		}
	} else {
		d := newDocument(sub)
		d.stored, d.moved = true, true // its links are removed too
		var err error
		var revisions int
		if d.isRow, err = c.find(context.WithoutCancel(ctx), "SELECT revisions FROM documents{set} WHERE namespace=? AND kind=? AND id=?", []any{sub.Namespace, sub.Kind, sub.ID}, []any{&revisions}); err != nil {
			return c.wrap(err)
		}
		c.documents[sub] = d
	}
	delete(c.aside, sub)
	c.gone[sub] = key
	c.forgotten = append(c.forgotten, sub)
	return nil
}

// erase removes the rows of a session that is folded again.
func (c *Catalog) erase(ctx context.Context, key int64) error {
	for _, table := range []string{"sessions", "marks", "runs", "costs", "progress"} {
		if err := c.run(ctx, "DELETE FROM "+table+"{set} WHERE session=?", key); err != nil {
			return err
		}
	}
	return nil
}

// store writes the changes.
func (c *Catalog) store(ctx context.Context) error {
	if err := c.storeCounts(ctx); err != nil {
		return err
	}
	for _, key := range c.gone {
		if err := c.erase(ctx, key); err != nil {
			return err
		}
	}
	if err := c.storePaid(ctx); err != nil {
		return err
	}
	slices.SortFunc(c.dirty, func(a, b *sessionRow) int { return cmp.Compare(a.key, b.key) }) // neighbouring keys share a page
	for _, s := range c.dirty {
		if err := c.storeSession(ctx, s); err != nil {
			return err
		}
	}
	for _, d := range c.documents {
		if err := c.storeDocument(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

var (
	insertSession = "INSERT INTO sessions{set}(" + sessionColumns + ", fold, session) VALUES(" + placeholders(41) + ")"
	// Namespace and id never change. Setting them would rewrite their index.
	updateSession = "UPDATE sessions{set} SET (" + strings.TrimPrefix(sessionColumns, "namespace, id, ") + ", fold)=(" + placeholders(38) + ") WHERE session=?"
)

func (c *Catalog) storeSession(ctx context.Context, s *sessionRow) error {
	if err := s.settle(); err != nil {
		return err
	}
	fold := s.state()
	text, row := insertSession, valuesOf(append(s.columns(), &fold, &s.key))
	if s.stored {
		text, row = updateSession, row[2:]
	}
	if err := c.run(ctx, text, row...); err != nil {
		return err
	}
	for n := s.blocks; n < s.history.Blocks(); n++ {
		at, turns, err := s.history.BlockEnd(n)
		if err != nil {
			return err
		}
		if err := c.put(ctx, "marks", s.key, n, int64(at), turns, s.history.Block(n)); err != nil {
			return err
		}
	}
	for _, r := range s.runs {
		if err := c.storeRun(ctx, s, r); err != nil {
			return err
		}
	}
	for k, t := range s.costs {
		if err := c.storeCosts(ctx, s, k, t); err != nil {
			return err
		}
	}
	return c.storeProgress(ctx, s)
}

// Close closes the file. The next writer folds uncommitted changes again.
func (c *Catalog) Close() error { return c.close() }
