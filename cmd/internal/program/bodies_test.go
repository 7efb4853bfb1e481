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

// unsafeWords put a text into a command line in which it is taken for options or for a
// program: a message that begins with --eval= was run by make.
var unsafeWords = regexp.MustCompile("\\$\\((cat|<)|\"`(cat|<)|\\bxargs\\b|\\beval \"?\\$|\\$\\{?(BODY|TALLY_BODY|1)\\b|read[^|;&]*&& *\\w+ \"?\\$")

// safeXargs hands words over behind --, each whole.
var safeXargs = regexp.MustCompile(`\bxargs -0 [^|;&]* --$`)

// What a stranger writes is handed over on standard input or behind --, in whatever help
// text or page shows how.
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
			t.Errorf("only %d texts were read", len(texts))
		}
	})
	t.Run("B-06 what is forbidden", func(t *testing.T) {
		for _, line := range []string{`sh -c 'make "$(cat)"'`, "sh -c 'claude -p \"`cat`\"'", `sh -c 'claude -p "$(</dev/stdin)"'`, "jq -r .id | xargs tally queue retry build", `read x && make "$x"`, `eval "$x"`} {
			if unsafeWords.FindString(line) == "" || safeXargs.MatchString(line) {
				t.Errorf("%s is let through", line)
			}
		}
	})
}

// helps collects what the help of a command and of those below it says.
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
