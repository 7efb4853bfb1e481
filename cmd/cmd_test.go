// Package cmd_test runs tally as its users do: as a process, with
// arguments, standard input and exit codes.
package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	_ "modernc.org/sqlite" // to alter views as another program would

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/cmd/internal/record"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

// bin is the directory with the program: the test program by another name, so that nothing is linked twice.
var bin string

func TestMain(m *testing.M) {
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "tally" {
		cmdutil.CompleteLimit = 5 * time.Second // a busy machine needs more than a user accepts
		if record.Hooked(os.Args) {
			return
		}
		os.Exit(cmdutil.Main("tally", program.Tally))
	}
	if text := os.Getenv(cutPlay); text != "" {
		playUntilKilled(text)
	}
	if text := os.Getenv(unitPlay); text != "" {
		playUnits(text)
	}
	if text := os.Getenv(jobPlay); text != "" {
		playJobs(text)
	}
	if text := os.Getenv(teamPlay); text != "" {
		playTeam(text)
	}
	testkit.Draw(6)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tally-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := linkSelf(filepath.Join(dir, "tally")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = dir
	testkit.ProgramsCollectLess()
	os.Setenv("TZ", "UTC") // days are those of the local zone
	defer storetest.Alone()()
	return m.Run()
}

// linkSelf links the running program to another path. A symbolic link would not do: the program finds its name through
// the path that the system reports.
func linkSelf(path string) error {
	self, err := os.Executable()
	if err != nil || os.Link(self, path) == nil {
		return err
	}
	data, err := os.ReadFile(self) // the path is in another file system
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o755)
}

// withID matches the names of scripts that play acceptance lines.
var withID = regexp.MustCompile(`^[A-Z]-[0-9]{2}-`)

func TestScripts(t *testing.T) {
	shared, hasShared := testkit.DataRoot(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			if !withID.MatchString(name) && !testkit.IsSampled(name, 8) {
				env.T().Skip("TALLY_TESTS=full plays it")
			}
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TZ", "UTC")
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			examples, err := filepath.Abs("../examples")
			env.Setenv("EXAMPLES", examples)
			env.Setenv("SHARED", shared)
			env.Setenv("INVALID", "\xff") // not UTF-8
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "shared":
				return hasShared, nil
			case "full": // [!full] stop: the default tier plays a script up to that line
				return testkit.Full(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitCode,
			"jsonget":  jsonGet,
			"offset":   offsetOf,
			"treecmp":  treeCompare,
			"bigturn":  bigTurn,
			"bigevent": bigEvent,
			"deep":     deep,
			"gentree":  genTree,
			"waitfor":  waitFor,

			"playpanel": playPanel,

			"certificate": certificate,
			"freeport":    freePort,
			"natsserver":  natsServer,

			"invalidutf8": invalidUTF8,
			"sql":         runSQL,
			"purge":       purge,
			"seal":        sealFile,
			"unseal":      openFile,
			"cutfile":     cutFile,
			"flip":        flipByte,
			"backdate":    backdate,
		},
	})
}

// exitCode runs a command and expects an exit code: exitcode N cmd args...
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N command [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// jsonGet sets a variable to a member of the JSON that the last command printed: jsonget VAR name.name
func jsonGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: jsonget VAR path")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &v); err != nil {
		ts.Fatalf("%v", err)
	}
	for _, name := range strings.Split(args[1], ".") {
		m, ok := v.(map[string]any)
		if !ok || m[name] == nil {
			ts.Fatalf("there is no %s", args[1])
		}
		v = m[name]
	}
	ts.Setenv(args[0], fmt.Sprint(v))
}

// offsetOf sets a variable to the offset of the n-th line of the JSON lines that the last command printed: offset VAR
// n
func offsetOf(ts *testscript.TestScript, neg bool, args []string) {
	var n int
	if _, err := fmt.Sscan(args[1], &n); neg || err != nil {
		ts.Fatalf("usage: offset VAR n")
	}
	list := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	var line struct{ Offset uint64 }
	if n > len(list) || json.Unmarshal([]byte(list[n-1]), &line) != nil {
		ts.Fatalf("line %d has no offset", n)
	}
	ts.Setenv(args[0], fmt.Sprint(line.Offset))
}

// treeCompare fails unless two folders have the same files with the same bytes.
func treeCompare(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: treecmp dir dir")
	}
	out, err := exec.Command("diff", "-r", ts.MkAbs(args[0]), ts.MkAbs(args[1])).CombinedOutput()
	if same := err == nil; same == neg {
		ts.Fatalf("diff -r: %v\n%.2000s", err, out)
	}
}

// bigTurn writes a conversation with one turn of a number of bytes: bigturn file bytes
func bigTurn(ts *testscript.TestScript, neg bool, args []string) {
	var n int
	if _, err := fmt.Sscan(args[1], &n); neg || err != nil {
		ts.Fatalf("usage: bigturn file bytes")
	}
	line := `{"stepIndex":0,"input":{"role":"user","content":"` + strings.Repeat("Grüße <b>&\u2028", n/16) + `"},"output":[]}`
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o755))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(line), 0o644))
}

