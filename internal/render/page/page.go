// Package page writes a session as one page for people: Markdown or HTML. A page needs
// nothing beside it, runs nothing and asks nothing of a network. What a turn, a title or
// an id contains is shown as text: it cannot add to the page's structure, leave its place
// in it, hide a part of itself or turn its order around.
//
// The package is pure: the same session is the same bytes, on every machine and day.
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

// Page is a session to be written, as of the position that it was loaded at.
type Page struct {
	Session *projector.Session

	// All shows what is not in effect too: Gone, and the rewinds between. Default: the
	// threads as they are.
	All  bool
	Gone []projector.TurnAt

	// Costs say what the session cost, each value apart. Default: what its events say.
	Costs []string
}

// fact is a line about the session or a run. Each value is shown apart.
type fact struct {
	Label  string
	Values []string
}

// add appends a fact, unless nothing is known.
func add(list []fact, label string, values ...string) []fact {
	values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	if len(values) == 0 {
		return list
	}
	return append(list, fact{label, values})
}

// id spells an id or a name: as it is, or escaped if it is not UTF-8.
func id(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return events.EscapeID(s)
}

// Title is the session's title, else its id. The conversation of an agent, which seldom has a
// title, is called by what the user says first.
func (p Page) Title() string {
	opening := ""
	if p.Session.Ledger.Kind == events.KindTranscript {
		opening = render.Cut(render.OpeningOf(p.Session.Threads.Turns(events.MainThread)), maxTitle)
	}
	return inline(cmp.Or(p.Session.Ledger.Text("title"), opening, id(p.Session.Subject.ID)))
}

// maxTitle is how many columns of what a user says are a title.
const maxTitle = 120

// Facts are what the page says of the session itself.
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

// spelled returns facts whose values are safe to show on a line.
func spelled(list []fact) []fact {
	for _, f := range list {
		for i, v := range f.Values {
			f.Values[i] = inline(v)
		}
	}
	return list
}

// startedBy says who started the session.
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

// models are those that the session names, else those that it paid for.
func models(s *projector.Session) []string {
	var list []string
	if raw, ok := s.Ledger.Fields.Get("models"); ok {
		elems, _ := rawjson.Array(raw) // what is not a list names none
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

// costs says what the session cost, by who says so. What is not known is not zero.
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

// tokens names the classes that are not zero.
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

// clock spells a time in UTC; one that is not a time stays as it is.
func clock(at events.Timestamp) string {
	if t, ok := at.Time(); ok {
		return t.UTC().Format(time.DateTime) + "Z"
	}
	return inline(string(at))
}

// run is a run: which one, and how it came out.
type run struct {
	Ref   string
	Facts []fact
}

// Runs are those of the session, in the order in which they began.
func (p Page) Runs() []run {
	var list []run
	for _, r := range p.Session.Ledger.Runs {
		list = append(list, run{inline(id(r.Ref().String())), spelled(p.outcome(r))})
	}
	return list
}

// outcome says how a run came out.
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

// anchor names a place in the page. No two names of threads have the same.
func anchor(thread string) string { return strings.ReplaceAll(events.EscapeID(thread), "=", ".") }
