package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
)

// written is the JSON output of init.
type written struct {
	File      string `json:"file"`
	Namespace string `json:"namespace"`
	Tree      string `json:"tree,omitempty"` // folder of the tree
}

func newInit(a *cmdutil.App) *cobra.Command {
	var local, tavern bool
	cmd := &cobra.Command{
		Use: "init [NAMESPACE]", Short: "Set up the project in this directory: write a tally.toml", Args: cobra.MaximumNArgs(1),
		Long: `Set up the project in this directory: write a tally.toml with a namespace for the
project, by default the name of the directory. The sessions of the project are then
kept apart from those of other projects in the same store. With --local the project
has a store of its own. With --tavern its documents, agents and workflows are also
files in .tavern, and changes of these files are stored.`,
		Example: cmdutil.Examples("tally init", "tally init travel-agent", "tally init --local", "tally init --tavern"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			ns := namespaceOf(filepath.Base(dir))
			if len(args) == 1 {
				ns = args[0]
			}
			if err := events.ValidateNamespace(ns); err != nil {
				return err
			}
			text := "# tally: see https://github.com/tallylog/tally\nnamespace = \"" + ns + "\"\n"
			if local {
				text += "\n[store]\ndir = \".tally-store\"\n"
			}
			w := written{File: filepath.Join(dir, config.FileName), Namespace: ns}
			if tavern {
				text += "\n[[tree]]\nname = \"tavern\"\nlayout = \"tavern\"\ndir = \"" + tavernFolder + "\"\n"
				w.Tree = filepath.Join(dir, tavernFolder)
			}
			if err := writeNew(config.FileName, text); err != nil {
				return err
			}
			if tavern {
				if err := os.MkdirAll(tavernFolder, 0o755); err != nil {
					return err
				}
			}
			if a.Format != cli.Text {
				return cli.WriteJSON(a.Out, a.Format, w)
			}
			if tavern {
				return a.Say("Wrote %s: sessions of this project go to namespace %s, and documents of agents are files in %s. tally serve keeps them up to date.", config.FileName, ns, tavernFolder)
			}
			return a.Say("Wrote %s: sessions of this project go to namespace %s.", config.FileName, ns)
		},
	}
	cmd.Flags().BoolVar(&local, "local", false, "keep the store in .tally-store beside the file")
	cmd.Flags().BoolVar(&tavern, "tavern", false, "keep documents, agents and workflows as files in .tavern")
	return cmd
}

// tavernFolder is the folder of Tavern in a project.
const tavernFolder = ".tavern"

// writeNew creates a file. If the file exists, it returns an error.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already", name)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// namespaceOf derives a namespace from the name of a directory.
func namespaceOf(name string) string {
	ns := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return r
		}
		return '-'
	}, name)
	return ns[:min(len(ns), 64)]
}
