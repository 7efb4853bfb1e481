package projector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

func TestParsePosition(t *testing.T) {
	for _, text := range []string{"", "head", "start", "@0", "@1", "@00000000000000000012", "@9007199254740991", "#1", "#12", "~0", "~3", "gpt-5#3", "a#b#2", "a~b~2", "head#1",
		"-x#1", "2026-08-22T10:00Z", "2026-08-22T10:00:00.123456789+02:00", "2026-08-22", "2026-08-22T10:00", "2026-08-22 10:00:07", "2026-08-22 10:00Z", "-10m", "-1h30m", "-0s", "e:0198c2", "e:a#1 bc"} {
		p, err := projector.ParsePosition(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if want := text; p.String() != want && (want != "" || p.String() != "head") {
			t.Errorf("String of position %q is %q", text, p.String())
		}
	}
	for _, text := range []string{"@", "@x", "@-1", "@9007199254740992", "@@1", "#", "#0", "#-1", "#x", "~", "~-1", "~x", "x#", "HEAD", "Start", "12", "e:", "e:12345", "-", "-10", "-x",
		"--10m", "-10m -5m", "2026-13-01", "2026-08-22 ", "2026-08-22  10:00", "10:00", "#99999999999999999999", "yesterday", " head"} {
		_, err := projector.ParsePosition(text)
		if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Reason == "" {
			t.Errorf("%q: got %v, want an *InvalidError", text, err)
		}
	}
}

// FuzzParsePosition: every parsed position resolves in any session to one of its records, to the beginning, or to
// ErrNotFound.
func FuzzParsePosition(f *testing.F) {
	for _, text := range []string{"", "start", "@5", "#2", "main~1", "gpt#1", "2026-01-01T00:00:04Z", "2026-01-01 00:00:04.5", "2026-01-01", "-2s", "e:event-4", "-", "e:eventx"} {
		f.Add(text)
	}
	st := &story{}
	for _, p := range []events.Payload{created(), aTurn("one"), aTurn("two"), aTurn("three"), &events.SessionRewound{To: 3}} {
		data, err := events.Encode(p)
		if err != nil {
			f.Fatal(err)
		}
		st.event(events.Event{Source: "urn:test", Type: p.EventType(), Subject: s1, Data: data})
	}
	l := &projector.Loader{Source: st.records}
	s, err := l.Session(f.Context(), s1, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := projector.ParsePosition(text)
		if err != nil {
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Fatalf("%q: got %v, want an *InvalidError", text, err)
			}
			return
		}
		at, err := l.Resolve(t.Context(), s, p)
		if err != nil && !errors.Is(err, projector.ErrNotFound) || err == nil && at > 5 {
			t.Fatalf("%q: got %v, %v", text, at, err)
		}
	})
}

// The positions of a session with two threads, several turns in one event, a
// rewind, and a clock that runs backwards.
func TestResolve(t *testing.T) {
	st := &story{t: t}
	at := func(clock string, sub events.Subject, p events.Payload) {
		t.Helper()
		e, err := events.New("urn:test", sub, p)
		if err != nil {
			t.Fatal(err)
		}
		if clock != "" {
			if e.Time, err = time.Parse("15:04", clock); err != nil {
				t.Fatal(err)
			}
			e.Time = e.Time.AddDate(2026, 7, 21)
		}
		e.ID = fmt.Sprintf("0198c2-%d", len(st.records)+1)
		st.event(e)
	}
	entries := func(list ...string) *events.TurnAppended {
		p := &events.TurnAppended{}
		for _, text := range list {
			thread, turn, _ := strings.Cut(text, " ")
			p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: events.Raw(`"` + turn + `"`)})
		}
		return p
	}
	at("10:00", s1, created())                                                           // @1
	at("10:01", s1, entries("main a", "gpt-5 a"))                                        // @2
	at("10:05", s1, entries("main b", "main c"))                                         // @3
	at("10:02", s2, created())                                                           // @4
	at("10:03", s1, entries("main gone"))                                                // @5
	at("10:04", s1, &events.SessionRewound{To: 4})                                       // @6
	at("10:10", s1, entries("main d", "odd#name x"))                                     // @7
	at("10:07", s1, &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported"}) // @8
	for text, want := range map[string]string{
		"": "@8", "head": "@8", "start": "@0", "@0": "@0",
		"@1": "@1", "@2": "@2", "@4": "@3", "@6": "@6", "@99": "@8",
		"#1": "@2", "#2": "@3", "#3": "@3", "#4": "@7", "main#4": "@7", "gpt-5#1": "@2", "odd#name#1": "@7",
		"#5": "thread main has 4 turns", "gpt-5#2": "thread gpt-5 has 1 turns", "nobody#1": "it has no thread nobody, only main, gpt-5, odd#name",
		"~0": "@8", "~1": "@3", "~2": "@2", "~3": "@2", "~4": "@1", "gpt-5~1": "@1", "~5": "thread main has 4 turns", "nobody~0": "@8", "nobody~1": "it has no thread nobody, only main, gpt-5, odd#name",
		"2026-08-22T10:00Z": "@1", "2026-08-22T10:00:59.999Z": "@1", "2026-08-22T12:01+02:00": "@2", "2026-08-22T10:04": "@2",
		"2026-08-22T10:05": "@6", "2026-08-22T10:09": "@6", "2026-08-22T10:10": "@8", "2027-01-01": "@8",
		"2026-08-22": "@8", "2026-08-21": "its records are all later", "2026-08-22 10:04:59": "@2", "2026-08-22 10:05Z": "@6", "2026-08-22T09:59": "its records are all later",
		"-0s": "@8", "-1s": "@6", "-5m": "@6", "-5m1s": "@2", "-10m": "@1", "-11m": "its records are all later",
		"e:0198c2-7": "@7", "e:0198c2": "the ids of 7 events begin like this", "e:0198c2-4": "no event has such an id", "e:0198c3": "no event has such an id",
	} {
		l := &projector.Loader{Source: st.records}
		got, err := resolve(t.Context(), l, mustSession(t, l, s1, 0), text)
		if err != nil {
			position, ok := errors.AsType[*projector.PositionError](err)
			if !ok || !errors.Is(err, projector.ErrNotFound) || position.Reason != want || position.Subject != s1 {
				t.Errorf("%q: got %v, want %s", text, err, want)
			}
		} else if got.String() != want {
			t.Errorf("%q: got %v, want %s", text, got, want)
		}
	}
}

