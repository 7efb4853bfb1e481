package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// thread is a thread of the session.
type thread struct {
	Anchor, Name string
	Count        string // number of its turns
	Turns        []turn
}

// Threads returns the threads of the session, main first.
func (p Page) Threads() []thread {
	var list []thread
	places := make(map[events.Offset]bool)
	for _, name := range p.Session.Threads.Names() {
		own := p.Session.Threads.Turns(name)
		th := thread{"thread:" + anchor(name), inline(name), plain.Count(len(own), "turn"), make([]turn, len(own))}
		for i, t := range own {
			th.Turns[i] = newTurn(fmt.Sprintf("%s-%d", anchor(name), i+1), fmt.Sprintf("#%d", i+1), t)
			th.Turns[i].anchored(places)
		}
		list = append(list, th)
	}
	return list
}

// turn is a turn with its position in the page. Its content is parsed when it is written, so that a long session is not
// in memory twice.
type turn struct {
	Anchor, Number string // Anchor is "" if the turn is not in effect
	Place          string // anchor of its offset, for the first turn of an event
	Offset, Time   string
	Thread         string // only if the heading does not name it
	Marks          []string
	turn           projector.Turn
}

func newTurn(anchor, number string, t projector.Turn) turn {
	var marks []string
	if t.Pinned {
		marks = append(marks, "pinned")
	}
	if t.Run != nil {
		marks = append(marks, "run "+inline(id(t.Run.String())))
	}
	return turn{Anchor: anchor, Number: number, Offset: t.Offset.String(), Time: clock(t.Timestamp), Marks: marks, turn: t}
}

// anchored sets the anchor of the turn to its offset, unless another turn has that anchor.
func (t *turn) anchored(taken map[events.Offset]bool) {
	if !taken[t.turn.Offset] {
		taken[t.turn.Offset] = true
		t.Place = t.Offset
	}
}

// said is the content of a turn.
type said struct {
	Model string
	Parts []part
}

// part is a part of a turn, ready to be shown.
type part struct {
	Class string // one of a few words, for the style sheet
	Label string // speaker, or kind of part
	Name  string // of a tool
	ID    string // of a call
	Text  string // never ""
	JSON  bool
	Fold  bool
}

// Said parses the content of the turn.
func (t turn) Said() said {
	if t.turn.Erased != "" {
		return said{Parts: []part{newPart(shapes.Part{Kind: shapes.Other, Role: "erased", Text: "receipt " + t.turn.Erased})}}
	}
	read, ok := render.Read(t.turn)
	if b := t.turn.Bytes; !ok && t.turn.Raw == nil {
		text := plain.Bytes(int64(len(b))) + ", not text"
		if utf8.Valid(b) {
			text = string(b)
		}
		return said{Parts: []part{newPart(shapes.Part{Role: "bytes", Text: text})}}
	}
	if !ok {
		return said{Parts: []part{newPart(shapes.Part{Kind: shapes.Other, Role: "json", Text: string(t.turn.Raw)})}}
	}
	list := make([]part, len(read.Parts))
	for i, p := range read.Parts {
		list[i] = newPart(p)
	}
	return said{inline(read.Model), list}
}

func newPart(p shapes.Part) part {
	is := part{Class: classOf(p.Role), Label: inline(cmp.Or(p.Role, "nobody")), Name: inline(p.Name), ID: inline(p.ID)}
	text := p.Text
	switch p.Kind {
	case shapes.Reasoning:
		is.Class, is.Label, is.Fold = "thought", is.Label+", reasoning", true
		text = cmp.Or(text, "(withheld)")
	case shapes.Call:
		is.Class, is.Label, is.Fold = "tool", "call", true
	case shapes.Result:
		is.Class, is.Label, is.Fold = "tool", "result", true
		if p.Error {
			is.Class, is.Label = "error", "error"
		}
	case shapes.Media:
		// A page does not embed media. Decoders are the least safe part of a program that shows a page.
		text, is.Name = render.Media(p)+", not shown", ""
	case shapes.Refusal:
		is.Class, is.Label = "error", is.Label+", refusal"
	}
	if indented, ok := indent(text); ok && (is.Class == "tool" || is.Class == "error" || p.Kind == shapes.Other) {
		text, is.JSON = indented, true
	}
	if p.Kind == shapes.Said && isInstruction(p) {
		is.Fold = true
	}
	is.Text = cmp.Or(visible(text), "(nothing)")
	return is
}

// isInstruction reports whether a part is a long instruction from a program to the model. Such a part is folded,
// because it would hide the conversation.
func isInstruction(p shapes.Part) bool {
	role := strings.ToLower(p.Role)
	isProgram := slices.Contains([]string{"system", "developer", "meta", "attachment"}, role)
	return isProgram && (len(p.Text) > longInstruction || strings.Count(p.Text, "\n") > longLines)
}

// Sizes above which an instruction is long, in bytes and lines.
const (
	longInstruction = 400
	longLines       = 6
)

// classOf returns the class of a speaker. It is one of a fixed set of words, whatever the turn contains.
func classOf(role string) string {
	if role = strings.ToLower(role); slices.Contains([]string{"user", "assistant", "system", "tool"}, role) {
		return role
	}
	return "other"
}

// indent indents a JSON object or array. ok is false for other text.
func indent(text string) (indented string, ok bool) {
	raw := []byte(text)
	if !shapes.IsJSON(raw) {
		return "", false
	}
	return string(rawjson.AppendIndent(nil, raw, "  ")), true
}

// item is a turn that is not in effect, or a rewind.
type item struct {
	Turn   *turn
	Rewind *rewind
	at     events.Offset
}

// rewind is a rewind or an undo.
type rewind struct {
	What, Offset string
	Facts        []fact
}

// Items returns the turns that are not in effect and the rewinds, in the order of the log.
func (p Page) Items() []item {
	if !p.All {
		return nil
	}
	places := make(map[events.Offset]bool)
	for _, own := range p.Session.Threads {
		for _, t := range own.Turns {
			places[t.Offset] = true
		}
	}
	var list []item
	for _, g := range p.Gone {
		t := newTurn("", fmt.Sprintf("#%d", g.Number), g.Turn)
		t.Thread = inline(g.Thread)
		list = append(list, item{Turn: &t, at: g.Offset})
	}
	for _, r := range p.Session.Ledger.Rewinds {
		list = append(list, item{Rewind: newRewind(r), at: r.Offset})
	}
	slices.SortStableFunc(list, func(a, b item) int { return cmp.Compare(a.at, b.at) })
	for _, i := range list {
		if i.Turn != nil {
			i.Turn.anchored(places)
		}
	}
	return list
}

func newRewind(r projector.Rewind) *rewind {
	is := &rewind{What: "rewind", Offset: r.Offset.String(), Facts: add(nil, "to", r.To.String())}
	if r.Undoes > 0 {
		is.What, is.Facts = "undo", add(is.Facts, "undoes", r.Undoes.String())
	}
	is.Facts = spelled(add(is.Facts, "reason", r.Reason))
	return is
}
