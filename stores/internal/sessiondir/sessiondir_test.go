package sessiondir_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

func TestMain(m *testing.M) {
	testkit.CollectLess()
	goleak.VerifyTestMain(m)
}

type store struct{ *log.Log }

func (st store) Namespace() string         { return events.DefaultNamespace }
func (st store) Loader() *projector.Loader { return &projector.Loader{Source: st.Log} }

func (st store) Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error] {
	return st.Log.Subjects(ctx, events.DefaultNamespace, kind)
}

func (st store) PutBlob(context.Context, []byte) (string, error) { return "", errors.New("none here") }

func turnEvent(t *testing.T, text string) events.Event {
	t.Helper()
	e, err := events.New("urn:test", events.Session("", "s"), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(text)}}})
	if err != nil {
		t.Fatal(err)
	}
	e.ID = rand.Text()
	return e
}

// The records of a dry run follow those of the log for its own reader. Other readers do not see them.
func TestDryRun(t *testing.T) {
	st, ctx, sub := store{logtest.Open(t)}, t.Context(), events.Session("", "s")
	if _, err := st.Append(ctx, sub, log.Any, turnEvent(t, "1")); err != nil {
		t.Fatal(err)
	}
	r := layouts.NewDryRun(st)
	ack, err := r.Append(ctx, sub, log.Any, turnEvent(t, "2"), turnEvent(t, "3"))
	if err != nil || ack.Last != ack.First+1 {
		t.Fatal(ack, err)
	}
	if _, err := r.Append(ctx, sub, log.Any, events.Event{Type: events.TypeTurnAppended, Data: []byte("{}")}); err == nil {
		t.Error("the dry run accepted an event that the log would refuse")
	}
	s, err := r.Loader().Session(ctx, sub, 0)
	if err != nil || len(s.Threads.Turns("main")) != 3 {
		t.Fatal(s, err)
	}
	if rec, err := r.Record(ctx, ack.Last); err != nil || !bytes.Contains(rec.Data, []byte("3")) {
		t.Error(rec, err)
	}
	if rec, err := r.Record(ctx, 1); err != nil || !bytes.Contains(rec.Data, []byte("1")) {
		t.Error(rec, err)
	}
	if rec, ok := r.Last(sub); !ok || rec.Offset != ack.Last {
		t.Error(rec, ok)
	}
	if rec, err := r.Record(ctx, ack.Last+1); !errors.Is(err, log.ErrNotFound) {
		t.Error(rec, err)
	}
	other := events.Session("", "other")
	for _, to := range []events.Subject{other, sub, other} {
		if _, err := r.Append(ctx, to, log.Any, turnEvent(t, "4")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		read events.Range
		want []events.Offset // offset 1 is in the log
	}{
		{events.Range{}, []events.Offset{1, ack.First, ack.Last, ack.Last + 1, ack.Last + 2, ack.Last + 3}},
		{events.Range{After: 1, Upto: ack.Last + 1}, []events.Offset{ack.First, ack.Last, ack.Last + 1}},
		{events.Range{Subject: other}, []events.Offset{ack.Last + 1, ack.Last + 3}},
		{events.Range{Subject: sub, After: ack.First}, []events.Offset{ack.Last, ack.Last + 2}},
	} {
		if got := offsets(t, r, c.read); !slices.Equal(got, c.want) {
			t.Errorf("%+v: read %v, want %v", c.read, got, c.want)
		}
	}
	if ref, err := r.PutBlob(ctx, []byte("x")); err != nil || !strings.HasPrefix(ref, "urn:tally:blob:") {
		t.Error(ref, err)
	}
	r.Forget(sub)
	if s, err = r.Loader().Session(ctx, sub, 0); err != nil || len(s.Threads.Turns("main")) != 1 {
		t.Error(s, err)
	}
	if head, err := st.Head(ctx); err != nil || head != 1 {
		t.Errorf("the head of the log is %v, error %v", head, err)
	}
}

func offsets(t *testing.T, src projector.Source, r events.Range) (list []events.Offset) {
	t.Helper()
	for rec, err := range src.Read(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rec.Offset)
	}
	return list
}

// KeyOf returns UTF-8, and PathOf restores the path from it.
func TestKeyLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := string(rapid.SliceOf(rapid.SampledFrom([]byte("a=4Fx/\xff\xc3\xa9"))).Draw(t, "path"))
		key := sessiondir.KeyOf(path)
		if back := sessiondir.PathOf(key); back != path || strings.ToValidUTF8(key, "") != key {
			t.Fatalf("the key of %q is %q, and its path %q", path, key, back)
		}
	})
}

// If ReadJSON reports a file as exact, SpellJSON restores its bytes.
func TestSpelling(t *testing.T) {
	for data, exact := range map[string]bool{"{}": true, "{ }\n": true, "\ufeff[1]\r\n": true, " {}": false, "{}\n\n": false, "{}\t": false} {
		v, err := sessiondir.ReadJSON([]byte(data), 1)
		if err != nil || v.Exact != exact || exact && string(sessiondir.SpellJSON(v.Raw, v.Format)) != data {
			t.Errorf("%q is read as %+v, error %v", data, v, err)
		}
	}
	for _, data := range []string{"", "null", "{", "\xff", strings.Repeat("[", 1000) + strings.Repeat("]", 1000)} {
		if v, err := sessiondir.ReadJSON([]byte(data), 1); err == nil {
			t.Errorf("%.20q is read as %+v", data, v)
		}
	}
}

// ChangedSince returns the types of events that other sources appended after the last event of a source.
func TestChangedSince(t *testing.T) {
	st, ctx, sub := store{logtest.Open(t)}, t.Context(), events.Session("", "s")
	for i, source := range []string{"urn:other", "urn:test", "urn:other"} {
		e := turnEvent(t, "1")
		e.Source = source
		if _, err := st.Append(ctx, sub, log.Any, e); err != nil {
			t.Fatal(err)
		}
		types, err := sessiondir.ChangedSince(ctx, st, sub, "urn:test")
		if want := i != 1; err != nil || sessiondir.MovesThreads(types) != want {
			t.Errorf("changes after %d: %v, error %v", i, types, err)
		}
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(dir+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := layouts.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree := sessiondir.NewTree(t.Context(), root, nil)
	if list, err := tree.Entries("."); err != nil || len(list) != 2 || list[0].Name != "a" {
		t.Error(list, err)
	}
	if err := os.Chtimes(dir+"/b", time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	folder := sessiondir.Folder{Tree: tree, Entry: sessiondir.Entry{Dir: "."}}
	if err := folder.List(); err != nil || len(folder.Files) != 2 || folder.Files[1].Path != "b" {
		t.Error(folder, err)
	}
	if at, err := folder.Oldest(); err != nil || at != "1970-01-01T00:00:01.000Z" {
		t.Error(at, err)
	}
	if _, err := tree.Open("../x"); err == nil {
		t.Error("a file outside of the tree was opened")
	}
}
