// Package program builds the three programs: tally with all commands, and tally-ingest and tally-replay with a part of
// them.
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

// groups lists the commands in the order of the help. The first four groups are the help of tally; the others are shown
// by tally help --all.
var groups = []cmdutil.Group{
	{Title: "Record and look", Verbs: []string{"watch", "ls", "show", "search", "cost", "log", "diff"}},
	{Title: "Rewind and fork", Verbs: []string{"rewind", "undo", "redo", "fork"}},
	{Title: "Write, import and export", Verbs: []string{"append", "import", "export"}},
	{Title: "Maintain", Verbs: []string{"backup", "restore", "serve", "doctor", "status"}},
	{Title: "Documents, agents and queues", Verbs: []string{"doc", "agent", "inbox", "queue", "flow", "transcript"}, More: true},
	{Title: "More recording", Verbs: []string{"exec", "hook", "setup", "sources"}, More: true},
	{Title: "More to look at", Verbs: []string{"runs", "jobs", "stats"}, More: true},
	{Title: "More maintenance", Verbs: []string{"verify", "rebuild", "copy", "forget", "daemon", "token", "tree", "secrets", "quota", "types"}, More: true},
	{Title: "Setup", Verbs: []string{"config", "init", "completion", "version"}, More: true},
}

// commands returns all commands of tally.
func commands(a *cmdutil.App) []*cobra.Command {
	return slices.Concat(record.Commands(a), edit.Sessions(a), inspect.Commands(a), []*cobra.Command{newDoc(a)}, team.Commands(a), edit.Rewind(a), admin.Maintain(a), admin.Serve(a))
}

// Tally returns the program tally.
func Tally(a *cmdutil.App) *cobra.Command {
	return program(a, &cobra.Command{
		Use: "tally", Short: "An append-only log of what AI agents say, do and cost",
		Long: `tally records what your AI agents say, do and cost in an append-only log, so you
can look at any earlier state, undo, and lose nothing.`,
	})
}

// Ingest returns the program tally-ingest.
func Ingest(a *cmdutil.App) *cobra.Command {
	return program(a, &cobra.Command{
		Use: "tally-ingest", Short: "Record the sessions of AI agents in an append-only log",
		Long: `tally-ingest has the commands of tally that record sessions: it follows agents,
imports files and appends events.`,
	}, "watch", "exec", "hook", "setup", "sources", "import", "append", "init", "serve", "status", "version", "completion", "__bash")
}

// Replay returns the program tally-replay.
func Replay(a *cmdutil.App) *cobra.Command {
	return program(a, &cobra.Command{
		Use: "tally-replay", Short: "Look at recorded sessions; rewind, fork and export them",
		Long: `tally-replay has the commands of tally that read sessions, rewind, fork and export
them. It replays recorded events: it calls no model and runs no tool.`,
	}, "ls", "show", "log", "search", "runs", "jobs", "diff", "cost", "stats", "rewind", "undo", "redo", "fork", "export", "verify", "rebuild", "status", "version", "completion", "__bash")
}

// program adds the named commands to a root, all if none is named.
func program(a *cmdutil.App, root *cobra.Command, verbs ...string) *cobra.Command {
	list := slices.Clone(groups)
	for n := range list {
		list[n].More = list[n].More && len(verbs) == 0
	}
	for _, cmd := range commands(a) {
		if len(verbs) == 0 || slices.Contains(verbs, cmd.Name()) {
			root.AddCommand(cmd)
		}
	}
	cmdutil.Arrange(root, list)
	return root
}
