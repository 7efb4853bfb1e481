package catalog

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// saidTurn is a turn of these tests: the JSON of its content.
type saidTurn struct {
	Model, Response string
	Tokens          events.Tokens
	Tools           []projector.ToolUse
}

func (s saidTurn) raw() events.Raw {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return raw
}

func saidOf(t projector.Turn) projector.Said {
	var s saidTurn
	if err := json.Unmarshal(t.Raw, &s); err != nil {
		return projector.Said{}
	}
	roles := "user"
	if s.Model == "m" {
		roles = "assistant"
	}
	return projector.Said{Roles: roles, Text: string(t.Raw), Model: s.Model, Response: s.Response, Usage: s.Tokens, Tools: s.Tools}
}

// drawSaid draws a turn from a few models, responses and calls, so that they repeat.
func drawSaid(t *rapid.T) saidTurn {
	s := saidTurn{Model: rapid.SampledFrom([]string{"", "m", "n"}).Draw(t, "model"), Response: rapid.SampledFrom([]string{"", "", "chatcmpl-7", idR, idQ}).Draw(t, "response")}
	if rapid.Bool().Draw(t, "usage") {
		s.Tokens = events.Tokens{Input: rapid.Int64Range(0, 3).Draw(t, "in"), Output: rapid.Int64Range(0, 2).Draw(t, "out"), CacheRead: 1}
	}
	for range rapid.IntRange(0, 2).Draw(t, "calls") {
		s.Tools = append(s.Tools, projector.ToolUse{Tool: rapid.SampledFrom([]string{"read", "write"}).Draw(t, "tool"),
			Call: rapid.SampledFrom([]string{"", "c1", "c2"}).Draw(t, "call"), Error: rapid.IntRange(0, 2).Draw(t, "error") == 0})
	}
	return s
}

// spacing is the difference of two offsets in an activityLog. So there are several blocks of a strip.
const spacing = 10

// activityLog draws a log of turns, replacements, rewinds and costs in three sessions.
func activityLog() *rapid.Generator[testkit.Records] {
	return rapid.Custom(func(t *rapid.T) testkit.Records {
		var list testkit.Records
		for at := events.Offset(1); at <= events.Offset(rapid.IntRange(1, 25).Draw(t, "records")); at++ {
			e, err := events.New("urn:test", events.Session("", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "session")), drawActivity(t))
			must(t, err)
			e.ID, e.Time = fmt.Sprintf("event-%d", at), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "hours"))*time.Hour)
			list = append(list, events.Record{Event: e, Offset: at * spacing, Recorded: e.Time})
		}
		return list
	})
}

func drawActivity(t *rapid.T) events.Payload {
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		p := &events.CostAccrued{Model: rapid.SampledFrom([]string{"m", "m", "n"}).Draw(t, "of model"), Purpose: "run", Source: rapid.SampledFrom([]string{"reported", "computed"}).Draw(t, "source"),
			USD: rapid.SampledFrom([]events.Amount{"", "0.5"}).Draw(t, "usd"), Tokens: &events.Tokens{Input: 7}}
		p.Response = rapid.SampledFrom([]string{"", "chatcmpl-7", idR}).Draw(t, "response")
		p.Tokens.Output = rapid.Int64Range(0, 2).Draw(t, "output")
		if rapid.Bool().Draw(t, "of a run") {
			p.Run = &events.RunRef{Kind: "k", ID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "run")}
		}
		return p
	case 1:
		return &events.SessionRewound{To: 1}
	case 2:
		return &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Turn: drawSaid(t).raw()}}}}, Reason: "save", Others: "keep"}
	}
	p := &events.TurnAppended{}
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		p.Entries = append(p.Entries, events.Entry{Thread: rapid.SampledFrom([]string{"main", "aside"}).Draw(t, "thread"), Turn: drawSaid(t).raw()})
	}
	return p
}

// toldTurn is a turn of a log. In the order of beats, later turns take precedence.
type toldTurn struct {
	saidTurn
	sub    events.Subject
	offset events.Offset
	thread string
	index  int
	day    string
	again  bool
}

func (a toldTurn) beats(b toldTurn) bool {
	less := func(x, y toldTurn) bool {
		return fmt.Sprintf("%06d %06d %s %06d", x.Tokens.Output, x.offset, x.thread, x.index) < fmt.Sprintf("%06d %06d %s %06d", y.Tokens.Output, y.offset, y.thread, y.index)
	}
	return less(b, a)
}