// said appends turns of main with their own times. The producer's clock of the event shows another time.
func (st *story) said(clock string, times ...string) {
	p := &events.TurnAppended{}
	for _, at := range times {
		e := events.Entry{Thread: "main", Turn: events.Raw(`"x"`)}
		if at != "" {
			e.Timestamp = events.Timestamp("2026-08-22T" + at)
		}
		p.Entries = append(p.Entries, e)
	}
	st.clocked(clock, p)
}

func (st *story) clocked(clock string, p events.Payload) {
	st.t.Helper()
	e, err := events.New("urn:test", s1, p)
	if err == nil {
		e.Time, err = time.Parse(time.RFC3339, "2026-08-22T"+clock+"Z")
	}
	if err != nil {
		st.t.Fatal(err)
	}
	st.event(e)
}

func mustResolve(t *testing.T, st *story, list map[string]string) {
	t.Helper()
	l := &projector.Loader{Source: st.records}
	for text, want := range list {
		got, err := resolve(t.Context(), l, mustSession(t, l, s1, 0), text)
		position, missing := errors.AsType[*projector.PositionError](err)
		switch {
		case missing && position.Reason != want, !missing && (err != nil || got.String() != want):
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

// A time refers to the turns. A later creation time of the session, as in files of the original evals store, and the
// events of runs do not affect it.
func TestResolveTimeOfTurns(t *testing.T) {
	st := &story{t: t}
	st.clocked("15:17:31", created())                                                                             // @1
	st.said("15:17:31", "14:45:57.250Z")                                                                          // @2
	st.said("15:17:32", "14:46:09Z", "14:46:28.5Z")                                                               // @3
	st.clocked("16:00:00", &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}}}) // @4
	st.said("15:17:33", "16:46:57+02:00", "")                                                                     // @5
	st.clocked("14:46:00", &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported"})                   // @6
	st.clocked("18:00:00", &events.CostAccrued{Model: "m", Purpose: "run", Source: "reported"})                   // @7
	mustResolve(t, st, map[string]string{
		"2026-08-22T14:45": "@2", "2026-08-22T14:45:56": "its records are all later",
		"2026-08-22T14:45:57": "@2", "2026-08-22T14:45:57.2": "@2", "2026-08-22T14:45:57.25": "@2", "2026-08-22T14:45:57.24": "its records are all later", // as printed, at any precision
		"2026-08-22T14:46:09": "@2", "2026-08-22T14:46:28": "@3", "2026-08-22 14:46:28": "@3", // both turns of an event or neither
		"2026-08-22T14:46:57Z": "@6", "2026-08-22T16:46:57+02:00": "@6", "2026-08-22T17:59": "@6", "2026-08-22T18:00": "@7",
		"-0s": "@6", "-28s": "@3", "-59s": "@2", "-2m": "its records are all later",
	})
}

// A late arrival is grouped with the record before it. The state at a time shows nothing later, and a rewind that came
// afterwards does not hide its turns.
func TestResolveTimeOfLateTurns(t *testing.T) {
	st := &story{t: t}
	st.said("10:00:00", "10:00:00Z")                      // @1
	st.said("10:05:00", "10:05:00Z")                      // @2
	st.said("10:06:00", "10:02:00Z")                      // @3, arrived late
	st.clocked("10:10:00", &events.SessionRewound{To: 1}) // @4
	st.said("10:08:00", "10:08:00Z")                      // @5
	mustResolve(t, st, map[string]string{"2026-08-22T10:00": "@1", "2026-08-22T10:02": "@1", "2026-08-22T10:04": "@1", "2026-08-22T10:05": "@3", "2026-08-22T10:08": "@3", "2026-08-22T10:10": "@5", "-0s": "@5", "-1s": "@3"})
}

// A turn whose value is lost has no time, so the time of its event counts.
func TestResolveTimeOfLostTurn(t *testing.T) {
	st := &story{t: t}
	st.said("10:00:00", "09:00:00Z")
	st.said("10:01:00", "09:01:00Z")
	l := &projector.Loader{Source: st.records}
	s := mustSession(t, l, s1, 0)
	lost := st.records[1].Event
	lost.Data, lost.Extensions = nil, map[string]string{events.ExtDataRef: events.BlobRef(strings.Repeat("0", 64))}
	st.records[1].Event = lost
	for text, want := range map[string]events.Offset{"2026-08-22T09:01": 1, "2026-08-22T10:01": 2} {
		if at, err := resolve(t.Context(), &projector.Loader{Source: st.records}, s, text); err != nil || at != want {
			t.Errorf("%s: got %v, %v, want %v", text, at, err, want)
		}
	}
}

// Without main, positions refer to the only thread. With several threads, ~n removes the last turns of the log, and the
// error for #n names the threads.
func TestResolveWithoutMain(t *testing.T) {
	entry := func(thread string) *events.TurnAppended {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: thread, Turn: events.Raw(`"x"`)}}}
	}
	st := &story{t: t}
	st.add(s1, created())
	mustResolve(t, st, map[string]string{"#1": "it has no turns", "~1": "it has no turns", "~0": "@1", "x#1": "it has no turns"})
	st.add(s1, entry("agent-1")) // @2
	st.add(s1, entry("agent-1")) // @3
	mustResolve(t, st, map[string]string{"#1": "@2", "#2": "@3", "#3": "thread agent-1 has 2 turns", "~1": "@2", "~2": "@1", "~3": "thread agent-1 has 2 turns", "main#1": "it has no thread main, only agent-1"})
	st.add(s1, entry("agent-0"))                                                                                                                      // @4
	st.add(s1, &events.TurnAppended{Entries: []events.Entry{{Thread: "agent-0", Turn: events.Raw(`1`)}, {Thread: "agent-1", Turn: events.Raw(`1`)}}}) // @5
	hint := "it has no thread main but agent-0, agent-1: say which, as in agent-0#1"
	mustResolve(t, st, map[string]string{"#1": hint, "agent-0#1": "@4", "agent-1#3": "@5",
		"~1": "@4", "~2": "@4", "~3": "@3", "~4": "@2", "~5": "@1", "~6": "its threads have 5 turns", "agent-1~1": "@4", "agent-0~2": "@3", "~0": "@5"})
	for i := range 9 {
		st.add(s1, entry(fmt.Sprintf("b%d", i)))
	}
	mustResolve(t, st, map[string]string{"main~1": "it has no thread main, only agent-0, agent-1, b0, b1, b2, b3, b4, b5 and 3 more", "~9": "@5", "~10": "@4"})
	st.add(s1, entry("main")) // from now on positions refer to main
	mustResolve(t, st, map[string]string{"#1": "@15", "~1": "@14", "~2": "thread main has 1 turns"})
}

