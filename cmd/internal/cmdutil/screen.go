package cmdutil

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/render/plain"
)

// paged marks a command with a paged result.
const paged = "tally-paged"

// Paged shows the results of commands in a pager if they are longer than the terminal. With --follow they are not
// paged.
func Paged(list ...*cobra.Command) []*cobra.Command {
	for _, c := range list {
		if c.Annotations == nil {
			c.Annotations = make(map[string]string)
		}
		c.Annotations[paged] = "yes"
	}
	return list
}

// toScreen prepares output for a terminal: JSON with escapes for control characters, and long text in a pager.
func (a *App) toScreen(c *cobra.Command) {
	follow, _ := c.Flags().GetBool("follow")
	switch {
	case !cli.IsTerminal(a.Out):
	case a.Format != cli.Text:
		a.Out = filter{a.Out, plain.JSON}
	case c.Annotations[paged] != "" && !follow && !a.noPager:
		a.page()
	}
}

// page starts a pager for the output that follows, which shows it if it is longer than the terminal.
func (a *App) page() {
	command := pagerCommand(os.LookupEnv)
	if command == nil || a.pager != nil {
		return
	}
	a.pager = newPager(cli.Terminal(a.Out), command, cli.Height(a.Out))
	a.Out = a.pager
	if cli.IsTerminal(a.Err) {
		a.Err = messages{a.pager, a.Err}
	}
}

// help shows every help text in a pager and as wide as the terminal.
func (a *App) help(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if cli.IsTerminal(a.Out) && !a.noPager {
			a.page()
			root.SetOut(a.Out)
		}
		out, text := c.OutOrStdout(), new(strings.Builder)
		if c == root {
			text.WriteString(overview(root, false))
		} else {
			c.SetOut(text)
			show(c, args)
			c.SetOut(out)
		}
		io.WriteString(out, fit(text.String(), cli.Width(out)))
	})
}

// Bytes returns a writer for stored bytes. On a terminal it replaces characters that cannot be printed.
func (a *App) Bytes() io.Writer {
	if cli.IsTerminal(a.Out) {
		return filter{a.Out, plain.Printable}
	}
	return a.Out
}

// Shown returns a stored text as Bytes would write it.
func (a *App) Shown(content string) string {
	if cli.IsTerminal(a.Out) {
		return plain.Printable(content)
	}
	return content
}

// filter changes the text of each write. A write has whole characters.
type filter struct {
	to     io.Writer
	change func(string) string
}

func (f filter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(f.to, f.change(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Terminal implements cli.Screen.
func (f filter) Terminal() *os.File { return cli.Terminal(f.to) }
