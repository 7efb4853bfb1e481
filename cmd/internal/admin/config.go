package admin

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/log"
)

// configuration is what config prints.
type configuration struct {
	Settings   []config.Setting `json:"settings"`
	Files      []config.File    `json:"files"` // in which settings were looked for, what counts most last
	Durability string           `json:"durability,omitempty"`
	Sync       string           `json:"sync,omitempty"`
	Notices    []string         `json:"notices,omitempty"`
}

func newConfig(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "config", Short: "Show each setting, its value, and who said it", Args: cobra.NoArgs,
		Long: `Show each setting with its value and who said it: a flag, a variable, a line of a
file, or nobody, which is the default. What is said closest to the call wins: flag,
variable, the nearest tally.toml, $XDG_CONFIG_HOME/tally/config.toml, the variables of
the nats command. Secrets are not shown. Nothing is opened, and no server is asked.`,
		Example: cmdutil.Examples("tally config", "tally config --store /srv/tally", "tally config -o json"),
		RunE: func(*cobra.Command, []string) error {
			c, wrong := a.Config()
			err := printConfig(a, configurationOf(c))
			return errors.Join(err, wrong) // what was known until then is shown
		},
	}
}

func configurationOf(c config.Config) configuration {
	out := configuration{Files: cli.NonNil(c.Files())}
	for _, s := range c.Settings() {
		if s.Value = cmp.Or(s.Value, unsaid(s.Name)); s.Value != "" {
			out.Settings = append(out.Settings, s)
		}
	}
	for _, n := range c.Notices {
		out.Notices = append(out.Notices, fmt.Sprintf("%s (found %s; say it in %s)", n.Text, n.Path, n.Instead))
	}
	if c.Backend == config.Local {
		out.Durability, out.Sync = log.Durable.String(), embedded.SyncMethod(standing(c.Store))
	}
	return out
}

// unsaid is what a setting is if nobody says it, as far as that is known without asking
// a server.
func unsaid(name string) string {
	switch name {
	case "store.segment":
		return fmt.Sprintf("%dMiB", embedded.DefaultSegment>>20) // as a file says it
	case "store.min_durability":
		return "any"
	}
	return ""
}

func printConfig(a *cmdutil.App, c configuration) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, c)
	}
	t := render.Table{Head: []string{"SETTING", "VALUE", "FROM"}, Cut: []int{2, 1}}
	for _, s := range c.Settings {
		from := s.Origin.String()
		if !s.Used {
			from += " (of no use to this backend)"
		}
		t.Rows = append(t.Rows, []string{s.Name, s.Value, from})
	}
	if err := a.Table(t); err != nil {
		return err
	}
	return c.rest(a)
}

// rest prints what is said below the table.
func (c configuration) rest(a *cmdutil.App) error {
	fmt.Fprintln(a.Out)
	for _, f := range c.Files {
		not := ""
		if !f.Read {
			not = ", which is not there"
		}
		a.Say("Looked in %s%s.", f.Path, not)
	}
	for _, n := range c.Notices {
		a.Say("Note: %s.", n)
	}
	if c.Sync == "" {
		return nil
	}
	return a.Say("What is acknowledged is %s: %s.", c.Durability, c.Sync)
}

// standing is a directory, or if it is not there, what there is above it.
func standing(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}