// Positions of turns and times agree with the model of their definition.
func TestResolveFollowsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		rec := drawRecord(t, log)
		l := &projector.Loader{Source: log}
		s, m := mustLoad(t, l, rec.Subject, rec.Offset), modelOf(log, rec.Subject.ID, rec.Offset)
		thread, n := rapid.SampledFrom([]string{"", "", "main", "gpt-5", "inbox"}).Draw(t, "thread"), rapid.IntRange(0, 6).Draw(t, "n")
		until := time.Date(2026, 1, 1, 0, 0, rapid.IntRange(-60, 2000).Draw(t, "until"), 0, time.UTC)
		for text, want := range map[string]events.Offset{
			fmt.Sprintf("%s~%d", thread, n):   m.without(thread, n),
			fmt.Sprintf("%s#%d", thread, n+1): m.turn(thread, n+1),
			until.Format(time.RFC3339):        m.asOf(until),
		} {
			got, err := resolve(t.Context(), l, s, text)
			if err != nil && (want != 0 || !errors.Is(err, projector.ErrNotFound)) || err == nil && got != want {
				t.Fatalf("%s: got %v, %v, want %v", text, got, err, want)
			}
		}
	})
}

// An id that is the beginning of another names its own event.
func TestResolveWholeID(t *testing.T) {
	st := &story{t: t}
	for range 12 {
		st.add(s1, aTurn("x"))
	}
	l := &projector.Loader{Source: st.records}
	for text, want := range map[string]events.Offset{"e:event-1": 1, "e:event-12": 12, "e:event-9": 9} {
		if got, err := resolve(t.Context(), l, mustSession(t, l, s1, 0), text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

// If the producer sent no time, the log's time counts.
func TestResolveTimeOfLog(t *testing.T) {
	st := &story{t: t}
	for range 5 {
		st.add(s1, aTurn("x")) // recorded a second after the previous one
	}
	l := &projector.Loader{Source: st.records}
	for text, want := range map[string]events.Offset{"-2s": 3, "2026-01-01T00:00:04Z": 4} {
		if got, err := resolve(t.Context(), l, mustSession(t, l, s1, 0), text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

// At ~n, none of the left-out turns is in effect, even if a compaction kept turns in another order.
func TestResolveWithoutKeptTurns(t *testing.T) {
	st := &story{t: t}
	st.add(s1, created())
	for _, text := range []string{"a", "b", "c", "d"} { // @2 to @5
		st.add(s1, aTurn(text))
	}
	st.add(s1, &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Turn: events.Raw(`"sum"`)}, {Keep: &[2]int{3, 4}}, {Keep: &[2]int{1, 2}}}}},
		Others: "keep", Reason: "compact"}) // @6: sum d@5 b@3
	st.add(s1, aTurn("e")) // @7
	l := &projector.Loader{Source: st.records}
	s := mustSession(t, l, s1, 0)
	turns := s.Threads.Turns("main")
	for n, want := range map[string]events.Offset{"~1": 6, "~2": 2, "~3": 2, "~4": 2, "#1": 6, "#2": 5, "#3": 3, "#4": 7} {
		at, err := resolve(t.Context(), l, s, n)
		if err != nil || at != want {
			t.Errorf("%s: got %v, %v, want %v", n, at, err, want)
			continue
		}
		if n[0] == '#' {
			continue
		}
		there := mustSession(t, l, s1, at).Threads
		leaves, _ := projector.ChangesOf(s.Threads, there)
		gone := make(map[int]bool)
		for _, l := range leaves {
			gone[l.Number] = true
		}
		for i := len(turns) - int(n[1]-'0'); i < len(turns); i++ {
			if !gone[i+1] {
				t.Errorf("at %s: turn %d is in effect, want it gone", n, i+1)
			}
		}
	}
}

// In a fork, positions of inherited records are valid too.
func TestResolveInFork(t *testing.T) {
	st := &story{t: t, records: tale(t)} // of s1: 1, 2, 4, then 5, which 6 rewound, and 7
	fork := events.Session("", "fork")
	st.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 7}}) // @8
	st.add(s1, aTurn("later"))
	st.add(fork, aTurn("own")) // @10
	l := &projector.Loader{Source: st.records}
	s := mustSession(t, l, fork, 0)
	for text, want := range map[string]string{
		"@1": "@1", "@3": "@2", "@5": "@4", "@6": "@4", "@7": "@7", "@9": "@8", "#1": "@2", "#3": "@7", "#4": "@10", "~1": "@8", "~2": "@4", "~4": "@1",
		"e:event-4": "@4", "e:event-5": "no event has such an id", "e:event-9": "no event has such an id", "2026-01-01T00:00:05Z": "@4", "-2s": "@8", "-5s": "@4",
	} {
		at, err := resolve(t.Context(), l, s, text)
		if position, ok := errors.AsType[*projector.PositionError](err); ok && position.Reason != want || !ok && at.String() != want {
			t.Errorf("%s: got %v, %v, want %s", text, at, err, want)
		}
	}
	o, err := l.Outline(t.Context(), fork, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[events.Offset]int{0: 0, 1: 0, 2: 1, 4: 2, 7: 3} {
		if past, err := o.Back(t.Context(), at); err != nil || past.Len("main") != want {
			t.Errorf("threads inherited up to %v: got %+v, %v, want %d turns", at, past, err, want)
		}
	}
}
