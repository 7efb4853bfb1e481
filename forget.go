package tally

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Forget says what loses its content. One of Session, Record, Document, Before and Namespace selects it; Before and
// Namespace may be combined. Ids, types, times and lengths of records remain, and so do tokens and prices.
type Forget struct {
	Session   string        // id: all content of a session
	Thread    string        // with Session: one thread; with Turn its thread, default main
	Turn      int           // with Session: one turn in effect, from 1
	Children  bool          // with Session: also the sessions that it started, and those that they started
	Record    events.Offset // one record, of Session if that is set
	Document  string        // KIND/ID: every revision of a document, also under earlier names
	Before    time.Time     // sessions whose last record is older, by the log's time
	Namespace string        // everything in a namespace; with the others, the namespace that they are in; default that of the store
	Kinds     []string      // with Before: only sessions of these kinds

	Reason string // for the receipt
	Dry    bool   // only plan
}

// Receipt reports an erasure, or the outcome that a dry run expects. It is stored as the document receipt/ID.
type Receipt struct {
	ID        string // "": there was nothing to forget
	At        time.Time
	By        string
	Reason    string
	Scope     string
	Records   int
	Bytes     int // of content
	Subjects  []Forgotten
	Unreached []string // where the content may still be, or what could not be forgotten

	plan erasure.Plan
}

// Forgotten is what a session or document lost.
type Forgotten struct {
	Subject events.Subject
	Records int
	Bytes   int
}

// ErrNoErasure reports that no process can change the records of a store: it is on a server that others run, or in
// memory. A copy without the content takes its place.
var ErrNoErasure = errors.New("the records of this store cannot be changed")

// WorkError reports content that cannot be forgotten, because work that is under way needs it.
type WorkError struct {
	Subject events.Subject
	Kind    string
}

func (e *WorkError) Error() string {
	return fmt.Sprintf("%s is of the kind %s: what work needs cannot be forgotten", e.Subject.Name(), e.Kind)
}

// Forget removes content from the store for good: from the log, snapshots, views and trees. If all of it is gone
// already, the receipt has no ID and nothing is written. If the process ends meanwhile, the next owner of the store
// continues.
//
// The errors are ErrNotFound, a *WorkError, an *events.InvalidError for a selection that says nothing or too much, and
// ErrNoErasure together with the receipt that a copy needs: see [Receipt.Plan].
func (st *Store) Forget(ctx context.Context, f Forget) (Receipt, error) {
	in := st
	if f.Namespace != "" {
		var err error
		if in, err = st.In(f.Namespace); err != nil {
			return Receipt{}, err
		}
	}
	x := &forgetting{st: in, f: f, seed: maphash.MakeSeed(), planned: make(map[events.Offset]int), copies: make(map[uint64]int), isPlanned: make(map[events.Subject]bool), titles: make(map[events.Subject][]string)}
	plan, err := x.make(ctx)
	if err != nil || len(plan.Records) == 0 {
		return Receipt{Scope: plan.Scope, Unreached: plan.Unreached}, err
	}
	r := receiptOf(plan)
	if f.Dry {
		return r, nil
	}
	if st.config.Host.Erase == nil {
		return r, ErrNoErasure
	}
	if err := st.config.Host.Erase(ctx, plan); err != nil {
		return r, err
	}
	var says erasure.Receipt // the owner may have added what it did not reach
	if doc, err := in.Documents().Read(ctx, erasure.KindReceipt, r.ID); err == nil && json.Unmarshal(doc.Data, &says) == nil {
		r.Unreached = says.Unreached
	}
	return r, nil
}

// Plan returns the content of a file with which a copy leaves the content out: see tally copy.
func (r Receipt) Plan() ([]byte, error) { return r.plan.Encode() }

