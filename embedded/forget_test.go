package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A session and a document are forgotten: nothing of their content is left in a file of the store, and everything else
// is as it was.
func TestForgetReachesEveryFile(t *testing.T) {
	testkit.NotUnderRace(t) // a test of bytes
	dir := t.TempDir()
	open := func() *tally.Store {
		t.Helper()
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: filepath.Join(dir, "store"), Own: true})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := testkit.Canary
	gone, kept := events.Session("", "gone"), events.Session("", "kept")
	file, err := st.Documents().Create(t.Context(), events.KindFile, "imported", tally.Write{Data: []byte(c("file")), Title: c("title")})
	must(err)
	blob, err := st.PutBlob(t.Context(), []byte(strings.Repeat(c("blob"), 1000)))
	must(err)
	sum, _ := events.ParseBlobRef(blob)
	_, err = st.Session("gone").Create(t.Context(), events.SessionCreated{Kind: "conversation", CreatedAt: "2026-03-01T12:00:00Z", Title: c("title"), CWD: c("cwd"),
		Formats: map[string]events.FileFormat{"a": {Doc: events.RefOf(events.Document("", events.KindFile, "imported"), file.Offset)}}})
	must(err)
	turn := func(sub events.Subject, text string) events.Event {
		e, err := events.New("urn:test", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":%q}`, text))}}})
		must(err)
		return e
	}
	for i := range 300 {
		_, err := st.Log.AppendBuffered(t.Context(), gone, log.Any, turn(gone, c(fmt.Sprint(i))))
		must(err)
	}
	_, err = st.Session("gone").Append(t.Context(), log.Any, &events.CheckpointSaved{ID: "c", Kind: "rewind", At: 1, Prompt: c("prompt"), Files: []events.SavedFile{{Path: c("path"), Blob: events.DocRef("document/blob/" + sum)}}})
	must(err)
	_, err = st.AppendAll(t.Context(), log.Part{Subject: gone, Events: []events.Event{turn(gone, c("unit"))}}, log.Part{Subject: kept, Events: []events.Event{turn(kept, "stays")}})
	must(err)
	_, ack, err := st.Session("gone").Fork(t.Context(), "head", "fork")
	must(err)
	_, err = st.Documents().Create(t.Context(), "doc", "a", tally.Write{Data: []byte(c("doc")), Title: c("title")})
	must(err)
	doc, err := st.Documents().Update(t.Context(), "doc", "a", ack.Last+1, tally.Write{Data: []byte(c("doc2"))})
	must(err)
	must(st.Wait(t.Context(), "catalog", doc.Offset))
	must(st.Wait(t.Context(), "search", doc.Offset))
	shape := func() (list []string) {
		t.Helper()
		for rec, err := range st.Log.Read(t.Context(), events.Range{Upto: doc.Offset}) {
			must(err)
			list = append(list, fmt.Sprint(rec.Offset, rec.Subject, rec.ID, rec.Type, rec.Time))
		}
		return list
	}
	before := shape()
	var receipts []string
	for _, f := range []tally.Forget{{Session: "gone", Reason: "asked"}, {Document: "doc/a"}} {
		r, err := st.Forget(t.Context(), f)
		must(err)
		receipts = append(receipts, r.ID)
	}
	t.Run("X-18 forgotten again: no second receipt", func(t *testing.T) {
		head, err := st.Log.Head(t.Context())
		must(err)
		for _, f := range []tally.Forget{{Session: "gone"}, {Document: "doc/a"}, {Session: "gone", Turn: 1}} {
			if r, err := st.Forget(t.Context(), f); err != nil || r.ID != "" {
				t.Errorf("%+v: receipt %q, %v", f, r.ID, err)
			}
		}
		if now, err := st.Log.Head(t.Context()); err != nil || now != head {
			t.Errorf("the log grew from %v to %v, %v", head, now, err)
		}
	})
	t.Run("X-18 the receipt is a document", func(t *testing.T) {
		doc, err := st.Documents().Read(t.Context(), "receipt", receipts[0])
		if err != nil || !strings.Contains(string(doc.Data), `"reason":"asked","scope":"session gone"`) {
			t.Errorf("%v: %s", err, doc.Data)
		}
	})
	t.Run("L-5 offsets, ids, types and times stay", func(t *testing.T) {
		if after := shape(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Error("the records have changed")
		}
		s, err := st.Session("gone").Load(t.Context(), "")
		must(err)
		if turns := s.Threads.Turns("main"); len(turns) != 301 || turns[0].Erased != receipts[0] {
			t.Errorf("%d turns, the first one erased by %q", len(turns), turns[0].Erased)
		}
	})
	t.Run("X-14 a fork made before shows the turns as erased", func(t *testing.T) {
		s, err := st.Session("fork").Load(t.Context(), "")
		must(err)
		if turns := s.Threads.Turns("main"); len(turns) != 301 || turns[300].Erased != receipts[0] {
			t.Errorf("%d turns, the last one erased by %q", len(turns), turns[300].Erased)
		}
	})
	t.Run("L-6 verify finds nothing", func(t *testing.T) {
		v, err := st.Loader().Verify(t.Context(), nil)
		if err != nil || len(v.Findings) > 0 || v.Erased == 0 {
			t.Errorf("%v %+v", err, v)
		}
	})
	must(st.Close())
	t.Run("L-4 no file has a forgotten word", func(t *testing.T) {
		if found, read := testkit.CanaryFiles(t, dir); len(found) > 0 || read == 0 {
			t.Errorf("%d bytes read; found in %v", read, found)
		}
	})
	st = open()
	defer st.Close()
	if _, err := st.Documents().Read(t.Context(), events.KindFile, "imported"); err != nil && !errors.Is(err, tally.ErrNotFound) {
		t.Error(err)
	}
}

