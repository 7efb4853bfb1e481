package cmd_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// Output with paths, sizes and times has no golden file. It must fit every terminal, and have the same words as in a
// pipe.
func TestFitsTheTerminal(t *testing.T) {
	testkit.OnlyFull(t, "TestGolden has lines that fit, and TestFit of cmdutil cuts them")
	store := goldenStore(t)
	out := t.TempDir()
	output(t, nil, store, "tally", "backup", filepath.Join(out, "older"))
	for name, c := range map[string]struct {
		line string
		once bool // the output differs from run to run
	}{
		"status":         {line: "status", once: true},
		"config":         {line: "config", once: true}, // its paths may be longer than a line
		"doctor":         {line: "doctor", once: true},
		"verify":         {line: "verify", once: true},
		"version":        {line: "version"},
		"help":           {line: "--help"},
		"help of a verb": {line: "help serve"},
		"help of flags":  {line: "help flags"},
		"exit codes":     {line: "help exit-codes"},
		"positions":      {line: "help positions"},
		"import":         {line: "import ../examples/bakery --dry-run", once: true},
		"export":         {line: "export order-desk --format tallydir -C " + filepath.Join(out, "tree"), once: true},
		"page":           {line: "export order-desk --format html -C " + filepath.Join(out, "page"), once: true},
		"backup":         {line: "backup " + filepath.Join(out, "backups"), once: true},
		"backups":        {line: "backup --list " + filepath.Join(out, "older"), once: true},
		"fork":           {line: "fork order-desk --at #2", once: true},
		"rewind":         {line: "rewind order-desk --to #2 --dry-run"},
		"help of jobs":   {line: "help jobs"},
		"help of put":    {line: "doc put --help"},
		"help of docs":   {line: "doc --help"},
		"help of send":   {line: "inbox send --help"},
		"help of work":   {line: "queue work --help"},
		"help of cat":    {line: "doc cat --help"},
		"a watch's help": {line: "doc watch --help"},
		"help of agents": {line: "agent ls --help"},
		"help of agent":  {line: "agent --help"},
		"verify's help":  {line: "agent verify --help"},
		"help of flow":   {line: "flow --help"},
		"help of flows":  {line: "flow ls --help"},
		"transcripts":    {line: "help transcript"},
		"agent":          {line: "agent new Kettle-of-a-name-that-is-longer-than-any-line-of-a-small-terminal --assignment " + strings.Repeat("boil", 60), once: true},
		"put":            {line: "doc put doc/put-PLACE /dev/null --create", once: true},
		"undo":           {line: "undo " + chat + " --dry-run"},
	} {
		t.Run(name, func(t *testing.T) {
			args := func(place int) []string {
				return strings.Fields(strings.ReplaceAll(c.line, "PLACE", fmt.Sprint(place)))
			}
			piped, _ := looking(t, store, nil, args(0)...).CombinedOutput()
			for _, columns := range []int{40, 80, 200} {
				text, _ := onTerminal(t, columns, 1000, looking(t, store, []string{"NO_COLOR=1", "PAGER="}, args(columns)...))
				mustFit(t, text, columns)
				if a, b := strings.Fields(text), strings.Fields(string(piped)); !c.once && columns > 40 && fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("at %d columns: got\n%s\nin a pipe\n%s", columns, text, piped)
				}
			}
		})
	}
}
