package testkit

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// History draws a random log of a few sessions, as several concurrent producers would write it: turns on several
// threads, replacements, truncations, pins, rewinds, undos and redos, forks of forks, stale producers, ledger events,
// and events that are rejected, invalid or of an unknown type. Offsets have gaps, clocks run backwards, and some turns
// have a time of their own.
func History() *rapid.Generator[Records] {
	return rapid.Custom(func(t *rapid.T) Records {
		g := &historian{t: t, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			g.step()
		}
		return g.records
	})
}

// historian draws one history.
type historian struct {
	t        *rapid.T
	records  Records
	sessions []string
	clock    time.Time
	at       events.Offset
}

var threadNames = []string{"main", "gpt-5", "inbox"}

func (g *historian) n(label string, from, to int) int {
	return rapid.IntRange(from, to).Draw(g.t, label)
}

func (g *historian) step() {
	if len(g.sessions) == 0 || len(g.sessions) < 5 && g.n("new", 0, 14) == 0 {
		g.create()
		return
	}
	id := rapid.SampledFrom(g.sessions).Draw(g.t, "session")
	switch op := g.n("op", 0, 29); {
	case op < 11:
		g.turn(id)
	case op < 14:
		g.add(id, g.replacement())
	case op < 16:
		g.add(id, g.truncation())
	case op < 17:
		g.add(id, &events.ThreadPinned{Thread: g.thread(), Pins: map[int]bool{g.n("pin", 0, 4): g.n("on", 0, 1) == 1}})
	case op < 23:
		g.add(id, g.rewind(id))
	case op < 25:
		g.add(id, g.checkpoint())
	case op < 28:
		g.ledger(id)
	case op < 29:
		g.raw(id, "com.example.something.happened", `{"free":true}`)
	default:
		g.raw(id, rapid.SampledFrom([]string{events.TypeTurnAppended, events.TypeSessionRewound, events.TypeCostAccrued}).Draw(g.t, "type"), rapid.SampledFrom([]string{`{"entries":7,"to":-1}`, `{"to":0}`}).Draw(g.t, "data"))
	}
}

// create creates a session, sometimes a fork of an older one.
func (g *historian) create() {
	id := fmt.Sprintf("s%d", len(g.sessions))
	if g.n("inbox", 0, 7) == 0 {
		id = "inbox/" + id
	}
	p := &events.SessionCreated{Kind: rapid.SampledFrom([]string{events.KindConversation, events.KindConversation, events.KindConversation, events.KindQueue}).Draw(g.t, "kind"), CreatedAt: "2026-01-01T00:00:00Z"}
	if len(g.sessions) > 0 && g.n("fork", 0, 2) > 0 {
		// The parent may be the session itself, or one that does not exist yet.
		parent := rapid.SampledFrom(append(slices.Clone(g.sessions), id, fmt.Sprintf("s%d", len(g.sessions)+1))).Draw(g.t, "parent")
		p.Fork = &events.Fork{Session: parent, Offset: events.Offset(g.n("at", 1, int(g.at)+1))}
	}
	g.sessions = append(g.sessions, id)
	if p.Fork == nil && g.n("implicit", 0, 3) == 0 {
		g.turn(id) // a session exists from its first event, whatever its type
		return
	}
	g.add(id, p)
}

func (g *historian) thread() string { return rapid.SampledFrom(threadNames).Draw(g.t, "thread") }

func (g *historian) entry() events.Raw {
	return events.Raw(fmt.Sprintf(`{"n": %d}`, len(g.records)))
}

// said returns the time of a turn, for some turns.
func (g *historian) said() events.Timestamp {
	if g.n("said", 0, 2) > 0 {
		return ""
	}
	return events.TimestampOf(g.clock.Add(time.Duration(g.n("before", -60, 600)) * -time.Second))
}

func (g *historian) turn(id string) {
	p := &events.TurnAppended{}
	for range g.n("entries", 1, 2) {
		p.Entries = append(p.Entries, events.Entry{Thread: g.thread(), Turn: g.entry(), Timestamp: g.said(), Pinned: g.n("pinned", 0, 5) == 0})
	}
	if g.n("pins", 0, 7) == 0 {
		p.Pins = map[string]map[int]bool{g.thread(): {g.n("index", 0, 3): true}}
	}
	if g.n("meta", 0, 9) == 0 {
		p.ThreadMeta = map[string]events.Raw{g.thread(): events.Raw(`{"m":1}`)}
	}
	e := g.event(id, p)
	if g.n("seen", 0, 1) == 1 {
		e = e.WithExtension(events.ExtBasis, events.Offset(g.n("seen at", 0, int(g.at)+1)).Padded())
	}
	g.append(e)
}

func (g *historian) replacement() events.Payload {
	p := &events.ThreadReplaced{Threads: map[string]events.Replacement{}, Reason: "save", Others: rapid.SampledFrom([]string{"keep", "drop"}).Draw(g.t, "others")}
	for range g.n("threads", 1, 2) {
		r := events.Replacement{Items: []events.Item{}}
		if g.n("keep", 0, 1) == 1 {
			from := g.n("from", 0, 2)
			r.Items = append(r.Items, events.Item{Keep: &[2]int{from, from + g.n("count", 0, 2)}})
		}
		for range g.n("items", 0, 2) {
			r.Items = append(r.Items, events.Item{Turn: g.entry(), Timestamp: g.said()})
		}
		p.Threads[g.thread()] = r
	}
	return p
}

