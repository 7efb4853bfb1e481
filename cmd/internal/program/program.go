// Package program is the three programs: tally, which has all verbs, and two that have
// a part of them.
package program

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/admin"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/edit"
	"github.com/tallylog/tally/cmd/internal/inspect"
	"github.com/tallylog/tally/cmd/internal/record"
	"github.com/tallylog/tally/cmd/internal/team"
)

// groups are the verbs as the help lists them.
var groups = []struct {
	title    string
	commands func(*cmdutil.App) []*cobra.Command
}{
	{"Follow", record.Commands},
	{"Write", edit.Store},
	{"Inspect", inspect.Commands},
	{"Agents and queues", team.Commands},
	{"Rewind and fork", edit.Rewind},
	{"Maintain", admin.Maintain},
	{"Serve", admin.Serve},
}

// Tally is the program tally.
func Tally(a *cmdutil.App) *cobra.Command {
	return program(a, &cobra.Command{
		Use: "tally", Short: "Durable memory for AI agents: an append-only log of their sessions",
		Long: `Durable memory for AI agents: sessions go into an append-only log, are looked at as
they are and as they were, rewound, forked, searched and exported. What was
acknowledged is never lost, and nothing is deleted.

` + cmdutil.Positions + "\n\n" + cmdutil.Exits,
	})
}

// Ingest is the program tally-ingest.
func Ingest(a *cmdutil.App) *cobra.Command {
	return program(a, &cobra.Command{
		Use: "tally-ingest", Short: "Put sessions into an event log",
		Long: `The verbs of tally that put sessions into an event log, or follow agents that
write some.

` + cmdutil.Exits,
	}, "watch", "exec", "hook", "setup", "sources", "import", "append", "init", "serve", "status", "version", "completion", "__bash")
}

// Replay is the program tally-replay.
func Replay(a *cmdutil.App) *cobra.Command {
	return program(a, &cobra.Command{
		Use: "tally-replay", Short: "Look at sessions as they are and as they were; rewind, fork and export them",
		Long: `The verbs of tally that look at sessions, move and keep them. They fold recorded
events; none calls a model or runs a tool.

` + cmdutil.Positions + "\n\n" + cmdutil.Exits,
	}, "ls", "show", "log", "search", "runs", "jobs", "diff", "cost", "stats", "rewind", "undo", "redo", "fork", "export", "verify", "rebuild", "project", "status", "version", "completion", "__bash")
}

// program gives a root its verbs: all, or those that are named.
func program(a *cmdutil.App, root *cobra.Command, verbs ...string) *cobra.Command {
	for _, g := range groups {
		group := &cobra.Group{ID: g.title, Title: g.title + ":"}
		for _, cmd := range g.commands(a) {
			if len(verbs) > 0 && !slices.Contains(verbs, cmd.Name()) {
				continue
			}
			if !root.ContainsGroup(group.ID) {
				root.AddGroup(group)
			}
			cmd.GroupID = group.ID
			root.AddCommand(cmd)
		}
	}
	return root
}
