package catalog

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// rewritten is a log whose records can be erased in their places.
type rewritten struct {
	mu      sync.Mutex // guards records
	records testkit.Records
}

func (l *rewritten) now() testkit.Records {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records
}

func (l *rewritten) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return l.now().Read(ctx, r)
}

func (l *rewritten) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	return l.now().Record(ctx, at)
}

// Follow yields nothing: the records are there before a view begins.
func (l *rewritten) Follow(ctx context.Context, _ events.Range) iter.Seq2[events.Record, error] {
	return func(func(events.Record, error) bool) { <-ctx.Done() }
}

func (l *rewritten) Head(context.Context) (events.Offset, error) {
	list := l.now()
	return list[len(list)-1].Offset, nil
}

// erase erases records, and returns their subjects and the forks of these, in the order of names.
func (l *rewritten) erase(t failer, which func(events.Record) bool) (subjects []events.Subject) {
	t.Helper()
	gone := make(map[events.Subject]bool)
	list := slices.Clone(l.now())
	for i, rec := range list {
		if which(rec) {
			e, err := rec.Event.Erase("r7k2p9")
			must(t, err)
			list[i].Event, gone[rec.Subject] = e, true
		}
	}
	for more := true; more; {
		more = false
		for _, rec := range list {
			p, is := projector.Decode(rec).Payload.(*events.SessionCreated)
			if is && p.Fork != nil && gone[events.Session(rec.Subject.Namespace, p.Fork.Session)] && !gone[rec.Subject] {
				gone[rec.Subject], more = true, true
			}
		}
	}
	for sub := range gone {
		subjects = append(subjects, sub)
	}
	slices.SortFunc(subjects, func(a, b events.Subject) int { return strings.Compare(a.String(), b.String()) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = list
	return subjects
}

var testViews = Views(openingOf, saidOf)

// Whichever records are erased, the views are those of the log afterwards.
func TestRefold(t *testing.T) {
	testkit.NotUnderRace(t) // see TestRefoldWhileRunning
	t.Run("L-6 random histories", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			l, dir := &rewritten{records: drawBoth(t)}, temporary(t)
			runners := make([]*projector.Runner, len(testViews))
			for i, v := range testViews {
				e := v.New(dir, nullLogger)
				defer e.Close()
				runners[i] = &projector.Runner{Log: l, View: e, Logger: nullLogger}
				must(t, runners[i].CatchUp(t.Context(), nil))
			}
			subjects := l.erase(t, func(rec events.Record) bool {
				return rec.Subject.Kind != events.KindUnit && rapid.IntRange(0, 2).Draw(t, "erased") > 0
			})
			for i, v := range testViews {
				must(t, v.Refold(t.Context(), dir, runners[i], subjects))
				must(t, runners[i].CatchUp(t.Context(), nil))
			}
			found, err := Verify(t.Context(), l, dir, testViews, nil)
			must(t, err)
			if len(found) > 0 {
				t.Fatalf("verify finds %v\n%#v", found, l.now())
			}
		})
	})
}

// drawBoth draws a log of sessions, and of documents behind them.
func drawBoth(t *rapid.T) testkit.Records {
	records := testkit.History().Draw(t, "sessions")
	last := records[len(records)-1].Offset
	for _, rec := range testkit.Documents().Draw(t, "documents") {
		rec.Offset, rec.ID = rec.Offset+last, "document-"+rec.ID
		records = append(records, rec)
	}
	return records
}

