package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Merger copies subjects of one store into another one that has records of its own. The records get new offsets, and
// so do the offsets that events name. The history of a subject in one store must be a beginning of its history in the
// other one; otherwise, and for the other reasons of a [Refusal], the subject is refused and the others are merged.
//
// A merge may be interrupted anywhere: each subject of the target then has a beginning of the original, and the next
// merge goes on.
type Merger struct {
	From Source
	To   *log.Log // opened with log.Host.Merge

	// Table is the file with the offsets of records in both stores. If it is missing or damaged, or the last merge did
	// not end, it is built again from the ids of the events. Default: it is kept in memory.
	Table string

	// Sessions are merged, together with the sessions of which they are forks and the documents that they name.
	// Namespaces are merged whole. Default: everything.
	Sessions   []events.Subject
	Namespaces []string

	// Without are sessions that are not merged.
	Without []events.Subject

	// Loader folds the original. Default: the original is a backup, whose states are not compared, and whose data that
	// are kept by reference are not searched for offsets.
	Loader *projector.Loader

	// Progress is called now and then. Default: no calls.
	Progress func(what string, at, end events.Offset)

	table *table
	end   events.Offset // of the original
	head  events.Offset // of the target, or before it
	units map[events.Subject]*unit
	last  events.Subject // to which the last append went
	ended int            // appends since the last commit
}

// Refusal is a subject that is not merged, or not to its end.
type Refusal struct {
	Subject string `json:"subject"`
	Why     string `json:"why"`
}

// Merge is what a merge will do, or has done.
type Merge struct {
	Subjects int             // that get records
	New      int             // of these, the ones that the target does not have yet
	Records  int             // that they get
	Same     int             // subjects for which there is nothing to do
	Invalid  int             // records without effect, which are left out
	Personal int             // records of the namespace _personal, which are left out
	Refused  []Refusal       // at most maxNamed are named
	Refuses  int             // how many there are
	Lost     []events.Offset // records that the original has lost; at most maxNamed are named
	Losses   int
}

// commitEvery is the number of records between two commits of the table.
const commitEvery = 4096

// Plan reads the new records of both stores, and returns what Run will do. It writes only to the table.
func (m *Merger) Plan(ctx context.Context) (Merge, error) {
	if m.table == nil {
		t, err := openTable(m.Table)
		if err != nil {
			return Merge{}, fmt.Errorf("table of the merge %s: %w", m.Table, err)
		}
		m.table, m.units = t, make(map[events.Subject]*unit)
		if err := m.recognise(ctx); err != nil {
			return Merge{}, err
		}
	}
	for _, s := range []side{from, to} {
		if err := m.read(ctx, s); err != nil {
			return Merge{}, err
		}
	}
	if err := m.choose(); err != nil {
		return Merge{}, err
	}
	return m.plan()
}

// Close keeps the table.
func (m *Merger) Close() error {
	if m.table == nil {
		return nil
	}
	return m.table.close()
}

func (m *Merger) source(s side) Source {
	if s == to {
		return m.To
	}
	return m.From
}

// recognise empties the table unless both stores have the records up to which it was made.
func (m *Merger) recognise(ctx context.Context) error {
	for _, s := range []side{from, to} {
		cursor, id, err := m.table.noted(s)
		if err != nil {
			return err
		}
		if cursor == 0 {
			continue
		}
		rec, err := m.source(s).Record(ctx, cursor)
		switch {
		case events.IsDamage(err), errors.Is(err, events.ErrNotFound), err == nil && rec.MsgID() != id:
			return m.table.reset()
		case err != nil:
			return err
		}
	}
	return nil
}

// choose decides which subjects are merged.
func (m *Merger) choose() error {
	t := m.table
	if err := t.forget(); err != nil {
		return err
	}
	all := len(m.Sessions)+len(m.Namespaces) == 0
	if err := t.exec("UPDATE subject SET chosen=?, why=refused", all); err != nil {
		return err
	}
	for _, ns := range m.Namespaces {
		if err := t.exec("UPDATE subject SET chosen=1 WHERE name GLOB 'tally.v1.*.' || ? || '.*'", ns); err != nil {
			return err
		}
	}
	for _, sub := range slices.Concat(m.Sessions, m.Without) {
		if r, err := t.find(sub); err != nil || r == nil || r.count[from] == 0 {
			return errors.Join(err, fmt.Errorf("%s: %w", sub.Name(), events.ErrNotFound))
		}
	}
	for _, sub := range m.Sessions {
		if err := t.exec("UPDATE subject SET chosen=1 WHERE name=?", sub.NATS()); err != nil {
			return err
		}
	}
	if !all {
		if err := t.exec(`WITH RECURSIVE more(n) AS (SELECT n FROM subject WHERE chosen UNION SELECT other FROM need JOIN more ON need.subject = more.n)
			UPDATE subject SET chosen=1 WHERE n IN more`); err != nil {
			return err
		}
	}
	for _, sub := range m.Without {
		if err := t.exec("UPDATE subject SET chosen=0 WHERE name=?", sub.NATS()); err != nil {
			return err
		}
	}
	clear(t.rows)
	return m.refuseNeedy()
}

