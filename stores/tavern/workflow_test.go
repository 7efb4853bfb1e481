package tavern_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

func TestWorkflows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-04 workflow template: create, read, update", func(t *testing.T) { workflowTemplates(t, st) })
		t.Run("D-50 a bad template is refused with field and reason", func(t *testing.T) { workflowRefusals(t, st) })
		t.Run("D-69 hostile templates, and the revision that a flow started with", func(t *testing.T) { workflowHostile(t, st) })
	})
}

func workflowTemplates(t *testing.T, st *tally.Store) {
	ctx, w := t.Context(), flowTemplates(t, st)
	got := need(w.Read(ctx, "release"))
	if string(got.Data) != flowRelease || got.Title != "Release" || got.Initial != "build" || len(got.States) != 6 || got.States[1].Flow != "suite" || got.States[1].RecoverTo != "triage" {
		t.Errorf("the template is %+v", got)
	}
	if doc := need(st.Documents().Read(ctx, "workflow", "release")); doc.Meta.Layer != "project" || doc.ContentType != "application/json" {
		t.Errorf("the document is %+v", doc)
	}
	if _, err := w.Create(ctx, "release", []byte(flowSuite)); !errors.Is(err, tally.ErrExists) {
		t.Errorf("a second create: %v", err)
	}
	for what, err := range map[string]error{
		"read":   second(w.Read(ctx, "none")),
		"update": second(w.Update(ctx, "none", got.Revision, []byte(flowSuite))),
		"delete": w.Delete(ctx, "none", 0, ""),
		"start":  second(w.Start(ctx, "none", tavern.FlowOptions{})),
	} {
		if !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s of a missing template: %v", what, err)
		}
	}
	rev := need(w.Update(ctx, "release", got.Revision, []byte(flowSuite)))
	stale := flowRefused[*tally.DocumentConflictError](t, st, "an update of an old revision", func() error {
		return second(w.Update(ctx, "release", got.Revision, []byte(flowRelease)))
	})
	if stale != nil && (stale.Have != rev.Offset || stale.SHA256 == "") {
		t.Errorf("the update was refused with %+v", stale)
	}
	if old := need(w.ReadAt(ctx, "release", got.Revision)); string(old.Data) != flowRelease {
		t.Errorf("the old revision is %s", old.Data)
	}
	first, next, err := w.List(ctx, "", "", 1)
	must(t, err)
	rest, end, err := w.List(ctx, "", next, 1)
	must(t, err)
	if len(first) != 1 || first[0].Subject.ID != "release" || len(rest) != 1 || rest[0].Subject.ID != "suite" || end != "" {
		t.Errorf("the pages are %v and %v, the token %q", first, rest, end)
	}
	must(t, w.Delete(ctx, "release", rev.Offset, ""))
	if _, err := w.Read(ctx, "release"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("read a deleted template: %v", err)
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

func workflowRefusals(t *testing.T, st *tally.Store) {
	w, base := tavern.WorkflowsOf(st), events.Offset(0)
	rev := need(w.Create(t.Context(), "kept", []byte(flowSuite)))
	base = rev.Offset
	for data, want := range map[string][2]string{
		"{\n\"initial\": \"a\",\n\"states\": {\"a\": {\"to\": [\"b\"]}, \"z\": {\"end\": true}}}": {"data/states/a/to/0", `line 3: there is no state "b"`},
		`{"initial": "a", "states": {"a": {"to": ["a"]}}}`:                                        {"data/states", "line 1: no state is an end"},
	} {
		for what, do := range map[string]func() error{
			"create": func() error { return second(w.Create(t.Context(), "bad", []byte(data))) },
			"update": func() error { return second(w.Update(t.Context(), "kept", base, []byte(data))) },
		} {
			e := flowRefused[*events.InvalidError](t, st, what, do)
			if e != nil && (e.Field != want[0] || !strings.HasPrefix(e.Reason, want[1])) {
				t.Errorf("%s: got %v, want %v", what, e, want)
			}
		}
		if e, ok := errors.AsType[*events.InvalidError](tavern.CheckWorkflow([]byte(data), "")); !ok || e.Field != want[0] {
			t.Errorf("the error of the kind's validator is %v", e)
		}
	}
	flowRefused[*events.InvalidError](t, st, "an id of 513 bytes", func() error {
		return second(w.Create(t.Context(), strings.Repeat("x", 513), []byte(flowSuite)))
	})
}

func workflowHostile(t *testing.T, st *tally.Store) {
	testkit.NotUnderRace(t)
	ctx, w := t.Context(), tavern.WorkflowsOf(st)
	for n, id := range []string{"..", "a/../b", "line\nfeed", "\u202ertl", "\xff\x00", strings.Repeat("x", 512)} {
		need(w.Create(ctx, id, []byte(flowSuite)))
		f := need(w.Start(ctx, id, tavern.FlowOptions{ID: fmt.Sprint("hostile", n)}))
		if s := flowIs(t, f, "run", 1, ""); s.Workflow == nil || s.Workflow.ID != id {
			t.Errorf("the flow of %q has the template %+v", id, s.Workflow)
		}
	}
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, `"s%d":{"to":["s%d"]},`, i, (i+1)%100_000)
	}
	flowRefused[*events.InvalidError](t, st, "a ring of 100,000", func() error {
		return second(w.Create(ctx, "ring", []byte(`{"initial":"s0","states":{`+b.String()+`"z":{"end":true}}}`)))
	})
	large := `{"initial":"s0","states":{` + strings.Replace(b.String(), `["s0"]`, `["z"]`, 1) + `"z":{"end":true}}}`
	need(w.Create(ctx, "large", []byte(large)))
	f := need(w.Start(ctx, "large", tavern.FlowOptions{ID: "large"}))
	must(t, f.Move(ctx, "s1"))
	if s := flowIs(t, f, "s1", 2, ""); len(s.Incomplete()) != 99_999 {
		t.Errorf("got %d incomplete steps", len(s.Incomplete()))
	}

	// A running flow keeps its revision, whatever happens to the template.
	first := need(w.Create(ctx, "pinned", []byte(`{"initial":"a","states":{"a":{"to":["b"]},"b":{"end":true}}}`)))
	old := need(w.Start(ctx, "pinned", tavern.FlowOptions{ID: "old"}))
	changed := need(w.Update(ctx, "pinned", first.Offset, []byte(`{"initial":"a","states":{"a":{"to":["c"]},"c":{"end":true}}}`)))
	later := need(w.Start(ctx, "pinned", tavern.FlowOptions{ID: "new"}))
	must(t, w.Delete(ctx, "pinned", changed.Offset, ""))
	flowRefused[*tavern.TransitionError](t, st, "the way of the newer revision", func() error { return old.Move(ctx, "c") })
	must(t, old.Move(ctx, "b"))
	must(t, later.Move(ctx, "c"))
	must(t, old.End(ctx, nil))
	if s := flowIs(t, old, "b", 2, "completed"); s.Workflow.Revision != first.Offset {
		t.Errorf("the flow follows the revision %v", s.Workflow.Revision)
	}

	// A flow cannot follow a purged template, but can still be ended.
	must(t, st.Documents().Purge(ctx, "workflow", "pinned"))
	if s := flowIs(t, later, "c", 2, ""); s.Workflow != nil || s.Steps() != nil {
		t.Errorf("a purged template is %+v", s.Workflow)
	}
	flowRefused[*tavern.TransitionError](t, st, "the end of a purged template", func() error { return later.End(ctx, nil) })
	must(t, later.Fail(ctx, "its template is gone"))

	// A template that starts itself is started up to the maximum depth.
	need(w.Create(ctx, "self", []byte(`{"initial":"a","states":{"a":{"to":["z"],"flow":"self"},"z":{"end":true}}}`)))
	flowRefused[*tavern.FlowDepthError](t, st, "a template that begins with itself", func() error {
		return second(w.Start(ctx, "self", tavern.FlowOptions{ID: "self"}))
	})
	need(w.Create(ctx, "dangling", []byte(`{"initial":"a","states":{"a":{"to":["z"],"flow":"nowhere"},"z":{"end":true}}}`)))
	if _, err := w.Start(ctx, "dangling", tavern.FlowOptions{ID: "dangling"}); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("start the template dangling: %v", err)
	}
	for _, id := range []string{"a#1", "\xff", strings.Repeat("x", 508)} {
		flowRefused[*events.InvalidError](t, st, "the id "+id, func() error { return second(w.Start(ctx, "large", tavern.FlowOptions{ID: id})) })
	}
}
