package view_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

func mustOpen(t *testing.T, o embedded.Options) *tally.Store {
	t.Helper()
	o.ConfigDir = t.TempDir()
	st, err := embedded.Open(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, st.Close()) })
	return st
}

// soon returns a context for what must happen soon.
func soon(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
	t.Cleanup(stop)
	return ctx
}

func mustAppend(t *testing.T, st *tally.Store, sub events.Subject, typ, format string, args ...any) events.Offset {
	t.Helper()
	expect := log.Any
	if typ == events.TypeSessionRewound {
		o, err := st.Loader().Peek(t.Context(), sub)
		must(t, err)
		expect = log.At(o.Offset())
	}
	ack, err := st.Append(t.Context(), sub, expect, events.Event{Type: typ, ContentType: events.ContentTypeJSON, Data: fmt.Appendf(nil, format, args...)})
	must(t, err)
	return ack.Last
}

// the examples are short, and the page about own events has the first one.
func TestExamplesAreShort(t *testing.T) {
	text, err := os.ReadFile("example_test.go")
	must(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "example_test.go", text, 0)
	must(t, err)
	sources := make(map[string]string)
	for _, d := range file.Decls {
		name := ""
		switch d := d.(type) {
		case *ast.FuncDecl:
			name = d.Name.Name
		case *ast.GenDecl:
			if v, is := d.Specs[0].(*ast.ValueSpec); is {
				name = v.Names[0].Name
			}
		}
		sources[name] = string(text[fset.Position(d.Pos()).Offset:fset.Position(d.End()).Offset])
	}
	lines := func(names ...string) (n int) {
		for _, name := range names {
			n += strings.Count(sources[name], "\n") + 1
		}
		return n
	}
	t.Run("X-01 fold", func(t *testing.T) {
		if n := lines("Votes"); n < 5 || n > 15 {
			t.Errorf("the fold has %d lines, want at most 15", n)
		}
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", "own-events.md"))
		must(t, err)
		if !strings.Contains(string(page), sources["Votes"]) {
			t.Errorf("docs/own-events.md lacks the fold of the example:\n%s", sources["Votes"])
		}
	})
	t.Run("X-01 view over sessions", func(t *testing.T) {
		if n := lines("Board", "winner"); n < 20 || n > 30 {
			t.Errorf("the view and its reader have %d lines, want at most 30", n)
		}
	})
}

