package projector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

func turnsOf(thread string, raws ...string) *events.TurnAppended {
	p := &events.TurnAppended{}
	for _, raw := range raws {
		p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: events.Raw(raw)})
	}
	return p
}

// wholeRecord returns the raw value of a record with its lists resolved.
func wholeRecord(t testing.TB, log testkit.Records, at events.Offset) (string, error) {
	l := &projector.Loader{Source: log}
	rec, err := log.Record(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err = l.Whole(t.Context(), rec); err != nil {
		return "", err
	}
	p, err := events.Decode(rec.Type, rec.Data)
	switch p := p.(type) {
	case *events.RunStarted:
		return string(p.Raw), err
	case *events.RunProgressed:
		return string(p.Raw), err
	case *events.RunFinished:
		return string(p.Result), err
	case *events.CheckpointSaved:
		return string(p.Raw), err
	}
	return string(rec.Data), err
}

func TestWhole(t *testing.T) {
	run := events.RunRef{Kind: "k", ID: "r"}
	log := &testkit.Records{}
	for i, p := range []events.Payload{
		turnsOf("m", `{"a": 1}`, `"b"`, `3.0`), turnsOf("n", `[]`),
		&events.RunStarted{Run: run, Raw: events.Raw(`{ "messages":[], "x": {"messages":[]} }`), Lists: events.Lists{"/messages": {{Thread: "m", To: 2}, {Thread: "n", To: 1}, {Thread: "m", From: 2, To: 3}}, "/x/messages": {}}},
		&events.SessionRewound{To: 1}, // later records do not change the result
		turnsOf("m", `"d"`),
		&events.RunProgressed{Run: run, Kind: "x", Raw: events.Raw(`[]`), Lists: events.Lists{"": {{Thread: "m", From: 3, To: 4}}}},
		&events.CheckpointSaved{ID: "c", Kind: "step", Raw: events.Raw(`{"a":[[]]}`), Lists: events.Lists{"/a/0": {{Thread: "m", To: 1}}}},
		&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"m":[]}`), Lists: events.Lists{"/m": {{Thread: "m", To: 4}}}},
		&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"m":[]}`), Lists: events.Lists{"/m": {{Thread: "n", To: 1}}}}, // n is rewound
		&events.TurnAppended{Entries: []events.Entry{{Thread: "m", Bytes: []byte{0xff}}}},
		&events.RunProgressed{Run: run, Kind: "x", Raw: events.Raw(`[]`), Lists: events.Lists{"": {{Thread: "m", From: 4, To: 5}}}},
		&events.RunProgressed{Run: run, Kind: "x", Raw: events.Raw(`{"no": "lists"}`)},
	} {
		mustAddTo(t, log, s1, events.Offset(i+1), p)
	}
	for at, want := range map[events.Offset]string{
		3: `{ "messages":[{"a": 1},"b",[],3.0], "x": {"messages":[]} }`, 6: `["d"]`, 7: `{"a":[[{"a": 1}]]}`, 8: `{"m":[{"a": 1},"b",3.0,"d"]}`, 12: `{"no": "lists"}`,
	} {
		if got, err := wholeRecord(t, *log, at); err != nil || got != want {
			t.Errorf("record %v: got %s, %v, want %s", at, got, err, want)
		}
	}
	for at, want := range map[events.Offset]string{9: `lists turns 0 to 1 of thread "n", which has 0`, 11: `lists turn 4 of thread "m", which is no JSON`} {
		_, err := wholeRecord(t, *log, at)
		if damage, ok := errors.AsType[*events.DamageError](err); !ok || damage.Offset != at || !strings.Contains(err.Error(), want) {
			t.Errorf("record %v: got %v, want %s", at, err, want)
		}
	}
	// Lists that cannot be resolved have no effect and are listed as rejected.
	s := mustFold(t, *log, s1)
	if v := s.Ledger.Rejected; len(v) != 1 || v[0].Offset != 9 || v[0].Reason != `lists turns up to 1 of thread "n", which has 0` || len(s.Ledger.Run(run).Results) != 1 {
		t.Errorf("rejected: got %+v, want @9", v)
	}
	// The inherited records of a fork are complete too.
	mustAddTo(t, log, s2, 20, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 8}})
	mustAddTo(t, log, s2, 21, &events.RunStarted{Run: run, Raw: events.Raw(`[]`), Lists: events.Lists{"": {{Thread: "m", From: 3, To: 4}}}})
	if got, err := wholeRecord(t, *log, 21); err != nil || got != `["d"]` {
		t.Errorf("in a fork: got %s, %v, want [\"d\"]", got, err)
	}
}

