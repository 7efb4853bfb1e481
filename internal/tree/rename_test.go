package tree

import (
	"context"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
)

// A renamed file is a renamed document, although a missing file settles later than a new one. A file that existed long
// before is not the new name of another.
func TestRenamed(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, plainLand{}, nil, false)
	w.start()
	must(t, w.user.Put("a", "one"))
	must(t, w.user.Put("c", "two"))
	w.tell()
	w.pass(5 * time.Second)
	must(t, w.user.Rename("a", "b"))
	must(t, w.user.Remove("c"))
	w.tell()
	w.pass(5 * time.Second)
	for id, want := range map[string]struct {
		reason string
		to     events.DocRef
	}{"a": {events.ReasonRenamed, "document/doc/b"}, "c": {"gone", ""}} {
		doc := need(w.st.Loader().History(ctx, events.Document(w.st.Namespace(), plainKind, id)))
		if last := doc.Last(); !last.Deleted || last.Reason != want.reason || last.RenamedTo != want.to {
			t.Errorf("the last revision of %s is %+v", id, last)
		}
	}
}

// One new file is the new name of one old file, also if several with its content are removed.
func TestRenamedOnce(t *testing.T) {
	t.Run("net F1 of two removed files with one content, one got the new name", func(t *testing.T) {
		ctx := context.Background()
		w := newWorld(t, plainLand{}, nil, false)
		w.start()
		must(t, w.user.Put("a", "same"))
		must(t, w.user.Put("c", "same"))
		w.tell()
		w.pass(5 * time.Second)
		must(t, w.user.Rename("a", "b"))
		must(t, w.user.Remove("c"))
		w.tell()
		w.pass(5 * time.Second)
		renamed := 0
		for _, id := range []string{"a", "c"} {
			last := need(w.st.Loader().History(ctx, events.Document(w.st.Namespace(), plainKind, id))).Last()
			if !last.Deleted {
				t.Errorf("the last revision of %s is %+v", id, last)
			}
			if last.Reason == events.ReasonRenamed {
				renamed++
			}
		}
		if renamed != 1 {
			t.Errorf("%d documents have the new name b, want 1", renamed)
		}
	})
	t.Run("net F1 a file that gets a new name is in the log under one of them at any moment", func(t *testing.T) {
		w := newWorld(t, plainLand{}, nil, false)
		w.start()
		must(t, w.user.Put("z", "text"))
		w.tell()
		w.pass(5 * time.Second)
		must(t, w.user.Rename("z", "b"))
		t.Cleanup(func() { reached = func(string) {} })
		reached = func(point string) {
			if w.textOf("z") != "text" && w.textOf("b") != "text" {
				t.Errorf("%s: no document has the text", point)
			}
		}
		must(t, w.tree.Pull(context.Background())) // the removal and the new file at once
		if w.textOf("b") != "text" || w.textOf("z") != "" {
			t.Errorf("the documents are %q and %q, want the new name", w.textOf("z"), w.textOf("b"))
		}
	})
}