func toldTurns(records testkit.Records) (list []toldTurn) {
	for _, rec := range records {
		f := projector.Decode(rec)
		brought := f.Brings()
		for name, th := range brought {
			for _, t := range th.Turns {
				var s saidTurn
				_ = json.Unmarshal(t.Raw, &s)
				list = append(list, toldTurn{s, rec.Subject, rec.Offset, name, t.Index, rec.Time.UTC().Format(time.DateOnly), f.Type == events.TypeThreadReplaced})
			}
		}
	}
	slices.SortFunc(list, func(a, b toldTurn) int {
		return strings.Compare(fmt.Sprintf("%06d %s %06d", a.offset, a.thread, a.index), fmt.Sprintf("%06d %s %06d", b.offset, b.thread, b.index))
	})
	return list
}

// naiveUsages computes the counting usages from the definition, one line each.
func naiveUsages(records testkit.Records) (lines []string) {
	billed := make(map[string]bool)
	type cost struct {
		events.Record
		*events.CostAccrued
	}
	var costs []cost
	for _, rec := range records {
		if p, ok := projector.Decode(rec).Payload.(*events.CostAccrued); ok {
			costs = append(costs, cost{rec, p})
		}
	}
	for _, c := range costs {
		first, counts := c, true
		for _, o := range costs {
			if !events.IsUnique(c.Response) || o.Response != c.Response || o.Model != c.Model {
				continue
			}
			billed[c.Response] = true
			if o.Offset < first.Offset {
				first = o
			}
			if o.Tokens.Output > c.Tokens.Output || o.Tokens.Output == c.Tokens.Output && o.Offset > c.Offset {
				counts = false
			}
		}
		if counts {
			lines = append(lines, fmt.Sprint(first.Subject.ID, c.Offset, first.Offset, c.CostAccrued.Source, c.Time.UTC().Format(time.DateOnly), c.Model, c.Response, first.Run, c.USD, *c.Tokens))
		}
	}
	turns := toldTurns(records)
	for _, a := range turns {
		unique := events.IsUnique(a.Response)
		counts := a.Tokens != (events.Tokens{}) && !billed[a.Response]
		for _, b := range turns {
			if unique && b.Response == a.Response && b.Tokens != (events.Tokens{}) && b.beats(a) {
				counts = false
			}
			if !unique && a.Response != "" && a.again && b.sub == a.sub && b.Response == a.Response && b.Model == a.Model && b.Tokens == a.Tokens && a.beats(b) {
				counts = false
			}
		}
		for _, c := range costs {
			if !unique && a.Response != "" && c.Response == a.Response && c.Subject == a.sub {
				counts = false
			}
		}
		if counts {
			lines = append(lines, fmt.Sprint(a.sub.ID, a.offset, a.offset, InTurn, a.day, a.Model, a.Response, (*events.RunRef)(nil), "", a.Tokens))
		}
	}
	slices.Sort(lines)
	return lines
}

// naiveCalls computes the counting calls, and which of them failed, from the definition.
func naiveCalls(records testkit.Records) (lines []string) {
	type call struct {
		toldTurn
		projector.ToolUse
		failed bool
	}
	var counted []*call
	for _, turn := range toldTurns(records) {
		for _, use := range turn.Tools {
			if !use.Error {
				same := func(c *call) bool {
					unique := events.IsUnique(turn.Response)
					return use.Call != "" && c.Call == use.Call && events.IsUnique(c.Response) == unique && (unique && c.Response == turn.Response || !unique && c.sub == turn.sub)
				}
				if !slices.ContainsFunc(counted, same) {
					counted = append(counted, &call{toldTurn: turn, ToolUse: use})
				}
				continue
			}
			for _, c := range slices.Backward(counted) {
				if use.Call != "" && c.Call == use.Call && c.sub == turn.sub {
					c.failed = true
					break
				}
			}
		}
	}
	for _, c := range counted {
		lines = append(lines, fmt.Sprint(c.sub.ID, c.offset, c.day, c.Model, c.Tool, c.failed))
	}
	slices.Sort(lines)
	return lines
}

func naiveDays(records testkit.Records) (lines []string) {
	counts := make(map[string]int)
	for _, t := range toldTurns(records) {
		counts[fmt.Sprint(t.sub.ID, " ", t.day, " ", t.Model)]++
	}
	for key, n := range counts {
		lines = append(lines, fmt.Sprint(key, " ", n))
	}
	slices.Sort(lines)
	return lines
}

