package tree

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Of a small tree more than half is asked about, of a large one more than the limit; new files
// are as many as somebody likes up to that.
func TestBulk(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name                    string
		files, gone, new, limit int
		asks                    bool
	}{
		{"most of a few", 6, 4, 0, 50, true}, {"half of a few", 6, 3, 0, 50, false}, {"all there is", 1, 1, 0, 50, true}, {"new ones", 2, 0, 20, 50, false},
		{"many new ones", 2, 0, 60, 50, true}, {"some of many", 100, 40, 0, 50, false}, {"more than the limit of many", 200, 51, 0, 50, true}, {"whoever is not asked", 6, 6, 0, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, plainLand{}, nil, false)
			w.start()
			w.tree.c.BulkLimit = c.limit
			for i := range c.files {
				must(t, w.user.Put(fmt.Sprintf("f%03d", i), fmt.Sprint(i)))
			}
			w.tell()
			w.pass(5 * time.Second)
			head := need(w.st.Log.Durable(ctx))
			for i := range c.gone {
				must(t, w.user.Remove(fmt.Sprintf("f%03d", i)))
			}
			for i := range c.new {
				must(t, w.user.Put(fmt.Sprintf("n%03d", i), fmt.Sprint("new ", i)))
			}
			w.tell()
			w.pass(5 * time.Second)
			_, asks := errors.AsType[*BulkError](w.tree.Room())
			if now := need(w.st.Log.Durable(ctx)); asks != c.asks || asks != (now == head) {
				t.Fatalf("it asks: %v, and %d events came", asks, now-head)
			}
			if !asks {
				return
			}
			must(t, w.tree.Restore(ctx))
			w.pass(5 * time.Second)
			if now := need(w.st.Log.Durable(ctx)); now != head || len(w.files()) != c.files || w.tree.Room() != nil {
				t.Errorf("restored are %d files, and %d events came", len(w.files()), now-head)
			}
			must(t, w.user.Remove(""))
			w.tell()
			w.pass(5 * time.Second)
			must(t, w.tree.Accept(ctx))
			for info := range w.st.Subjects(ctx, plainKind) {
				if doc, err := w.st.Loader().Document(ctx, info.Subject, 0); err == nil {
					t.Errorf("%s is there: %q", doc.Subject, doc.Data)
				}
			}
		})
	}
}

// What the tree writes itself is nobody's edit, however much it is and however often somebody
// says that it changed.
func TestNoEcho(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, plainLand{}, nil, false)
	w.start()
	w.tree.c.BulkLimit = 50
	var at events.Offset
	for n := range 60 {
		sub := events.Document(w.st.Namespace(), plainKind, fmt.Sprintf("f%d", n))
		at = need(w.st.Append(ctx, sub, log.At(0), events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte{byte(n)}})).Last
	}
	w.project()
	w.pass(5 * time.Second) // it knows the folder
	for p := range w.user.Files() {
		w.tree.Changed(p)
	}
	w.pass(5 * time.Second)
	if head := need(w.st.Log.Durable(ctx)); head != at || w.tree.Room() != nil {
		t.Errorf("it appended up to %v, behind %v, and asks: %v", head, at, w.tree.Room())
	}
}
