package evals_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals"
)

func testSaveLoad(t *testing.T, st *tally.Store) {
	odd, err := evals.ParseStep([]byte(`{ "z":1.50, "stepIndex":0,"input":{"role":"user","content":"a<b>&\u00e9\ud83d"},"output":[],"timestamp":"2026-01-23T13:35:42+01:00","id":"m1","metadata":{"10":1,"2":2},"extra":[1e21] }`))
	if err != nil {
		t.Fatal(err)
	}
	list := append([]evals.Step{odd}, stepsOf(3)...)
	meta := json.RawMessage(`{"source": "test", "n":1.0}`)
	c := evals.Of(st, "c1")
	if _, err := c.Save(t.Context(), &evals.Data{ID: "c1", Metadata: meta, Steps: list}); err != nil {
		t.Fatal(err)
	}
	d := mustContent(t, c)
	if d.ID != "c1" || string(d.Metadata) != string(meta) || len(d.Steps) != len(list) || len(d.Warnings) != 0 {
		t.Fatalf("got %+v", d)
	}
	for i, s := range d.Steps {
		for _, name := range list[i].Fields() {
			if string(s.Field(name)) != string(list[i].Field(name)) {
				t.Errorf("step %d: %s is %s", i, name, s.Field(name))
			}
		}
		at, ok := s.Timestamp()
		want, _ := list[i].Timestamp()
		if !ok || !at.Equal(want) || s.ID() != list[i].ID() || s.StepIndex() != list[i].StepIndex() {
			t.Errorf("step %d: %v %q %d", i, at, s.ID(), s.StepIndex())
		}
	}
	if !bytes.HasPrefix(d.Steps[0].Raw(), bytes.TrimSuffix(odd.Raw(), []byte(" }"))) {
		t.Errorf("bytes of the step changed: %s", d.Steps[0].Raw())
	}
}

func testReplace(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixOldContent)
	c := evals.Of(st, "c1")
	first := mustStore(t, c, saidSteps("a", "b", "c")...)
	saved := mustStore(t, c, saidSteps("x", "b", "c")...)
	if saved.Change != evals.Replacement || saved.New != 1 {
		t.Errorf("Save returned %+v", saved)
	}
	if got := texts(mustContent(t, c)); got != "x,b,c" {
		t.Errorf("the steps are %s", got)
	}
	old, err := c.LoadAt(t.Context(), first.Ack.Last.String())
	if err != nil || texts(old) != "a,b,c" {
		t.Errorf("the earlier content is %v, error %v", old, err)
	}
	mustStore(t, c, saidSteps("only")...)
	if got := texts(mustContent(t, c)); got != "only" {
		t.Errorf("after a shorter save the steps are %s", got)
	}
}

func testZeroSteps(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixZeroSteps)
	c := evals.Of(st, "c1")
	d := &evals.Data{ID: "another", Metadata: json.RawMessage(`{"k":[1, 2]}`)}
	if _, err := c.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got := mustContent(t, c)
	if got.ID != "another" || string(got.Metadata) != `{"k":[1, 2]}` || len(got.Steps) != 0 {
		t.Fatalf("got %+v", got)
	}
	if again := need(c.Save(t.Context(), got)); again.Change != evals.NoChange {
		t.Errorf("a second save returned %+v", again)
	}
	// The first step's line gets the metadata that no line had before.
	if _, err := c.Append(t.Context(), stepOf(0, "hi")); err != nil {
		t.Fatal(err)
	}
	got = mustContent(t, c)
	if string(got.Metadata) != `{"k":[1, 2]}` || got.ID != "another" || string(got.Steps[0].Field("conversationMetadata")) != `{"k":[1, 2]}` {
		t.Errorf("got %+v", got)
	}
	if again := need(c.Save(t.Context(), got)); again.Change != evals.NoChange {
		t.Errorf("a second save returned %+v", again)
	}
	got.Metadata = nil
	need(c.Save(t.Context(), got))
	if got = mustContent(t, c); got.Metadata != nil {
		t.Errorf("the save did not remove the metadata: got %s", got.Metadata)
	}
}

