package inspect

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/catalog"
)

func styleOf(coloured bool) cli.Style {
	if coloured {
		return cli.NewStyle(nil, cli.ColorAlways, func(string) string { return "" })
	}
	return cli.Style{}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9]*m")

// Any snippet fits on one line, shows the first match, and marks nothing else.
func TestSnippetFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab \n\t蛋é⟦⟧[]\x1b\x01\u202e👍")), 1, 60, -1), 1, 3)
		spans := []catalog.Span{}
		for _, text := range texts.Draw(t, "texts") {
			spans = append(spans, catalog.Span{Text: text}, catalog.Span{Text: "match", Match: true})
		}
		spans = append(spans, catalog.Span{Text: texts.Draw(t, "end")[0]})[rapid.IntRange(0, 1).Draw(t, "from"):]
		width, coloured := rapid.IntRange(20, 120).Draw(t, "width"), rapid.Bool().Draw(t, "coloured")
		line := snippetLine(spans, styleOf(coloured), width)
		shown := sgr.ReplaceAllString(line, "")
		if columns := uniseg.StringWidth(shown); columns > width {
			t.Fatalf("%q: got %d columns, want at most %d", line, columns, width)
		}
		if strings.ContainsFunc(shown, func(r rune) bool { return r < 0x20 || r == 0x202e }) {
			t.Fatalf("got control characters in %q", line)
		}
		if coloured && !strings.Contains(line, "\x1b[1m\x1b[33mmatch\x1b[0m") || !coloured && !strings.Contains(line, "⟦match⟧") {
			t.Fatalf("%q does not show the match in %v", line, spans)
		}
		if rest := strings.ReplaceAll(line, "⟦match⟧", ""); !coloured && len(regexp.MustCompile("⟦[^…]*⟧").FindString(rest)) > 0 {
			t.Fatalf("%q marks more than the match", line)
		}
	})
}

// On a short line, less important parts are left out first. In a pipe no id is cut.
func TestHitHead(t *testing.T) {
	id := strings.Repeat("x", 70)
	h := catalog.Hit{Session: "s", Offset: 7, At: "2026-08-03T09:11:00.000Z", Roles: "user call result assistant", Thread: "side", Title: "A title of\x1b some words"}
	long := h
	long.Session = id
	for _, c := range []struct {
		hit   catalog.Hit
		width int
		want  string
	}{
		{h, 100, "s @7  rewound  2026-08-03 09:11  user assistant  thread side  A title of␛ some words"},
		{h, 78, "s @7  rewound  2026-08-03 09:11  user assistant  thread side  A title of␛ som…"},
		{h, 48, "s @7  rewound  2026-08-03 09:11  user assistant"}, {h, 33, "s @7  rewound  2026-08-03 09:11"}, {h, 20, "s @7  rewound"},
		{long, 20, "xxxxxxxxxxxxxxxx… @7"}, {long, math.MaxInt, id + " @7  rewound  2026-08-03 09:11  user assistant  thread side  A title of␛ some words"},
	} {
		if got := hitHead(c.hit, cli.Style{}, c.width); got != c.want {
			t.Errorf("in %d columns: %q, want %q", c.width, got, c.want)
		}
	}
}

func TestSpeakers(t *testing.T) {
	for roles, want := range map[string]string{"user": "user", "user call result assistant": "user assistant", "call": "call", "call result": "call result", "": ""} {
		if got := speakers(roles); got != want {
			t.Errorf("of %q speak %q, want %q", roles, got, want)
		}
	}
}
