package inspect

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// effectTypes has valid data for each type of a session's events, and types of others.
var effectTypes = map[string]string{
	events.TypeSessionCreated:    `{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z"}`,
	events.TypeSessionUpdated:    `{"set":{"title":"t"}}`,
	events.TypeTurnAppended:      `{"entries":[{"thread":"main","turn":1}]}`,
	events.TypeThreadReplaced:    `{"threads":{"main":{"items":[{"turn":1}]}},"reason":"save","others":"keep"}`,
	events.TypeThreadTruncated:   `{"lengths":{"main":1},"reason":"cut"}`,
	events.TypeThreadPinned:      `{"thread":"main","pins":{"0":true}}`,
	events.TypeSessionRewound:    `{"to":1}`,
	events.TypeRunCreated:        `{"run":{"kind":"k","id":"r"},"createdAt":"2026-01-01T00:00:00Z"}`,
	events.TypeRunStarted:        `{"run":{"kind":"k","id":"r"}}`,
	events.TypeRunProgressed:     `{"run":{"kind":"k","id":"r"},"kind":"p"}`,
	events.TypeRunFinished:       `{"run":{"kind":"k","id":"r"},"outcome":"completed","result":{"ok":true}}`,
	events.TypeRunAnnotated:      `{"run":{"kind":"k","id":"r"},"note":"n"}`,
	events.TypeCheckpointSaved:   `{"id":"c","kind":"rewind","at":1}`,
	events.TypeCheckpointCleared: `{"kind":"rewind","reason":"clear"}`,
	events.TypeCostAccrued:       `{"model":"m","usd":"0.5","purpose":"run","source":"reported"}`,
	ownThread:                    `{}`,
	ownLedger:                    `{}`,
}

const (
	ownThread = "com.acme.vote.cast.v1"
	ownLedger = "com.acme.alarm.raised.v1"
)

// effectCase has one record of interest, in one situation.
type effectCase struct {
	log testkit.Records
	sub events.Subject // the session that is looked at
	at  events.Offset  // of the record
}

// add appends a record of a type.
func (c *effectCase) add(sub events.Subject, typ, data string, seen events.Offset) {
	e := events.Event{ID: fmt.Sprint(len(c.log)), Source: "urn:test", Type: typ, Subject: sub, ContentType: events.ContentTypeJSON, Data: []byte(data)}
	if seen != 0 {
		e = e.WithExtension(events.ExtBasis, seen.Padded())
	}
	c.log = append(c.log, events.Record{Event: e, Offset: events.Offset(len(c.log) + 1)})
}

// effectCases returns the situations of a record with its type and its data.
func effectCases(typ, data string) map[string]effectCase {
	sub := events.Session("", "s")
	list := make(map[string]effectCase)
	for _, name := range []string{"live", "rewound", "stale", "rejected", "inherited"} {
		c := effectCase{sub: sub, at: 2}
		c.add(sub, events.TypeTurnAppended, effectTypes[events.TypeTurnAppended], 0)
		switch name {
		case "live":
			c.add(sub, typ, data, 0)
		case "rewound":
			c.add(sub, typ, data, 0)
			c.add(sub, events.TypeSessionRewound, `{"to":1}`, 0)
		case "stale":
			c.add(sub, events.TypeTurnAppended, effectTypes[events.TypeTurnAppended], 0)
			c.add(sub, events.TypeSessionRewound, `{"to":1}`, 0)
			c.add(sub, typ, data, 2)
			c.at = 4
		case "rejected":
			c.add(sub, typ, `7`, 0)
			if !events.IsKnown(typ) {
				continue // the data of other types are not looked at
			}
		case "inherited":
			c.add(sub, typ, data, 0)
			c.sub = events.Session("", "fork")
			c.add(c.sub, events.TypeSessionCreated, `{"kind":"conversation","createdAt":"2026-01-01T00:00:00Z","fork":{"session":"s","offset":2}}`, 0)
		}
		list[name] = c
	}
	return list
}

// wantEffect is the table of docs/wire.md: whether a record is in effect, and its state in log.
func wantEffect(typ, situation string, isThread bool) (state string, inEffect bool) {
	switch {
	case situation == "rejected":
		return "rejected", false
	case situation == "inherited":
		return "", isThread
	case typ == events.TypeSessionRewound:
		return "rewind", true
	case situation == "live":
		return "live", true
	case isThread:
		return situation, false
	}
	return "kept", true
}

// For each type and each situation of a record, these answers agree: of events.IsThread, of InEffect, of
// log, of cost, and of the table in docs/wire.md.
func TestInEffect(t *testing.T) {
	page, err := os.ReadFile("../../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	moves := func(typ string) bool { return typ == ownThread }
	for _, typ := range events.Types() {
		if effectTypes[typ] == "" && !strings.Contains(typ, ".document.") {
			t.Errorf("the table has no data for %s", typ)
		}
	}
	for typ, data := range effectTypes {
		isThread := events.IsThread(typ) || moves(typ)
		if events.IsKnown(typ) {
			word := map[bool]string{true: "thread", false: "ledger"}[isThread]
			if !slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
				cells := strings.Split(line, " | ")
				return strings.HasPrefix(line, "| `"+typ+"` | session | ") && len(cells) == 5 && cells[3] == word
			}) {
				t.Errorf("docs/wire.md does not call %s %s", typ, word)
			}
		}
		for situation, c := range effectCases(typ, data) {
			t.Run("X-09 "+typ+" "+situation, func(t *testing.T) {
				loader := &projector.Loader{Source: c.log}
				s, err := loader.Session(t.Context(), c.sub, 0)
				if err != nil {
					t.Fatal(err)
				}
				o, err := loader.Outline(t.Context(), c.sub, 0)
				if err != nil {
					t.Fatal(err)
				}
				rec := c.log[c.at-1]
				wantState, want := wantEffect(typ, situation, isThread)
				if got := s.InEffect(rec, moves); got != want {
					t.Errorf("Session.InEffect = %v, want %v", got, want)
				}
				if got := o.InEffect(rec, moves); rec.Subject == c.sub && got != want {
					t.Errorf("Outline.InEffect = %v, want %v", got, want)
				}
				if state, _ := reads.StateOf(s.Ledger, s.History.IsLive(rec.Offset), s.InEffect(rec, moves), rec); rec.Subject == c.sub && state != wantState {
					t.Errorf("log says %q, want %q", state, wantState)
				}
				costs, err := tally.CostsOf(s)
				if err != nil {
					t.Fatal(err)
				}
				if counts := costs.Spent.Total.Events == 1; typ == events.TypeCostAccrued && counts != want {
					t.Errorf("cost counts it: %v, want %v", counts, want)
				}
			})
		}
	}
}
