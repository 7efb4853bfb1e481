package view_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

type vote struct {
	For string `json:"for"`
}

var (
	voteCast = events.Define[vote]("com.acme.vote.cast.v2", events.WithThread).From("com.acme.vote.cast.v1", func(data []byte) ([]byte, error) {
		var choice string
		err := json.Unmarshal(data, &choice)
		return fmt.Appendf(nil, `{"for":%q}`, choice), err
	})
	alarmRaised = events.Define[vote]("com.acme.alarm.raised.v1", events.InLedger)
)

// ownMoves tells of each type of the views whether it moves with the threads.
var ownMoves = map[string]bool{"com.acme.vote.cast.v2": true, "com.acme.vote.cast.v1": true, "com.acme.alarm.raised.v1": false, events.TypeTurnAppended: true, events.TypeCostAccrued: false}

var allTypes = []events.Type{voteCast.Type, alarmRaised.Type, {Name: events.TypeTurnAppended}, {Name: events.TypeCostAccrued}}

// line is what the views keep of an event.
func line(e events.Event) (string, error) {
	if v, ok, err := voteCast.In(e); ok || err != nil {
		return "vote " + v.For, err
	}
	v, ok, err := alarmRaised.In(e)
	if !ok {
		return e.Type, err
	}
	return "alarm " + v.For, err
}

type lines struct{ Lines []string }

// linesFold is a Fold that keeps a line of each event, in order.
var linesFold = view.Fold[lines]{Name: "lines", Version: 1, Types: allTypes, Apply: func(s *lines, f projector.Fact) error {
	text, err := line(f.Event)
	s.Lines = append(s.Lines, text)
	return err
}}

// linesOwn has the same as rows.
var linesOwn = view.Own{Name: "rows", Version: 3, Types: allTypes, Tables: []string{"lines"},
	Schema: `CREATE TABLE lines{set}(namespace TEXT, kind TEXT, id TEXT, n INTEGER, line TEXT)`,
	Apply: func(ctx context.Context, t view.Tables, f projector.Fact) error {
		text, err := line(f.Event)
		if err != nil {
			return err
		}
		var n int
		sub := f.Subject
		if _, err := t.Find(ctx, "SELECT count(*) FROM lines{set} WHERE namespace=? AND kind=? AND id=?", []any{sub.Namespace, sub.Kind, sub.ID}, []any{&n}); err != nil {
			return err
		}
		return t.Exec(ctx, "INSERT INTO lines{set} VALUES(?,?,?,?,?)", sub.Namespace, sub.Kind, sub.ID, n, text)
	},
	Forget: func(ctx context.Context, t view.Tables, sub events.Subject) error {
		return t.Exec(ctx, "DELETE FROM lines{set} WHERE namespace=? AND kind=? AND id=?", sub.Namespace, sub.Kind, sub.ID)
	},
}

