package program

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each command on a page exists.
func TestPagesNameCommands(t *testing.T) {
	root := tree(t)
	text, err := os.ReadFile("../../../docs/from-tavern.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("`tally ([^`]+)`").FindAllStringSubmatch(string(text), -1)
	for _, line := range lines {
		words := strings.Fields(line[1])
		cmd, rest, err := root.Find(words)
		if err != nil || cmd == root || !cmd.Runnable() || cmd.HasSubCommands() {
			t.Errorf("tally %s: unknown command: %v", line[1], err)
			continue
		}
		for _, word := range rest {
			if word == "--" { // the words after it are another program's
				break
			}
			if name, ok := strings.CutPrefix(word, "--"); ok && cmd.Flag(name) == nil {
				t.Errorf("tally %s: unknown flag --%s", line[1], name)
			}
		}
	}
	if len(lines) < 15 {
		t.Errorf("got %d commands on the page", len(lines))
	}
}
