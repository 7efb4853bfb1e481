package tally_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// parity is an acceptance criterion of the store layer that tally replaces.
type parity struct {
	name string
	test func(t *testing.T, st *tally.Store)
}

// eachParity runs criteria on every backend, each in a namespace of its own.
func eachParity(t *testing.T, list []parity) {
	t.Helper()
	eachBackend(t, func(t *testing.T, st *tally.Store) {
		for i, p := range list {
			t.Run(p.name, func(t *testing.T) {
				own, err := st.In(fmt.Sprintf("case-%d", i))
				if err != nil {
					t.Fatal(err)
				}
				p.test(t, own)
			})
		}
	})
}

func TestConversation(t *testing.T) {
	eachParity(t, []parity{
		{"T-03 list of an empty store", testEmptyList},
		{"T-04 list has conversations only", testListKinds},
		{"T-05 get of an unknown id", testGetUnknown},
		{"T-06 created is visible before any step", testCreatedIsVisible},
		{"T-08 create twice", testCreateTwice},
		{"T-09 save then load", testSaveLoad},
		{"T-10 save replaces, old content stays readable", testReplace},
		{"T-11 load without steps", testNoSteps},
		{"T-15 no steps, saved and loaded", testZeroSteps},
		{"T-33 handles are cheap", testHandles},
		{"T-34 one flow", testOneFlow},
		{"save extends, equals, differs", testSaveForms},
		{"two writers on one base", testTwoWriters},
		{"append turn by turn", testAppend},
		{"append after a rewind is late", testAppendLate},
		{"metadata", testMetadata},
		{"bad input writes nothing", testBadInput},
		{"follow", testFollow},
		{"fork", testFork},
	})
}

// need gives the value of a call that must work.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// step makes a step as the original writes it.
func step(n int, text string) tally.Step {
	content := need(json.Marshal(text))
	s, err := tally.ParseStep(fmt.Appendf(nil, `{"stepIndex":%d,"input":{"role":"user","content":%s},"output":[{"role":"assistant","content":"ok %d"}],"timestamp":"2026-01-23T12:35:%02d.000Z"}`, n, content, n, n%60))
	if err != nil {
		panic(err)
	}
	return s
}

// steps makes n steps.
func steps(n int) []tally.Step {
	list := make([]tally.Step, n)
	for i := range list {
		list[i] = step(i, fmt.Sprintf("turn %d", i))
	}
	return list
}

// texts lists what the users said.
func texts(d *tally.ConversationData) string {
	var list []string
	for _, s := range d.Steps {
		var m struct{ Content string }
		if err := json.Unmarshal(s.Input(), &m); err != nil {
			panic(err)
		}
		list = append(list, m.Content)
	}
	return strings.Join(list, ",")
}

func said(list ...string) []tally.Step {
	var out []tally.Step
	for i, text := range list {
		out = append(out, step(i, text))
	}
	return out
}