// A store that has reached its limit can forget: the limit does not refuse the receipt, which counts.
func TestForgetBeyondLimit(t *testing.T) {
	dir := t.TempDir()
	open := func() *tally.Store {
		t.Helper()
		st, err := embedded.Open(t.Context(), embedded.Options{Store: dir, Own: true})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open()
	if _, err := st.Documents().Create(t.Context(), "doc", "a", tally.Write{Data: []byte(testkit.Canary("doc"))}); err != nil {
		t.Fatal(err)
	}
	if err := st.SetLimit(t.Context(), "store", 1); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if _, err := st.Documents().Create(t.Context(), "doc", "b", tally.Write{Data: []byte("x")}); !errors.Is(err, log.ErrQuota) {
			t.Errorf("another document: %v, want a *QuotaError", err)
		}
	}
	refused()
	r, err := st.Forget(t.Context(), tally.Forget{Document: "doc/a"})
	if err != nil {
		t.Error(err)
	}
	for range 2 {
		receipt, err := st.Documents().Read(t.Context(), "receipt", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		used, err := st.Usage(t.Context())
		if err != nil || len(used) == 0 || used[0].Bytes != int64(len(receipt.Data)) {
			t.Errorf("got %+v, %v, want the %d bytes of the receipt", used, err, len(receipt.Data))
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		st = open()
	}
	defer st.Close()
	refused()
}

// A view whose file is damaged does not keep the owner from completing an erasure.
func TestForgetWithDamagedView(t *testing.T) {
	dir := t.TempDir()
	open := func() (*tally.Store, error) {
		return embedded.Open(t.Context(), embedded.Options{Store: dir, Own: true})
	}
	st, err := open()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := st.Documents().Create(t.Context(), "doc", "a", tally.Write{Data: []byte(testkit.Canary("doc"))})
	if err == nil {
		err = st.Wait(t.Context(), "search", doc.Offset)
	}
	if err != nil {
		t.Fatal(err)
	}
	cut := errors.New("the process ends")
	embedded.SetEraseStep(t, func(step string) error {
		if step == "folds" {
			return cut
		}
		return nil
	})
	if _, err := st.Forget(t.Context(), tally.Forget{Document: "doc/a"}); !errors.Is(err, cut) {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	embedded.SetEraseStep(t, func(string) error { return nil })
	views, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(views) == 0 {
		t.Fatal(views, err)
	}
	for _, path := range views {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += 512 {
			copy(data[i:], "damage")
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if st, err = open(); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if found, read := testkit.CanaryFiles(t, dir); len(found) > 0 || read == 0 {
		t.Errorf("%d bytes read; found in %v", read, found)
	}
}