// events of two versions fold as those of the newer one alone. The older type moves with the newer one.
func TestOlderVersions(t *testing.T) {
	t.Run("X-08 fold", func(t *testing.T) {
		st := mustOpen(t, embedded.Options{Backend: "memory", Views: []view.View{Votes.View()}})
		mixed, alone := events.Session("", "mixed"), events.Session("", "alone")
		var last events.Offset
		for _, sub := range []events.Subject{mixed, alone} {
			var back events.Offset
			for i := range 12 {
				if i == 5 {
					back = last
				}
				if i == 9 {
					mustAppend(t, st, sub, events.TypeSessionRewound, `{"to":%d}`, back)
				}
				if choice := fmt.Sprint("c", i%3); i%2 == 0 && sub == mixed {
					last = mustAppend(t, st, sub, "com.example.vote.cast.v1", "%q", choice)
				} else {
					last = mustAppend(t, st, sub, "com.example.vote.cast.v2", `{"for":%q}`, choice)
				}
			}
		}
		must(t, st.Wait(soon(t), "votes", last))
		want, _, err := Votes.Get(t.Context(), st, alone)
		must(t, err)
		got, _, err := Votes.Get(t.Context(), st, mixed)
		must(t, err)
		if diff := cmp.Diff(Count{map[string]int{"c0": 3, "c1": 3, "c2": 2}}, want); diff != "" {
			t.Errorf("votes of version 2 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("votes of both versions (-v2 alone +mixed):\n%s", diff)
		}
	})
	t.Run("X-08 another movement", func(t *testing.T) {
		older := events.Define[string]("com.example.vote.cast.v1", events.InLedger)
		o := embedded.Options{ConfigDir: t.TempDir(), Backend: "memory", Types: []events.Type{older.Type}, Views: []view.View{Votes.View()}}
		_, err := embedded.Open(t.Context(), o)
		if e, is := errors.AsType[*events.TypeError](err); !is || e.Name != older.Name {
			t.Errorf("got %v, want a TypeError of the older type", err)
		}
		fold := Votes
		fold.Types = append(slices.Clone(Votes.Types), older.Type) // which says how it moves
		o.Views = []view.View{fold.View()}
		mustOpen(t, o)
	})
}

// fragile is a fold that fails for "bad", until it is mended.
var isMended atomic.Bool

var fragile = view.Fold[lines]{Name: "fragile", Version: 1, Types: allTypes, Apply: func(s *lines, f projector.Fact) error {
	text, err := line(f.Event)
	s.Lines = append(s.Lines, text)
	if text == "vote bad" && !isMended.Load() {
		panic("a bad vote")
	}
	return err
}}

var fragileRows = view.Own{Name: "fragile-rows", Version: 1, Types: allTypes, Tables: linesOwn.Tables, Schema: linesOwn.Schema, Forget: linesOwn.Forget,
	Apply: func(ctx context.Context, t view.Tables, f projector.Fact) error {
		if err := linesOwn.Apply(ctx, t, f); err != nil {
			return err
		}
		if text, err := line(f.Event); text != "vote bad" || isMended.Load() {
			return err
		}
		return errors.New("a bad vote")
	},
}

// A fold that fails leaves its subject as it was before, and the others go on. Retry folds the subject again.
func TestQuarantine(t *testing.T) {
	isMended.Store(false)
	views := []view.View{fragile.View(), fragileRows.View()}
	st := mustOpen(t, embedded.Options{Backend: "memory", Views: views})
	sick, well := events.Session("", "sick"), events.Session("", "well")
	first := mustAppend(t, st, sick, "com.acme.vote.cast.v2", `{"for":"one"}`)
	bad := mustAppend(t, st, sick, "com.acme.vote.cast.v2", `{"for":"bad"}`)
	mustAppend(t, st, sick, "com.acme.vote.cast.v2", `{"for":"two"}`)
	last := mustAppend(t, st, well, "com.acme.vote.cast.v2", `{"for":"three"}`)
	rows := func(sub events.Subject) (list []string) {
		db, err := st.View(t.Context(), "fragile-rows")
		must(t, err)
		defer db.Close()
		found, err := db.Query("SELECT line FROM lines WHERE id=? ORDER BY n", sub.ID)
		must(t, err)
		defer found.Close()
		for found.Next() {
			list = append(list, "")
			must(t, found.Scan(&list[len(list)-1]))
		}
		return list
	}
	expect := func(sub events.Subject, aside events.Offset, want ...string) {
		t.Helper()
		s, _, err := fragile.Get(t.Context(), st, sub)
		if q, is := errors.AsType[*view.QuarantineError](err); is != (aside != 0) || is && q.Offset != aside || !is && err != nil {
			t.Errorf("%s: got %v, want quarantine since %v", sub, err, aside)
		}
		if !slices.Equal(s.Lines, want) || !slices.Equal(rows(sub), want) {
			t.Errorf("%s: got %q and %q, want %q", sub, s.Lines, rows(sub), want)
		}
	}
	settle := func(at events.Offset) {
		t.Helper()
		for _, v := range views {
			must(t, st.Wait(soon(t), v.Name, at))
		}
		found, err := st.VerifyViews(t.Context())
		must(t, err)
		if len(found) > 0 {
			t.Errorf("verify finds %v", found)
		}
	}
	settle(last)
	expect(sick, bad, "vote one")
	expect(well, 0, "vote three")
	// A rewind that brings nothing back leaves it in quarantine. Another session's fork inherits the bad vote.
	rewound := mustAppend(t, st, sick, events.TypeSessionRewound, `{"to":%d}`, first)
	fork := events.Session("", "fork")
	mustAppend(t, st, fork, "com.acme.alarm.raised.v1", `{"for":"x"}`)
	healthy := mustAppend(t, st, events.Session("", "fork-of-rewound"), events.TypeSessionCreated, `{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z","fork":{"session":"sick","offset":%d}}`, rewound)
	infected := mustAppend(t, st, events.Session("", "infected"), events.TypeSessionCreated, `{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z","fork":{"session":"sick","offset":%d}}`, bad)
	settle(infected)
	expect(sick, bad, "vote one")
	expect(events.Session("", "fork-of-rewound"), 0, "vote one")
	expect(events.Session("", "infected"), infected)
	_ = healthy
	for _, v := range views { // nothing has changed
		list, err := st.Retry(t.Context(), v.Name)
		must(t, err)
		if len(list) != 1 || list[0].Subject != sick { // its bad vote was rewound
			t.Errorf("%s: Retry mends %v, want %s", v.Name, list, sick)
		}
	}
	last = mustAppend(t, st, sick, "com.acme.vote.cast.v2", `{"for":"four"}`)
	settle(last)
	expect(sick, 0, "vote one", "vote four")
	isMended.Store(true)
	for _, v := range views {
		list, err := st.Retry(t.Context(), v.Name)
		must(t, err)
		if len(list) != 1 || list[0].Offset != infected {
			t.Errorf("%s: Retry mends %v, want the fork at %v", v.Name, list, infected)
		}
	}
	settle(last)
	expect(events.Session("", "infected"), 0, "vote one", "vote bad")
}

// Wrong definitions are refused when a store is opened, by name.
func TestWrongViews(t *testing.T) {
	wrong := func(name, want string, change func(*view.Own)) {
		o := linesOwn
		o.Name = name
		change(&o)
		_, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: "memory", Views: []view.View{o.View()}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: got %v, want an error with %q and the name", name, err, want)
		}
	}
	wrong("catalog", "another view has this name", func(o *view.Own) {})
	wrong("../x", "lower-case", func(o *view.Own) {})
	wrong("a", "version 0", func(o *view.Own) { o.Version = 0 })
	wrong("b", "no types", func(o *view.Own) { o.Types = nil })
	wrong("c", "no tables", func(o *view.Own) { o.Tables = nil })
	wrong("d", "{set}", func(o *view.Own) { o.Schema = "CREATE TABLE lines(a)" })
	wrong("e", "cannot have this name", func(o *view.Own) { o.Tables = []string{"quarantine"} })
	wrong("f", "syntax", func(o *view.Own) { o.Schema = "CREATE lines{set}" })
	wrong("g", "UNIQUE", func(o *view.Own) { o.Schema += "; CREATE INDEX i{set} ON lines{set}(line)" })
	wrong("h", "not one of", func(o *view.Own) { o.Schema += "; CREATE TABLE other{set}(a)" })
	wrong("i", "0 of 1 tables", func(o *view.Own) { o.Schema = "-- lines{set}" })
	wrong("j", "Apply", func(o *view.Own) { o.Apply = nil })
	wrong("k", "Forget", func(o *view.Own) { o.Forget = nil })
	wrong("l", "events.Define", func(o *view.Own) { o.Types = []events.Type{{Name: "com.acme.x"}} })
	wrong("m", "listed twice", func(o *view.Own) { o.Types = append(slices.Clone(allTypes), voteCast.Type) })
	for name, views := range map[string][]view.View{"another view": {linesFold.View(), linesFold.View()}, "make views": {{Name: "empty"}}} {
		_, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: "memory", Views: views})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

