package storecopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/registry"
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

// read notes the records of a store behind those that were noted before.
func (m *Merger) read(ctx context.Context, s side) error {
	end, err := m.source(s).Durable(ctx)
	if err != nil {
		return err
	}
	at, id, err := m.table.noted(s)
	if s == from {
		m.end = end
	} else {
		m.head = end
	}
	if err != nil || at >= end {
		return err
	}
	n := 0
	for rec, err := range m.source(s).Read(ctx, events.Range{After: at, Upto: end}) {
		if damage, lost := errors.AsType[*events.DamageError](err); lost {
			if s == from {
				err = m.table.exec("INSERT OR IGNORE INTO lost VALUES(?)", damage.Offset)
			} else {
				err = nil
			}
			if err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = m.note(s, rec)
		}
		if err != nil {
			return err
		}
		at, id = rec.Offset, rec.MsgID()
		if n++; n%commitEvery == 0 {
			if err := m.reached(s, at, id); err != nil {
				return err
			}
			m.progress([]string{"reading the original", "reading the target"}[s], at, end)
		}
	}
	return m.reached(s, at, id)
}

func (m *Merger) progress(what string, at, end events.Offset) {
	if m.Progress != nil {
		m.Progress(what, at, end)
	}
}

// reached notes up to where a store was read.
func (m *Merger) reached(s side, at events.Offset, id string) error {
	err := m.table.exec("UPDATE side SET cursor=?, id=? WHERE side=?", at, id, s)
	if err == nil {
		err = m.table.commit()
	}
	if err == nil && len(m.table.rows) > maxRows {
		err = m.table.forget()
	}
	return err
}

// note notes a record of a store.
func (m *Merger) note(s side, rec events.Record) error {
	switch {
	case rec.Subject.Kind == events.KindUnit:
		return nil // its events come by themselves
	case rec.Subject.Namespace == events.PersonalNamespace:
		return m.table.exec("UPDATE side SET personal=personal+1 WHERE side=?", s)
	}
	r, err := m.table.of(rec.Subject)
	if err != nil || int64(rec.Offset) <= r.last[s] {
		return err // noted when it was appended
	}
	valid, err := m.isValid(s, r, rec)
	if err != nil {
		return err
	}
	before := r.last[s]
	r.last[s] = int64(rec.Offset)
	if !valid {
		return m.table.exec("UPDATE side SET invalid=invalid+1 WHERE side=?", s)
	}
	if fork := forkOf(rec); fork != nil && before == 0 {
		parent, err := m.table.of(events.Session(rec.Subject.Namespace, fork.Session))
		if err != nil {
			return err
		}
		r.parent, r.fork[s] = parent.n, int64(fork.Offset)
	}
	if err := m.place(s, r, rec); err != nil {
		return err
	}
	if rec.Subject.Kind == events.KindType {
		if err := m.noteType(s, rec); err != nil {
			return err
		}
	}
	if s == to {
		return nil
	}
	if why := isWork(rec); why != "" && r.refused == "" {
		r.refused = why
	}
	return m.noteNeeds(r, rec)
}

// isValid reports whether a record has a place. One that no log would take has none, and neither has a rewind to before
// everything, which no offset of another store could name.
func (m *Merger) isValid(s side, r *row, rec events.Record) (bool, error) {
	if rec.Erased() == "" && rec.Validate() != nil {
		return false, nil
	}
	if fork := forkOf(rec); fork != nil {
		return r.last[s] == 0, nil
	}
	if rec.Type != events.TypeSessionRewound {
		return true, nil
	}
	p, err := events.DecodeAs[events.SessionRewound](rec.Event)
	if err != nil || p.To >= rec.Offset {
		return err == nil, nil
	}
	_, found, err := m.table.below(r, s, p.To, false)
	return found, err
}

