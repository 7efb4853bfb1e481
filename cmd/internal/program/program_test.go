package program_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
)

// verbs returns the commands of a program with their short descriptions.
func verbs(root *cobra.Command) map[string]string {
	list := make(map[string]string)
	for _, cmd := range root.Commands() {
		list[cmd.Name()] = cmd.Short
	}
	return list
}

// The two smaller programs have commands of tally and no others.
func TestPartsOfOneProgram(t *testing.T) {
	all := verbs(program.Tally(new(cmdutil.App)))
	for name, part := range map[string]struct {
		root  *cobra.Command
		verbs string
	}{
		"tally-ingest": {program.Ingest(new(cmdutil.App)), "watch exec hook setup sources import append init serve status version completion __bash"},
		"tally-replay": {program.Replay(new(cmdutil.App)), "ls show runs jobs log rewind undo redo fork diff cost stats search status rebuild verify export version completion __bash"},
	} {
		has := verbs(part.root)
		for _, verb := range strings.Fields(part.verbs) {
			if has[verb] == "" || has[verb] != all[verb] {
				t.Errorf("%s %s: got %q, want %q as in tally", name, verb, has[verb], all[verb])
			}
			delete(has, verb)
		}
		for verb := range has {
			t.Errorf("%s has a further command %s", name, verb)
		}
	}
}

// Each command is in a group, and the help of each command fits its screen.
func TestHelp(t *testing.T) {
	help := func(args ...string) string {
		var out bytes.Buffer
		if err := cmdutil.Run(t.Context(), program.Tally, args, strings.NewReader(""), &out, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	lines := func(text string) int { return strings.Count(text, "\n") }
	all := help("help", "--all")
	for _, cmd := range program.Tally(new(cmdutil.App)).Commands() {
		if cmd.GroupID == "" && !cmd.Hidden {
			t.Errorf("%s has no group", cmd.Name())
		}
		if !cmd.Hidden && !strings.Contains(all, "\n  "+cmd.Name()+" ") {
			t.Errorf("help --all lacks %s", cmd.Name())
		}
	}
	week := help()
	if week != help("help") || week != help("--help") || lines(week) > 40 {
		t.Errorf("the help: got %d lines, or a difference between help and --help:\n%s", lines(week), week)
	}
	if verbs := regexp.MustCompile(`(?m)^  \w`).FindAllString(week, -1); len(verbs) != 19 {
		t.Errorf("the help: got %d commands:\n%s", len(verbs), week)
	}
	if lines(all) > 85 {
		t.Errorf("help --all: got %d lines", lines(all))
	}
	concepts := help("help", "concepts")
	if lines(concepts) > 24 {
		t.Errorf("help concepts: got %d lines", lines(concepts))
	}
	for _, word := range strings.Fields("session turn thread position rewind fork cost project") {
		if !strings.Contains("\n"+concepts, "\n"+word+" ") {
			t.Errorf("help concepts lacks %s", word)
		}
	}
	for _, text := range []string{week, all, concepts} {
		for line := range strings.Lines(text) {
			if len(line) > 81 {
				t.Errorf("got %d columns: %s", len(line)-1, line)
			}
		}
	}
}
