package cmd_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tallylog/tally/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// To see how a change affects the golden files: go test ./cmd -run TestGolden -update, and git diff.

// chat is the session of testdata/golden/chat.jsonl.
const chat = "4f1c2a90-7d3e-4a53-9b0e-2f6d8c1b7e55"

// goldens are commands whose output is in testdata/golden, by the name of the file.
var goldens = map[string]string{
	"ls":             "ls",
	"ls-active":      "ls --sort active --limit 2",
	"log":            "log " + chat,
	"log-graph":      "log " + chat + " --graph",
	"log-all":        "log --all-sessions",
	"show":           "show " + chat,
	"show-all":       "show " + chat + " --all",
	"show-tools":     "show " + chat + " --tools full",
	"show-fork":      "show " + chat + "-fork-30",
	"show-last":      "show order-desk --last 2",
	"show-run":       "show order-desk --run run-1785748100000-b4k3ry1",
	"show-traces":    "show order-desk --traces",
	"show-panel":     "show ses_panel",
	"show-panel-one": "show ses_panel --thread beta",
	"search":         "search wind",
	"cost":           "cost",
	"cost-one":       "cost " + chat,
	"stats":          "stats",
	"runs":           "runs order-desk",
	"runs-panel":     "runs ses_panel",
	"diff":           "diff " + chat + " @26 head",
	"diff-stat":      "diff " + chat + " @26 head --stat",
	"docs-ls":        "doc ls",
	"docs-history":   "doc log doc/specs/wind.md",
	"docs-diff":      "doc diff doc/specs/wind.md",
	"docs-links":     "doc links doc/specs/wind.md",
	"docs-backlinks": "doc links doc/goal --back",
	"docs-watch":     "doc watch --after @0 --limit 5",
	"cat":            "doc cat doc/specs/wind.md#1",
	"rewind":         "rewind " + chat + " --to #1 --dry-run",
}

// Every showing command runs at every width, in a pipe and on a terminal, on one store. Its output equals the reviewed
// file in testdata/golden. No line is wider than the terminal; COLUMNS limits the width of a pipe in the same way; and
// colours add no text.
func TestGolden(t *testing.T) {
	store := goldenStore(t)
	for name, line := range goldens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Sample(t, 8)
			args := strings.Fields(line)
			piped := func(env ...string) string {
				c := looking(t, store, env, args...)
				var out, errs bytes.Buffer
				c.Stdout, c.Stderr = &out, &errs
				_ = c.Run() // the exit code is for other tests
				return out.String() + errs.String()
			}
			screen := func(columns int, env ...string) string {
				text, _ := onTerminal(t, columns, 100, looking(t, store, append(env, "PAGER="), args...))
				return text
			}
			var files []txtar.File
			for _, columns := range []int{40, 80, 200} {
				text := screen(columns, "NO_COLOR=1")
				files = append(files, txtar.File{Name: fmt.Sprint(columns), Data: []byte(text)})
				mustFit(t, text, columns)
			}
			files = append(files, txtar.File{Name: "pipe", Data: []byte(piped())})
			golden(t, filepath.Join("testdata", "golden", name+".txt"), txtar.Format(&txtar.Archive{Comment: []byte("tally " + line + "\n"), Files: files}))

			if narrow := piped("COLUMNS=80"); narrow != string(files[1].Data) {
				t.Errorf("with COLUMNS=80, a pipe: got\n%s\nwant as on a terminal\n%s", narrow, files[1].Data)
			}
			if name == "search" {
				return // without colours, search marks the words with other characters
			}
			if plain := colour.ReplaceAllString(screen(80), ""); plain != string(files[1].Data) {
				t.Errorf("coloured output without its colours: got\n%q\nwant\n%q", plain, files[1].Data)
			}
		})
	}
}

// colour matches a control sequence that begins or ends a colour.
var colour = regexp.MustCompile(`\x1b\[[0-9]+m`)

func mustFit(t *testing.T, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.Contains(line, "--after ") {
			continue // one line for the user to copy
		}
		if width := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); width > columns {
			t.Errorf("got %d columns on a terminal of %d: %q", width, columns, line)
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%v; want\n%s\ngot\n%s", err, want, got)
	}
}

// looking prepares a reading command, without the terminal of the test.
func looking(t *testing.T, store string, env []string, args ...string) *exec.Cmd {
	c := command(t.Context(), store, "tally", args...)
	for _, e := range c.Env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "COLUMNS", "TERM", "PAGER", "TALLY_PAGER", "NO_COLOR", "FORCE_COLOR", "LESS", "LANG", "LC_ALL", "LC_CTYPE":
		default:
			env = append(env, e)
		}
	}
	c.Env = append(env, "TERM=xterm", "LANG=C.UTF-8")
	return c
}

// goldenStore makes a store with fixed times, ids and offsets, and an owner for it, so that no command has to open it.
func goldenStore(t *testing.T) string {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	lines := func(name string) *os.File {
		f, err := os.Open(filepath.Join("testdata", "golden", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	add := func(name, session string) {
		output(t, lines(name), store, "tally", "append", session, "--expect", "@0", "-o", "jsonl") // one after the other
	}
	add("panel.jsonl", "ses_panel")
	output(t, nil, store, "tally", "import", "../examples/bakery")
	add("chat.jsonl", chat)
	add("fork.jsonl", chat+"-fork-30")
	add("notes.jsonl", "notes")
	documents, err := os.ReadFile(filepath.Join("testdata", "golden", "documents.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(documents)) {
		output(t, strings.NewReader(line), store, "tally", "append")
	}
	owner(t, store)
	return store
}
