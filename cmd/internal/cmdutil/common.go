package cmdutil

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// DiskUse sums the files below a directory; what vanishes meanwhile does not count.
func DiskUse(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// Examples formats three real examples for --help.
func Examples(lines ...string) string {
	text := ""
	for i, line := range lines {
		if i > 0 {
			text += "\n"
		}
		text += "  " + line
	}
	return text
}

// Program is how to run tally: the way this one was run.
func Program() string {
	if exe, err := os.Executable(); err == nil && strings.Contains(filepath.ToSlash(exe), "/go-build") {
		return "go run ./cmd/tally"
	}
	return "tally"
}

// StoreFlags repeats the flags that name the store, for commands to try next.
func (a *App) StoreFlags() string {
	text := ""
	for _, f := range []struct{ name, value string }{{"store", a.call.Store}, {"server", a.call.URL}, {"context", a.call.Context}, {"namespace", a.call.Namespace}} {
		if f.value == "" {
			continue
		}
		text += " --" + f.name + " " + Quoted(f.value)
	}
	return text
}

// Table prints a table as wide as the output is, its head bold.
func (a *App) Table(t render.Table) error {
	style, paint := a.Style(), t.Paint
	t.Paint = func(row, column int, cell string) string {
		switch {
		case row < 0:
			return style.Bold(cell)
		case paint != nil:
			return paint(row, column, cell)
		}
		return cell
	}
	for _, line := range t.Lines(cli.Width(a.Out)) {
		if _, err := fmt.Fprintln(a.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// Say prints a sentence as wide as the output is.
func (a *App) Say(format string, args ...any) error {
	_, err := fmt.Fprintln(a.Out, strings.Join(render.Wrap(fmt.Sprintf(format, args...), cli.Width(a.Out)), "\n"))
	return err
}

// ListTurns prints turns on a line each as wide as the output is, a sign before each, and
// how many there are.
func (a *App) ListTurns(what, sign string, turns []projector.TurnAt) {
	const most = 10
	style, width := a.Style(), cli.Width(a.Out)
	paint := map[string]func(string) string{"-": style.Red, "+": style.Green}[sign]
	fmt.Fprintf(a.Out, "%s: %s\n", what, plain.Count(len(turns), "turn"))
	for i, t := range turns {
		if i == most && len(turns) > most+1 {
			fmt.Fprintf(a.Out, "  %s ... and %d more\n", sign, len(turns)-most)
			return
		}
		place := fmt.Sprintf(" %s#%d %v  ", render.Cut(t.Thread, max(width/3, 8)), t.Number, t.Offset)
		fmt.Fprintln(a.Out, "  "+paint(sign)+place+render.Summary(t.Turn, render.Excerpt(width-3-len(place))))
	}
}
