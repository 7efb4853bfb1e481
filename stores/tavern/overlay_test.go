package tavern_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

func TestOverlays(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-43 what an agent writes is its own until it is applied", func(t *testing.T) { overlayReads(t, st) })
	})
}

func overlayReads(t *testing.T, st *tally.Store) {
	ctx, docs, o := t.Context(), st.Documents(), tavern.OverlayOf(st, "a1")
	v1 := need(docs.Create(ctx, "doc", "specs/x", tally.Write{Data: []byte("one")}))
	need(docs.Create(ctx, "doc", "specs/y", tally.Write{Data: []byte("why")}))
	reads := func(path, want string) *tally.Document {
		t.Helper()
		doc, err := o.Read(ctx, path)
		if want == "" && errors.Is(err, tally.ErrNotFound) {
			return nil
		}
		if err != nil || string(doc.Data) != want {
			t.Errorf("%s is %v, %v; want %q", path, doc, err, want)
		}
		return doc
	}
	reads("specs/x", "one")
	reads("specs/none", "")

	mine := need(o.Write(ctx, "specs/x", tally.Write{Data: []byte("mine"), Base: v1.Offset, Attributes: map[string]string{"k": "v"}}))
	need(o.Write(ctx, "specs/new", tally.Write{Data: []byte("new")}))
	must(t, o.Delete(ctx, "specs/y", 0))
	reads("specs/x", "mine")
	reads("specs/new", "new")
	reads("specs/y", "")
	if doc := need(docs.Read(ctx, "doc", "specs/x")); string(doc.Data) != "one" {
		t.Errorf("the document of the project is %q", doc.Data)
	}
	if doc, err := tavern.OverlayOf(st, "a").Read(ctx, "specs/x"); err != nil || string(doc.Data) != "one" {
		t.Errorf("the document for another agent is %v, error %v", doc, err)
	}

	// The base is that of the first write, whatever follows.
	v2 := need(docs.Update(ctx, "doc", "specs/x", v1.Offset, tally.Write{Data: []byte("two")}))
	own := need(o.Write(ctx, "specs/x", tally.Write{Data: []byte("mine again"), Base: mine.Offset}))
	for what, base := range map[string]events.Offset{"an older one of the agent's": mine.Offset, "one of the document": v2.Offset} {
		if e := flowRefused[*tally.DocumentConflictError](t, st, what, func() error {
			return second(o.Write(ctx, "specs/x", tally.Write{Data: []byte("x"), Base: base}))
		}); e != nil && e.Have != own.Offset {
			t.Errorf("%s: got the error %+v", what, e)
		}
	}
	doc := events.Document(st.Namespace(), "doc", "specs/x")
	changes := need(o.Changes(ctx))
	if len(changes) != 3 || changes[0].Path != "specs/new" || changes[0].Base != 0 || !changes[2].Deleted || changes[2].Path != "specs/y" {
		t.Errorf("the changes are %+v", changes)
	}
	want := tavern.OverlayChange{Path: "specs/x", Subject: doc, Base: v1.Offset, Overlay: events.Document(st.Namespace(), "overlay", "a1/specs/x"), Revision: own.Offset}
	if diff := cmp.Diff(want, changes[1]); diff != "" {
		t.Error(diff)
	}
	var diffs []tavern.OverlayDiff
	for d, err := range o.Diff(ctx) {
		must(t, err)
		diffs = append(diffs, d)
	}
	if d := diffs[1]; string(d.Before.Data) != "one" || string(d.After.Data) != "mine again" || d.Have != v2.Offset || !d.Conflict() {
		t.Errorf("the document with a changed base is %+v", d)
	}
	if d := diffs[0]; d.Before != nil || string(d.After.Data) != "new" || d.Conflict() {
		t.Errorf("the new document is %+v", d)
	}
	if d := diffs[2]; string(d.Before.Data) != "why" || d.After != nil || d.Conflict() {
		t.Errorf("the document to be deleted is %+v", d)
	}

	must(t, o.Drop(ctx, "specs/x", "specs/none"))
	reads("specs/x", "two")
	flowRefused[*tally.DocumentConflictError](t, st, "a first write on what is old", func() error {
		return second(o.Write(ctx, "specs/x", tally.Write{Data: []byte("x"), Base: v1.Offset}))
	})
	flowRefused[*tally.DocumentConflictError](t, st, "a first write on what is gone", func() error {
		return second(o.Write(ctx, "specs/none", tally.Write{Data: []byte("x"), Base: v1.Offset}))
	})
	need(o.Write(ctx, "specs/x", tally.Write{Data: []byte("anew"), Base: v2.Offset}))
	if c := need(o.Changes(ctx)); c[1].Base != v2.Offset {
		t.Errorf("the base of a document that was written again is %v", c[1].Base)
	}
	must(t, o.Drop(ctx))
	if c := need(o.Changes(ctx)); len(c) != 0 {
		t.Errorf("the changes in the end are %+v", c)
	}
	must(t, o.Drop(ctx))

	for name, do := range map[string]func() error{
		"an agent with a slash": func() error { return second(tavern.OverlayOf(st, "a/b").Write(ctx, "c", tally.Write{})) },
		"no agent":              func() error { return second(tavern.OverlayOf(st, "").Changes(ctx)) },
		"no path":               func() error { return second(o.Write(ctx, "", tally.Write{})) },
		"our attribute": func() error {
			return second(o.Write(ctx, "p", tally.Write{Attributes: map[string]string{"overlay.base": "@1"}}))
		},
	} {
		flowRefused[*events.InvalidError](t, st, name, do)
	}
	if err := o.Delete(ctx, "specs/none", 0); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("delete a missing document: %v", err)
	}
}

// A write without an acknowledgement is stored once.
func TestOverlayFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, o := t.Context(), tavern.OverlayOf(st, "a")
		write := func() error { return second(o.Write(ctx, "x", tally.Write{Data: []byte("x")})) }
		call("Write", 1, write)
		call("Write over it", 1, write)
		call("Delete", 1, func() error { return o.Delete(ctx, "x", 0) })
		again := func() error { return second(o.Write(ctx, "y", tally.Write{Data: []byte("y"), ID: "w1"})) }
		call("Write with an id", 1, again)
		call("the same Write", 0, again)
		must(t, o.Drop(ctx, "y"))
		call("Drop", 1, func() error { return o.Drop(ctx) })
	})
}
