package cmdutil

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Group is a part of a program's help.
type Group struct {
	Title string
	Verbs []string // in the order of the help
	More  bool     // only help --all shows it
}

// Arrange puts the commands of a program into groups. A group without commands is left out.
func Arrange(root *cobra.Command, groups []Group) {
	for _, g := range groups {
		for n, verb := range g.Verbs {
			for _, cmd := range root.Commands() {
				if cmd.Name() != verb {
					continue
				}
				if !root.ContainsGroup(g.Title) {
					root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title})
				}
				cmd.GroupID = g.Title
				cmd.Annotations = with(cmd.Annotations, order, fmt.Sprintf("%02d", n))
				if g.More {
					cmd.Annotations[groupMore] = "yes"
				}
			}
		}
	}
}

// Keys of annotations: the place of a command in its group, and whether only help --all shows it.
const (
	order     = "tally-order"
	groupMore = "tally-more"
)

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = make(map[string]string)
	}
	m[key] = value
	return m
}

// overview returns the help of a program: its commands in groups. Without all, commands that are needed less often are
// left out.
func overview(root *cobra.Command, all bool) string {
	name := root.Name()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage: %s COMMAND [ARGUMENT]... [FLAG]...\n", root.Long, name)
	hidden := false
	for _, g := range root.Groups() {
		var list []*cobra.Command
		for _, cmd := range root.Commands() {
			if cmd.GroupID != g.ID || cmd.Hidden {
				continue
			}
			if cmd.Annotations[groupMore] != "" && !all {
				hidden = true
				continue
			}
			list = append(list, cmd)
		}
		slices.SortFunc(list, func(a, b *cobra.Command) int { return strings.Compare(a.Annotations[order], b.Annotations[order]) })
		if len(list) > 0 {
			fmt.Fprintf(&b, "\n%s:\n", g.Title)
		}
		for _, cmd := range list {
			fmt.Fprintf(&b, "  %-11s %s\n", cmd.Name(), cmd.Short)
			if verbs := verbsOf(cmd); len(verbs) > 0 {
				fmt.Fprintf(&b, "  %-11s   %s\n", "", strings.Join(verbs, " "))
			}
		}
	}
	b.WriteString("\n")
	if hidden {
		fmt.Fprintf(&b, "%-24s all commands: documents, agents, queues, maintenance\n", name+" help --all")
	}
	fmt.Fprintf(&b, "%-24s session, turn, thread, position and the other words\n", name+" help concepts")
	fmt.Fprintf(&b, "%-24s one command; also help flags, positions, exit-codes\n", name+" help COMMAND")
	return b.String()
}

// verbsOf returns the names of the verbs of a noun.
func verbsOf(noun *cobra.Command) (list []string) {
	for _, verb := range noun.Commands() {
		if verb.IsAvailableCommand() && verb.Name() != "help" {
			list = append(list, verb.Name())
		}
	}
	return list
}

// concepts explains the words of the help texts on one screen of 24 lines and 80 columns.
const concepts = `session   The recorded history of one conversation or run of an agent. Its turns
          are events in an append-only log. Example: claude/-home-you/5c1a7e3e.
turn      One message of a session: of the user, the model or a tool.
thread    An ordered list of turns within a session. A session has one thread,
          main, or several: one for each model or subagent.
position  A point in the history of a session: #12 is turn 12 of main, gpt-5#3
          turn 3 of another thread, ~2 the point before the last 2 turns, @1234
          an offset in the log; also head, start, or a time.
rewind    To go back to a position. Later turns are no longer in effect but stay
          in the log: undo and redo move between these states.
fork      A new session that begins with the turns of another one up to a
          position. The two go on independently.
cost      The tokens of the model calls of a session, in US dollars by list
          prices. The cost of turns that were rewound still counts.
project   The directory in which an agent worked, by the last part of its path.
          ls, search and cost select by project.

tally show last --at ~2     the latest session before its last 2 turns
tally rewind last --to '#5' go back to turn 5
tally undo last             take the rewind back
`
