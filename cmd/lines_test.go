//go:build unix

package cmd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// place is a store, with the arguments that name it.
type place struct {
	t    *testing.T
	dir  string   // the working directory of commands
	args []string // arguments that name the store
}

// places runs a test on a store of this machine, and on a server that others run.
func places(t *testing.T, test func(p place)) {
	for _, where := range []string{"local", "nats"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			if where != "local" {
				testkit.OnlyFull(t, "the same runs on a directory of this machine")
			}
			p := place{t: t, dir: t.TempDir()}
			p.args = []string{"--store", filepath.Join(p.dir, "store")}
			if where == "nats" {
				s, err := startNATS(t.TempDir(), natsPayload)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { stopNATS(s) })
				p.args = []string{"--server", s.ClientURL()}
			}
			test(p)
		})
	}
}

// command prepares a command; the store is named before --, if -- is among the arguments.
func (p place) command(stdin string, args ...string) *exec.Cmd {
	c := exec.CommandContext(p.t.Context(), filepath.Join(bin, "tally"), slices.Concat(args[:1], p.args, args[1:])...)
	c.Dir, c.Stdin = p.dir, strings.NewReader(stdin)
	c.Env = append(os.Environ(), "HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir)
	return c
}

// run runs a command that must end with a code, and returns its output.
func (p place) run(code int, stdin string, args ...string) string {
	p.t.Helper()
	c := p.command(stdin, args...)
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	_ = c.Run()
	if got := c.ProcessState.ExitCode(); got != code {
		p.t.Errorf("tally %q: got code %d, want %d:\n%s", args, got, code, errw.String())
	}
	return out.String()
}

func (p place) item(id string) itemLine {
	p.t.Helper()
	list := jsonLines[itemLine](p.t, strings.NewReader(p.run(0, "", "queue", "show", "q", id, "-o", "jsonl")))
	if len(list) != 1 {
		p.t.Fatalf("got %d items that are %s", len(list), id)
	}
	return list[0]
}

// A worker starts a process for each item, and holds the item until the process ends.
func TestWorkLine(t *testing.T) {
	testkit.NotUnderRace(t)
	places(t, func(p place) {
		p.run(0, "", "queue", "add", "q", "--configure", "--lease", "300ms", "--max-attempts", "3")
		p.t.Run("D-46 a process for an item, with it as input, and its output as the result", func(t *testing.T) {
			p.run(0, `{"n": 1.0}`, "queue", "add", "q", "--whole", "--id", "a")
			p.run(0, "", "queue", "work", "q", "--once", "--worker", "w", "--", "sh", "-c", `cat > a.in; echo "{\"did\":\"$TALLY_QUEUE $TALLY_ITEM $TALLY_ATTEMPT\"}"`)
			got := p.item("a")
			result, _ := got.History[0].Result.(map[string]any)
			if in, err := os.ReadFile(filepath.Join(p.dir, "a.in")); got.State != "done" || result["did"] != "q a 1" || string(in) != `{"n": 1.0}` {
				t.Errorf("got %+v; read %q, %v", got, in, err)
			}
		})
		p.t.Run("D-46 the lease is renewed while the process lives", func(t *testing.T) {
			p.run(0, "x", "queue", "add", "q", "--whole", "--id", "long")
			p.run(0, "", "queue", "work", "q", "--once", "--worker", "w", "--", "sleep", "1")
			if got := p.item("long"); got.State != "done" || len(got.History) != 1 {
				t.Errorf("got %+v", got)
			}
		})
		p.t.Run("D-46 the item of a process that dies, or of a worker that does, is handed out again", func(t *testing.T) {
			p.run(0, "x", "queue", "add", "q", "--whole", "--id", "dies")
			p.run(1, "", "queue", "work", "q", "--once", "--worker", "first", "--", "sh", "-c", "kill -KILL $$")
			killed := p.command("", "queue", "work", "q", "--worker", "second", "--", "sh", "-c", "touch begun; sleep 2")
			if err := killed.Start(); err != nil {
				t.Fatal(err)
			}
			mustAppear(t, filepath.Join(p.dir, "begun"))
			if err := killed.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = killed.Wait()
			p.run(0, "", "queue", "work", "q", "--once", "--worker", "third", "--", "true")
			got := p.item("dies")
			var tries []string
			for _, try := range got.History {
				tries = append(tries, try.Worker+" "+try.Outcome)
			}
			if all := strings.Join(tries, ", "); got.State != "done" || all != "first failed, second lost, third completed" {
				t.Errorf("got %s: %s", got.State, all)
			}
		})
	})
}

// The content of a document, a message or an item is text, whatever a command does with it. The assertion of a
// commitment is run only by agent verify with its name.
func TestAssertionLine(t *testing.T) {
	testkit.NotUnderRace(t)
	const id, text = "8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f", "$(touch ran); touch ran"
	places(t, func(p place) {
		p.t.Run("D-71 what stands in a document is run by name, and by nothing else", func(t *testing.T) {
			ran := filepath.Join(p.dir, "ran")
			p.run(0, "", "agent", "new", "Kettle", "--id", id, "--assignment", text)
			p.run(0, "", "agent", "commit", "kettle", "It boils", "--assertion", "touch ran; exit 3")
			p.run(0, text, "doc", "put", "doc/"+text, "--create")
			p.run(0, text, "queue", "add", "q", "--whole", "--id", text)
			p.run(0, "", "queue", "add", "q", "--configure", "--on-empty", text)
			p.run(0, text, "inbox", "send", id, "--from", "user")
			for i, looks := range [][]string{
				{"agent", "ls"}, {"agent", "show", "kettle"}, {"agent", "show", "kettle", "-o", "json"}, {"show", "agent/" + id}, {"doc", "cat", "agent/" + id}, {"doc", "ls"}, {"queue", "ls"}, {"queue", "ls", "q"}, {"queue", "show", "q", text}, {"inbox", "ls", id},
				{"flow", "ls"}, {"status"}, {"verify"}, {"ls"}, {"daemon", "run", "--once"}, {"agent", "state", "kettle", "working"}, {"export", "--all", "--format", "tavern", "-C", filepath.Join(p.dir, "out")},
				{"import", filepath.Join(p.dir, "out")}, {"agent", "verify", "kettle", "--begin", "It boils"}, {"queue", "work", "q", "--once", "--", "true", text}, {"inbox", "run", id, "--until-empty", "--", "true", text}, {"queue", "work", "q", "--until-empty", "--", "true"},
			} {
				if i < 14 && !testkit.Plays(i, 14) {
					continue
				}
				p.run(0, "", looks...)
				if _, err := os.Stat(ran); !os.IsNotExist(err) {
					t.Fatalf("tally %q ran the assertion", looks)
				}
			}
			p.run(2, "", "agent", "verify", "kettle", "--run", "It boils") // without a confirmation
			if _, err := os.Stat(ran); !os.IsNotExist(err) {
				t.Error("the assertion was run without a confirmation")
			}
			p.run(1, "", "agent", "verify", "kettle", "--run", "It boils", "-y", "--timeout", "1m")
			if _, err := os.Stat(ran); err != nil {
				t.Error("the assertion was not run")
			}
			p.run(0, "", "agent", "commit", "kettle", "It ends", "--assertion", "sleep 100")
			p.run(1, "", "agent", "verify", "kettle", "--run", "It ends", "-y", "--timeout", "50ms")
			if out := p.run(0, "", "agent", "show", "kettle"); !strings.Contains(out, "not over after 50ms") {
				t.Errorf("got %s", out)
			}
		})
	})
}
