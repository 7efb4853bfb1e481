package logtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// part returns a part that appends turns with these ids to a session, each with its id as text.
func part(sub string, x log.Expect, ids ...string) log.Part {
	p := log.Part{Subject: session(sub), Expect: x}
	for _, id := range ids {
		p.Events = append(p.Events, turn(id, id))
	}
	return p
}

func guard(sub string, x log.Expect) log.Part { return log.Part{Subject: session(sub), Expect: x} }

// mustAppendAll appends, and checks the offsets in the acks.
func mustAppendAll(t *testing.T, l *log.Log, parts ...log.Part) []log.Ack {
	t.Helper()
	acks, err := l.AppendAll(t.Context(), parts...)
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, "acks", len(acks), len(parts))
	all := mustRead(t, l, events.Range{Kind: events.KindSession})
	for i, p := range parts {
		if len(p.Events) == 0 {
			mustBe(t, "the ack of a guard", acks[i], log.Ack{})
			continue
		}
		mustBe(t, "durability", acks[i].Durability, l.Durability())
		var texts, want []string
		for _, rec := range all {
			if rec.Subject == p.Subject && acks[i].First <= rec.Offset && rec.Offset <= acks[i].Last {
				texts = append(texts, string(rec.Data))
			}
		}
		for _, e := range p.Events {
			want = append(want, string(e.Data))
		}
		mustBe(t, "records of "+p.Subject.ID, texts, want)
	}
	return acks
}

// mustCount requires n records in each of the sessions.
func mustCount(t *testing.T, l *log.Log, n int, subs ...string) {
	t.Helper()
	for _, sub := range subs {
		mustBe(t, "records of "+sub, len(mustRead(t, l, events.Range{Subject: session(sub)})), n)
	}
}

func allGoToTheirSubjects(t *testing.T, l *log.Log) {
	for _, n := range []int{2, 37, 100} { // the fewest, the most, and some between
		var parts []log.Part
		for i := range n {
			sub := fmt.Sprintf("s%d-%d", n, i)
			parts = append(parts, part(sub, log.At(0), sub+"-1"))
			if i%3 == 0 {
				parts[i] = part(sub, log.Any, sub+"-1", sub+"-2", sub+"-3")
			}
		}
		first := mustAppendAll(t, l, parts...)
		mustBe(t, "again", mustAppendAgain(t, l, parts...), first)
	}
	for i := range 20 { // in the order of the parts
		acks := mustAppendAll(t, l, part("c", log.Any, fmt.Sprint("c", i)), part("a", log.Any, fmt.Sprint("a", i)), part("b", log.Any, fmt.Sprint("b", i)))
		if acks[0].Last >= acks[1].Last || acks[1].Last >= acks[2].Last {
			t.Fatalf("parts are out of order: %+v", acks)
		}
	}
	a := mustAppendAll(t, l, part("one", log.Any, "x", "y"))
	mustBe(t, "one part", a[0].Last-a[0].First, 1)
	mustAppendAll(t, l, part("one", log.At(a[0].Last), "z"), part("two", log.Since(0, events.TypeTurnAppended), "z"))
}

// mustAppendAgain repeats an append, and returns the acks with Duplicate unset.
func mustAppendAgain(t *testing.T, l *log.Log, parts ...log.Part) []log.Ack {
	t.Helper()
	head := mustHead(t, l)
	acks := mustAppendAll(t, l, parts...)
	for i := range acks {
		if len(parts[i].Events) > 0 && !acks[i].Duplicate {
			t.Fatalf("part %d is stored twice: %+v", i, acks[i])
		}
		acks[i].Duplicate = false
	}
	mustBe(t, "head", mustHead(t, l), head)
	return acks
}

func allIsAllOrNothing(t *testing.T, l *log.Log) {
	b := mustAppend(t, l, session("b"), log.Any, turn("", "0"))
	head := mustHead(t, l)
	for _, parts := range [][]log.Part{
		{part("a", log.Any, "1"), part("b", log.At(0), "1"), part("c", log.At(0), "1")},
		{part("b", log.At(0), "1"), part("a", log.Any, "1"), part("c", log.At(0), "1")},
		{part("a", log.Any, "1"), part("c", log.At(0), "1"), part("b", log.At(0), "1")},
		{part("a", log.Any, "1"), part("b", log.Since(0, events.TypeTurnAppended), "1"), part("c", log.At(0), "1")},
		{part("a", log.Any, "1"), guard("b", log.At(0)), part("c", log.At(0), "1", "2")},
		{part("a", log.Any, "1"), guard("b", log.Since(0, events.TypeTurnAppended)), part("c", log.At(0), "1")},
	} {
		_, err := l.AppendAll(t.Context(), parts...)
		mustBeConflict(t, err, session("b"), 0, b.Last)
		mustBe(t, "head", mustHead(t, l), head)
	}
	mustAppendAll(t, l, part("a", log.At(0), "1", "2"), guard("b", log.At(b.Last)), guard("d", log.At(0)), part("c", log.Any, "1", "2"))
	mustCount(t, l, 1, "b")
	mustCount(t, l, 0, "d")
	mustCount(t, l, 2, "a", "c")
}

func allRefusesWhatIsThereInPart(t *testing.T, l *log.Log) {
	for name, made := range map[string]events.Event{"young": l.Stamp(turn("", "x")), "old": turn("x", "x")} {
		there := mustAppend(t, l, session("b"), log.Any, made)
		head := mustHead(t, l)
		_, err := l.AppendAll(t.Context(), part("a", log.Any, "1"), log.Part{Subject: session("b"), Events: []events.Event{made}})
		partial, ok := errors.AsType[*log.PartialError](err)
		if !ok {
			t.Fatalf("%s: got %v, want a *log.PartialError", name, err)
		}
		mustBe(t, name, *partial, log.PartialError{Subject: session("b"), Have: []log.Existing{{Index: 0, ID: made.ID, Offset: there.Last}}})
		mustBe(t, "head", mustHead(t, l), head)
	}
}