func receiptOf(p erasure.Plan) Receipt {
	says := p.Says()
	r := Receipt{ID: p.Receipt, At: p.At, By: p.By, Reason: p.Reason, Scope: p.Scope, Records: says.Records, Bytes: says.Bytes, Unreached: p.Unreached, plan: p}
	for _, l := range says.Subjects {
		if sub, err := events.ParseSubject(cmp.Or(l.Namespace, p.Namespace), l.Subject); err == nil {
			r.Subjects = append(r.Subjects, Forgotten{sub, l.Records, l.Bytes})
		}
	}
	return r
}

// forgetting makes a plan.
type forgetting struct {
	st   *Store
	f    Forget
	plan erasure.Plan

	seed      maphash.Seed
	planned   map[events.Offset]int // by offset: the record in the plan
	copies    map[uint64]int        // by the hash of an event's identity, likewise
	isPlanned map[events.Subject]bool
	hasLines  bool                        // a planned record is a line of an agent's file
	titles    map[events.Subject][]string // that sessions lose
}

// make plans: first the records that the caller names, then what refers to them or is named by nothing else.
func (x *forgetting) make(ctx context.Context) (erasure.Plan, error) {
	x.plan = erasure.Plan{Receipt: receiptID(), Namespace: x.st.config.Namespace, By: x.st.config.Actor, Reason: x.f.Reason,
		At: x.st.Now().UTC().Truncate(time.Millisecond)}
	if err := x.check(); err != nil {
		return x.plan, err
	}
	for _, step := range []func(context.Context) error{x.scope, x.unnamed, x.forks, x.units} {
		if err := step(ctx); err != nil {
			return x.plan, err
		}
	}
	slices.SortFunc(x.plan.Records, func(a, b erasure.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	if len(x.plan.Unreached) > maxLines {
		n := len(x.plan.Unreached) - maxLines + 1
		x.plan.Unreached = append(x.plan.Unreached[:maxLines-1], fmt.Sprintf("and %d more", n))
	}
	if len(x.plan.Records) == 0 {
		return x.plan, nil
	}
	if x.hasLines {
		x.unreached("the agent's own files, if they still exist: delete them there")
	}
	x.unreached("older backups, exports and copies of the store; disks that remap blocks, such as SSDs and file systems with snapshots")
	x.unreached("kept: ids, types, times and lengths of records, tokens and prices")
	return x.plan, x.plan.Validate()
}

// receiptID returns a new id of a receipt.
func receiptID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b [6]byte
	text := rand.Text() // 26 letters, 130 random bits
	n := uint64(0)
	for _, c := range text[:13] {
		n = n*32 + uint64(strings.IndexRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", c))
	}
	for i := range b {
		b[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(b[:])
}

// check refuses a selection that says nothing or too much.
func (x *forgetting) check() error {
	f := x.f
	said := 0
	for _, is := range []bool{f.Session != "", f.Record != 0 && f.Session == "", f.Document != "", !f.Before.IsZero(), f.Namespace != "" && f.Session == "" && f.Document == "" && f.Record == 0 && f.Before.IsZero()} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return &events.InvalidError{Field: "forget", Reason: "want one of a session, a record, a document, a time and a namespace"}
	case f.Session == "" && (f.Thread != "" || f.Turn != 0 || f.Children):
		return &events.InvalidError{Field: "forget", Reason: "a thread, a turn and children need a session"}
	case f.Turn < 0:
		return &events.InvalidError{Field: "turn", Reason: fmt.Sprintf("%d: want a number from 1", f.Turn)}
	case f.Record != 0 && (f.Thread != "" || f.Turn != 0 || f.Children), f.Children && (f.Thread != "" || f.Turn != 0):
		return &events.InvalidError{Field: "forget", Reason: "want one of a record, a thread or turn, and children"}
	case f.Before.IsZero() && f.Kinds != nil:
		return &events.InvalidError{Field: "kinds", Reason: "they need a time"}
	case len(f.Reason) > erasure.MaxText:
		return &events.InvalidError{Field: "reason", Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(f.Reason), erasure.MaxText)}
	}
	return nil
}

// scope plans what the caller names.
func (x *forgetting) scope(ctx context.Context) error {
	ns := x.st.config.Namespace
	switch f := x.f; {
	case f.Document != "":
		return x.document(ctx, f.Document)
	case f.Record != 0:
		return x.record(ctx)
	case f.Session != "":
		return x.session(ctx, events.Session(ns, f.Session))
	case !f.Before.IsZero():
		x.plan.Scope = fmt.Sprintf("sessions of the namespace %s before %s", ns, f.Before.UTC().Format(time.RFC3339))
		return x.subjects(ctx, events.KindSession, func(ctx context.Context, sub events.Subject) (bool, error) {
			last, err := x.st.Log.Last(ctx, sub)
			if events.IsDamage(err) {
				x.unreached("%s: its last record cannot be read, so its age is unknown", sub.Name())
				return false, nil
			}
			return err == nil && last.Recorded.Before(f.Before), err
		})
	}
	x.plan.Scope = "namespace " + ns
	return x.subjects(ctx, "", func(context.Context, events.Subject) (bool, error) { return true, nil })
}

// unreached adds a line about content that remains.
func (x *forgetting) unreached(format string, args ...any) {
	if len(x.plan.Unreached) <= 2*erasure.MaxLines {
		line := fmt.Sprintf(format, args...)
		x.plan.Unreached = append(x.plan.Unreached, line[:min(len(line), erasure.MaxText)])
	}
}

// subjects plans all subjects of a kind, "" for all, that is selects. Work stays.
func (x *forgetting) subjects(ctx context.Context, kind string, is func(context.Context, events.Subject) (bool, error)) error {
	for info, err := range x.st.Log.Subjects(ctx, x.st.config.Namespace, kind) {
		if err != nil {
			return err
		}
		sub := info.Subject
		if sub.Kind == events.KindUnit || sub.Kind == erasure.KindReceipt {
			continue // copies go with what they copy
		}
		work, err := x.workOf(ctx, sub)
		if err != nil {
			return err
		}
		if x.f.Kinds != nil && !slices.Contains(x.f.Kinds, work.Kind) {
			continue
		}
		selected, err := is(ctx, sub)
		if err != nil {
			return err
		}
		if !selected {
			continue
		}
		if work.isWork {
			if x.f.Kinds == nil && sub.Kind != events.KindType {
				x.unreached("%s: it is of the kind %s, which work needs", sub.Name(), work.Kind)
			}
			continue
		}
		if err := x.whole(ctx, sub); err != nil {
			return err
		}
	}
	return nil
}

// ofKind is the kind of a session or document.
type ofKind struct {
	Kind   string
	isWork bool // work needs the content
}

// workOf returns the kind of a subject.
func (x *forgetting) workOf(ctx context.Context, sub events.Subject) (ofKind, error) {
	if !sub.IsSession() {
		switch sub.Kind {
		case events.KindUnit, events.KindType, events.KindAgent, erasure.KindReceipt, "overlay":
			return ofKind{sub.Kind, true}, nil
		}
		return ofKind{sub.Kind, false}, nil
	}
	o, err := x.st.loader.Peek(ctx, sub)
	if err = projector.Tolerate(err); err != nil {
		return ofKind{}, err
	}
	kind := cmp.Or(o.Ledger().Kind, events.KindOf(sub.ID))
	switch kind {
	case events.KindQueue, events.KindItem, events.KindInbox, events.KindFlow, events.KindLock, events.KindAgent:
		return ofKind{kind, true}, nil
	}
	return ofKind{kind, false}, nil
}

// mayGo returns a *WorkError if work needs a subject.
func (x *forgetting) mayGo(ctx context.Context, sub events.Subject) error {
	kind, err := x.workOf(ctx, sub)
	if err == nil && kind.isWork {
		err = &WorkError{sub, kind.Kind}
	}
	return err
}

// document plans a document under each of its names.
func (x *forgetting) document(ctx context.Context, name string) error {
	if !strings.HasPrefix(name, "document/") {
		kind, id, _ := strings.Cut(name, "/")
		name = events.Document("", kind, id).String()
	}
	sub, err := events.ParseSubject(x.st.config.Namespace, name)
	if err != nil {
		return err
	}
	x.plan.Scope = sub.Name()
	if sub.Kind == events.KindBlob {
		return &WorkError{sub, "blob, which goes with the last record that names it"}
	}
	if err := x.mayGo(ctx, sub); err != nil {
		return err
	}
	if _, err := x.st.Log.Last(ctx, sub); err != nil && !events.IsDamage(err) {
		return err
	}
	names, err := x.st.namesOf(ctx, sub)
	if err != nil {
		return err
	}
	for i, doc := range names {
		if i > 0 {
			now, err := x.st.newest(ctx, doc)
			if err == nil && now.exists {
				err = fmt.Errorf("%s, an earlier name of %s, is another document now: %w", doc.Name(), sub.Name(), ErrExists)
			}
			if err != nil {
				return err
			}
		}
		if err := x.whole(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}

// record plans one record.
func (x *forgetting) record(ctx context.Context) error {
	rec, err := x.st.Log.Record(ctx, x.f.Record)
	if err != nil {
		return err
	}
	if x.f.Session != "" && rec.Subject != events.Session(x.st.config.Namespace, x.f.Session) {
		return fmt.Errorf("%v is of %s: %w", rec.Offset, rec.Subject.Name(), ErrNotFound)
	}
	if rec.Subject.Kind == events.KindBlob {
		return &WorkError{rec.Subject, "blob, which goes with the last record that names it"}
	}
	x.plan.Scope = fmt.Sprintf("record %v of %s", rec.Offset, rec.Subject.Name())
	if rec.Subject.Namespace != x.st.config.Namespace {
		if x.st, err = x.st.In(rec.Subject.Namespace); err != nil {
			return err
		}
		x.plan.Namespace = rec.Subject.Namespace
	}
	if err := x.mayGo(ctx, rec.Subject); err != nil {
		return err
	}
	return x.add(ctx, rec, nil)
}

// session plans a session, or a part of it.
func (x *forgetting) session(ctx context.Context, sub events.Subject) error {
	if _, err := x.st.Log.Last(ctx, sub); err != nil && !events.IsDamage(err) {
		return err
	}
	if err := x.mayGo(ctx, sub); err != nil {
		return err
	}
	switch f := x.f; {
	case f.Turn > 0:
		return x.turn(ctx, sub, cmp.Or(f.Thread, events.MainThread))
	case f.Thread != "":
		x.plan.Scope = fmt.Sprintf("thread %s of %s", f.Thread, sub.Name())
		return x.turns(ctx, sub, func(t events.EventTurn) bool { return t.Thread == f.Thread }, nil)
	}
	x.plan.Scope = sub.Name()
	list := []events.Subject{sub}
	if x.f.Children {
		x.plan.Scope += " and its children"
		all, err := x.lineage(ctx)
		if err != nil {
			return err
		}
		for n := 0; n < len(list); n++ {
			for _, l := range all {
				if l.parent == list[n].ID && !slices.Contains(list, l.sub) {
					list = append(list, l.sub)
				}
			}
		}
	}
	for i, sub := range list {
		if i > 0 {
			kind, err := x.workOf(ctx, sub)
			if err != nil {
				return err
			}
			if kind.isWork {
				x.unreached("%s: it is of the kind %s, which work needs", sub.Name(), kind.Kind)
				continue
			}
		}
		if err := x.whole(ctx, sub); err != nil {
			return err
		}
	}
	return nil
}

// maxLines bounds the lines about content that remains, besides those about every erasure.
const maxLines = erasure.MaxLines - 10

// minCopy is the length from which a turn's bytes inside another record are taken for a copy.
const minCopy = 16

// turn plans one turn, turns of the session that are equal to it, and lists records that contain it.
func (x *forgetting) turn(ctx context.Context, sub events.Subject, thread string) error {
	x.plan.Scope = fmt.Sprintf("turn %d of the thread %s of %s", x.f.Turn, thread, sub.Name())
	o, err := x.st.loader.Outline(ctx, sub, 0)
	if err = projector.Tolerate(err); err != nil {
		return err
	}
	if n := o.Len(thread); x.f.Turn > n {
		return &projector.PositionError{Subject: sub, Position: fmt.Sprintf("%s#%d", thread, x.f.Turn), Reason: fmt.Sprintf("thread %s has %d turns", thread, n)}
	}
	list, err := o.Turns(ctx, thread, x.f.Turn-1, x.f.Turn)
	if err != nil {
		return err
	}
	turn := list[0]
	if turn.Erased != "" {
		return nil
	}
	rec, err := x.st.Log.Record(ctx, turn.Offset)
	if err != nil {
		return err
	}
	if rec.Subject != sub {
		return fmt.Errorf("turn %d of %s is one of %s, of which it is a fork: forget it there: %w", x.f.Turn, sub.Name(), rec.Subject.Name(), ErrNotFound)
	}
	text := cmp.Or(string(turn.Raw), string(turn.Bytes))
	x.unreached("titles and summaries that were made from the turn")
	return x.turns(ctx, sub, func(t events.EventTurn) bool {
		return string(t.Turn) == text && len(turn.Bytes) == len(t.Bytes) || len(t.Bytes) > 0 && string(t.Bytes) == text
	}, func(rec events.Record) {
		if len(text) >= minCopy && bytes.Contains(rec.Data, []byte(text)) {
			x.unreached("record %v (%s) contains the turn, too: forget it by its offset", rec.Offset, rec.Type)
		}
	})
}

// turns plans the turns of a session that is selects, and shows other to the caller: records of which nothing goes, and
// what remains of the others.
func (x *forgetting) turns(ctx context.Context, sub events.Subject, is func(events.EventTurn) bool, other func(events.Record)) error {
	found := false
	for rec, err := range x.st.Log.Read(ctx, events.Range{Subject: sub}) {
		if rec, err = x.whatIs(ctx, rec, err); err != nil {
			return err
		}
		var gone []int
		for i, t := range rec.Turns() {
			if !t.Keeps && is(t) {
				gone = append(gone, i)
			}
		}
		left := rec
		if gone != nil {
			found = true
			if err := x.add(ctx, rec, gone); err != nil {
				return err
			}
			left = x.left(rec)
		}
		if other != nil {
			other(left)
		}
	}
	if !found {
		return fmt.Errorf("%s: %w", x.plan.Scope, ErrNotFound)
	}
	return nil
}

// whatIs returns a record with its data. A record that is lost is listed.
func (x *forgetting) whatIs(ctx context.Context, rec events.Record, err error) (events.Record, error) {
	if err == nil {
		var whole events.Record
		if whole, err = projector.Resolve(ctx, x.st.Log, rec, x.st.config.MaxValue); err == nil {
			return whole, nil
		}
		if events.IsDamage(err) {
			return rec, nil // its content is gone
		}
	}
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		_ = log.Noted(ctx, damage)
		x.unreached("record %v is lost: a damaged file may still have its content", damage.Offset)
		return events.Record{}, nil
	}
	return rec, err
}

// whole plans all records of a subject.
func (x *forgetting) whole(ctx context.Context, sub events.Subject) error {
	for rec, err := range x.st.Log.Read(ctx, events.Range{Subject: sub}) {
		if rec, err = x.whatIs(ctx, rec, err); err != nil {
			return err
		}
		if rec.Offset == 0 {
			continue
		}
		if err := x.add(ctx, rec, nil); err != nil {
			return err
		}
	}
	return nil
}

// add plans a record, or turns of it, unless it has lost that content already.
func (x *forgetting) add(ctx context.Context, rec events.Record, turns []int) error {
	rec, err := x.whatIs(ctx, rec, nil)
	if err != nil {
		return err
	}
	if _, has := x.planned[rec.Offset]; has {
		return nil
	}
	out, err := erased(rec.Event, x.plan.Receipt, turns)
	if turns != nil && err != nil { // no room for what remains
		turns = nil
		out, err = erased(rec.Event, x.plan.Receipt, nil)
	}
	if err != nil {
		return fmt.Errorf("record %v: %w", rec.Offset, err)
	}
	if out.Equal(rec.Event) {
		return nil
	}
	if len(x.plan.Records) >= erasure.MaxRecords {
		return &events.InvalidError{Field: "forget", Reason: fmt.Sprintf("it has more than %d records: forget a part of it first", erasure.MaxRecords)}
	}
	x.hasLines = x.hasLines || events.IsAgentLine(rec.Event)
	x.planned[rec.Offset], x.copies[maphash.String(x.seed, rec.MsgID())] = len(x.plan.Records), len(x.plan.Records)
	x.plan.Records = append(x.plan.Records, erasure.Record{Offset: rec.Offset, Subject: rec.Subject, Bytes: lost(rec.Event, out), Turns: turns})
	if !x.isPlanned[rec.Subject] {
		x.isPlanned[rec.Subject] = true
		x.plan.Subjects = append(x.plan.Subjects, rec.Subject)
	}
	if title := titleOf(rec); title != "" {
		x.titles[rec.Subject] = append(x.titles[rec.Subject], title)
	}
	return nil
}

// titleOf returns the title that a record sets for a session, or "".
func titleOf(rec events.Record) string {
	var fields events.Fields
	switch p, err := events.Decode(rec.Type, rec.Data); p := p.(type) {
	case *events.SessionCreated:
		return p.Title
	case *events.SessionUpdated:
		if err == nil {
			fields = p.Set
		}
	}
	raw, _ := fields.Get("title")
	var title string
	_ = json.Unmarshal(raw, &title) // a title that is not a string remains ""
	return title
}

// erased returns an event without its content or without turns.
func erased(e events.Event, receipt string, turns []int) (events.Event, error) {
	if turns == nil {
		return e.Erase(receipt)
	}
	return e.EraseTurns(receipt, turns)
}

// lost returns how many bytes of content an event loses.
func lost(e, left events.Event) int {
	n := len(e.Data) - len(left.Data)
	if _, isRef := e.Extensions[events.ExtDataRef]; isRef {
		n = 0 // the blob has them
	}
	return max(n, 0)
}

// left returns what remains of a record by the plan.
func (x *forgetting) left(rec events.Record) events.Record {
	i, ok := x.planned[rec.Offset]
	if !ok {
		return rec
	}
	e, err := erased(rec.Event, x.plan.Receipt, x.plan.Records[i].Turns)
	if err == nil {
		rec.Event = e
	}
	return rec
}

// unnamed plans blobs, imported files and secrets that only planned records name.
func (x *forgetting) unnamed(ctx context.Context) error {
	list, err := x.st.loader.Unreferenced(ctx, x.st.config.Namespace, slices.Clone(x.plan.Subjects), x.left)
	if err != nil {
		return err
	}
	for _, sub := range list {
		if kind, err := x.workOf(ctx, sub); err != nil || kind.isWork {
			continue
		}
		if err := x.whole(ctx, sub); err != nil {
			return err
		}
	}
	return nil
}

// units plans the copies that redo records have of planned records.
func (x *forgetting) units(ctx context.Context) error {
	if len(x.plan.Records) == 0 {
		return nil
	}
	for rec, err := range x.st.Log.Read(ctx, events.Range{Kind: events.KindUnit}) {
		if rec, err = x.whatIs(ctx, rec, err); err != nil {
			return err
		}
		var unit struct {
			Events []struct {
				Subject string     `json:"subject"`
				Event   events.Raw `json:"event"`
			} `json:"events"`
		}
		if rec.Type != events.TypeUnitAppended || json.Unmarshal(rec.Data, &unit) != nil {
			continue
		}
		planned := erasure.Record{Offset: rec.Offset, Subject: rec.Subject}
		for i, c := range unit.Events {
			sub, err := events.ParseNATS(c.Subject)
			if err != nil {
				continue
			}
			e, err := events.ParseJSON(sub.Namespace, c.Event)
			if err != nil {
				continue
			}
			e.Subject = sub
			at, ok := x.copies[maphash.String(x.seed, e.MsgID())]
			if !ok {
				continue
			}
			turns := x.plan.Records[at].Turns
			out, err := erased(e, x.plan.Receipt, turns)
			if err != nil {
				turns = nil
				if out, err = erased(e, x.plan.Receipt, nil); err != nil {
					return fmt.Errorf("record %v: %w", rec.Offset, err)
				}
			}
			if !out.Equal(e) {
				planned.Copies = append(planned.Copies, erasure.Copy{Index: i, Turns: turns})
				planned.Bytes += lost(e, out)
			}
		}
		if planned.Copies != nil {
			x.plan.Records = append(x.plan.Records, planned)
		}
	}
	return nil
}

// A lineage is a session with the session that started it and the one of which it is a fork.
type lineage struct {
	sub          events.Subject
	first        events.Offset
	parent, fork string
}

// lineage returns the sessions of the namespace that have a parent or are forks, in the order of their first records.
func (x *forgetting) lineage(ctx context.Context) (list []lineage, err error) {
	for info, err := range x.st.Log.Subjects(ctx, x.st.config.Namespace, events.KindSession) {
		if err != nil {
			return nil, err
		}
		o, err := x.st.loader.Peek(ctx, info.Subject)
		if err = projector.Tolerate(err); err != nil {
			return nil, err
		}
		l := lineage{sub: info.Subject, first: o.First()}
		if p := o.Ledger().Parent; p != nil {
			l.parent = p.Session
		}
		if f := o.Ledger().Fork; f != nil {
			l.fork = f.Session
		}
		if l.parent != "" || l.fork != "" {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b lineage) int { return cmp.Compare(a.first, b.first) })
	return list, nil
}

// copiedTitle plans the first record of a fork if it has a title that its session loses. If the record has other content,
// too, it stays and is listed.
func (x *forgetting) copiedTitle(ctx context.Context, l lineage) error {
	for rec, err := range x.st.Log.Read(ctx, events.Range{Subject: l.sub, Limit: 1}) {
		if rec, err = x.whatIs(ctx, rec, err); err != nil {
			return err
		}
		p, err := events.Decode(rec.Type, rec.Data)
		created, ok := p.(*events.SessionCreated)
		if err != nil || !ok || !slices.Contains(x.titles[events.Session(l.sub.Namespace, l.fork)], created.Title) {
			continue
		}
		if !reflect.DeepEqual(*created, events.SessionCreated{Kind: created.Kind, CreatedAt: created.CreatedAt, Title: created.Title, Fork: created.Fork}) {
			x.unreached("%s: it has the title of %s", l.sub.Name(), l.fork)
			continue
		}
		if err := x.add(ctx, rec, nil); err != nil {
			return err
		}
	}
	return nil
}

// forks adds the forks of planned sessions, and orders the subjects by their first records: a fork follows its parent.
func (x *forgetting) forks(ctx context.Context) error {
	if !slices.ContainsFunc(x.plan.Subjects, events.Subject.IsSession) {
		return nil
	}
	all, err := x.lineage(ctx)
	if err != nil {
		return err
	}
	var behind []events.Subject // forks, in their order
	for _, l := range all {
		if l.fork == "" || !x.isPlanned[events.Session(l.sub.Namespace, l.fork)] {
			continue
		}
		x.isPlanned[l.sub] = true
		behind = append(behind, l.sub)
		if err := x.copiedTitle(ctx, l); err != nil {
			return err
		}
	}
	x.plan.Subjects = slices.DeleteFunc(x.plan.Subjects, func(s events.Subject) bool { return slices.Contains(behind, s) })
	x.plan.Subjects = append(x.plan.Subjects, behind...)
	return nil
}
