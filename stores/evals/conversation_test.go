package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/evals"
)

// parity is an acceptance criterion of the store layer that tally replaces.
type parity struct {
	name string
	test func(t *testing.T, st *tally.Store)
}

// eachParity runs criteria on every backend, each in a namespace of its own.
func eachParity(t *testing.T, list []parity) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
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
		{"everything at once", testAtOnce},
		{"append after a rewind is late", testAppendLate},
		{"metadata", testMetadata},
		{"bad input writes nothing", testBadInput},
		{"follow", testFollow},
		{"fork", testFork},
	})
}

// need returns the value of a call that must succeed.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// stepOf returns a step in the original's form.
func stepOf(n int, text string) evals.Step {
	content := need(json.Marshal(text))
	s, err := evals.ParseStep(fmt.Appendf(nil, `{"stepIndex":%d,"input":{"role":"user","content":%s},"output":[{"role":"assistant","content":"ok %d"}],"timestamp":"2026-01-23T12:35:%02d.000Z"}`, n, content, n, n%60))
	if err != nil {
		panic(err)
	}
	return s
}

// stepsOf returns n steps.
func stepsOf(n int) []evals.Step {
	list := make([]evals.Step, n)
	for i := range list {
		list[i] = stepOf(i, fmt.Sprintf("turn %d", i))
	}
	return list
}

// texts lists the users' messages.
func texts(d *evals.Data) string {
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

func saidSteps(list ...string) []evals.Step {
	var out []evals.Step
	for i, text := range list {
		out = append(out, stepOf(i, text))
	}
	return out
}

// mustStore saves new content.
func mustStore(t testing.TB, c *evals.Conversation, steps ...evals.Step) evals.Saved {
	t.Helper()
	saved, err := c.Save(t.Context(), &evals.Data{ID: c.ID(), Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func mustContent(t testing.TB, c *evals.Conversation) *evals.Data {
	t.Helper()
	d, err := c.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// recordsOf lists a conversation's records.
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
	list, err := evals.List(t.Context(), st)
	if err != nil || len(list) != 0 {
		t.Fatalf("got %v, error %v", list, err)
	}
}

func testListKinds(t *testing.T, st *tally.Store) {
	for _, id := range []string{"b", "a", "no/created"} {
		mustStore(t, evals.Of(st, id), stepsOf(1)...)
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
	for _, c := range need(evals.List(t.Context(), st)) {
		ids = append(ids, c.ID())
	}
	if got := strings.Join(ids, " "); got != "a b no/created" {
		t.Errorf("the list is %q", got)
	}
	_, err := evals.Of(st, "job/x").Load(t.Context())
	if kind, ok := errors.AsType[*tally.KindError](err); !ok || kind.Have != events.KindJob {
		t.Errorf("load a job as a conversation: %v", err)
	}
	if _, _, err := evals.Create(t.Context(), st, "job/x"); err == nil {
		t.Error("a conversation was created with the id of a job")
	}
	if _, err := evals.Of(st, "job/x").Append(t.Context(), stepOf(0, "x")); err == nil {
		t.Error("a step was appended to a job")
	}
	if _, ok, err := evals.Get(t.Context(), st, "job/x"); ok || err != nil {
		t.Errorf("get a job as a conversation: %v", err)
	}
}

func testGetUnknown(t *testing.T, st *tally.Store) {
	c, ok, err := evals.Get(t.Context(), st, "nobody")
	if c != nil || ok || err != nil {
		t.Errorf("%v, %v, %v", c, ok, err)
	}
	if _, err := evals.Of(st, "nobody").Load(t.Context()); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load: %v", err)
	}
}

func testCreatedIsVisible(t *testing.T, st *tally.Store) {
	if _, made, err := evals.Create(t.Context(), st, "c1"); err != nil || made.Existed || made.At == "" {
		t.Fatalf("got %+v, error %v", made, err)
	}
	if list := need(evals.List(t.Context(), st)); len(list) != 1 || list[0].ID() != "c1" {
		t.Errorf("the list is %v", list)
	}
	if _, ok, err := evals.Get(t.Context(), st, "c1"); !ok || err != nil {
		t.Errorf("get: %v, %v", ok, err)
	}
}

func testCreateTwice(t *testing.T, st *tally.Store) {
	checkFix(t, st, fixCreateTwice)
	_, first, err := evals.Create(t.Context(), st, "twice")
	if err != nil {
		t.Fatal(err)
	}
	c, second, err := evals.Create(t.Context(), st, "twice")
	if err != nil || !second.Existed || second.At != first.At || c.ID() != "twice" {
		t.Errorf("the first call returned %+v, the second %+v, error %v", first, second, err)
	}
	if n := len(recordsOf(t, st, "twice")); n != 1 {
		t.Errorf("got %d records", n)
	}
}

func testNoSteps(t *testing.T, st *tally.Store) {
	c, _, err := evals.Create(t.Context(), st, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context()); !errors.Is(err, evals.ErrNoSteps) || errors.Is(err, evals.ErrEmpty) || errors.Is(err, tally.ErrNotFound) {
		t.Errorf("load a conversation without content: %v", err)
	}
	mustStore(t, c)
	if d, err := c.Load(t.Context()); err != nil || len(d.Steps) != 0 {
		t.Errorf("load a conversation that was saved without steps: %v, error %v", d, err)
	}
	if _, err := evals.Decode(nil); !errors.Is(err, evals.ErrEmpty) {
		t.Errorf("decode an empty file: %v", err)
	}
}

func testHandles(t *testing.T, st *tally.Store) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel() // every call with I/O fails
	c := evals.Of(st, "../up:and/away")
	if c.ID() != "../up:and/away" || c.Path() != "conversations/..=2Fup=3Aand=2Faway" {
		t.Errorf("%q %q", c.ID(), c.Path())
	}
	r := c.Run(evals.TallyRun, "run-1-a/b")
	if r.ID() != "run-1-a/b" || r.Type() != evals.TallyRun || r.Path() != c.Path()+"/runs/tally/run-1-a=2Fb.json" || r.Conversation() != c {
		t.Errorf("%q %q %q", r.ID(), r.Type(), r.Path())
	}
	if _, err := c.Load(canceled); err == nil {
		t.Error("Load succeeded with a cancelled context")
	}
}

func testOneFlow(t *testing.T, st *tally.Store) {
	for range 2 { // also for a conversation that exists
		data := &evals.Data{ID: "c1", Steps: stepsOf(2)}
		c, saved, err := evals.Save(t.Context(), st, "c1", data)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.CreateRun(t.Context(), evals.TrajectoryRun, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Save(t.Context(), []byte(`{"completed":true}`)); err != nil {
			t.Fatal(err)
		}
		runs := need(c.ListRuns(t.Context()))
		if n := len(runs); n == 0 || saved.Created != (n == 1) {
			t.Errorf("got %d runs, the last save returned %+v", n, saved)
		}
	}
}
