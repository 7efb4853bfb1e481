package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func need[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// bound is how long a test waits for an event that must happen.
const bound = time.Minute

// heard returns the next value of a channel. If none comes, the test fails and says what it waited for.
func heard[V any](t testing.TB, from <-chan V, what string) (v V) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(testkit.Patience(bound)):
		t.Fatalf("timeout: want %s", what)
	}
	return v
}

// plainLayout is a layout of documents of kind doc, with the id as path. Files named *.fixed cannot be edited.
type plainLayout struct{ layouts.Layout }

const plainKind = "doc"

func (plainLayout) Name() string { return "plain" }

func (plainLayout) Entry(_ context.Context, _ layouts.Source, _ layouts.Root, sub events.Subject) (events.Subject, bool, error) {
	return sub, sub.Kind == plainKind, nil
}

func (plainLayout) Location(ctx context.Context, src layouts.Source, _ layouts.Root, sub events.Subject) (layouts.Location, error) {
	if _, err := src.Loader().Document(ctx, sub, 0); err != nil {
		return layouts.Location{}, err
	}
	return layouts.Location{Path: sub.ID, Apart: apart(sub.ID)}, nil
}

// apart escapes capital letters and the first character.
func apart(id string) string {
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; c >= 'A' && c <= 'Z' || i == 0 {
			fmt.Fprintf(&b, "=%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func together_(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		var c byte
		if n, _ := fmt.Sscanf(name[i:], "=%02X", &c); n == 1 && i+3 <= len(name) {
			b.WriteByte(c)
			i += 2
		} else {
			b.WriteByte(name[i])
		}
	}
	return b.String()
}

func (plainLayout) EntryFiles(ctx context.Context, src layouts.Source, _ layouts.Root, sub events.Subject, at string) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		doc, err := src.Loader().Document(ctx, sub, 0)
		if err != nil {
			yield(layouts.File{Path: at}, err)
			return
		}
		yield(layouts.File{Path: at, Mode: 0o644, Write: func(w io.Writer) error { _, err := w.Write(doc.Data); return err }}, nil)
	}
}

func (plainLayout) EntryAt(_ context.Context, src layouts.Source, _ layouts.Root, name string) (events.Subject, bool, error) {
	return events.Document(src.Namespace(), plainKind, together_(name)), true, nil
}

func (plainLayout) Removal(ctx context.Context, src layouts.Source, sub events.Subject) ([]log.Part, error) {
	doc, err := src.Loader().Document(ctx, sub, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return nil, nil
	}
	if err != nil || strings.HasSuffix(sub.ID, ".fixed") {
		return nil, err
	}
	e := need(events.New("urn:plain", sub, &events.DocumentDeleted{Reason: "gone"}))
	e.ID = events.DerivedID("gone", sub.ID, doc.Head.String())
	return []log.Part{{Subject: sub, Expect: log.At(doc.Head), Events: []events.Event{e}}}, nil
}

func (l plainLayout) ImportFrom(ctx context.Context, target layouts.Target, st layouts.Storage, _ layouts.Root, _ layouts.ImportOptions) (r layouts.Report, err error) {
	return r, l.folder(ctx, target, st, "", &r)
}

func (l plainLayout) folder(ctx context.Context, target layouts.Target, st layouts.Storage, dir string, r *layouts.Report) error {
	list, err := st.List(ctx, dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		p := path.Join(dir, e.Name)
		if e.Dir {
			err = l.folder(ctx, target, st, p, r)
		} else {
			err = l.file(ctx, target, st, p, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l plainLayout) file(ctx context.Context, target layouts.Target, st layouts.Storage, p string, r *layouts.Report) error {
	sub, _, _ := l.EntryAt(ctx, target, layouts.Root{}, p)
	doc, err := target.Loader().Document(ctx, sub, 0)
	if err != nil && !errors.Is(err, projector.ErrNotFound) {
		return err
	}
	rd, err := st.Read(ctx, p)
	if err != nil {
		return err
	}
	defer rd.Close()
	text, err := io.ReadAll(rd)
	if err != nil || doc.Exists() && string(text) == string(doc.Data) {
		return err
	}
	if strings.HasSuffix(p, ".fixed") {
		r.Problems = append(r.Problems, layouts.Problem{File: p, Reason: "it is fixed"})
		return nil
	}
	e := events.Event{Source: "urn:plain", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: text}
	e.ID = events.DerivedID("plain", sub.ID, doc.Head.String(), string(text))
	_, err = target.Append(ctx, sub, log.At(doc.Head), e)
	return err
}

// openStore opens a store in memory.
func openStore(t testing.TB) *tally.Store {
	l := need(log.OpenOn(context.Background(), memlog.New(memlog.Config{}), log.Config{}))
	st := need(tally.Open(context.Background(), l, tally.Config{}))
	t.Cleanup(func() { st.Close() })
	return st
}
