// Package page writes a session as one page: Markdown or HTML. A page needs no other file, runs no scripts, and loads
// nothing from the network. The content of turns, titles and ids is shown as text. It cannot add to the structure of
// the page, leave its place in it, hide parts of itself, or change the order of text.
//
// The package is pure: the same session results in the same bytes, on every machine and day.
package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// Page is a session, as of the position at which it was loaded.
type Page struct {
	Session *projector.Session

	// All also shows Gone, the turns that are not in effect, and the rewinds. By default only the current threads are
	// shown.
	All  bool
	Gone []projector.TurnAt

	// Costs is the cost of the session, as separate values. By default it comes from the events.
	Costs []string
}

// fact is a line about the session or a run. Its values are shown separately.
type fact struct {
	Label  string
	Values []string
}

// add appends a fact, unless all its values are empty.
func add(list []fact, label string, values ...string) []fact {
	values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	if len(values) == 0 {
		return list
	}
	return append(list, fact{label, values})
}

// id returns an id or a name, escaped if it is not UTF-8.
func id(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return events.EscapeID(s)
}

// Title returns the title of the session, else its id. An agent's conversation rarely has a title, and is named by the
// first line of the user.
func (p Page) Title() string {
	opening := ""
	if p.Session.Ledger.Kind == events.KindTranscript {
		opening = render.Cut(render.OpeningOf(p.Session.Threads.Turns(events.MainThread)), maxTitle)
	}
	return inline(cmp.Or(p.Session.Ledger.Text("title"), opening, id(p.Session.Subject.ID)))
}

// maxTitle bounds a title that is the first line of a user, in columns.
const maxTitle = 120

// Facts returns the facts about the session.
func (p Page) Facts() []fact {
	s := p.Session
	list := []fact{{"id", []string{id(s.Subject.ID)}}}
	list = add(list, "kind", s.Ledger.Kind)
	list = add(list, "status", s.Ledger.Text("status"))
	list = add(list, "created", clock(s.Ledger.CreatedAt))
	if at := s.Offset(); at > 0 {
		list = add(list, "as of", at.String())
	}
	if f := s.Ledger.Fork; f != nil {
		list = add(list, "fork of", id(f.Session), f.Offset.String())
	}
	list = add(list, "started by", startedBy(s.Ledger.Parent)...)
	list = add(list, "models", models(s)...)
	list = add(list, "cost", p.costs()...)
	list = add(list, "tokens", tokens(s.Ledger.Spent().Tokens)...)
	if raw, ok := s.Ledger.Fields.Get("trajectory"); ok {
		goal, persona := render.Goal(raw)
		list = add(add(list, "goal", goal), "persona", persona)
	}
	if n := len(s.Damaged); n > 0 {
		list = add(list, "damaged", plain.Count(n, "record")+" cannot be read: "+fmt.Sprint(s.Damaged))
	}
	return spelled(list)
}

// spelled returns facts with values that are safe to show on a line.
func spelled(list []fact) []fact {
	for _, f := range list {
		for i, v := range f.Values {
			f.Values[i] = inline(v)
		}
	}
	return list
}

// startedBy describes the session and run that started the session.
func startedBy(p *events.Lineage) []string {
	if p == nil {
		return nil
	}
	values := []string{id(p.Session)}
	if p.Offset > 0 {
		values = append(values, p.Offset.String())
	}
	for _, part := range []struct{ what, id string }{{"run", p.Run}, {"checkpoint", p.Checkpoint}, {"call", p.ToolCall}} {
		if part.id != "" {
			values = append(values, part.what+" "+id(part.id))
		}
	}
	return values
}

// models returns the models that the session names, else those in its costs.
func models(s *projector.Session) []string {
	var list []string
	if raw, ok := s.Ledger.Fields.Get("models"); ok {
		elems, _ := rawjson.Array(raw) // a value in another form names no models
		for _, elem := range elems {
			if name, err := rawjson.String(elem); err == nil {
				list = append(list, name)
			}
		}
	}
	if list == nil {
		for _, c := range s.Ledger.Costs {
			if !slices.Contains(list, c.Model) {
				list = append(list, c.Model)
			}
		}
	}
	return list
}

// costs returns the cost of the session by source. An unknown cost is not zero.
func (p Page) costs() []string {
	if p.Costs != nil {
		return p.Costs
	}
	var sums projector.Totals[string]
	unknown := 0
	for _, c := range p.Session.Ledger.Costs {
		if c.USD == "" {
			unknown++
			continue
		}
		sums.Add(c.Source, c)
	}
	var usd []string
	for _, source := range sums.Keys() {
		usd = append(usd, fmt.Sprintf("%s USD, %s", sums.Of(source).USD, source))
	}
	if unknown > 0 {
		usd = append(usd, "? USD, unknown: "+plain.Count(unknown, "cost"))
	}
	return usd
}

// tokens lists the numbers of tokens by class, without zeros.
func tokens(t events.Tokens) []string {
	var list []string
	for _, class := range []struct {
		n    int64
		what string
	}{{t.Input, "input"}, {t.Output, "output"}, {t.Reasoning, "reasoning, of the output"}, {t.CacheRead, "read from a cache"}, {t.CacheWrite, "written to a cache"}} {
		if class.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", class.n, class.what))
		}
	}
	return list
}

// clock formats a time in UTC. Invalid times stay as they are.
func clock(at events.Timestamp) string {
	if t, ok := at.Time(); ok {
		return t.UTC().Format(time.DateTime) + "Z"
	}
	return inline(string(at))
}

// run is a run with its outcome.
type run struct {
	Ref   string
	Facts []fact
}

// Runs returns the runs of the session, in the order in which they began.
func (p Page) Runs() []run {
	var list []run
	for _, r := range p.Session.Ledger.Runs {
		list = append(list, run{inline(id(r.Ref().String())), spelled(p.outcome(r))})
	}
	return list
}

// outcome returns the facts about a run.
func (p Page) outcome(r *projector.Run) []fact {
	state, ended := r.State, events.Timestamp("")
	if last := r.Last(); last != nil {
		state, ended = last.Outcome, last.FinishedAt
	}
	list := add(nil, "outcome", cmp.Or(state, "pending"))
	if p.Session.Withdrawn(r.At) {
		list = add(list, "withdrawn", "what it is about was rewound")
	}
	list = add(list, "began", clock(r.CreatedAt))
	list = add(list, "ended", clock(ended))
	list = add(list, "models", slices.Clone(r.Models)...)
	list = add(list, "selected", r.Selected)
	list = add(list, "rating", r.Rating)
	list = add(list, "note", r.Note)
	list = add(list, "tags", slices.Clone(r.Tags)...)
	return add(list, "applied", slices.Clone(r.AppliedFiles)...)
}

// anchor returns the name of an anchor for a thread. It differs for all threads.
func anchor(thread string) string { return strings.ReplaceAll(events.EscapeID(thread), "=", ".") }