func allRefusesTheInvalid(t *testing.T, l *log.Log) {
	many := part("a", log.Any)
	many.Events = turns(events.MaxAppend)
	unit := log.Part{Subject: events.Document("", events.KindUnit, "log"), Events: []events.Event{foreign("", events.TypeUnitAppended, "x")}}
	for name, c := range map[string]struct {
		parts []log.Part
		field string
	}{
		"nothing":        {nil, "events"},
		"guards alone":   {[]log.Part{guard("a", log.At(0))}, "events"},
		"a subject":      {[]log.Part{part("a", log.Any, "1"), part("b", log.Any, "1"), part("a", log.Any, "2")}, "parts[2].subject"},
		"an empty guard": {[]log.Part{part("a", log.Any, "1"), guard("b", log.Any)}, "expect"},
		"an empty since": {[]log.Part{part("a", log.Any, "1"), guard("b", log.Since(3))}, "expect"},
		"no subject":     {[]log.Part{part("a", log.Any, "1"), part("", log.Any, "1")}, "subject"},
		"a decision":     {[]log.Part{part("a", log.Any, "1"), {Subject: session("b"), Events: []events.Event{{ID: "x", Source: "relative\n", Type: "x"}}}}, "source"},
		"kind unit":      {[]log.Part{part("a", log.Any, "1"), unit}, "subject"},
	} {
		_, err := l.AppendAll(t.Context(), c.parts...)
		if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field != c.field {
			t.Errorf("%s: got %v, want an invalid %s", name, err, c.field)
		}
	}
	_, err := l.AppendAll(t.Context(), many, part("b", log.Any, "1"))
	size, ok := errors.AsType[*log.SizeError](err)
	if !ok || size.Size != events.MaxAppend+1 {
		t.Errorf("append %d events: %v", events.MaxAppend+1, err)
	}
	_, err = l.Append(t.Context(), unit.Subject, log.Any, unit.Events...)
	mustBeInvalid(t, err, "subject")
	guards := []log.Part{part("a", log.Any, "1")}
	for i := range events.MaxAppend {
		guards = append(guards, guard(fmt.Sprint("g", i), log.At(0)))
	}
	_, err = l.AppendAll(t.Context(), guards...)
	if size, ok = errors.AsType[*log.SizeError](err); !ok || size.What != "parts" {
		t.Errorf("append %d parts: %v", len(guards), err)
	}
	mustHaveNothing(t, l)
}

// Appends with subjects in common are stored one after the other, in the same order in all subjects, and never
// deadlock.
func allThatCrossAreInOneOrder(t *testing.T, l *log.Log) {
	const writers, each = 4, 10
	subs := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				parts := []log.Part{part(subs[w%3], log.Any, id), part(subs[(w+1)%3], log.Any, id), part(subs[(w+2)%3], log.Any, id)}
				if w%2 == 1 {
					slices.Reverse(parts)
				}
				if _, err := l.AppendAll(t.Context(), parts...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for _, sub := range subs {
		var ids []string
		for _, rec := range mustRead(t, l, events.Range{Subject: session(sub)}) {
			ids = append(ids, rec.ID)
		}
		mustBe(t, "records", len(ids), writers*each)
		if want == nil {
			want = ids
		}
		mustBe(t, "order of "+sub, ids, want)
	}
}

// A reader during appends of batches sees all of a batch, or nothing.
func readersSeeAllOrNothing(t *testing.T, l *log.Log) {
	const units = 20
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		for i := range units {
			id := strconv.Itoa(i)
			if _, err := l.AppendAll(t.Context(), part("a", log.Any, id), part("b", log.Any, id), part("c", log.Any, id)); err != nil {
				t.Error(err)
			}
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		seen := make(map[string]int)
		for _, rec := range mustRead(t, l, events.Range{Kind: events.KindSession}) {
			seen[rec.ID]++
		}
		for id, n := range seen {
			if n != 3 {
				t.Errorf("a reader got %d of 3 events of the batch %s", n, id)
				over = true
			}
		}
	}
}

// allUnderFaults repeats batches that got no answer: each is stored once and completely. Amounts that are moved from
// one subject to another add up.
func allUnderFaults(t *testing.T, open func(*testing.T) log.Backend) {
	for name, c := range map[string]log.Config{
		"published": {},
		"redone":    {Host: log.Host{Owner: true, Sync: func(string) error { return nil }}},
	} {
		for _, fault := range []Fault{Dropped, AckLost, Late, Twice} {
			t.Run(name+" "+fault.String(), func(t *testing.T) {
				l := OpenOn(t, &Faulty{Backend: open(t), Next: Sometimes(11, 5, fault)}, c)
				last := map[string]events.Offset{}
				for i := range 40 {
					id, old := l.NewID(), fmt.Sprint("old:", i)
					parts := []log.Part{part("a", log.At(last["a"]), id), part("b", log.Any, id), part("c", log.Since(last["c"], events.TypeTurnAppended), old, old+"'")}
					retry(t, func() (log.Ack, error) {
						acks, err := l.AppendAll(t.Context(), parts...)
						if err == nil {
							last["a"], last["c"] = acks[0].Last, acks[2].Last
						}
						return log.Ack{}, err
					})
				}
				for sub, n := range map[string]int{"a": 40, "b": 40, "c": 80} {
					mustHaveEachOnce(t, l, session(sub), n)
				}
			})
		}
	}
}