// forkOf returns the fork that a record declares at its offset, or nil.
func forkOf(rec events.Record) *events.Fork {
	if rec.Type != events.TypeSessionCreated {
		return nil
	}
	p, err := events.DecodeAs[events.SessionCreated](rec.Event)
	if err != nil || p.Fork == nil || p.Fork.Offset >= rec.Offset {
		return nil
	}
	return p.Fork
}

// place assigns the next place of its subject to a record. If the other store has another record there, the subject is
// refused. Documents of types are equal if the types are: each store registers them with events of its own.
func (m *Merger) place(s side, r *row, rec events.Record) error {
	if strings.HasPrefix(r.refused, differs) {
		return nil
	}
	id := rec.MsgID()
	if rec.Subject.Kind == events.KindType {
		id = ""
	}
	r.count[s]++
	have, other := "", events.Offset(0)
	found, err := m.table.get(fmt.Sprintf("SELECT id, coalesce(at%d, 0) FROM record WHERE subject=? AND place=?", 1-s), []any{r.n, r.count[s]}, &have, &other)
	switch {
	case err != nil:
		return err
	case !found:
		return m.table.exec(fmt.Sprintf("INSERT INTO record(subject, place, id, at%d) VALUES(?, ?, ?, ?)", s), r.n, r.count[s], id, rec.Offset)
	case have != id:
		at := [2]events.Offset{other, other}
		at[s] = rec.Offset
		r.refused = fmt.Sprintf("%s: its record %d is %v in the original, and another event, %v, in the target", differs, r.count[s], at[from], at[to])
		r.count[to] = r.count[s] - 1 // from here on the original has something that the target does not have
		return nil
	}
	r.fresh = true
	return m.table.exec(fmt.Sprintf("UPDATE record SET at%d=? WHERE subject=? AND place=?", s), rec.Offset, r.n, r.count[s])
}

// differs begins the reason of a refusal because of different histories.
const differs = "the histories differ"

// noteType notes the registration of a type.
func (m *Merger) noteType(s side, rec events.Record) error {
	typ, err := registry.Parse(rec.Subject.ID, rec.Data)
	if err != nil || rec.Type != events.TypeDocumentWritten {
		return nil // without effect
	}
	text, err := json.Marshal(typ.Offsets)
	if err != nil {
		return err
	}
	if err := m.table.exec("INSERT OR IGNORE INTO type VALUES(?, ?, ?, ?)", typ.Name, s, typ.Moves, string(text)); err != nil {
		return err
	}
	list, err := m.table.texts("SELECT moves, offsets FROM type WHERE name=? ORDER BY side", typ.Name)
	if err != nil || len(list) < 2 || list[0] == list[1] {
		return err
	}
	r, err := m.table.of(rec.Subject)
	if err == nil && r.refused == "" {
		r.refused = fmt.Sprintf("the type has moves %s and offsets %s in the original, and moves %s and offsets %s in the target", list[0][0], list[0][1], list[1][0], list[1][1])
	}
	return err
}

// work are the kinds of sessions whose bodies name offsets that only their store knows, or whose work would be under way
// in two stores at once.
var work = []string{events.KindQueue, events.KindItem, events.KindInbox, events.KindFlow, events.KindLock, events.KindAgent}

// isWork returns why a record makes its subject one that is not merged, or "".
func isWork(rec events.Record) string {
	kind := rec.Subject.Kind
	if rec.Subject.IsSession() {
		kind = events.KindOf(rec.Subject.ID)
		switch p, _ := events.Decode(rec.Type, rec.Data); p := p.(type) {
		case *events.SessionCreated:
			if !slices.Contains(work, kind) {
				kind = p.Kind
			}
		case *events.RunCreated:
			if p.Run.Kind == "changeset" {
				kind = p.Run.Kind
			}
		}
	}
	if slices.Contains(work, kind) || kind == "overlay" || kind == "changeset" {
		return "it is of kind " + kind + ": its work belongs to one store"
	}
	return ""
}