// shownBy returns the content of the view in a directory, in the format of the naive folds.
func shownBy(t *rapid.T, dir string) (usages, calls, days []string) {
	a, err := OpenActivity(t.Context(), dir)
	must(t, err)
	defer a.Close()
	of := make(map[string][]string)
	for u, err := range a.Usages(t.Context(), "default", nil) {
		must(t, err)
		line := fmt.Sprint(u.Session, u.Offset, u.CountsAt(), u.Source, u.Day, u.Model, u.Response, u.Run, u.USD, u.Tokens)
		usages, of[u.Session] = append(usages, line), append(of[u.Session], line)
	}
	some := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "none"}), rapid.ID).Draw(t, "some")
	var got, want []string
	for u, err := range a.UsagesOf(t.Context(), "default", nil, some...) {
		must(t, err)
		got = append(got, fmt.Sprint(u.Session, u.Offset, u.CountsAt(), u.Source, u.Day, u.Model, u.Response, u.Run, u.USD, u.Tokens))
	}
	for _, id := range some {
		want = append(want, of[id]...)
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Fatalf("of %q\n%s\nwant\n%s", some, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for c, err := range a.Calls(t.Context(), "default") {
		must(t, err)
		calls = append(calls, fmt.Sprint(c.Session, c.Offset, c.Day, c.Model, c.Tool, c.Failed))
	}
	turns := make(map[string]int)
	for d, err := range a.Days(t.Context(), "default") {
		must(t, err)
		turns[fmt.Sprint(d.Session, " ", d.Day, " ", d.Model)] += d.Turns
	}
	for key, n := range turns {
		days = append(days, fmt.Sprint(key, " ", n))
	}
	for _, list := range [][]string{usages, calls, days} {
		slices.Sort(list)
	}
	return usages, calls, days
}

// foldActivity makes the view of a log, with drawn commits and crashes, and perhaps folds a session again.
func foldActivity(t *rapid.T, records testkit.Records, dir string) {
	path := filepath.Join(dir, SearchFileName)
	s := newSearch(path, current, saidOf, nullLogger)
	cursor, _, err := s.Begin(t.Context())
	must(t, err)
	for i := 0; i < len(records); i++ {
		if records[i].Offset > cursor.Offset {
			must(t, s.Apply(t.Context(), projector.Decode(records[i])))
		}
		switch rapid.IntRange(0, 5).Draw(t, "then") {
		case 0:
			commitSearch(t, s, records[i])
		case 1: // uncommitted changes are lost
			must(t, s.Close())
			s = newSearch(path, current, saidOf, nullLogger)
			cursor, _, err = s.Begin(t.Context())
			must(t, err)
			i = int(cursor.Offset)/spacing - 1
		}
	}
	last := records[len(records)-1]
	commitSearch(t, s, last)
	if rapid.Bool().Draw(t, "again") {
		must(t, s.Forget(t.Context(), last.Subject))
		for _, rec := range records.Of(last.Subject) {
			must(t, s.Apply(t.Context(), projector.Decode(rec)))
		}
		commitSearch(t, s, last)
	}
	must(t, s.Close())
}

// The view equals the result of the definitions on the whole log, for any split into commits, any crash, and any
// session that is folded again.
func TestActivityAgreesWithTheLog(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := activityLog().Draw(t, "log"), temporary(t)
		foldActivity(t, records, dir)
		usages, calls, days := shownBy(t, dir)
		for _, c := range []struct {
			what      string
			got, want []string
		}{{"usage", usages, naiveUsages(records)}, {"calls", calls, naiveCalls(records)}, {"days", days, naiveDays(records)}} {
			if !slices.Equal(c.got, c.want) {
				t.Fatalf("%s: got\n%s\nwant\n%s", c.what, strings.Join(c.got, "\n"), strings.Join(c.want, "\n"))
			}
		}
	})
}

// B-11: Ollama draws chat ids from 999 numbers. Each of 1,200 responses counts, in one session and in many. A second
// import, which is a copy, does not count and is reported.
func TestDrawnIDsSwallowNothing(t *testing.T) {
	for _, sessions := range []int{1, 40} {
		t.Run(fmt.Sprintf("B-11 1,200 responses in %d sessions", sessions), func(t *testing.T) { drawnIDs(t, sessions) })
	}
}