// mustStore saves content that is made from nothing.
func mustStore(t testing.TB, c *tally.Conversation, steps ...tally.Step) tally.Saved {
	t.Helper()
	saved, err := c.Save(t.Context(), &tally.ConversationData{ID: c.ID(), Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func mustContent(t testing.TB, c *tally.Conversation) *tally.ConversationData {
	t.Helper()
	d, err := c.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// recordsOf lists the types of a conversation's records.
func recordsOf(t testing.TB, st *tally.Store, id string) []events.Record {
	t.Helper()
	var list []events.Record
	for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: events.Session(st.Namespace(), id)}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rec)
	}
	return list
}

func testEmptyList(t *testing.T, st *tally.Store) {
	list, err := st.ListConversations(t.Context())
	if err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
}

func testListKinds(t *testing.T, st *tally.Store) {
	for _, id := range []string{"b", "a", "no/created"} {
		mustStore(t, st.Conversation(id), steps(1)...)
	}
	for _, kind := range []string{events.KindJob, events.KindHistory, events.KindPrompts} {
		if _, err := st.Session(kind+"/x").Create(t.Context(), events.SessionCreated{Kind: kind, CreatedAt: "2026-01-01T00:00:00Z"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.PutBlob(t.Context(), []byte("a stray file")); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range need(st.ListConversations(t.Context())) {
		ids = append(ids, c.ID())
	}
	if got := strings.Join(ids, " "); got != "a b no/created" {
		t.Errorf("list %q", got)
	}
	_, err := st.Conversation("job/x").Load(t.Context())
	if kind, ok := errors.AsType[*tally.KindError](err); !ok || kind.Have != events.KindJob {
		t.Errorf("a job loaded as a conversation: %v", err)
	}
	if _, _, err := st.CreateConversation(t.Context(), "job/x"); err == nil {
		t.Error("a conversation was created over a job")
	}
	if _, err := st.Conversation("job/x").Append(t.Context(), step(0, "x")); err == nil {
		t.Error("a step was appended to a job")
	}
	if _, ok, err := st.GetConversation(t.Context(), "job/x"); ok || err != nil {
		t.Errorf("a job was found as a conversation: %v", err)
	}
}

func testGetUnknown(t *testing.T, st *tally.Store) {
	c, ok, err := st.GetConversation(t.Context(), "nobody")
	if c != nil || ok || err != nil {
		t.Errorf("%v, %v, %v", c, ok, err)
	}
	if _, err := st.Conversation("nobody").Load(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load: %v", err)
	}
}

func testCreatedIsVisible(t *testing.T, st *tally.Store) {
	if _, made, err := st.CreateConversation(t.Context(), "c1"); err != nil || made.Existed || made.At == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	if list := need(st.ListConversations(t.Context())); len(list) != 1 || list[0].ID() != "c1" {
		t.Errorf("list %v", list)
	}
	if _, ok, err := st.GetConversation(t.Context(), "c1"); !ok || err != nil {
		t.Errorf("get: %v, %v", ok, err)
	}
}

func testCreateTwice(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixCreateTwice)
	_, first, err := st.CreateConversation(t.Context(), "twice")
	if err != nil {
		t.Fatal(err)
	}
	c, second, err := st.CreateConversation(t.Context(), "twice")
	if err != nil || !second.Existed || second.At != first.At || c.ID() != "twice" {
		t.Errorf("first %+v, second %+v, %v", first, second, err)
	}
	if n := len(recordsOf(t, st, "twice")); n != 1 {
		t.Errorf("%d records", n)
	}
}

func testSaveLoad(t *testing.T, st *tally.Store) {
	odd, err := tally.ParseStep([]byte(`{ "z":1.50, "stepIndex":0,"input":{"role":"user","content":"a<b>&\u00e9\ud83d"},"output":[],"timestamp":"2026-01-23T13:35:42+01:00","id":"m1","metadata":{"10":1,"2":2},"extra":[1e21] }`))
	if err != nil {
		t.Fatal(err)
	}
	list := append([]tally.Step{odd}, steps(3)...)
	meta := json.RawMessage(`{"source": "test", "n":1.0}`)
	c := st.Conversation("c1")
	if _, err := c.Save(t.Context(), &tally.ConversationData{ID: "c1", Metadata: meta, Steps: list}); err != nil {
		t.Fatal(err)
	}
	d := mustContent(t, c)
	if d.ID != "c1" || string(d.Metadata) != string(meta) || len(d.Steps) != len(list) || len(d.Warnings) != 0 {
		t.Fatalf("%+v", d)
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
	c := st.Conversation("c1")
	first := mustStore(t, c, said("a", "b", "c")...)
	saved := mustStore(t, c, said("x", "b", "c")...)
	if saved.Change != tally.Replacement || saved.New != 1 {
		t.Errorf("saved %+v", saved)
	}
	if got := texts(mustContent(t, c)); got != "x,b,c" {
		t.Errorf("now %s", got)
	}
	old, err := c.LoadAt(t.Context(), first.Ack.Last.String())
	if err != nil || texts(old) != "a,b,c" {
		t.Errorf("before: %v, %v", old, err)
	}
	mustStore(t, c, said("only")...)
	if got := texts(mustContent(t, c)); got != "only" {
		t.Errorf("shorter: %s", got)
	}
}

func testNoSteps(t *testing.T, st *tally.Store) {
	c, _, err := st.CreateConversation(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context()); !errors.Is(err, tally.ErrNoSteps) || errors.Is(err, tally.ErrEmpty) || errors.Is(err, tally.ErrNotFound) {
		t.Errorf("created only: %v", err)
	}
	mustStore(t, c)
	if d, err := c.Load(t.Context()); err != nil || len(d.Steps) != 0 {
		t.Errorf("saved without steps: %v, %v", d, err)
	}
	if _, err := tally.DecodeConversation(nil); !errors.Is(err, tally.ErrEmpty) {
		t.Errorf("an empty file: %v", err)
	}
}

func testZeroSteps(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixZeroSteps)
	c := st.Conversation("c1")
	d := &tally.ConversationData{ID: "another", Metadata: json.RawMessage(`{"k":[1, 2]}`)}
	if _, err := c.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got := mustContent(t, c)
	if got.ID != "another" || string(got.Metadata) != `{"k":[1, 2]}` || len(got.Steps) != 0 {
		t.Fatalf("%+v", got)
	}
	if again := need(c.Save(t.Context(), got)); again.Change != tally.NoChange {
		t.Errorf("again: %+v", again)
	}
	// The first step says on its line what no line said before.
	if _, err := c.Append(t.Context(), step(0, "hi")); err != nil {
		t.Fatal(err)
	}
	got = mustContent(t, c)
	if string(got.Metadata) != `{"k":[1, 2]}` || got.ID != "another" || string(got.Steps[0].Field("conversationMetadata")) != `{"k":[1, 2]}` {
		t.Errorf("%+v", got)
	}
	if again := need(c.Save(t.Context(), got)); again.Change != tally.NoChange {
		t.Errorf("again: %+v", again)
	}
	got.Metadata = nil
	need(c.Save(t.Context(), got))
	if got = mustContent(t, c); got.Metadata != nil {
		t.Errorf("metadata %s were taken away", got.Metadata)
	}
}

func testHandles(t *testing.T, st *tally.Store) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel() // whatever does I/O fails
	c := st.Conversation("../up:and/away")
	if c.ID() != "../up:and/away" || c.Path() != "conversations/..=2Fup=3Aand=2Faway" {
		t.Errorf("%q %q", c.ID(), c.Path())
	}
	r := c.Run(tally.TallyRun, "run-1-a/b")
	if r.ID() != "run-1-a/b" || r.Type() != tally.TallyRun || r.Path() != c.Path()+"/runs/tally/run-1-a=2Fb.json" || r.Conversation() != c {
		t.Errorf("%q %q %q", r.ID(), r.Type(), r.Path())
	}
	if _, err := c.Load(canceled); err == nil {
		t.Error("loaded without I/O")
	}
}

func testOneFlow(t *testing.T, st *tally.Store) {
	for range 2 { // also for a conversation that exists
		data := &tally.ConversationData{ID: "c1", Steps: steps(2)}
		c, saved, err := st.SaveConversation(t.Context(), "c1", data)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.CreateRun(t.Context(), tally.TrajectoryRun, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Save(t.Context(), []byte(`{"completed":true}`)); err != nil {
			t.Fatal(err)
		}
		runs := need(c.ListRuns(t.Context()))
		if n := len(runs); n == 0 || saved.Created != (n == 1) {
			t.Errorf("%d runs, %+v", n, saved)
		}
	}
}

func testSaveForms(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	if saved := mustStore(t, c, steps(3)...); saved.Change != tally.Extension || saved.New != 3 {
		t.Errorf("first: %+v", saved)
	}
	// White space does not count, and what is stored keeps its bytes.
	d := mustContent(t, c)
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, d.Steps[1].Raw(), "", " "); err != nil {
		t.Fatal(err)
	}
	d.Steps[1] = need(tally.ParseStep(spaced.Bytes()))
	d.Steps = append(d.Steps, step(3, "new"))
	if saved := need(c.Save(t.Context(), d)); saved.Change != tally.Extension || saved.New != 1 {
		t.Errorf("extended: %+v", saved)
	}
	if bytes.ContainsAny(mustContent(t, c).Steps[1].Raw(), "\n") {
		t.Error("a stored step took over other bytes")
	}
	if saved := need(c.Save(t.Context(), mustContent(t, c))); saved.Change != tally.NoChange {
		t.Errorf("equal: %+v", saved)
	}
	if saved := mustStore(t, c, append(steps(3), step(3, "new"))...); saved.Change != tally.NoChange {
		t.Errorf("made anew: %+v", saved)
	}
	// Others in the middle: what stays is kept by reference.
	d = mustContent(t, c)
	d.Steps = append([]tally.Step{d.Steps[0], step(9, "inserted")}, d.Steps[2:]...)
	if saved := need(c.Save(t.Context(), d)); saved.Change != tally.Replacement || saved.New != 1 {
		t.Errorf("replaced: %+v", saved)
	}
	if got := texts(mustContent(t, c)); got != "turn 0,inserted,turn 2,new" {
		t.Errorf("now %s", got)
	}
	// Another order.
	d = mustContent(t, c)
	d.Steps[0], d.Steps[3] = d.Steps[3], d.Steps[0]
	need(c.Save(t.Context(), d))
	if got := texts(mustContent(t, c)); got != "new,inserted,turn 2,turn 0" {
		t.Errorf("now %s", got)
	}
	var types []string
	for _, rec := range recordsOf(t, st, "c1") {
		types = append(types, strings.TrimSuffix(strings.TrimPrefix(rec.Type, "tally."), ".v1"))
	}
	if got := strings.Join(types, " "); got != "turn.appended turn.appended thread.replaced thread.replaced" {
		t.Errorf("records %s", got)
	}
}

func testTwoWriters(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	mustStore(t, c, said("a")...)
	one, two := mustContent(t, c), mustContent(t, c)
	one.Steps = append(one.Steps, step(1, "one"))
	two.Steps = append(two.Steps, step(1, "two"))
	need(c.CreateRun(t.Context(), tally.TallyRun, "")) // runs do not get in the way
	need(c.Save(t.Context(), one))
	_, err := c.Save(t.Context(), two)
	if conflict, ok := errors.AsType[*log.ConflictError](err); !ok || conflict.Want != two.Revision {
		t.Fatalf("the second writer: %v", err)
	}
	if got := texts(mustContent(t, c)); got != "a,one" {
		t.Errorf("now %s", got)
	}
	one.Steps = append(one.Steps, step(2, "more")) // the first one goes on from what it saved
	need(c.Save(t.Context(), one))
	if got := texts(mustContent(t, c)); got != "a,one,more" {
		t.Errorf("now %s", got)
	}
	one.Revision = 1 << 40
	if _, err := c.Save(t.Context(), one); !errors.Is(err, log.ErrConflict) {
		t.Errorf("a revision that there is not: %v", err)
	}
}

func testAppend(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	for i := range 5 {
		if ack, err := c.Append(t.Context(), step(i, fmt.Sprint(i))); err != nil || ack.Late {
			t.Fatalf("%+v, %v", ack, err)
		}
		if i == 2 { // somebody else
			need(st.Conversation("c1").Append(t.Context(), step(9, "other"), step(9, "other")))
		}
	}
	d := mustContent(t, st.Conversation("c1"))
	if got := texts(d); got != "0,1,2,other,other,3,4" {
		t.Errorf("now %s", got)
	}
	for i, s := range d.Steps {
		if string(s.Field("conversationId")) != `"c1"` {
			t.Errorf("step %d: %s", i, s.Raw())
		}
	}
}

func testAppendLate(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	need(c.Append(t.Context(), step(0, "a")))
	need(c.Append(t.Context(), step(1, "b")))
	other := st.Session("c1")
	back, err := other.PlanRewind(t.Context(), "#1", "")
	if err != nil {
		t.Fatal(err)
	}
	need(other.Move(t.Context(), back))
	ack, err := c.Append(t.Context(), step(2, "answer to b"))
	if err != nil || !ack.Late {
		t.Fatalf("%+v, %v", ack, err)
	}
	if got := texts(mustContent(t, c)); got != "a" {
		t.Errorf("now %s", got)
	}
	if ack, err := c.Append(t.Context(), step(1, "c")); err != nil || ack.Late { // it has looked again
		t.Fatalf("%+v, %v", ack, err)
	}
	if got := texts(mustContent(t, c)); got != "a,c" {
		t.Errorf("now %s", got)
	}
}

func testMetadata(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	if _, err := c.Metadata(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("nobody's metadata: %v", err)
	}
	for _, want := range []string{`{"a":1.0}`, "", `{"b": 2}`} {
		mustStore(t, c, said("x", "y")...)
		if _, err := c.SetMetadata(t.Context(), []byte(want)[:len(want):len(want)]); want != "" && err != nil {
			t.Fatal(err)
		}
		if want == "" {
			need(c.SetMetadata(t.Context(), nil))
		}
		if got := need(c.Metadata(t.Context())); string(got) != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
	}
	d := mustContent(t, c)
	if saved := need(c.Save(t.Context(), d)); saved.Change != tally.NoChange {
		t.Errorf("saved as loaded: %+v", saved)
	}
	d.Metadata = nil // and not only on the handle: the line loses it too
	need(c.Save(t.Context(), d))
	if d = mustContent(t, c); d.Metadata != nil || d.Steps[0].Field("conversationMetadata") != nil {
		t.Errorf("%s, %s", d.Metadata, d.Steps[0].Raw())
	}
	if _, _, err := st.CreateConversation(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	empty := st.Conversation("empty")
	need(empty.SetMetadata(t.Context(), []byte(`{"k":1}`)))
	if d := mustContent(t, empty); string(d.Metadata) != `{"k":1}` || len(d.Steps) != 0 {
		t.Errorf("%+v", d)
	}
}

func testBadInput(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	mustStore(t, c, said("a")...)
	before := len(recordsOf(t, st, "c1"))
	good := mustContent(t, c)
	bad := func(name, field string, call func() error) {
		t.Helper()
		err := call()
		if e, ok := errors.AsType[*events.InvalidError](err); !ok || e.Field != field {
			t.Errorf("%s: %v, want one of field %s", name, err, field)
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
		bad(text, field, func() error { _, err := tally.ParseStep([]byte(text)); return err })
	}
	bad("no step", "steps[1]", func() error {
		_, err := c.Save(t.Context(), &tally.ConversationData{ID: "c1", Steps: append(good.Steps, tally.Step{})})
		return err
	})
	bad("no id", "id", func() error { _, err := c.Save(t.Context(), &tally.ConversationData{}); return err })
	bad("metadata", "metadata", func() error { _, err := c.SetMetadata(t.Context(), []byte(`[]`)); return err })
	bad("append of nothing", "steps", func() error { _, err := c.Append(t.Context()); return err })
	bad("an empty id", "subject", func() error { _, _, err := st.CreateConversation(t.Context(), ""); return err })
	bad("a long id", "subject", func() error {
		_, _, err := st.SaveConversation(t.Context(), strings.Repeat("x", 513), &tally.ConversationData{ID: "x"})
		return err
	})
	s := good.Steps[0]
	bad("a setter", "output", func() error { return s.Set("output", []byte(`1`)) })
	if !s.Equal(good.Steps[0]) {
		t.Error("a refused edit changed the step")
	}
	if n := len(recordsOf(t, st, "c1")); n != before {
		t.Errorf("%d records, before %d", n, before)
	}
	if got := texts(mustContent(t, c)); got != "a" {
		t.Errorf("now %s", got)
	}
}

func testFollow(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	mustStore(t, c, said("a")...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	var last events.Offset
	for u, err := range c.Follow(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s: %s", u.Kind, texts(&tally.ConversationData{Steps: u.Steps})))
		last = u.Offset
		switch len(got) {
		case 1:
			need(c.Append(ctx, step(1, "b"), step(2, "c")))
			r := need(c.CreateRun(ctx, tally.TrajectoryRun, "r"))
			need(r.Save(ctx, []byte(`{}`)))
			need(c.SaveTrajectoryMeta(ctx, trajectoryMeta()))
			back := need(c.Session().PlanRewind(ctx, "#1", ""))
			need(c.Session().Move(ctx, back))
			mustStore(t, c, said("x")...)
		case 7:
			cancel()
		}
	}
	want := []string{"steps loaded: a", "steps appended: b,c", "run announced: ", "run saved: ", "trajectory changed: ", "steps loaded: a", "steps loaded: x"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("have\n%s", strings.Join(got, "\n"))
	}
	need(c.Append(t.Context(), step(1, "y")))
	for u, err := range c.Follow(t.Context(), last) { // goes on from there
		if err != nil || u.Kind != tally.StepsAppended || texts(&tally.ConversationData{Steps: u.Steps}) != "y" {
			t.Errorf("%+v, %v", u, err)
		}
		break
	}
	later := st.Conversation("later") // does not exist yet
	go func() { _, _ = later.Append(t.Context(), step(0, "first")) }()
	for u, err := range later.Follow(t.Context(), 0) {
		if err != nil || texts(&tally.ConversationData{Steps: u.Steps}) != "first" {
			t.Errorf("%+v, %v", u, err)
		}
		break
	}
}

func testFork(t *testing.T, st *tally.Store) {
	c := st.Conversation("c1")
	mustStore(t, c, said("a", "b")...)
	if _, _, err := c.Session().Fork(t.Context(), "#1", "fork"); err != nil {
		t.Fatal(err)
	}
	fork := st.Conversation("fork")
	need(fork.Append(t.Context(), step(1, "c")))
	if got := texts(mustContent(t, fork)); got != "a,b,c" { // turns of one event stay together
		t.Errorf("fork %s", got)
	}
	if got := texts(mustContent(t, c)); got != "a,b" {
		t.Errorf("parent %s", got)
	}
	if list := need(st.ListConversations(t.Context())); len(list) != 2 {
		t.Errorf("%d conversations", len(list))
	}
}
