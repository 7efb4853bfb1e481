package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// DiskUse returns the sum of the sizes of the files below a directory. Files that are removed meanwhile do not count.
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

// IsAway reports whether an error says that the store did not answer. The call may succeed when it is repeated on a
// store that is opened again. A read-only file system stays so, and so does a store that was moved or is a copy.
func IsAway(err error) bool {
	if cli.Is[*embedded.ReadOnlyError](err) || cli.Is[*log.MovedError](err) || cli.Is[*log.CopyingError](err) || events.IsStored(err) {
		return false
	}
	return errors.Is(err, log.ErrUnavailable) || errors.Is(err, log.ErrUnknown)
}

// Examples formats command lines for the examples of a help text.
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

// Program returns the words that run this program: tally, or go run with its folder.
func Program() string {
	if exe, err := os.Executable(); err == nil && strings.Contains(filepath.ToSlash(exe), "/go-build") {
		return "go run ./cmd/tally"
	}
	return "tally"
}

// StoreFlags returns the flags of this call that name the store, for command lines in hints.
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

// Table prints a table with a bold head, as wide as the output.
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

// Say prints a sentence, wrapped at the width of the output.
func (a *App) Say(format string, args ...any) error {
	_, err := fmt.Fprintln(a.Out, strings.Join(render.Wrap(fmt.Sprintf(format, args...), cli.Width(a.Out)), "\n"))
	return err
}

// ListTurns prints the number of turns, and each turn on a line after a sign. Of many turns it prints the first 10.
func (a *App) ListTurns(ctx context.Context, what, sign string, turns projector.Turns) error {
	const most = 10
	style, width := a.Style(), cli.Width(a.Out)
	paint := map[string]func(string) string{"-": style.Red, "+": style.Green}[sign]
	fmt.Fprintf(a.Out, "%s: %s\n", what, plain.Count(turns.Count, "turn"))
	n := 0
	for t, err := range turns.All(ctx) {
		if err != nil {
			return err
		}
		if n++; n > most && turns.Count > most+1 {
			fmt.Fprintf(a.Out, "  %s ... and %d more\n", sign, turns.Count-most)
			break
		}
		place := fmt.Sprintf(" %s#%d %v  ", render.Cut(t.Thread, max(width/3, 8)), t.Number, t.Offset)
		fmt.Fprintln(a.Out, "  "+paint(sign)+place+render.Summary(t.Turn, render.Excerpt(width-3-len(place))))
	}
	return nil
}
