package inspect

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
)

// writeHits prints two lines for each turn: its position, and the text around the words.
func writeHits(a *cmdutil.App, hits []catalog.Hit) {
	style, width := a.Style(), cli.Width(a.Out)
	whole := math.MaxInt // in a pipe nothing is cut, because ids are input of the next command
	if cli.IsTerminal(a.Out) {
		whole = width
	}
	for _, h := range hits {
		fmt.Fprintln(a.Out, hitHead(h, style, whole))
		fmt.Fprintf(a.Out, "  %s\n", snippetLine(h.Spans, style, width-2))
	}
}

// hitHead returns the position of a turn in at most width columns. Less important parts come later, and are left out if
// they do not fit.
func hitHead(h catalog.Hit, style cli.Style, width int) string {
	at := " " + h.Offset.String()
	id := render.Cut(cli.ID(h.Session), max(width-len(at), 8)) + at
	line, left := style.Bold(id), width-uniseg.StringWidth(id)
	add := func(text string, paint func(string) string) {
		if columns := uniseg.StringWidth(text) + 2; columns > 2 && columns <= left {
			line, left = line+"  "+paint(text), left-columns
		}
	}
	as := func(text string) string { return text }
	if !h.Live {
		add("rewound", style.Yellow)
	}
	add(cli.Minute(h.At), as)
	add(render.Cut(speakers(h.Roles), 40), as)
	if h.Thread != "main" {
		add("thread "+render.Cut(h.Thread, 40), as)
	}
	if left >= 14 { // a shorter part of a title would not help
		add(render.Cut(h.Title, min(left-2, 60)), style.Dim)
	}
	return line
}

// speakers returns the roles that name speakers. Roles of tools do not help in finding a turn.
func speakers(roles string) string {
	all := strings.Fields(roles)
	people := slices.DeleteFunc(slices.Clone(all), func(role string) bool { return role == "call" || role == "result" })
	if len(people) == 0 {
		people = all
	}
	return strings.Join(people, " ")
}

// The signs around matches in output without colour. In the text they are replaced, so that no turn can imitate a
// match.
const (
	matchBegin, matchEnd = "⟦", "⟧"
)

var notMatch = strings.NewReplacer(matchBegin, "[[", matchEnd, "]]")

// snippetLine returns the text around the words in at most width columns, with the first match in it.
func snippetLine(spans []catalog.Span, style cli.Style, width int) string {
	pieces := printable(spans, style)
	over := -width
	for _, p := range pieces {
		over += uniseg.StringWidth(p.Text)
	}
	if over > 0 && !pieces[0].Match {
		lead := &pieces[0].Text
		*lead = tail(*lead, max(width/3, uniseg.StringWidth(*lead)-over))
	}
	line := ""
	for _, p := range pieces {
		text := render.Cut(p.Text, width)
		width -= uniseg.StringWidth(text)
		if p.Match {
			line += style.Bold(style.Yellow(text))
		} else {
			line += text
		}
		if text != p.Text {
			break
		}
	}
	return line
}

// printable returns the pieces as text for one line. Without colour, matches are enclosed in signs.
func printable(spans []catalog.Span, style cli.Style) []catalog.Span {
	coloured := style.Bold("x") != "x"
	pieces := slices.Clone(spans)
	for i := range pieces {
		text := &pieces[i].Text
		*text = render.Cut(*text, math.MaxInt)
		if coloured {
			continue
		}
		*text = notMatch.Replace(*text)
		if pieces[i].Match {
			*text = matchBegin + *text + matchEnd
		}
	}
	return pieces
}

// tail returns the end of a text, at most width columns of it.
func tail(s string, width int) string {
	over := uniseg.StringWidth(s) - width
	if over <= 0 {
		return s
	}
	over++ // room for the ellipsis
	for state := -1; over > 0 && s != ""; {
		var columns int
		_, s, columns, state = uniseg.FirstGraphemeClusterInString(s, state)
		over -= columns
	}
	return "…" + s
}
