package cmdutil

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A page of the documentation describes each format that import reads, with its name in a table.
func TestFormatsAreDocumented(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, readme := read("../../../docs/agents.md"), read("../../../README.md")
	for _, k := range known {
		if !strings.Contains(page, "| `"+k.Format()+"` |") {
			t.Errorf("the first table of docs/agents.md has no row for the format %s", k.Format())
		}
		if k.in == "" {
			t.Errorf("the list of agents does not name the files of %s", k.Name())
		}
	}
	stores, err := filepath.Glob("../../../docs/from-*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range Layouts {
		if !slices.ContainsFunc(stores, func(name string) bool { return strings.Contains(read(name), "--format "+l.Name()) }) {
			t.Errorf("no page docs/from-*.md has --format %s", l.Name())
		}
		if !strings.Contains(readme, "--format "+l.Name()) && !strings.Contains(readme, "`"+l.Name()+"`") {
			t.Errorf("README.md does not name the format %s", l.Name())
		}
		if l.In == "" || l.Out == "" || l.Sign == "" {
			t.Errorf("the list of layouts lacks In, Out or Sign of %s", l.Name())
		}
	}
}
