package tally

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

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

// mayGo returns a *KindError if work needs a subject.
func (x *forgetting) mayGo(ctx context.Context, sub events.Subject) error {
	kind, err := x.workOf(ctx, sub)
	if err == nil && kind.isWork {
		err = &KindError{ID: sub.Name(), Have: kind.Kind, Why: "what work needs cannot be forgotten"}
	}
	return err
}

func blobError(blob events.Subject) error {
	return &KindError{ID: blob.Name(), Have: events.KindBlob, Why: "it goes with the last record that names it"}
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
		return blobError(sub)
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
		return blobError(rec.Subject)
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
	out, err := erasure.Erase(rec.Event, x.plan.Receipt, turns)
	if turns != nil && err != nil { // no room for what remains
		turns = nil
		out, err = erasure.Erase(rec.Event, x.plan.Receipt, nil)
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
	e, err := erasure.Erase(rec.Event, x.plan.Receipt, x.plan.Records[i].Turns)
	if err == nil {
		rec.Event = e
	}
	return rec
}