// Statements that would leave the transaction or the set of tables are refused. A state that cannot be encoded
// quarantines its subject.
func TestStatements(t *testing.T) {
	var said []error
	probe := linesOwn
	probe.Name = "probe"
	probe.Apply = func(ctx context.Context, t view.Tables, f projector.Fact) error {
		for _, text := range []string{"COMMIT", "DELETE FROM lines", "DELETE FROM lines{set}; COMMIT", "PRAGMA user_version=7", "SELECT 1 FROM lines{set}"} {
			said = append(said, t.Exec(ctx, text))
		}
		var n int
		_, err := t.Find(ctx, "DELETE FROM lines{set}", nil, []any{&n})
		said = append(said, err)
		for i := range 300 { // more texts than are kept
			if err := t.Exec(ctx, fmt.Sprintf("DELETE FROM lines{set} WHERE n=%d", 1000+i)); err != nil {
				return err
			}
		}
		return linesOwn.Apply(ctx, t, f)
	}
	odd := view.Fold[int]{Name: "odd", Version: 1, Types: allTypes, Apply: func(s *int, _ projector.Fact) error { *s++; return nil },
		Encode: func(s *int) ([]byte, error) {
			if *s > 2 {
				return nil, errors.New("too many")
			}
			return fmt.Append(nil, *s), nil
		}}
	st := mustOpen(t, embedded.Options{Backend: "memory", Views: []view.View{probe.View(), odd.View()}})
	sub := events.Session("", "s")
	var last events.Offset
	for range 4 {
		last = mustAppend(t, st, sub, "com.acme.vote.cast.v2", `{"for":"one"}`)
	}
	must(t, st.Wait(soon(t), "probe", last))
	must(t, st.Wait(soon(t), "odd", last))
	for _, err := range said {
		if err == nil {
			t.Error("a statement was not refused")
		}
	}
	n, _, err := odd.Get(t.Context(), st, sub)
	if q, is := errors.AsType[*view.QuarantineError](err); !is || q.Offset > 3+last-4 || n > 2 {
		t.Errorf("got %d, %v, want a quarantine at the third vote or before", n, err)
	}
	for _, name := range []string{"nope", "catalog"} {
		_, open := st.View(t.Context(), name)
		_, retry := st.Retry(t.Context(), name)
		for _, err := range []error{open, retry, st.Rebuild(t.Context(), name)} {
			if !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("view %s: got %v, want ErrNotFound", name, err)
			}
		}
	}
}
