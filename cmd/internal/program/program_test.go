package program_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
)

// verbs returns the verbs of a program with what they do.
func verbs(root *cobra.Command) map[string]string {
	list := make(map[string]string)
	for _, cmd := range root.Commands() {
		list[cmd.Name()] = cmd.Short
	}
	return list
}

// The two smaller programs have verbs of tally, the same ones, and no other; together
// they have all that were in them.
func TestPartsOfOneProgram(t *testing.T) {
	all := verbs(program.Tally(new(cmdutil.App)))
	for name, part := range map[string]struct {
		root  *cobra.Command
		verbs string
	}{
		"tally-ingest": {program.Ingest(new(cmdutil.App)), "watch exec hook setup sources import append init serve status version completion __bash"},
		"tally-replay": {program.Replay(new(cmdutil.App)), "ls show runs jobs log rewind undo redo fork diff cost stats search project status rebuild verify export version completion __bash"},
	} {
		has := verbs(part.root)
		for _, verb := range strings.Fields(part.verbs) {
			if has[verb] == "" || has[verb] != all[verb] {
				t.Errorf("%s %s: %q, and in tally: %q", name, verb, has[verb], all[verb])
			}
			delete(has, verb)
		}
		for verb := range has {
			t.Errorf("%s has %s", name, verb)
		}
	}
}

// Each verb stands in a group of the help.
func TestEveryVerbHasAGroup(t *testing.T) {
	var out bytes.Buffer
	if err := cmdutil.Run(t.Context(), program.Tally, []string{"--help"}, strings.NewReader(""), &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range program.Tally(new(cmdutil.App)).Commands() {
		if cmd.GroupID == "" {
			t.Errorf("%s has no group", cmd.Name())
		}
	}
	for _, group := range []string{"Follow:", "Write:", "Look:", "Team:", "Move:", "Keep:", "Serve:"} {
		if !strings.Contains(out.String(), "\n"+group+"\n") {
			t.Errorf("the help has no group %s", group)
		}
	}
}