func drawnIDs(t *testing.T, sessions int) {
	s := NewSearch(t.TempDir(), saidOf, nullLogger)
	_, _, err := s.Begin(t.Context())
	must(t, err)
	add := func(at int, session, id string) {
		p := &events.CostAccrued{Model: "llama", USD: "0.000188", Tokens: &events.Tokens{Input: 10, Output: 5}, Response: id, Purpose: "run", Source: "reported"}
		must(t, s.Apply(t.Context(), projector.Decode(record(t, events.Session("", session), events.Offset(at), p))))
	}
	for i := range 1200 {
		add(i+1, fmt.Sprint("s", i%sessions), fmt.Sprint("chatcmpl-", i*7919%999))
	}
	add(1201, "s0", idR)
	add(1202, "copy", idR)
	must(t, s.Commit(t.Context(), projector.Cursor{Offset: 1202, EventID: "e"}))
	must(t, s.Close())
	a, err := OpenActivity(t.Context(), filepath.Dir(s.path))
	must(t, err)
	total := projector.Total{USD: "0"}
	var copies []Copy
	for u, err := range a.Usages(t.Context(), "default", func(c Copy) { copies = append(copies, c) }) {
		must(t, err)
		total = total.Plus(projector.Cost{USD: u.USD, Tokens: u.Tokens})
	}
	if total.USD != "0.225788" || total.Events != 1201 { // 0.2256 plus that of s0
		t.Errorf("%d sessions: %+v", sessions, total)
	}
	if len(copies) != 1 || copies[0].Session != "copy" || copies[0].Of != "s0" || copies[0].USD != "0.000188" {
		t.Errorf("%d sessions: copies %+v", sessions, copies)
	}
	must(t, a.Close())
}

func commitSearch(t *rapid.T, s *Search, last events.Record) {
	must(t, s.Commit(t.Context(), projector.Cursor{Offset: last.Offset, EventID: last.ID}))
}

// A quarantined subject contributes nothing to a commit; other subjects do.
func TestActivityInQuarantine(t *testing.T) {
	a, b := events.Session("", "a"), events.Session("", "b")
	turn := saidTurn{Model: "m", Tokens: events.Tokens{Output: 1}, Tools: []projector.ToolUse{{Tool: "read"}}}.raw()
	s := NewSearch(t.TempDir(), saidOf, nullLogger)
	defer s.Close()
	_, _, err := s.Begin(t.Context())
	must(t, err)
	for at, sub := range []events.Subject{a, b} {
		rec := record(t, sub, events.Offset(at+1), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: turn}}})
		must(t, s.Apply(t.Context(), projector.Decode(rec)))
	}
	s.Quarantine(projector.Quarantine{Subject: a, Offset: 1, Reason: "a test"})
	must(t, s.Commit(t.Context(), projector.Cursor{Offset: 2, EventID: "event-2"}))
	for _, table := range activityTables {
		var n int
		var session string
		must(t, s.conn.QueryRowContext(t.Context(), "SELECT count(*), max(session) FROM "+table).Scan(&n, &session))
		if n != 1 || session != "b" {
			t.Errorf("%s has %d rows, the last of session %s", table, n, session)
		}
	}
}

// Turns are unchecked input: implausible token counts do not count.
func TestActivityOfOddTokens(t *testing.T) {
	for _, tokens := range []events.Tokens{{Input: -1, Output: 5}, {Output: 1<<53 + 1}, {CacheWrite: -9}} {
		if isCount(tokens) {
			t.Errorf("%+v is accepted as a count", tokens)
		}
	}
	if !isCount(events.Tokens{Input: 1 << 53}) {
		t.Error("2^53 is refused")
	}
}

// The day of a turn is from its own time, else from its event. Both are UTC days.
func TestDayOf(t *testing.T) {
	f := projector.Fact{Record: events.Record{Event: events.Event{Time: time.Date(2026, 3, 1, 23, 30, 0, 0, time.FixedZone("", -3600))}}}
	for own, want := range map[events.Timestamp]string{"": "2026-03-02", "2026-01-01T01:00:00+02:00": "2025-12-31", "soon": "2026-03-02"} {
		if got := dayOf(timeOf(projector.Turn{Timestamp: own}, f)); got != want {
			t.Errorf("%q: got %s, want %s", own, got, want)
		}
	}
}
