package tallydir_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
)

// Growth between any two records returns exactly the bytes by which the files grew, or reports that it cannot.
func TestGrowth(t *testing.T) {
	known := 0
	for seed := range layouttest.Seeds(3) {
		random := rand.New(rand.NewPCG(seed, 2))
		st, root := openStore(t), layouts.Root{Name: layouts.LiveRoot, Marker: "m"}
		if seed%3 == 2 {
			dir := filepath.Join(t.TempDir(), "p")
			if _, err := gentree.Write(dir, gentree.Options{Seed: seed, Sessions: 3, Turns: 3, TurnBytes: 100, Odd: true}); err != nil {
				t.Fatal(err)
			}
			root = layouttest.CheckImportFrom(t, layout, dir, st, openStore(t))
		}
		var subs []events.Subject
		for info, err := range st.Subjects(t.Context(), events.KindSession) {
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, info.Subject)
		}
		for _, id := range []string{"a", "../x"} {
			subs = append(subs, events.Session(st.Namespace(), id))
		}
		for _, sub := range subs {
			for range 25 {
				draw(t, st, sub, random)
			}
		}
		known += layouttest.CheckGrowth(t, st, layout, root)
	}
	if known < 10 {
		t.Errorf("Growth returned data %d times, want more", known)
	}
	t.Log(known)
}

// draw appends to a conversation: mostly steps, sometimes moves or other spellings.
func draw(t *testing.T, st store, sub events.Subject, random *rand.Rand) {
	t.Helper()
	o, err := st.Loader().Peek(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	some := o.First() + events.Offset(random.Uint64N(uint64(o.Offset()-o.First()+1)))
	n, entry := random.IntN, func(thread string) events.Entry {
		return events.Entry{Thread: thread, Turn: events.Raw([]string{step(random.IntN(9)), "{\"a\":[1,\n 2]}", `"x"`}[random.IntN(3)])}
	}
	var p events.Payload = &events.TurnAppended{Entries: []events.Entry{entry("main")}}
	var seen string
	run := events.RunRef{Kind: "tally", ID: string(rune('a' + n(3)))}
	switch n(22) {
	case 0:
		p = &events.SessionRewound{To: some, Reason: "test"}
	case 1:
		p = &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Keep: &[2]int{0, n(3)}}, {Turn: events.Raw(step(1))}}}}, Others: "keep", Reason: "test"}
	case 2:
		p = &events.ThreadTruncated{Lengths: map[string]int{"main": n(4)}, Reason: "test"}
	case 3:
		p = &events.TurnAppended{Entries: []events.Entry{entry("main")}, Formats: map[string]events.FileFormat{[]string{"conversation.jsonl", "meta.json", "stepTraces.json"}[n(3)]: {
			FinalNewline: n(2) == 0, Separator: []string{"", "\r\n"}[n(2)], BOM: n(2) == 0, Derived: n(2) == 0, Mode: int64([]int{0, 0o600}[n(2)])}}}
	case 4:
		p = &events.TurnAppended{Entries: []events.Entry{entry("main")}, Pins: map[string]map[int]bool{"main": {n(5): true}}} // it may be rejected
	case 5, 6, 7:
		seen = some.Padded() // it may be stale
	case 8, 9:
		p = &events.TurnAppended{Entries: []events.Entry{entry("main"), entry([]string{"other", "main"}[n(2)]), {Thread: "main", Bytes: []byte{0xff}}}}
	case 15:
		p = &events.TurnAppended{ThreadMeta: map[string]events.Raw{[]string{"traces", "main"}[n(2)]: events.Raw(`{"m":1}`)}}
	case 10:
		p = &events.TurnAppended{Entries: []events.Entry{entry([]string{"traces", "other"}[n(2)])}}
	case 11:
		p = &events.SessionUpdated{Set: events.Fields{{Name: []string{"trajectory", "status", "title"}[n(3)], Value: events.Raw([]string{`null`, `"archived"`}[n(2)])}}}
	case 12:
		p = &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"runId":"x"}`)}
	case 13:
		p = &events.RunStarted{Run: run}
	case 14:
		p = &events.RunCreated{Run: run, CreatedAt: "2026-01-23T12:35:40.000Z"}
	}
	if _, rewinds := p.(*events.SessionRewound); rewinds && some == 0 {
		return // the session has no records yet
	}
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	if seen != "" && o.Offset() > 0 {
		e = e.WithExtension(events.ExtBasis, seen)
	}
	list := []events.Event{e}
	if e.Type == events.TypeSessionRewound { // an event whose producer has not read it is stale
		for _, seen := range []events.Offset{0, o.Offset()} {
			e, err := events.New("urn:test", sub, &events.TurnAppended{Entries: []events.Entry{entry("main")}})
			if err != nil {
				t.Fatal(err)
			}
			if seen > 0 {
				e = e.WithExtension(events.ExtBasis, seen.Padded())
			}
			list = append(list, e)
		}
	}
	last := o.Offset()
	for _, e := range list {
		ack, err := st.Append(t.Context(), sub, log.At(last), e)
		if err != nil {
			t.Fatalf("%s %s: %v", e.Type, e.Data, err)
		}
		last = ack.Last
	}
}