func testSaveForms(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	if saved := mustStore(t, c, stepsOf(3)...); saved.Change != evals.Extension || saved.New != 3 {
		t.Errorf("the first save returned %+v", saved)
	}
	// White space does not count, and stored steps keep their bytes.
	d := mustContent(t, c)
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, d.Steps[1].Raw(), "", " "); err != nil {
		t.Fatal(err)
	}
	d.Steps[1] = need(evals.ParseStep(spaced.Bytes()))
	d.Steps = append(d.Steps, stepOf(3, "new"))
	if saved := need(c.Save(t.Context(), d)); saved.Change != evals.Extension || saved.New != 1 {
		t.Errorf("the save of an extension returned %+v", saved)
	}
	if bytes.ContainsAny(mustContent(t, c).Steps[1].Raw(), "\n") {
		t.Error("the bytes of a stored step changed")
	}
	if saved := need(c.Save(t.Context(), mustContent(t, c))); saved.Change != evals.NoChange {
		t.Errorf("the save of equal content returned %+v", saved)
	}
	if saved := mustStore(t, c, append(stepsOf(3), stepOf(3, "new"))...); saved.Change != evals.NoChange {
		t.Errorf("the save of steps that were built again returned %+v", saved)
	}
	// Other steps in the middle: kept steps are stored by reference.
	d = mustContent(t, c)
	d.Steps = append([]evals.Step{d.Steps[0], stepOf(9, "inserted")}, d.Steps[2:]...)
	if saved := need(c.Save(t.Context(), d)); saved.Change != evals.Replacement || saved.New != 1 {
		t.Errorf("the save of a replacement returned %+v", saved)
	}
	if got := texts(mustContent(t, c)); got != "turn 0,inserted,turn 2,new" {
		t.Errorf("the steps are %s", got)
	}
	// Another order.
	d = mustContent(t, c)
	d.Steps[0], d.Steps[3] = d.Steps[3], d.Steps[0]
	need(c.Save(t.Context(), d))
	if got := texts(mustContent(t, c)); got != "new,inserted,turn 2,turn 0" {
		t.Errorf("the steps are %s", got)
	}
	var types []string
	for _, rec := range recordsOf(t, st, "c1") {
		types = append(types, strings.TrimSuffix(strings.TrimPrefix(rec.Type, "tally."), ".v1"))
	}
	if got := strings.Join(types, " "); got != "turn.appended turn.appended thread.replaced thread.replaced" {
		t.Errorf("the records are %s", got)
	}
}

func testTwoWriters(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	mustStore(t, c, saidSteps("a")...)
	one, two := mustContent(t, c), mustContent(t, c)
	one.Steps = append(one.Steps, stepOf(1, "one"))
	two.Steps = append(two.Steps, stepOf(1, "two"))
	need(c.CreateRun(t.Context(), evals.TallyRun, "")) // runs do not conflict
	need(c.Save(t.Context(), one))
	_, err := c.Save(t.Context(), two)
	if conflict, ok := errors.AsType[*log.ConflictError](err); !ok || conflict.Want != two.Revision {
		t.Fatalf("the save of the second writer: %v", err)
	}
	if got := texts(mustContent(t, c)); got != "a,one" {
		t.Errorf("the steps are %s", got)
	}
	one.Steps = append(one.Steps, stepOf(2, "more")) // the first handle continues from its own save
	need(c.Save(t.Context(), one))
	if got := texts(mustContent(t, c)); got != "a,one,more" {
		t.Errorf("the steps are %s", got)
	}
	one.Revision = 1 << 40
	if _, err := c.Save(t.Context(), one); !errors.Is(err, log.ErrConflict) {
		t.Errorf("save with a base that is a missing revision: %v", err)
	}
}

