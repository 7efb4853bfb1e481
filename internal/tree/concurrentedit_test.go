package tree

import (
	"context"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// revise appends a revision of a document, like a program.
func (w *world) revise(id, text string) events.Offset {
	ctx, sub := context.Background(), events.Document(w.st.Namespace(), plainKind, id)
	return need(w.st.Append(ctx, sub, log.Any, events.Event{Source: "urn:api", Type: events.TypeDocumentWritten, Subject: sub, ContentType: events.ContentTypeRaw, Data: []byte(text)})).Last
}

// textOf returns the current text of a document, or "".
func (w *world) textOf(id string) string {
	doc, err := w.st.Loader().Document(context.Background(), events.Document(w.st.Namespace(), plainKind, id), 0)
	if err != nil {
		return ""
	}
	return string(doc.Data)
}

// An edit between two steps of the tree is neither lost nor taken for the tree's own write.
func TestBetween(t *testing.T) {
	ctx := context.Background()
	t.Run("F1 a text of the same size that comes into a file right after the tree wrote it is seen", func(t *testing.T) {
		w := newWorld(t, plainLand{}, nil, false)
		w.start()
		w.pass(time.Second)
		w.revise("a", "text 1")
		reached = func(point string) {
			if point == "after exchange" && w.textOf("a") == "text 1" {
				must(t, w.user.Put("a", "text 2"))
			}
		}
		must(t, w.runner.CatchUp(ctx, nil))
		w.tell() // like a scan, without a notification of the file
		w.pass(5 * time.Second)
		if got := w.textOf("a"); got != "text 2" {
			t.Errorf("the document is %q", got)
		}
	})
	t.Run("F3 a conflict says which revision the text was based on", func(t *testing.T) {
		w := newWorld(t, plainLand{}, nil, false)
		w.start()
		w.pass(time.Second)
		w.revise("a", "first")
		base := w.revise("a", "second")
		must(t, w.runner.CatchUp(ctx, nil))
		w.pass(5 * time.Second)
		must(t, w.user.Put("a", "mine"))
		w.revise("a", "third")
		w.revise("a", "fourth")
		must(t, w.runner.CatchUp(ctx, nil))
		w.pass(5 * time.Second)
		list := need(w.tree.Conflicts(ctx))
		if len(list) != 1 || list[0].Base != base || w.textOf("a") != "fourth" {
			t.Errorf("the conflicts are %+v, want one with base %v", list, base)
		}
	})
	t.Run("F3 accept imports edits that came after the question", func(t *testing.T) {
		w := newWorld(t, plainLand{}, nil, false)
		w.start()
		w.tree.c.BulkLimit = 50
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			must(t, w.user.Put(id, "of "+id))
		}
		w.tell()
		w.pass(5 * time.Second)
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			must(t, w.user.Remove(id))
		}
		w.tell()
		w.pass(5 * time.Second)
		if w.tree.Room() == nil {
			t.Fatal("the tree does not ask")
		}
		must(t, w.user.Remove("f"))
		must(t, w.user.Put("g", "saved since"))
		must(t, w.tree.Accept(ctx))
		if w.textOf("e") != "" || w.textOf("f") != "" || w.textOf("g") != "saved since" || w.textOf("h") != "of h" {
			t.Errorf("e is %q, f is %q, g is %q, h is %q", w.textOf("e"), w.textOf("f"), w.textOf("g"), w.textOf("h"))
		}
	})
}