// bigEvent writes a CloudEvent with a number of bytes of data, and a small one after it: bigevent bytes file
func bigEvent(ts *testscript.TestScript, neg bool, args []string) {
	var n int
	if _, err := fmt.Sscan(args[0], &n); neg || err != nil {
		ts.Fatalf("usage: bigevent bytes file")
	}
	line := `{"specversion":"1.0","id":"%s","source":"urn:t","type":"tally.turn.appended.v1","subject":"session/e","data":{"entries":[{"thread":"main","turn":"%s"}]}}` + "\n"
	text := fmt.Sprintf(line, "large", strings.Repeat("x", n)) + fmt.Sprintf(line, "small", "x")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// deep writes an object with n levels of nesting, and a flat one after it: deep n file
func deep(ts *testscript.TestScript, neg bool, args []string) {
	var n int
	if _, err := fmt.Sscan(args[0], &n); neg || err != nil {
		ts.Fatalf("usage: deep n file")
	}
	text := strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) + "\n{}\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// genTree writes made-up conversations, the same ones for the same seed: gentree dir sessions seed
func genTree(ts *testscript.TestScript, neg bool, args []string) {
	var o gentree.Options
	if len(args) != 3 || neg {
		ts.Fatalf("usage: gentree dir sessions seed")
	}
	_, err := fmt.Sscan(args[1]+" "+args[2], &o.Sessions, &o.Seed)
	ts.Check(err)
	_, err = gentree.Write(ts.MkAbs(args[0]), o)
	ts.Check(err)
}

// waitFor waits until a file exists.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for range 500 {
		if found, err := filepath.Glob(ts.MkAbs(args[0])); err == nil && len(found) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("%s does not appear", args[0])
}

// invalidUTF8 appends a line of invalid UTF-8 to a file.
func invalidUTF8(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_APPEND|os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteString("{\"stepIndex\":4,\"input\":{\"role\":\"user\",\"content\":\"\xff\"},\"output\":[]}\n")
	ts.Check(err)
	ts.Check(f.Close())
}

// runSQL runs a statement on a SQLite file, as another program would: sql file text
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql file statement")
	}
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0])+"?_pragma=busy_timeout(20000)") // the view may be in use
	ts.Check(err)
	_, err = db.Exec(args[1])
	ts.Check(errors.Join(err, db.Close()))
}

// cutFile cuts the only file that matches a pattern in half: cutfile pattern
func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	path := oneFile(ts, args[0])
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Truncate(path, info.Size()/2))
}

// flipByte changes the last byte of the only file that matches a pattern: flip pattern
func flipByte(ts *testscript.TestScript, _ bool, args []string) {
	path := oneFile(ts, args[0])
	content, err := os.ReadFile(path)
	ts.Check(err)
	content[len(content)-1] ^= 1
	ts.Check(os.WriteFile(path, content, 0o600))
}

// oneFile returns the only file that matches a pattern.
func oneFile(ts *testscript.TestScript, pattern string) string {
	files, err := filepath.Glob(ts.MkAbs(pattern))
	ts.Check(err)
	if len(files) != 1 {
		ts.Fatalf("%s matches %v", pattern, files)
	}
	return files[0]
}

// backdate makes a file look an hour old.
func backdate(ts *testscript.TestScript, _ bool, args []string) {
	old := time.Now().Add(-time.Hour)
	ts.Check(os.Chtimes(ts.MkAbs(args[0]), old, old))
}

// command prepares a run of tally on a store.
func command(ctx context.Context, store, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(bin, name), append(args, "--store", store)...)
	c.Env = append(os.Environ(), "HOME="+store+"-home", "XDG_CONFIG_HOME="+store+"-home")
	return c
}

// owner starts a process that owns a store until the test ends.
func owner(t *testing.T, store string, env ...string) *exec.Cmd {
	t.Helper()
	c := command(t.Context(), store, "tally", "serve", "-o", "jsonl")
	c.Env = append(c.Env, env...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = time.Minute // then the process is killed
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n') // the process serves
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // the process is interrupted
	return c
}

// output runs a command that must succeed, and returns its output.
func output(t *testing.T, stdin io.Reader, store, name string, args ...string) string {
	t.Helper()
	c := command(t.Context(), store, name, args...)
	var out, errw bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = stdin, &out, &errw
	if err := c.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, errw.String())
	}
	return out.String()
}

// jsonLines decodes lines of JSON. It skips a last line without
// , which a kill cut off.
func jsonLines[T any](t *testing.T, r io.Reader) []T {
	t.Helper()
	var list []T
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return list
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, v)
	}
}

// within fails a test that does not end in time.
const within = 5 * time.Minute
