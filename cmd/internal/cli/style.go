package cli

import (
	"io"

	"github.com/spf13/pflag"
)

// ColorMode says when text is coloured.
type ColorMode string

const (
	ColorAuto   ColorMode = "auto" // on a terminal
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// Flag takes the mode from a command line.
func (m *ColorMode) Flag() pflag.Value { return OneOf(m, "when", ColorAuto, ColorAlways, ColorNever) }

// Style colours text, or leaves it as it is. The zero value leaves it.
type Style struct{ on bool }

// NewStyle decides for a writer: what was asked for, else NO_COLOR, FORCE_COLOR,
// TERM=dumb, else whether it is a terminal.
func NewStyle(w io.Writer, m ColorMode, getenv func(string) string) Style {
	switch force := getenv("FORCE_COLOR"); {
	case m == ColorAlways:
		return Style{true}
	case m == ColorNever, getenv("NO_COLOR") != "":
		return Style{}
	case force != "" && force != "0" && force != "false":
		return Style{true}
	case force != "", getenv("TERM") == "dumb":
		return Style{}
	}
	return Style{IsTerminal(w)}
}

// Bold, Dim and the colours return a text as a terminal shows it so.
func (s Style) Bold(text string) string   { return s.with("1", text) }
func (s Style) Dim(text string) string    { return s.with("2", text) }
func (s Style) Red(text string) string    { return s.with("31", text) }
func (s Style) Green(text string) string  { return s.with("32", text) }
func (s Style) Yellow(text string) string { return s.with("33", text) }
func (s Style) Cyan(text string) string   { return s.with("36", text) }

func (s Style) with(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
