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
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// configuration is the output of config.
type configuration struct {
	Settings   []config.Setting `json:"settings"`
	Files      []config.File    `json:"files"` // files that were looked for, in ascending order of precedence
	Durability string           `json:"durability,omitempty"`
	Sync       string           `json:"sync,omitempty"`
	Notices    []string         `json:"notices,omitempty"`
}

func newConfig(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "config", Short: "Show all settings and where each comes from", Args: cobra.NoArgs,
		Long: `Show all settings with their values and where each comes from: a flag, an environment
variable, a line of a file, or the default. The first of these that has a setting wins:
flag, variable, the nearest tally.toml, $XDG_CONFIG_HOME/tally/config.toml, the
variables of the nats command. Secrets are not shown. No store is opened, and no server
is asked.`,
		Example: cmdutil.Examples("tally config", "tally config --store /srv/tally", "tally config -o json"),
		RunE: func(*cobra.Command, []string) error {
			c, wrong := a.Config()
			err := printConfig(a, configurationOf(c))
			return errors.Join(err, wrong) // settings read before the error are shown
		},
	}
}

func configurationOf(c config.Config) configuration {
	out := configuration{Files: cli.NonNil(c.Files())}
	for _, s := range c.Settings() {
		if s.Value = cmp.Or(s.Value, unset(s.Name)); s.Value != "" {
			out.Settings = append(out.Settings, s)
		}
	}
	for _, n := range c.Notices {
		out.Notices = append(out.Notices, fmt.Sprintf("%s (found %s; set it in %s)", n.Text, n.Path, n.Instead))
	}
	if c.Backend == config.Local {
		out.Durability, out.Sync = log.Durable.String(), storedir.SyncMethod(nearestExisting(c.Store), embedded.ServerVersion)
	}
	return out
}

// unset returns the default of a setting, as far as it is known without asking a server.
func unset(name string) string {
	switch name {
	case "store.segment":
		return fmt.Sprintf("%dMiB", embedded.DefaultSegment>>20) // in the spelling of a file
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
			from += " (not used by this backend)"
		}
		t.Rows = append(t.Rows, []string{s.Name, s.Value, from})
	}
	if err := a.Table(t); err != nil {
		return err
	}
	return c.rest(a)
}

// rest prints the lines below the table.
func (c configuration) rest(a *cmdutil.App) error {
	fmt.Fprintln(a.Out)
	for _, f := range c.Files {
		not := ""
		if !f.Read {
			not = ", which does not exist"
		}
		a.Say("Configuration file: %s%s.", f.Path, not)
	}
	for _, n := range c.Notices {
		a.Say("Note: %s.", n)
	}
	if c.Sync == "" {
		return nil
	}
	return a.Say("Acknowledged events are %s: %s.", c.Durability, c.Sync)
}

// nearestExisting returns a directory, or its nearest parent that exists.
func nearestExisting(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}