// refuseNeedy refuses the subjects that need one which is refused, or which the target does not get.
func (m *Merger) refuseNeedy() error {
	for {
		list, err := m.table.texts(`SELECT s.name, o.name FROM need JOIN subject s ON s.n = need.subject JOIN subject o ON o.n = need.other
			WHERE need.hard AND s.chosen AND s.why = '' AND s.count0 > s.count1
				AND (o.why <> '' OR NOT o.chosen AND o.count0 > o.count1 OR s.parent = o.n AND o.count0 = 0) LIMIT 1000`)
		if err != nil || len(list) == 0 {
			return errors.Join(err, m.table.forget())
		}
		for _, names := range list {
			r, err := m.table.scan("name=?", names[0])
			if err != nil {
				return err
			}
			other, err := m.table.scan("name=?", names[1])
			if err != nil {
				return err
			}
			switch {
			case r.parent == other.n:
				r.why = "it is a fork of " + other.sub.Name() + ", which is not merged"
			case other.sub.Kind == events.KindType:
				r.why = "it has events of type " + other.sub.ID + ", whose document is not merged"
			default:
				r.why = "it names a revision of " + other.sub.Name() + ", which is not merged"
			}
		}
		if err := m.table.forget(); err != nil {
			return err
		}
	}
}

// plan returns what a merge of the chosen subjects does.
func (m *Merger) plan() (p Merge, err error) {
	t := m.table
	const some = "SELECT count(*), coalesce(sum(count0 - count1), 0), coalesce(sum(count1 = 0), 0) FROM subject WHERE chosen AND why = '' AND count0 > count1"
	if _, err := t.get(some, nil, &p.Subjects, &p.Records, &p.New); err != nil {
		return p, err
	}
	if _, err := t.get("SELECT count(*) FROM subject WHERE chosen AND why = '' AND count0 > 0 AND count0 <= count1", nil, &p.Same); err != nil {
		return p, err
	}
	if _, err := t.get("SELECT invalid, personal FROM side WHERE side = 0", nil, &p.Invalid, &p.Personal); err != nil {
		return p, err
	}
	if _, err := t.get("SELECT count(*) FROM lost", nil, &p.Losses); err != nil {
		return p, err
	}
	lost, err := t.texts("SELECT at, '' FROM lost ORDER BY at LIMIT ?", maxNamed)
	for _, x := range lost {
		at, _ := events.ParseOffset(x[0])
		p.Lost = append(p.Lost, at)
	}
	if err != nil {
		return p, err
	}
	return p, m.refused(&p)
}

// refused counts and names the refused subjects.
func (m *Merger) refused(p *Merge) error {
	if err := m.table.flush(); err != nil {
		return err
	}
	const which = " FROM subject WHERE chosen AND why <> '' AND count0 > count1"
	if _, err := m.table.get("SELECT count(*)"+which, nil, &p.Refuses); err != nil {
		return err
	}
	list, err := m.table.texts("SELECT name, why"+which+" ORDER BY name LIMIT ?", maxNamed)
	p.Refused = nil
	for _, x := range list {
		sub, err := events.ParseNATS(x[0])
		if err != nil {
			return err
		}
		p.Refused = append(p.Refused, Refusal{sub.Name(), x[1]})
	}
	return err
}

// Run appends what Plan has planned, and returns how many records it appended and which subjects were refused. When it
// returns without an error, the records are durable.
func (m *Merger) Run(ctx context.Context) (done Merge, err error) {
	t := m.table
	start := events.Offset(0)
	if _, err := t.get("SELECT coalesce(min(at0), 0) FROM record JOIN subject ON n = record.subject WHERE at0 NOT NULL AND at1 IS NULL AND chosen AND why = ''", nil, &start); err != nil {
		return done, err
	}
	if start > 0 {
		err = m.run(ctx, start, &done)
	}
	return done, errors.Join(err, m.refused(&done))
}

// lookBack is the number of records before the first one that is merged among which its redo record is found.
const lookBack = 64

func (m *Merger) run(ctx context.Context, start events.Offset, done *Merge) error {
	t := m.table
	if err := errors.Join(t.exec("UPDATE dirty SET dirty=1"), t.commit()); err != nil {
		return err
	}
	a := &appender{m: m, done: done, ctx: ctx}
	for rec, err := range events.Readable(m.From.Read(ctx, events.Range{After: start - min(start, lookBack), Upto: m.end})) {
		if err == nil {
			err = a.take(rec)
		}
		if err != nil {
			return err
		}
		if m.ended >= commitEvery {
			m.ended = 0
			m.progress("merging", rec.Offset, m.end)
			if err := t.commit(); err != nil {
				return err
			}
		}
		if len(m.units) == 0 && len(t.rows) > maxRows {
			if err := t.forget(); err != nil {
				return err
			}
		}
	}
	if err := a.flushAll(); err != nil {
		return err
	}
	if m.last != (events.Subject{}) {
		if _, err := m.To.Last(ctx, m.last); err != nil { // waits until it is durable
			return err
		}
	}
	return errors.Join(t.exec("UPDATE dirty SET dirty=0"), t.commit())
}
