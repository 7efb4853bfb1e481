package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// unsafeWords matches command lines that pass a message as an argument, where it may be taken for options or run as a
// program: make ran a message that began with --eval=.
var unsafeWords = regexp.MustCompile("\\$\\((cat|<)|\"`(cat|<)|\\bxargs\\b|\\beval \"?\\$|\\$\\{?(BODY|TALLY_BODY|1)\\b|read[^|;&]*&& *\\w+ \"?\\$")

// safeXargs matches xargs calls that pass each word whole and after --.
var safeXargs = regexp.MustCompile(`\bxargs -0 [^|;&]* --$`)

// Help texts and pages pass the text of messages and items on standard input or after --, never as a part of a command
// line.
func TestBodiesInCommandLines(t *testing.T) {
	t.Run("B-06 help texts and pages", func(t *testing.T) {
		texts := pages(t)
		helps(tree(t), texts)
		for name, text := range texts {
			for line := range strings.Lines(text) {
				line = strings.TrimRight(line, " \n")
				if found := unsafeWords.FindString(line); found != "" && !safeXargs.MatchString(line) {
					t.Errorf("%s shows %q: %s", name, found, line)
				}
			}
		}
		if len(texts) < 100 {
			t.Errorf("got only %d texts", len(texts))
		}
	})
	t.Run("B-06 what is forbidden", func(t *testing.T) {
		for _, line := range []string{`sh -c 'make "$(cat)"'`, "sh -c 'claude -p \"`cat`\"'", `sh -c 'claude -p "$(</dev/stdin)"'`, "jq -r .id | xargs tally queue retry build", `read x && make "$x"`, `eval "$x"`} {
			if unsafeWords.FindString(line) == "" || safeXargs.MatchString(line) {
				t.Errorf("%s: got no match", line)
			}
		}
	})
}

// helps collects the help texts of a command and of its subcommands.
func helps(c *cobra.Command, texts map[string]string) {
	texts[c.CommandPath()] = c.Short + "\n" + c.Long + "\n" + c.Example + "\n" + c.Flags().FlagUsages()
	for _, sub := range c.Commands() {
		helps(sub, texts)
	}
}

// pages reads the pages and the doc comments of the module.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	const root = "../../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		page := strings.HasSuffix(path, ".md")
		if !page && (!strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")) {
			return nil
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if page || strings.HasPrefix(strings.TrimSpace(line), "//") {
				texts[path] += line
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