// drawHistory draws a log of a few sessions and a document, with the records that are lost.
func drawHistory(t *rapid.T) (records []events.Record, lost map[events.Offset]bool) {
	lost = make(map[events.Offset]bool)
	n := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(t, label) }
	sessions := 0
	for at := events.Offset(1); len(records) < 40 && (len(records) == 0 || n("end", 0, 30) > 0); at += events.Offset(1 + n("gap", 0, 3)/3) {
		e := events.Event{ID: fmt.Sprintf("e%d", at), Source: "urn:test", ContentType: events.ContentTypeJSON}
		set := func(typ, format string, args ...any) { e.Type, e.Data = typ, fmt.Appendf(nil, format, args...) }
		isNew := sessions == 0 || sessions < 5 && n("new", 0, 7) == 0
		if isNew {
			sessions++
		}
		id := fmt.Sprint("s", n("session", 1, sessions))
		if isNew {
			id = fmt.Sprint("s", sessions)
		}
		e.Subject = events.Session("", id)
		switch op := n("op", 0, 19); {
		case isNew && sessions > 1 && op > 5: // the parent may be the session itself, or come later
			set(events.TypeSessionCreated, `{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z","fork":{"session":"s%d","offset":%d}}`, n("parent", 1, sessions+1), n("fork", 1, int(at)+1))
		case op < 5:
			set("com.acme.vote.cast.v2", `{"for":"%d"}`, at)
		case op < 7:
			set("com.acme.vote.cast.v1", `"%d"`, at)
		case op < 10:
			set("com.acme.alarm.raised.v1", `{"for":"%d"}`, at)
		case op < 12:
			set(events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":%d}]}`, at)
		case op == 12:
			set(events.TypeCostAccrued, `{"model":"m","usd":"1","purpose":"p","source":"s"}`)
		case op == 13:
			set(events.TypeTurnAppended, `7`)
		case op == 14:
			set("com.other.v1", `{}`)
		case op == 15:
			e.Subject = events.Document("", "doc", "d")
			set("com.acme.vote.cast.v2", `{"for":"%d"}`, at)
		default:
			set(events.TypeSessionRewound, `{"to":%d}`, n("to", 1, int(at)+1))
			for _, rec := range slices.Backward(records) {
				if rec.Subject == e.Subject && rec.Type == e.Type && n("undo", 0, 1) == 0 {
					set(events.TypeSessionRewound, `{"to":%d,"undoes":%d}`, max(rec.Offset-1, 1), rec.Offset)
					break
				}
			}
		}
		if e.Type != events.TypeSessionRewound && e.Type != events.TypeSessionCreated && n("basis", 0, 2) == 0 {
			e = e.WithExtension(events.ExtBasis, events.Offset(n("read", 0, int(at)+1)).Padded())
		}
		if n("lost", 0, 19) == 0 {
			lost[at] = true
		}
		records = append(records, events.Record{Event: e, Offset: at, Recorded: time.Unix(int64(at), 0)})
	}
	return records, lost
}

// history is a log that grows, has lost records, and fails once to read a subject.
type history struct {
	testkit.Records
	lost  map[events.Offset]bool
	head  events.Offset
	fails bool
}

var errLog = errors.New("the log does not answer")