func testMetadata(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	if _, err := c.Metadata(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("metadata of a missing conversation: %v", err)
	}
	for _, want := range []string{`{"a":1.0}`, "", `{"b": 2}`} {
		mustStore(t, c, saidSteps("x", "y")...)
		if _, err := c.SetMetadata(t.Context(), []byte(want)[:len(want):len(want)]); want != "" && err != nil {
			t.Fatal(err)
		}
		if want == "" {
			need(c.SetMetadata(t.Context(), nil))
		}
		if got := need(c.Metadata(t.Context())); string(got) != want {
			t.Errorf("the metadata are %s, want %s", got, want)
		}
	}
	d := mustContent(t, c)
	if saved := need(c.Save(t.Context(), d)); saved.Change != evals.NoChange {
		t.Errorf("the save of loaded content returned %+v", saved)
	}
	d.Metadata = nil // the line loses it, too
	need(c.Save(t.Context(), d))
	if d = mustContent(t, c); d.Metadata != nil || d.Steps[0].Field("conversationMetadata") != nil {
		t.Errorf("%s, %s", d.Metadata, d.Steps[0].Raw())
	}
	if _, _, err := evals.Create(t.Context(), st, "empty"); err != nil {
		t.Fatal(err)
	}
	empty := evals.Of(st, "empty")
	need(empty.SetMetadata(t.Context(), []byte(`{"k":1}`)))
	if d := mustContent(t, empty); string(d.Metadata) != `{"k":1}` || len(d.Steps) != 0 {
		t.Errorf("got %+v", d)
	}
}

func testBadInput(t *testing.T, st *tally.Store) {
	c := evals.Of(st, "c1")
	mustStore(t, c, saidSteps("a")...)
	before := len(recordsOf(t, st, "c1"))
	good := mustContent(t, c)
	bad := func(name, field string, call func() error) {
		t.Helper()
		err := call()
		if e, ok := errors.AsType[*events.InvalidError](err); !ok || e.Field != field {
			t.Errorf("%s: got the error %v, want one of field %s", name, err, field)
		}
	}
	for field, text := range map[string]string{
		"stepIndex":  `{"input":{},"output":[]}`,
		"input":      `{"stepIndex":0,"input":"text","output":[]}`,
		"output":     `{"stepIndex":0,"input":{},"output":{}}`,
		"output[1]":  `{"stepIndex":0,"input":{},"output":[{},"x"]}`,
		"id":         `{"stepIndex":0,"input":{},"output":[],"id":1}`,
		"timestamp":  `{"stepIndex":0,"input":{},"output":[],"timestamp":"yesterday"}`,
		"metadata":   `{"stepIndex":0,"input":{},"output":[],"metadata":[]}`,
		"json":       `{`,
		"conversion": `{"conversion":1,"conversion":2}`,
	} {
		bad(text, field, func() error { _, err := evals.ParseStep([]byte(text)); return err })
	}
	bad("no step", "steps[1]", func() error {
		_, err := c.Save(t.Context(), &evals.Data{ID: "c1", Steps: append(good.Steps, evals.Step{})})
		return err
	})
	bad("no id", "id", func() error { _, err := c.Save(t.Context(), &evals.Data{}); return err })
	bad("metadata", "metadata", func() error { _, err := c.SetMetadata(t.Context(), []byte(`[]`)); return err })
	bad("append of nothing", "steps", func() error { _, err := c.Append(t.Context()); return err })
	bad("an empty id", "subject", func() error { _, _, err := evals.Create(t.Context(), st, ""); return err })
	bad("a long id", "subject", func() error {
		_, _, err := evals.Save(t.Context(), st, strings.Repeat("x", 513), &evals.Data{ID: "x"})
		return err
	})
	s := good.Steps[0]
	bad("a setter", "output", func() error { return s.Set("output", []byte(`1`)) })
	if !s.Equal(good.Steps[0]) {
		t.Error("a refused edit changed the step")
	}
	if n := len(recordsOf(t, st, "c1")); n != before {
		t.Errorf("got %d records, want %d as before", n, before)
	}
	if got := texts(mustContent(t, c)); got != "a" {
		t.Errorf("the steps are %s", got)
	}
}
