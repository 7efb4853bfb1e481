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

// Flag returns a flag for the mode.
func (m *ColorMode) Flag() pflag.Value { return OneOf(m, "when", ColorAuto, ColorAlways, ColorNever) }

// Style colours text. The zero value does not.
type Style struct{ on bool }

// NewStyle returns the style for a writer: by the mode, else by NO_COLOR, FORCE_COLOR or TERM=dumb, else coloured on a
// terminal.
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

// Bold, Dim and the colours return a text with the escape sequences of a terminal.
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
