package bashline_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/cmd/internal/bashline"
	"github.com/tallylog/tally/internal/testkit"
)

const breaks = " \t\n\"'@><=;|&(:" // the default of bash

func TestParse(t *testing.T) {
	for line, want := range map[string]struct {
		words []string
		word  string
		quote byte
		head  int
	}{
		`tally sh`:                 {[]string{"tally"}, "sh", 0, 0},
		`tally show `:              {[]string{"tally", "show"}, "", 0, 0},
		`tally show '' a`:          {[]string{"tally", "show", ""}, "a", 0, 0},
		`tally show urn:x:y`:       {[]string{"tally", "show"}, "urn:x:y", 0, 6},
		`tally show urn\:x`:        {[]string{"tally", "show"}, "urn:x", 0, 0},
		`tally show x --at @1`:     {[]string{"tally", "show", "x", "--at"}, "@1", 0, 1},
		`tally show x --at=\#1`:    {[]string{"tally", "show", "x"}, "--at=#1", 0, 5},
		`tally show 'a b`:          {[]string{"tally", "show"}, "a b", '\'', 0},
		`tally show "a \"b\n$x`:    {[]string{"tally", "show"}, `a "b\n$x`, '"', 0},
		`tally show a\ b`:          {[]string{"tally", "show"}, "a b", 0, 0},
		`tally show 'a b' --at `:   {[]string{"tally", "show", "a b", "--at"}, "", 0, 0},
		`x | y; tally show '|;' c`: {[]string{"tally", "show", "|;"}, "c", 0, 0},
	} {
		l, ok := bashline.Parse(line, breaks)
		if !ok || !slices.Equal(l.Words, want.words) || l.Word != want.word || l.Quote != want.quote || l.Head != want.head {
			t.Errorf("%s: got %+v, %v", line, l, ok)
		}
	}
	for _, line := range []string{"tally $(touch x) a", "tally `touch x`", `tally "$(touch x) `, "tally $'a", "tally > fi", "tally a\\", "tally <(ls) "} {
		if l, ok := bashline.Parse(line, breaks); ok {
			t.Errorf("%s: got %+v", line, l)
		}
	}
}

// bash reads a spelled word back as that word, wherever the cursor was, and runs nothing.
func TestSpell(t *testing.T) {
	bash, err := exec.LookPath("bash")
	testkit.Needs(t, err == nil, "bash")
	var script strings.Builder
	var want []string
	for _, word := range []string{"a", "a b", "$(echo run)", "`echo run`", `it's "q" \ $HOME !x`, "urn:x:y=z", "#5", "~2", "*?[a]{b,c}", "-x;y|z&", "é—本", "a'b", "~/x", "=", "\\", "!!"} {
		for cut := range len(word) + 1 {
			for _, before := range []string{word[:cut], "'" + word[:cut], `"` + word[:cut]} {
				line := "printf '%s\\n' " + before
				l, ok := bashline.Parse(line, breaks)
				if !ok || l.Word != word[:cut] {
					continue // the typed text has another meaning
				}
				text, ok := l.Spell(word)
				if !ok {
					continue
				}
				kept := len(before) - (len(l.Word) - l.Head)
				script.WriteString("printf '%s\\n' " + before[:kept] + text)
				if l.Quote != 0 {
					script.WriteByte(l.Quote)
				}
				script.WriteByte('\n')
				want = append(want, word)
			}
		}
	}
	c := exec.Command(bash, "--norc")
	c.Stdin = strings.NewReader(script.String())
	out, err := c.Output()
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%q\nwant %q\n%s", err, got, want, script.String())
	}
	if len(want) < 100 {
		t.Errorf("got only %d words", len(want))
	}
}

func TestCannotSpell(t *testing.T) {
	l, _ := bashline.Parse("tally show a", breaks)
	for _, word := range []string{"b", "a\n", "a\x1b[2J", "a\x7f", "a\u009b", "a\xff", ""} {
		if text, ok := l.Spell(word); ok {
			t.Errorf("%q: got %q", word, text)
		}
	}
}

// For any line, parsing ends. A spelled word has no control characters, and nothing after the cursor can be executed.
func FuzzLine(f *testing.F) {
	f.Add(`tally show "a \"b`, "a $(touch x)")
	f.Add("tally show 'x", "x'; touch y")
	f.Add("tally show urn:", "urn:`x`")
	f.Fuzz(func(t *testing.T, line, word string) {
		l, ok := bashline.Parse(line, breaks)
		if !ok {
			return
		}
		if l.Head > len(l.Word) {
			t.Fatalf("got %+v", l)
		}
		text, ok := l.Spell(l.Word + word)
		if !ok {
			return
		}
		// A line with only the word parses back to that word.
		//
		open := ""
		if l.Quote != 0 {
			open = string(l.Quote)
		}
		again, ok := bashline.Parse("x "+open+text+open+" ", breaks)
		if want := (l.Word + word)[l.Head:]; want != "" && (!ok || len(again.Words) != 2 || again.Words[1] != want) {
			t.Fatalf("%q is spelled %q, which is %+v", want, text, again)
		}
	})
}