// told is a log with canaries in everything that a view keeps.
func told(t *testing.T) *rewritten {
	l := &rewritten{}
	word := func() string { return testkit.Canary(fmt.Sprint(len(l.records))) + " cake" }
	add := func(sub events.Subject, p events.Payload) events.Offset {
		at := events.Offset(len(l.records) + 1)
		rec := record(t, sub, at, p)
		rec.ID = fmt.Sprint("e", at)
		l.records = append(l.records, rec)
		return at
	}
	turn := func(sub events.Subject, text string) events.Offset {
		return add(sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":%q}`, text))}}})
	}
	created := func(id string, fork *events.Fork) {
		add(events.Session("", id), &events.SessionCreated{Kind: events.KindOf(id), CreatedAt: "2026-01-01T00:00:00Z", Title: word(), CWD: word(), Fork: fork})
	}
	created("s", nil)
	var at events.Offset
	for range 50 {
		at = turn(events.Session("", "s"), word())
	}
	created("a fork", &events.Fork{Session: "s", Offset: at})
	turn(events.Session("", "a fork"), "bread")
	for i := range 50 {
		turn(events.Session("", fmt.Sprint("other ", i%7)), fmt.Sprint("bread ", i))
	}
	created("agent/a", nil)
	doc := record(t, events.Document("", "doc", "d"), events.Offset(len(l.records)+1), &events.DocumentDeleted{Reason: "x"})
	doc.Type, doc.Data, doc.ID = events.TypeDocumentWritten, []byte(word()), "d"
	doc.Event = doc.WithExtension(events.ExtDoc, events.DocMeta{Title: word(), Owner: "agent/a"}.String())
	l.records = append(l.records, doc)
	return l
}

// Runners that keep the views forget what the log has erased, in every file of the views.
func TestRefoldWhileRunning(t *testing.T) {
	t.Run("L-4 views", func(t *testing.T) {
		l, dir := told(t), t.TempDir()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		runners := make([]*projector.Runner, len(testViews))
		for i, v := range testViews {
			e := v.New(dir, nullLogger)
			runners[i] = &projector.Runner{Log: l, View: e, Logger: nullLogger}
			running.Go(func() { runners[i].Run(ctx); must(t, e.Close()) })
		}
		head, _ := l.Head(ctx)
		for i, v := range testViews {
			soon, cancel := context.WithTimeout(ctx, testkit.Patience(time.Minute))
			defer cancel()
			must(t, runners[i].Wait(soon, head))
			next := v.Next(dir, nullLogger) // a rebuild that somebody killed
			must(t, (&projector.Runner{Log: l, View: next}).CatchUp(ctx, nil))
			must(t, next.Close())
		}
		if found, _ := testkit.CanaryFiles(t, dir); len(found) == 0 {
			t.Fatal("no file has a canary: the test shows nothing")
		}
		subjects := l.erase(t, func(rec events.Record) bool {
			return testkit.HasCanary(slices.Concat(rec.Data, []byte(rec.Extensions[events.ExtDoc])))
		})
		for i, v := range testViews {
			must(t, v.Refold(ctx, dir, runners[i], subjects))
		}
		if found, _ := testkit.CanaryFiles(t, dir); len(found) > 0 {
			t.Errorf("canaries are in %v", found)
		}
		found, err := Verify(ctx, l, dir, testViews, nil)
		must(t, err)
		if len(found) > 0 {
			t.Errorf("verify finds %v", found)
		}
	})
}

// The index of search keeps no word of an erased turn. A canary would not show that: the index has words in lower case,
// without their punctuation, and without the beginning that a word shares with the one before.
func TestRefoldWords(t *testing.T) {
	t.Run("L-4 words of the index", func(t *testing.T) {
		const word = "zlighthouse" // no other word begins with z
		l, dir := &rewritten{}, t.TempDir()
		for i := range 100 {
			text := fmt.Sprint("bread ", i)
			if i == 50 {
				text = "The " + strings.ToUpper(word) + "!"
			}
			rec := record(t, events.Session("", fmt.Sprint("s", i/10)), events.Offset(i+1), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":%q}`, text))}}})
			rec.ID = fmt.Sprint("e", i)
			l.records = append(l.records, rec)
		}
		v := testViews[1]
		e := v.New(dir, nullLogger)
		defer e.Close()
		r := &projector.Runner{Log: l, View: e, Logger: nullLogger}
		must(t, r.CatchUp(t.Context(), nil))
		if !filesHaveWord(t, dir, word) {
			t.Fatal("the index has no word of the turn: the test shows nothing")
		}
		subjects := l.erase(t, func(rec events.Record) bool { return rec.Offset == 51 })
		must(t, v.Refold(t.Context(), dir, r, subjects))
		if filesHaveWord(t, dir, word) {
			t.Error("the index has a word of the erased turn")
		}
	})
}

// filesHaveWord reports whether a file of a folder has a word.
func filesHaveWord(t *testing.T, dir, word string) (has bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		has = has || bytes.Contains(text, []byte(word))
	}
	return has
}

// A subject whose fold fails leaves no row.
func TestRefoldFails(t *testing.T) {
	l, dir := told(t), t.TempDir()
	fails := false
	v := Views(func(f projector.Fact) string {
		if fails {
			panic("a fold at fault")
		}
		return openingOf(f)
	}, saidOf)[0]
	e := v.New(dir, nullLogger)
	defer e.Close()
	r := &projector.Runner{Log: l, View: e, Logger: nullLogger}
	must(t, r.CatchUp(t.Context(), nil))
	subjects := l.erase(t, func(rec events.Record) bool {
		return testkit.HasCanary(slices.Concat(rec.Data, []byte(rec.Extensions[events.ExtDoc])))
	})
	fails = true
	must(t, v.Refold(t.Context(), dir, r, subjects))
	if found, _ := testkit.CanaryFiles(t, dir); len(found) > 0 {
		t.Errorf("canaries are in %v", found)
	}
	if err := r.CatchUp(t.Context(), nil); err != nil || r.Quarantined() == 0 {
		t.Errorf("got %v and %d subjects in quarantine, want some", err, r.Quarantined())
	}
}

// A reader that needs the write-ahead log is reported.
func TestRefoldBesideReader(t *testing.T) {
	l, dir := told(t), t.TempDir()
	e := testViews[0].New(dir, nullLogger)
	defer e.Close()
	r := &projector.Runner{Log: l, View: e, Logger: nullLogger}
	must(t, r.CatchUp(t.Context(), nil))
	reader, err := openAny(t.Context(), catalogForm, filepath.Join(dir, FileName))
	must(t, err)
	defer reader.Close()
	tx, err := reader.db.BeginTx(t.Context(), nil)
	must(t, err)
	var n int
	must(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM sessions").Scan(&n))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	subjects := l.erase(t, func(rec events.Record) bool { return rec.Subject.ID == "s" })
	if err := testViews[0].Refold(ctx, dir, r, subjects); err == nil || !strings.Contains(err.Error(), ErrBusy.Error()) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	must(t, tx.Rollback())
	must(t, testViews[0].Refold(t.Context(), dir, r, subjects))
	if info, err := os.Stat(filepath.Join(dir, FileName+"-wal")); err == nil && info.Size() > 0 {
		t.Errorf("the write-ahead log has %d bytes", info.Size())
	}
}