func (h *history) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		if h.fails && r.Subject != (events.Subject{}) {
			h.fails = false
			yield(events.Record{}, errLog)
			return
		}
		for rec, err := range h.Records.Read(ctx, r) {
			if rec.Offset > h.head {
				return
			}
			if h.lost[rec.Offset] {
				rec, err = events.Record{}, &events.DamageError{Offset: rec.Offset}
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func (h *history) Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return h.Read(ctx, r)
}

func (h *history) Head(context.Context) (events.Offset, error) { return h.head, nil }

// erase erases records of a few subjects, and returns all subjects: each may be a fork of another one.
func (h *history) erase(t *rapid.T) (subjects []events.Subject) {
	h.Records = slices.Clone(h.Records)
	for i, rec := range h.Records {
		if rec.Offset > h.head || rapid.IntRange(0, 2).Draw(t, "erased") > 0 {
			continue
		}
		var err error
		h.Records[i].Event, err = rec.Event.Erase("r7k2p9")
		must(t, err)
	}
	for _, rec := range h.Records {
		subjects = append(subjects, rec.Subject)
	}
	return subjects
}

// L-1: after any batches, restarts and failed commits, each state is the fold of the events in effect, as an independent
// model has them.
func TestViewsFollowTheModel(t *testing.T) {
	t.Run("X-02 random histories", func(t *testing.T) { rapid.Check(t, followsModel) })
}

func followsModel(t *rapid.T) {
	records, lost := drawHistory(t)
	dir, err := os.MkdirTemp("", "view-")
	must(t, err)
	defer os.RemoveAll(dir)
	h := &history{Records: records, lost: lost}
	views := []view.View{linesFold.View(), linesOwn.View()}
	var editions []catalog.Edition
	open := func() {
		editions = nil
		for _, v := range views {
			editions = append(editions, v.New(dir, slog.New(slog.DiscardHandler)))
		}
	}
	shut := func() {
		for _, e := range editions {
			must(t, e.Close())
		}
	}
	open()
	defer func() { shut() }()
	for n := 0; n < len(records); {
		n += rapid.IntRange(1, len(records)-n).Draw(t, "appended")
		h.head = records[n-1].Offset
		for _, e := range editions {
			h.fails = rapid.IntRange(0, 3).Draw(t, "fails") == 0
			r := &projector.Runner{Log: h, View: e, Batch: rapid.IntRange(1, 20).Draw(t, "batch")}
			if err := r.CatchUp(t.Context(), nil); errors.Is(err, errLog) {
				err = r.CatchUp(t.Context(), nil)
				must(t, err)
			} else {
				must(t, err)
			}
			h.fails = false
			if n := r.Quarantined(); n > 0 {
				t.Fatalf("%d subjects are quarantined", n)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
			shut()
			open()
		}
		if rapid.IntRange(0, 3).Draw(t, "erases") == 0 {
			gone := h.erase(t)
			for _, e := range editions {
				must(t, (&projector.Runner{Log: h, View: e}).Refold(t.Context(), gone))
			}
		}
		mustFollow(t, h, dir, editions)
	}
	found, err := catalog.Verify(t.Context(), h, dir, views, nil)
	must(t, err)
	if len(found) > 0 {
		t.Fatalf("verify finds %v", found)
	}
}

// mustFollow compares the views in a directory with the model.
func mustFollow(t *rapid.T, h *history, dir string, editions []catalog.Edition) {
	t.Helper()
	var readable []events.Record
	want, subs := map[events.Subject][]string{}, []events.Subject{}
	for _, rec := range h.Records {
		if !slices.Contains(subs, rec.Subject) {
			subs = append(subs, rec.Subject)
		}
		if rec.Offset <= h.head && !h.lost[rec.Offset] {
			readable = append(readable, rec)
		}
	}
	got, rows := map[events.Subject][]string{}, map[events.Subject][]string{}
	db, err := linesOwn.View().Read(t.Context(), dir)
	must(t, err)
	defer db.Close()
	for _, sub := range subs {
		for _, rec := range model(readable, sub, h.head, events.MaxOffset).effective(ownMoves) {
			text, err := line(rec.Event)
			must(t, err)
			want[sub] = append(want[sub], text)
		}
		data, _, _, err := linesFold.View().State(t.Context(), dir, sub)
		must(t, err)
		if data != nil {
			var s lines
			must(t, json.Unmarshal(data, &s))
			got[sub] = s.Lines
		}
		list, err := db.QueryContext(t.Context(), "SELECT line FROM lines WHERE namespace=? AND kind=? AND id=? ORDER BY n", sub.Namespace, sub.Kind, sub.ID)
		must(t, err)
		for list.Next() {
			var text string
			must(t, list.Scan(&text))
			rows[sub] = append(rows[sub], text)
		}
		must(t, list.Err())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("states at %v (-model +view):\n%s\n%#v lost %v", h.head, diff, h.Records, h.lost)
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Fatalf("rows at %v (-model +view):\n%s\n%#v lost %v", h.head, diff, h.Records, h.lost)
	}
}

type failer interface {
	Helper()
	Fatal(...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// holding is a view that notes its largest memory of uncommitted changes.
type holding struct {
	catalog.Edition
	most int64
}

func (h *holding) Held() int64 {
	n := h.Edition.Held()
	h.most = max(h.most, n)
	return n
}

// The memory of uncommitted changes is bounded by Hold and one record, also while a view wants none of the records.
func TestHold(t *testing.T) {
	const hold, size = 64 << 10, 1 << 10
	for name, typ := range map[string]string{"X-10 wanted events": voteCast.Name, "X-10 other events": "com.other.v1"} {
		t.Run(name, func(t *testing.T) {
			h := &history{head: 1500}
			for at := events.Offset(1); at <= h.head; at++ {
				h.Records = append(h.Records, events.Record{Offset: at, Event: events.Event{ID: fmt.Sprint(at), Source: "urn:test", Type: typ,
					Subject: events.Session("", fmt.Sprint(at%100)), Data: fmt.Appendf(nil, `{"for":"%0*d"}`, size, at)}})
			}
			e := &holding{Edition: linesOwn.View().New(t.TempDir(), slog.New(slog.DiscardHandler))}
			defer e.Close()
			commits := 0
			r := &projector.Runner{Log: h, View: e, Hold: hold}
			must(t, r.CatchUp(t.Context(), func(projector.Cursor) { commits++ }))
			if e.most > hold+2*size || commits < 2 {
				t.Errorf("it held %d bytes in %d commits, want at most %d and several", e.most, commits, hold+2*size)
			}
		})
	}
}