// A thread that only grew is a prefix of itself at every record that had it. A thread that was moved, cut or replaced
// is not.
func TestOnlyGrew(t *testing.T) {
	first, more := turnsOf("m", `1`, `2`, `3`), turnsOf("m", `4`)
	for name, c := range map[string]struct {
		then []events.Payload
		want bool
	}{
		"grew":      {[]events.Payload{more, turnsOf("n", `1`)}, true},
		"pinned":    {[]events.Payload{&events.ThreadPinned{Thread: "m", Pins: map[int]bool{1: true}}, more}, true},
		"rewound":   {[]events.Payload{more, &events.SessionRewound{To: 1}}, false},
		"undone":    {[]events.Payload{more, &events.SessionRewound{To: 1}, &events.SessionRewound{To: 2, Undoes: 3}}, true},
		"cut":       {[]events.Payload{&events.ThreadTruncated{Lengths: map[string]int{"m": 2}, Reason: "x"}, more}, false},
		"gone":      {[]events.Payload{&events.ThreadTruncated{Lengths: map[string]int{"m": 0}, Reason: "x"}}, false},
		"kept part": {[]events.Payload{&events.ThreadReplaced{Others: "keep", Reason: "x", Threads: map[string]events.Replacement{"m": {Items: []events.Item{{Keep: &[2]int{1, 3}}}}}}}, false},
		"kept all":  {[]events.Payload{&events.ThreadReplaced{Others: "keep", Reason: "x", Threads: map[string]events.Replacement{"m": {Items: []events.Item{{Keep: &[2]int{0, 3}}}}}}}, true},
		"replaced":  {[]events.Payload{&events.ThreadReplaced{Others: "keep", Reason: "x", Threads: map[string]events.Replacement{"m": {Items: []events.Item{{Turn: events.Raw(`1`)}}}}}}, false},
	} {
		log := &testkit.Records{}
		for i, p := range append([]events.Payload{first}, c.then...) {
			mustAddTo(t, log, s1, events.Offset(i+1), p)
		}
		o, err := (&projector.Loader{Source: log}).Outline(t.Context(), s1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if have := o.OnlyGrew("m"); have != c.want {
			t.Errorf("%s: OnlyGrew is %v, want %v", name, have, c.want)
		}
	}
}

func TestListsGiveTheBytesBack(t *testing.T) {
	value := rapid.SampledFrom([]string{`{"role":"user","content":"a"}`, `1.0`, `"\u2028"`, `[]`, `{"messages":[]}`, `null`, `{ "a" : [ ] }`})
	rapid.Check(t, func(rt *rapid.T) {
		log := &testkit.Records{}
		at, threads, counts := events.Offset(0), []string{"main", "run/1", "run/1/2"}, make(map[string]int)
		var raw, stored strings.Builder
		lists := make(events.Lists)
		raw.WriteString(`{"type":"t"`)
		stored.WriteString(`{"type":"t"`)
		for i := range rapid.IntRange(0, 4).Draw(rt, "lists") {
			var turns []string
			var pieces []events.Piece
			for range rapid.IntRange(0, 3).Draw(rt, "pieces") {
				name := rapid.SampledFrom(threads).Draw(rt, "thread")
				more := rapid.SliceOfN(value, 1, 3).Draw(rt, "turns")
				at++
				mustAddTo(t, log, s1, at, turnsOf(name, more...))
				pieces = append(pieces, events.Piece{Thread: name, From: counts[name], To: counts[name] + len(more)})
				counts[name] += len(more)
				turns = append(turns, more...)
			}
			fmt.Fprintf(&raw, `, "l%d":{"messages":[%s]}`, i, strings.Join(turns, ","))
			fmt.Fprintf(&stored, `, "l%d":{"messages":[]}`, i)
			lists[fmt.Sprintf("/l%d/messages", i)] = pieces
		}
		raw.WriteString(` }`)
		stored.WriteString(` }`)
		at++
		mustAddTo(t, log, s1, at, &events.CheckpointSaved{ID: "c", Kind: "step", Raw: events.Raw(stored.String()), Lists: lists})
		if rapid.Bool().Draw(rt, "rewound since") && at > 1 {
			mustAddTo(t, log, s1, at+1, &events.SessionRewound{To: 1})
		}
		if got, err := wholeRecord(t, *log, at); err != nil || got != raw.String() {
			rt.Fatalf("got %s, %v, want %s", got, err, raw.String())
		}
	})
}