// noteNeeds notes which other subjects a record names. Those that it names by offset it cannot do without.
func (m *Merger) noteNeeds(r *row, rec events.Record) error {
	need := func(sub events.Subject, hard bool) error {
		if sub == r.sub || sub.Validate() != nil {
			return nil
		}
		other, err := m.table.of(sub)
		if err != nil {
			return err
		}
		return m.table.exec("INSERT OR IGNORE INTO need VALUES(?, ?, ?)", r.n, other.n, hard)
	}
	if fork := forkOf(rec); fork != nil {
		if err := need(events.Session(rec.Subject.Namespace, fork.Session), true); err != nil {
			return err
		}
	}
	if !events.IsKnown(rec.Type) {
		if err := need(registry.Subject(rec.Type), true); err != nil {
			return err
		}
	}
	if sum, ok := events.ParseBlobRef(rec.Extensions[events.ExtDataRef]); ok {
		if err := need(events.Document(rec.Subject.Namespace, events.KindBlob, sum), false); err != nil {
			return err
		}
	}
	_, err := rec.MapOffsets(nil, func(ref events.Reference) (events.Offset, error) {
		if ref.Subject.IsSession() {
			return ref.Offset, nil
		}
		return ref.Offset, need(ref.Subject, ref.Exact)
	})
	return err
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

// appender appends the records of a merge in the order of the original.
type appender struct {
	m    *Merger
	ctx  context.Context
	done *Merge
}

// unit is an append to several subjects whose events are collected.
type unit struct {
	want  map[string]bool // ids of events that have not come yet
	rows  []*row          // its subjects that are merged
	parts map[*row][]pending
}

// pending is a record that is not appended yet.
type pending struct {
	rec   events.Record
	place int64
}

// take appends a record, or collects it.
func (a *appender) take(rec events.Record) error {
	m := a.m
	if rec.Subject.Namespace == events.PersonalNamespace {
		return nil
	}
	if rec.Subject.Kind == events.KindUnit {
		return a.begin(rec)
	}
	r, err := m.table.find(rec.Subject)
	if err != nil || r == nil || !r.goes() {
		return err
	}
	p := pending{rec: rec}
	missing, err := m.table.get("SELECT place FROM record WHERE subject=? AND at0=? AND at1 IS NULL", []any{r.n, rec.Offset}, &p.place)
	if err != nil {
		return err
	}
	u := m.units[rec.Subject]
	if u == nil {
		if !missing {
			return nil
		}
		return a.append(r, p)
	}
	if !u.want[rec.MsgID()] {
		if err := a.flush(u); err != nil || !missing {
			return err
		}
		return a.append(r, p)
	}
	delete(u.want, rec.MsgID())
	if missing {
		u.parts[r] = append(u.parts[r], p)
	}
	if len(u.want) == 0 {
		return a.flush(u)
	}
	return nil
}

// begin begins to collect the events of a redo record.
func (a *appender) begin(rec events.Record) error {
	var list struct {
		Events []struct {
			Subject string     `json:"subject"`
			Event   events.Raw `json:"event"`
		} `json:"events"`
	}
	if rec.Type != events.TypeUnitAppended || rawjson.Unmarshal(rec.Data, &list) != nil {
		return nil
	}
	u := &unit{want: make(map[string]bool), parts: make(map[*row][]pending)}
	for _, x := range list.Events {
		sub, err := events.ParseNATS(x.Subject)
		if err != nil {
			return nil
		}
		e, err := events.ParseJSON(sub.Namespace, x.Event)
		if err != nil {
			return nil
		}
		e.Subject = sub
		r, err := a.m.table.find(sub)
		if err != nil {
			return err
		}
		if r == nil || !r.goes() {
			continue
		}
		u.want[e.MsgID()] = true
		if !slices.Contains(u.rows, r) {
			u.rows = append(u.rows, r)
		}
	}
	for _, r := range u.rows {
		if err := a.flush(a.m.units[r.sub]); err != nil {
			return err
		}
		a.m.units[r.sub] = u
	}
	return nil
}

func (a *appender) flushAll() error {
	for _, u := range a.m.units {
		if err := a.flush(u); err != nil {
			return err
		}
	}
	return nil
}

// flush appends the collected events of a unit, all or nothing. If a part is refused, the others are appended by
// themselves.
func (a *appender) flush(u *unit) error {
	if u == nil {
		return nil
	}
	for _, r := range u.rows {
		if a.m.units[r.sub] == u {
			delete(a.m.units, r.sub)
		}
	}
	var parts []log.Part
	var rows []*row
	for _, r := range u.rows {
		list := u.parts[r]
		if len(list) == 0 || !r.goes() {
			continue
		}
		evs, err := a.translate(r, list)
		if err != nil {
			return err
		}
		if evs != nil {
			parts, rows = append(parts, log.Part{Subject: r.sub, Expect: log.At(events.Offset(r.last[to])), Events: evs}), append(rows, r)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if len(parts) > 1 {
		acks, err := a.m.To.AppendAll(a.ctx, parts...)
		if err == nil {
			for i, r := range rows {
				if acks[i].Duplicate {
					r.why = twice(u.parts[r])
					continue
				}
				if err := a.appended(r, u.parts[r], acks[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if !refuses(err) {
			return err
		}
	}
	for _, r := range rows {
		if err := a.append(r, u.parts[r]...); err != nil {
			return err
		}
	}
	return nil
}

// refuses reports whether an error of an append concerns its subject alone.
func refuses(err error) bool {
	return errors.Is(err, log.ErrConflict) || errors.Is(err, log.ErrTooLarge) || isType[*events.InvalidError](err) || isType[*events.TypeError](err) || isType[*log.PartialError](err) || isType[*needError](err)
}

func isType[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

// append appends records of one subject.
func (a *appender) append(r *row, list ...pending) error {
	evs, err := a.translate(r, list)
	if err != nil || evs == nil {
		return err
	}
	ack, err := a.m.To.AppendBuffered(a.ctx, r.sub, log.At(events.Offset(r.last[to])), evs...)
	switch {
	case err != nil && refuses(err):
		r.why = "the target refuses " + list[0].rec.Offset.String() + ": " + err.Error()
		return nil
	case err != nil:
		return err
	case ack.Duplicate:
		r.why = twice(list)
		return nil
	}
	return a.appended(r, list, ack)
}

func twice(list []pending) string {
	return fmt.Sprintf("it has the event of %v twice", list[0].rec.Offset)
}

// appended notes where records are in the target.
func (a *appender) appended(r *row, list []pending, ack log.Ack) error {
	m := a.m
	at := make([]events.Offset, 0, len(list))
	if ack.Last-ack.First == events.Offset(len(list)-1) {
		for i := range list {
			at = append(at, ack.First+events.Offset(i))
		}
	} else {
		for rec, err := range m.To.Read(a.ctx, events.Range{Subject: r.sub, After: ack.First - 1, Upto: ack.Last, Buffered: true}) {
			if err != nil {
				return err
			}
			at = append(at, rec.Offset)
		}
	}
	if len(at) != len(list) {
		return fmt.Errorf("%s: %d records were appended, and %d are there", r.sub.Name(), len(list), len(at))
	}
	for i, p := range list {
		if err := m.table.exec("UPDATE record SET at1=? WHERE subject=? AND place=?", at[i], r.n, p.place); err != nil {
			return err
		}
		if i == 0 && r.parent != 0 && r.fork[to] == 0 {
			if fork := forkOf(p.rec); fork != nil {
				parent, err := m.table.number(r.parent)
				if err != nil {
					return err
				}
				x, _, err := m.table.below(parent, from, fork.Offset, true)
				if err != nil {
					return err
				}
				r.fork[to] = x.at[to]
			}
		}
	}
	r.count[to] += int64(len(list))
	r.last[to], r.fresh = int64(ack.Last), true
	m.head = max(m.head, ack.Last)
	m.last = r.sub
	m.ended += len(list)
	a.done.Records += len(list)
	return nil
}

// needError reports a record that names another one which the target does not have.
type needError struct{ what string }

func (e *needError) Error() string { return e.what }

// translate returns the events as the target is to have them, or nil if their subject is refused.
func (a *appender) translate(r *row, list []pending) ([]events.Event, error) {
	evs := make([]events.Event, len(list))
	for i, p := range list {
		pointers, err := a.m.table.pointers(p.rec.Type)
		if err == nil {
			err = a.inPlace(p.rec, pointers)
		}
		if err == nil {
			evs[i], err = p.rec.MapOffsets(pointers, func(ref events.Reference) (events.Offset, error) { return a.translated(r, p.rec, ref) })
		}
		if err != nil && refuses(err) {
			r.why = fmt.Sprintf("%v: %v", p.rec.Offset, err)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return evs, nil
}

// inPlace refuses a record whose data are kept by reference and name offsets: other data would have another reference.
func (a *appender) inPlace(rec events.Record, pointers []string) error {
	if len(rec.Data) > 0 || rec.Extensions[events.ExtDataRef] == "" || a.m.Loader == nil {
		return nil
	}
	whole, err := projector.Resolve(a.ctx, a.m.Loader.Source, rec, events.MaxValue)
	if err != nil {
		return nil // readers cannot read it either
	}
	whole.Extensions = nil
	_, err = whole.MapOffsets(pointers, func(ref events.Reference) (events.Offset, error) {
		if ref.Offset == 0 {
			return 0, nil
		}
		return 0, &needError{"its data are kept by reference, and name " + ref.Offset.String()}
	})
	return err
}

// translated returns the offset in the target of what a record names. What the original does not have becomes the
// largest offset, which no store has; what comes before the subject becomes 0.
func (a *appender) translated(r *row, rec events.Record, ref events.Reference) (events.Offset, error) {
	t := a.m.table
	other, err := t.find(ref.Subject)
	switch {
	case err != nil || ref.Offset == 0:
		return 0, err
	case other == r && ref.Offset >= rec.Offset:
		return events.MaxOffset, nil
	case other == nil && ref.Exact:
		return events.MaxOffset, nil
	case other == nil:
		return 0, nil
	case other != r:
		if err := a.flush(a.m.units[ref.Subject]); err != nil {
			return 0, err
		}
	}
	isFork := other.n == r.parent && int64(ref.Offset) == r.fork[from]
	x, found, err := t.below(other, from, ref.Offset, !ref.Exact && !isFork)
	switch {
	case err != nil:
		return 0, err
	case ref.Exact && (!found || x.at[from] != int64(ref.Offset)):
		return events.MaxOffset, nil
	case !found && isFork:
		return 0, &needError{fmt.Sprintf("a fork of %s at %v, where it has no record", ref.Subject.Name(), ref.Offset)}
	case !found:
		return 0, nil
	case x.at[to] == 0:
		return 0, &needError{fmt.Sprintf("it names %v of %s, which the target does not have", ref.Offset, ref.Subject.Name())}
	}
	if x.r == r && !ref.Exact && x.at[from] < int64(ref.Offset) {
		return a.between(x)
	}
	return events.Offset(x.at[to]), nil
}

// between returns an offset behind a record and before the next one of its subject, if there is one: a rewind to behind a
// checkpoint keeps the checkpoint. Otherwise it returns the record's offset.
func (a *appender) between(x spot) (events.Offset, error) {
	next := int64(a.m.head) + 1 // the next append is not before that
	_, err := a.m.table.get("SELECT at1 FROM record WHERE subject=? AND place=? AND at1 NOT NULL", []any{x.r.n, x.place + 1}, &next)
	if next > x.at[to]+1 {
		x.at[to]++
	}
	return events.Offset(x.at[to]), err
}
