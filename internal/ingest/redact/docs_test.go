package redact_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/ingest/redact"
)

var update = flag.Bool("update", false, "write the table of docs/redaction.md")

// The table in the documentation equals the rules in the code.
func TestDocs(t *testing.T) {
	const page, head = "../../../docs/redaction.md", "| rule | finds | shape | described by |\n|---|---|---|---|\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("%s has no table that begins with %s", page, head)
	}
	table, after, _ := strings.Cut(rest, "\n\n")
	if want := tableOf(redact.Rules()); table != want {
		if !*update {
			t.Fatalf("the table of %s differs from the rules; -update writes it; want:\n%s", page, want)
		}
		if err := os.WriteFile(page, []byte(before+head+want+"\n\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func tableOf(rules []redact.Rule) string {
	var rows []string
	for _, r := range rules {
		shapes := strings.Join(r.Shapes, "`<br>`")
		if strings.Contains(shapes, "[") || strings.Contains(shapes, "{") {
			shapes = "`" + shapes + "`"
		}
		if strings.Contains(r.Shapes[0], "`") {
			shapes = r.Shapes[0]
		}
		rows = append(rows, "| `"+r.Name+"` | "+r.Finds+" | "+strings.ReplaceAll(shapes, "|", `\|`)+" | "+r.Origin+" |")
	}
	return strings.Join(rows, "\n")
}
