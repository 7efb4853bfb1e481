package cli

import (
	"os"
	"strconv"

	"golang.org/x/term"
)

// A Screen is a writer that ends on a terminal, through a pager or a filter.
type Screen interface{ Terminal() *os.File }

// Terminal returns the terminal behind a reader or writer, or nil.
func Terminal(w any) *os.File {
	if s, ok := w.(Screen); ok {
		w = s.Terminal()
	}
	if f, ok := w.(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool { return Terminal(w) != nil }

const (
	minWidth   = 20 // minimum width of formatted text
	usualWidth = 80 // of a terminal with an unknown width

	// NoWidth is the width of a file or pipe: nothing is cut.
	NoWidth = 1 << 30
)

// Width returns the number of columns of a terminal. For a file or pipe it is COLUMNS, else NoWidth.
func Width(w any) int {
	f := Terminal(w)
	if f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return max(width, minWidth)
		}
	}
	switch width := columnsOf(); {
	case width > 0:
		return width
	case f != nil:
		return usualWidth
	}
	return NoWidth
}

// Height returns the number of lines of a terminal.
func Height(w any) int {
	if f := Terminal(w); f != nil {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return 24
}

// columnsOf returns the value of COLUMNS, 0 if it is not set.
func columnsOf() int {
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || n < minWidth || n > 1000 {
		return 0
	}
	return n
}
