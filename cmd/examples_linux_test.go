package cmd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/internal/testkit"
)

// exampleTable is testdata/examples/table.txt, which explains its lines.
type exampleTable struct {
	before [][2]string       // a command, and a shell line to run first
	ends   map[string]string // an example to an exit code, stop or skip
}

func readExampleTable(t *testing.T) exampleTable {
	t.Helper()
	data, err := os.ReadFile("testdata/examples/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	table := exampleTable{ends: make(map[string]string)}
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		example, reason, _ := strings.Cut(rest, " # ")
		switch {
		case word == "" || word == "#":
		case word == "before":
			of, run, _ := strings.Cut(rest, ": ")
			table.before = append(table.before, [2]string{of, run})
		case word != "stop" && reason == "":
			t.Errorf("testdata/examples/table.txt: no reason: %s", line)
		default:
			table.ends[example] = word
		}
	}
	return table
}

// eachCommand calls f for each command of tally, with its name, and whether it has verbs.
func eachCommand(f func(path string, cmd *cobra.Command, isNoun bool)) {
	root := program.Tally(new(cmdutil.App))
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if cmd != root {
			f(strings.TrimPrefix(cmd.CommandPath(), "tally "), cmd, cmd.HasSubCommands())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

func examplesOf(cmd *cobra.Command) (list []string) {
	for line := range strings.Lines(cmd.Example) {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// calls finds the program's name in front of its arguments, not in names of files.
var calls = regexp.MustCompile(`(?:^|[\s(])tally `)

// Each command has a help text that begins with a sentence, and examples with commands and flags that exist.
func TestHelpTexts(t *testing.T) {
	table, shown := readExampleTable(t), make(map[string]bool)
	eachCommand(func(path string, cmd *cobra.Command, _ bool) {
		if !strings.Contains(cmd.Long, ".") || strings.HasPrefix(cmd.Long, " ") {
			t.Errorf("tally %s: the help does not begin with a sentence: %.80q", path, cmd.Long)
		}
		if cmd.Example == "" {
			t.Errorf("tally %s has no examples", path)
		}
		for _, example := range examplesOf(cmd) {
			shown[example] = true
			for _, call := range calls.Split(example, -1)[1:] {
				checkCall(t, example, strings.Fields(call))
			}
		}
	})
	for example := range table.ends {
		if !shown[example] {
			t.Errorf("testdata/examples/table.txt: no help text has the example %s", example)
		}
	}
}

// checkCall checks the command and the long flags of words up to the end of the call.
func checkCall(t *testing.T, example string, words []string) {
	t.Helper()
	if end := slices.IndexFunc(words, func(word string) bool { return slices.Contains([]string{"|", "&&", "--", ">", "<"}, word) }); end >= 0 {
		words = words[:end]
	}
	root := program.Tally(new(cmdutil.App))
	cmd, _, err := root.Find(words)
	if err != nil || cmd == root && words[0] != "help" {
		t.Errorf("%s: unknown command: %v", example, err)
		return
	}
	common := []string{"store", "server", "namespace", "output", "progress", "log-level"}
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(strings.Trim(name, "'\"`)"), "=")
		known := slices.Contains(common, name) || words[0] == "help"
		for c := cmd; c != nil; c = c.Parent() {
			for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
				known = known || set.Lookup(name) != nil
			}
		}
		if isFlag && !known {
			t.Errorf("%s: unknown flag --%s", example, name)
		}
	}
}

// Each example of a help text runs in a prepared store and ends as it should.
func TestExamplesOfHelp(t *testing.T) {
	if !testkit.Full() {
		t.Skip("TALLY_TESTS=full runs it; TestHelpTexts checks the commands and flags of each example")
	}
	t.Parallel()
	table := readExampleTable(t)
	world := filepath.Join(t.TempDir(), "home")
	for from, to := range map[string]string{"../examples/home/.claude": ".claude", "../examples/home/.codex": ".codex", "../examples/bakery": "conversations"} {
		if err := os.CopyFS(filepath.Join(world, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(world, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/examples/world.sh")
	if err != nil {
		t.Fatal(err)
	}
	if code, out := exampleRun(t, world, ". "+script, 0); code != "0" {
		t.Fatalf("world.sh: got exit code %s\n%s", code, out)
	}
	eachCommand(func(path string, cmd *cobra.Command, isNoun bool) {
		t.Run(path, func(t *testing.T) {
			testkit.OnlyFull(t, "TestHelpTexts checks them, and CI draws commands")
			t.Parallel()
			home := ""
			for n, example := range examplesOf(cmd) {
				if n == 0 || !isNoun { // the examples of a noun build on each other
					home = exampleHome(t, table, world, path)
				}
				playExample(t, table, home, example)
			}
		})
	})
}

// exampleHome returns a copy of the world, prepared for a command.
func exampleHome(t *testing.T, table exampleTable, world, path string) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", world, home).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	for _, before := range table.before {
		if strings.HasPrefix(path+" ", before[0]+" ") {
			if code, out := exampleRun(t, home, before[1], 0); code != "0" {
				t.Fatalf("%s: got exit code %s\n%s", before[1], code, out)
			}
		}
	}
	return home
}

func playExample(t *testing.T, table exampleTable, home, example string) {
	t.Helper()
	want := table.ends[example]
	if want == "skip" {
		return
	}
	patience := time.Duration(0)
	if want == "stop" {
		patience = 2 * time.Second
	}
	if want == "" {
		want = "0"
	}
	line := strings.NewReplacer("/mnt/backups", "backups", "/srv/", "srv/", ":9464", "127.0.0.1:0", "serve --http", "serve --http 127.0.0.1:0").Replace(example)
	if code, out := exampleRun(t, home, line, patience); code != want {
		t.Errorf("%s\ngot exit code %s, want %s\n%s", example, code, want, out)
	}
}

// exampleRun runs a shell line and returns its exit code and output. With patience, it interrupts the line after that
// time and returns stop.
func exampleRun(t *testing.T, home, line string, patience time.Duration) (code, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	if patience > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), patience)
	}
	defer cancel()
	var text growing
	c := exec.CommandContext(ctx, "bash", "-ec", line)
	c.Dir = home
	c.Env = []string{"HOME=" + home, "PATH=" + bin + ":" + filepath.Join(home, "bin") + ":/usr/local/bin:/usr/bin:/bin", "TZ=UTC", "LC_ALL=C.UTF-8", "TALLY_SECRET_KEY_FILE=" + filepath.Join(home, "old-keys")}
	c.Stdout, c.Stderr = &text, &text
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) }
	c.WaitDelay = 20 * time.Second
	err := c.Run()
	exit, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return "stop", text.String()
	case isExit:
		return strconv.Itoa(exit.ExitCode()), text.String()
	case err != nil:
		return fmt.Sprint(err), text.String()
	}
	return "0", text.String()
}