func (g *historian) truncation() events.Payload {
	if g.n("all", 0, 9) == 0 {
		return &events.ThreadTruncated{Lengths: map[string]int{events.AllThreads: 0}, Reason: "clear"}
	}
	p := &events.ThreadTruncated{Lengths: map[string]int{}, Reason: "cut"}
	for range g.n("threads", 1, 2) {
		p.Lengths[g.thread()] = g.n("length", 0, 4)
	}
	return p
}

// rewind moves the head anywhere, or undoes an earlier rewind.
func (g *historian) rewind(id string) events.Payload {
	p := &events.SessionRewound{To: events.Offset(g.n("to", 1, int(g.at)+2))}
	if g.n("undo", 0, 2) > 0 {
		own := g.records.Of(events.Session("", id))
		for i := len(own) - 1; i >= 0; i-- {
			if own[i].Type == events.TypeSessionRewound && g.n("this one", 0, 1) == 0 {
				p.Undoes, p.To = own[i].Offset, max(own[i].Offset-1, 1)
				break
			}
		}
	}
	if p.Undoes == 0 && g.n("use", 0, 2) == 0 {
		p.Checkpoint = fmt.Sprintf("c%d", g.n("checkpoint", 0, 3))
	}
	return p
}

// lists returns lists of threads, some of them too long.
func (g *historian) lists() (events.Raw, events.Lists) {
	if g.n("lists", 0, 2) == 0 {
		return events.Raw(`{"type":"t","messages":[]}`), events.Lists{"/messages": {{Thread: g.thread(), From: g.n("from", 0, 1), To: g.n("to", 1, 4)}}}
	}
	return nil, nil
}

func (g *historian) checkpoint() events.Payload {
	if g.n("step", 0, 3) == 0 {
		raw, lists := g.lists()
		return &events.CheckpointSaved{ID: fmt.Sprintf("c%d", g.n("checkpoint", 0, 3)), Kind: events.CheckpointStep, Raw: raw, Lists: lists}
	}
	if g.n("clear", 0, 3) == 0 {
		return &events.CheckpointCleared{Kind: events.CheckpointRewind, Reason: "clear"}
	}
	return &events.CheckpointSaved{ID: fmt.Sprintf("c%d", g.n("checkpoint", 0, 3)), Kind: events.CheckpointRewind, At: events.Offset(g.n("at", 0, int(g.at)+1))}
}

func (g *historian) ledger(id string) {
	run := events.RunRef{Kind: "panel", ID: fmt.Sprintf("r%d", g.n("run", 0, 3))}
	note := "a note"
	fence := events.Offset(g.n("fence", 0, 1) * g.n("fence at", 0, int(g.at)+1))
	switch g.n("what", 0, 7) {
	case 5:
		g.add(id, &events.RunCreated{Run: run, Owner: "o", DueAt: "2026-01-01T00:00:00Z", Parent: &events.Lineage{Session: "s0", Run: "r"}, Setting: events.Raw("{}")})
	case 6:
		raw, lists := g.lists()
		g.add(id, &events.RunStarted{Run: run, Worker: "w", Attempt: int64(g.n("attempt", 0, 2)), LeaseUntil: 7, Raw: raw, Lists: lists})
	case 7:
		raw, lists := g.lists()
		g.add(id, &events.RunProgressed{Run: run, Kind: "k", Step: 3, State: &events.StateChange{To: fmt.Sprint(g.at)}, Fence: fence, Raw: raw, Lists: lists})
	case 0:
		g.add(id, &events.CostAccrued{Model: rapid.SampledFrom(threadNames).Draw(g.t, "model"), USD: events.Amount(fmt.Sprintf("0.%04d", g.n("usd", 0, 9999))),
			Tokens: &events.Tokens{Input: int64(g.n("in", 0, 1000)), Output: 7 + int64(g.n("out", 0, 2)), Reasoning: 3}, Run: &run, Purpose: "run", Source: "reported",
			Response: rapid.SampledFrom([]string{"", "", "one", "msg_01XFDUDYJgAACzvnptvVoYEL"}).Draw(g.t, "response")})
	case 1:
		g.add(id, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"ok": true}`), Fence: fence})
	case 2:
		g.add(id, &events.RunAnnotated{Run: run, Note: &note})
	case 3:
		g.add(id, &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}, {Name: "odd", Value: events.Raw(`null`)}}})
	default:
		g.add(id, &events.SessionCreated{Kind: events.KindPanel, CreatedAt: "2026-01-01T00:00:00Z"})
	}
}

func (g *historian) event(id string, p events.Payload) events.Event {
	e, err := events.New("urn:test", events.Session("", id), p)
	if err != nil {
		panic(fmt.Sprintf("testkit: %v", err))
	}
	return e
}

func (g *historian) add(id string, p events.Payload) { g.append(g.event(id, p)) }

func (g *historian) raw(id, typ, data string) {
	g.append(events.Event{Source: "urn:test", Type: typ, Subject: events.Session("", id), ContentType: events.ContentTypeJSON, Data: []byte(data)})
}

// append assigns the event's offset, sometimes behind a gap.
func (g *historian) append(e events.Event) {
	g.at += events.Offset(1 + g.n("gap", 0, 2)/2)
	g.clock = g.clock.Add(time.Duration(g.n("seconds", -30, 90)) * time.Second)
	e.ID, e.Time = fmt.Sprintf("event-%d", g.at), g.clock
	g.records = append(g.records, events.Record{Event: e, Offset: g.at, Recorded: g.clock})
}
