package cmd_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// The commands of these pages run from top to bottom in a shell, for a user with this folder's examples and a home
// that has agents' sessions only. The output must equal the page's. TALLY_README=write updates the pages.
func TestReadme(t *testing.T) {
	for _, page := range []struct {
		name  string
		least int // minimum number of commands
	}{{"README.md", 3}, {"docs/tour.md", 10}, {"docs/recipes.md", 15}} {
		t.Run(page.name, func(t *testing.T) {
			if page.name == "docs/recipes.md" {
				testkit.OnlyFull(t, "the other pages have commands of the same kind")
			}
			t.Parallel()
			path := filepath.Join("..", filepath.FromSlash(page.name))
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			if err := os.CopyFS(filepath.Join(home, "tally", "examples"), os.DirFS("../examples")); err != nil {
				t.Fatal(err)
			}
			for _, agent := range []string{".claude", ".codex"} {
				if err := os.CopyFS(filepath.Join(home, agent), os.DirFS(filepath.Join("../examples/home", agent))); err != nil {
					t.Fatal(err)
				}
			}
			r := &reader{t: t, page: page.name, dir: filepath.Join(home, "tally"),
				env: []string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "COLUMNS=110"}}
			written := r.blocks(string(text))
			switch {
			case r.commands < page.least:
				t.Errorf("got %d commands on the page, want %d or more", r.commands, page.least)
			case os.Getenv("TALLY_README") == "write":
				if err := os.WriteFile(path, []byte(written), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// reader follows a page.
type reader struct {
	t        *testing.T
	page     string
	dir      string
	env      []string
	commands int
	watching *watcher
}

// Marks above a block of commands: CI runs the first kind, the second kind runs while the next block runs.
const (
	byCI   = "<!-- two commands -->\n"
	beside = "<!-- meanwhile, in another terminal -->\n"
)

// install is not run: the tests have the program that it builds.
const install = "go install ./cmd/tally"

// blocks runs the blocks of a page, and returns the page with their output.
func (r *reader) blocks(text string) string {
	const begin, end = "```console\n", "```\n"
	before, rest, more := strings.Cut(text, begin)
	if !more {
		return text
	}
	block, rest, _ := strings.Cut(rest, end)
	switch {
	case strings.HasSuffix(before, byCI):
	case strings.HasSuffix(before, beside):
		command, want, _ := strings.Cut(strings.TrimPrefix(block, "$ "), "\n")
		r.watching = r.watch(command)
		rest := r.blocks(rest) // the next block runs first, and ends this one
		return before + begin + "$ " + command + "\n" + r.compare(command, want, r.watching.said) + end + rest
	default:
		block = r.block(block)
		if r.watching != nil && r.watching.said == "" {
			r.watching.end(r.t)
		}
	}
	return before + begin + block + end + r.blocks(rest)
}

// block runs the commands of a block.
func (r *reader) block(text string) string {
	var done strings.Builder
	for _, step := range strings.Split(strings.TrimPrefix(text, "$ "), "\n$ ") {
		command, want, _ := strings.Cut(strings.TrimSuffix(step, "\n"), "\n")
		if want != "" {
			want = strings.TrimRight(want, "\n") + "\n"
		}
		if command == install {
			done.WriteString("$ " + command + "\n")
			continue
		}
		c := r.shell(command)
		got, err := c.CombinedOutput()
		got = progress.ReplaceAll(got, nil)
		if err != nil {
			r.t.Errorf("$ %s\n%v\n%s", command, err, got)
		}
		if text := done.String(); text != "" && text != "$ "+install+"\n" {
			done.WriteByte('\n')
		}
		done.WriteString("$ " + command + "\n" + r.compare(command, want, string(got)))
	}
	return done.String()
}

func (r *reader) shell(command string) *exec.Cmd {
	r.commands++
	ctx, stop := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(stop)
	c := exec.CommandContext(ctx, "bash", "-euc", command)
	c.Dir, c.Env = r.dir, r.env
	return c
}

// ofToday matches the times of records that the reader writes; those of the examples are older.
var ofToday = regexp.MustCompile(`20(2[6-9]-1[0-2]|2[7-9]-\d\d|[3-9]\d-\d\d)-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?Z?`)

// aBackup matches the names of backups, and numbers that depend on their sizes.
var aBackup = regexp.MustCompile(`20\d{6}T\d{6}\.\d{3}Z: [\d.]+ KB, [\d.]+ KB new`)

// progress matches lines that only slow commands print.
var progress = regexp.MustCompile(`(?m)^(reading: .*|stopping; repeat the signal to stop at once)\n`)

// Files of several agents are read concurrently, so the order of their lines varies.
var (
	ofAgents = regexp.MustCompile(`^tally (show (claude|codex|last)|log (claude|codex))`)
	anOffset = regexp.MustCompile(`@\d+ *`)
)

// compare fails unless a command printed the page's text, apart from times. It returns the text for the page.
func (r *reader) compare(command, want, got string) string {
	plain := func(s string) string {
		if ofAgents.MatchString(command) {
			s = anOffset.ReplaceAllString(s, "@N ")
		}
		s = aBackup.ReplaceAllString(strings.ReplaceAll(s, filepath.Dir(r.dir), "/home/you"), "TIME")
		return ofToday.ReplaceAllString(strings.TrimSpace(s), "TIME")
	}
	if plain(want) == plain(got) {
		return want
	}
	if os.Getenv("TALLY_README") != "write" {
		r.t.Errorf("$ %s\nprints\n%s\n%s has\n%s", command, got, r.page, want)
	}
	return strings.ReplaceAll(got, filepath.Dir(r.dir), "/home/you")
}

// watcher is a command that prints until it is stopped.
type watcher struct {
	cmd  *exec.Cmd
	out  growing
	said string
}

func (r *reader) watch(command string) *watcher {
	w := &watcher{cmd: r.shell("exec " + command)}
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	if err := w.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	w.out.settle()
	return w
}

// end stops the command with Ctrl-C, after its output has settled.
func (w *watcher) end(t *testing.T) {
	w.out.settle()
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = w.cmd.Wait() // 130
	w.said = progress.ReplaceAllString(w.out.String(), "")
}

// growing is an output that can be read while it is written.
type growing struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (g *growing) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(p)
}

func (g *growing) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

// settle waits until there is output and no more has arrived for a while.
func (g *growing) settle() {
	for last, n := -1, 0; n < 50; n++ {
		time.Sleep(200 * time.Millisecond)
		size := len(g.String())
		if size == last && size > 0 {
			return
		}
		last = size
	}
}
