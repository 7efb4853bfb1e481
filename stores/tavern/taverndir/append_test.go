package taverndir_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// The present bytes of an agent's log stay when entries are appended.
func TestAppendedFiles(t *testing.T) {
	const good = `{"event":"break","timestamp":"2026-08-22T10:00:00Z"}`
	for kind, before := range map[string]string{"text": good + "\nno\n" + good + "\n", "torn": good + "\n{\"event\":\"br", "CRLF": good + "\r\nno\r\n", "BOM": "\ufeff" + good + "\n" + good + "\n",
		"NUL": good + "\n\x00\x00\n", "NUL at the end": good + "\n\x00\x00", "not UTF-8": "\xff\n" + good, "blanks": " " + good + " \n\t\n", "good": good + "\n" + good, "none": ""} {
		t.Run("B-46 an append rewrites no line that is there/"+kind, func(t *testing.T) {
			const name = "agents/kettle/sessions.jsonl"
			ctx, st, files := t.Context(), openStore(t), map[string]string{"agents/kettle/agent.md": node(id1, "Kettle", "idle"), name: before}
			dir := folder(t, ".tavern", files)
			imported(t, st, dir, layouts.ImportOptions{})
			for _, reason := range []string{"one", "two", "three"} {
				if err := tavern.LifecycleOf(st, "agent/"+id1, nil).Break(ctx, reason); err != nil {
					t.Fatal(err)
				}
				after, _ := layouttest.Exported(t, st, taverndir.Layout{})
				rest, ok := strings.CutPrefix(after[name], before)
				if !ok || !strings.HasSuffix(rest, `"reason":"`+reason+"\"}\n") || strings.Count(strings.TrimSpace(rest), "\n") != 0 || before != "" && !strings.HasSuffix(before, "\n") && rest[0] != '\n' {
					t.Fatalf("%q became %q", before, after[name])
				}
				before = after[name]
				write(t, dir, map[string]string{name: before})
				if r := imported(t, st, dir, layouts.ImportOptions{}); len(r.Refused) > 0 {
					t.Fatalf("the import of the export was refused: %+v", r)
				}
			}
		})
	}
}
