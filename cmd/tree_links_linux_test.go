package cmd_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// For TALLY_LINKS, by default a minute, another program replaces folders and files of a tree with links, again and
// again, during appends and saves. All paths that the serving process opens, creates, renames and removes meanwhile,
// by the system's report, are in the tree or in the store.
func TestTreeLinks(t *testing.T) {
	testkit.OnlySoak(t)
	if _, err := exec.LookPath("strace"); err != nil {
		mustRun(t, "apt-get", "install", "-y", "-qq", "strace")
	}
	k := keepTree(t, "mode = \"async\"\nbulk = \"never\"\n")
	base := filepath.Dir(k.project)
	outside := filepath.Join(base, "outside")
	canary := testkit.Canary("outside")
	names := []string{"x", "y", "z"}
	if err := errors.Join(os.Mkdir(outside, 0o755), os.MkdirAll(k.file("d"), 0o755), os.MkdirAll(k.file("real"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(outside, name), []byte(canary), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k.settled()
	trace := k.traces(filepath.Join(base, "trace"))

	stop := make(chan struct{})
	var others sync.WaitGroup
	swaps := 0
	others.Go(func() {
		// All of these folders belong to this test: on a failure, files are written to the links' targets.
		target := []string{outside, k.store, k.folder, "real", "../../../outside"}
		for ; ; swaps++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(k.file("d"), k.file("away"))
			_ = os.Symlink(target[swaps%len(target)], k.file("d"))
			time.Sleep(time.Duration(swaps%7) * 100 * time.Microsecond)
			_ = os.Remove(k.file("d"))
			_ = os.Rename(k.file("away"), k.file("d"))
			_ = os.Remove(k.file("d/x"))
			_ = os.Symlink(filepath.Join(outside, "x"), k.file("d/x"))
			time.Sleep(time.Duration(swaps%5) * 100 * time.Microsecond)
			_ = os.Remove(k.file("d/x"))
			if swaps%100 == 0 {
				time.Sleep(150 * time.Millisecond) // so that some changes settle
			}
		}
	})
	root, err := os.OpenRoot(k.folder) // the test's own writer stays inside of the folder
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_ = root.WriteFile("docs/d/saved.txt", []byte(fmt.Sprint("saved ", n)), 0o644)
			}
		}
	})
	appended := 0
	for end := time.Now().Add(figureTime(t, "TALLY_LINKS", time.Minute)); time.Now().Before(end); appended++ {
		if err := k.put("d/"+names[appended%len(names)], fmt.Sprint("appended ", appended)); err != nil && !strings.Contains(err.Error(), "conflict") {
			t.Error(err)
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(stop)
	others.Wait()
	calls := trace.end()

	inTree := 0
	for _, c := range calls {
		in := func(dir string) bool { return c.path == dir || strings.HasPrefix(c.path, dir+"/") }
		switch {
		case in(k.folder):
			inTree++
		case in(k.store) && !c.walked, in(filepath.Join(base, "state")), c.reads && (in("/proc") || in("/sys") || in("/usr") || c.path == "/etc/localtime"):
		case c.reads && c.path == filepath.Join(k.project, "tally.toml"):
		default:
			t.Errorf("outside: %s", c.line)
		}
	}
	t.Logf("%d swaps, %d appends, %d calls that succeeded, %d of them in the tree", swaps, appended, len(calls), inTree)
	if inTree < 100 {
		t.Error("the tree was hardly used: the test showed nothing")
	}
	list, err := os.ReadDir(outside)
	if err != nil || len(list) != len(names) {
		t.Errorf("outside: got %v, %v", list, err)
	}
	for _, name := range names {
		if !fileIs(filepath.Join(outside, name), canary) {
			t.Errorf("outside: %s was changed", name)
		}
	}
	for rec, err := range k.open().Log.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(rec.Data), canary) {
			t.Fatalf("%v: content from outside was imported", rec.Subject)
		}
	}
	if err := os.MkdirAll(k.file("d"), 0o755); err != nil {
		t.Fatal(err)
	}
	k.settled()
	if err := k.put("d/after", "goes on"); err != nil {
		t.Fatal(err)
	}
	k.waits(30*time.Second, 10*time.Millisecond, "it goes on", func() bool { return fileIs(k.file("d/after"), "goes on") })
}

// tracing is a run of strace on the process that keeps a tree.
type tracing struct {
	t    *testing.T
	file string
	c    *exec.Cmd
}

func (k *kept) traces(file string) *tracing {
	k.t.Helper()
	tr := &tracing{k.t, file, k.program("strace", "-f", "-y", "-s", "1000", "-o", file, "-e",
		"trace=open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,mkdir,mkdirat,truncate,chmod,fchmodat,mknod,mknodat",
		"-p", fmt.Sprint(k.serving.Process.Pid))}
	said, err := tr.c.StderrPipe()
	if err == nil {
		err = tr.c.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { tr.c.Process.Kill(); tr.c.Wait() })
	lines := bufio.NewScanner(said)
	if !lines.Scan() || !strings.Contains(lines.Text(), "attached") {
		k.t.Fatalf("strace: %s", lines.Text())
	}
	go func() {
		for lines.Scan() { // reports of new threads
		}
	}()
	return tr
}

// traced is a successful call, with a path that it used.
type traced struct {
	line   string
	path   string // path of the opened file, as the system reports it for the handle; else of the folder, with the name in it
	reads  bool   // the call opens for reading only
	walked bool   // the path was resolved from an open folder, not from a path of the caller
}

var (
	tracedCall   = regexp.MustCompile(`^(?:\d+ +)?([a-z0-9]+)\((.*)\) += +(\d+)(?:<(.*)>(?:\(deleted\))?)?$`)
	tracedBegins = regexp.MustCompile(`^(\d+) +(.*?) <unfinished \.\.\.>$`)
	tracedGoesOn = regexp.MustCompile(`^(\d+) +<\.\.\. [a-z0-9]+ resumed>(.*)$`)
	tracedPlace  = regexp.MustCompile(`(?:(AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>, )?"((?:[^"\\]|\\.)*)"`)
)

// walks reports whether a call resolves a path from an open folder.
func walks(args string) bool {
	m := tracedPlace.FindStringSubmatch(args)
	return m != nil && m[1] != "" && m[1] != "AT_FDCWD" && !strings.HasPrefix(m[3], "/")
}

// end ends the tracing, and returns the successful calls.
func (tr *tracing) end() (calls []traced) {
	tr.t.Helper()
	if err := tr.c.Process.Signal(os.Interrupt); err != nil {
		tr.t.Fatal(err)
	}
	tr.c.Wait()
	f, err := os.Open(tr.file)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer f.Close()
	begun := make(map[string]string) // by thread: a call whose report was interrupted by another thread's
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := tracedBegins.FindStringSubmatch(line); m != nil {
			begun[m[1]] = m[2]
			continue
		}
		if m := tracedGoesOn.FindStringSubmatch(line); m != nil {
			line = m[1] + " " + begun[m[1]] + m[2]
		}
		m := tracedCall.FindStringSubmatch(line)
		if m == nil {
			continue // a failed call, or another line
		}
		call, args, result := m[1], m[2], m[4]
		if result != "" {
			result = strings.TrimSuffix(result, " (deleted)") // the file was deleted before the report
			calls = append(calls, traced{line: line, path: result, reads: !strings.Contains(args, "O_WRONLY") && !strings.Contains(args, "O_RDWR") &&
				!strings.Contains(args, "O_CREAT"), walked: walks(args)})
			continue
		}
		places := tracedPlace.FindAllStringSubmatch(args, -1)
		if strings.HasPrefix(call, "symlink") && len(places) > 1 {
			places = places[1:] // the link's target
		}
		for _, p := range places {
			c := traced{line: line, path: filepath.Join(p[2], p[3]), walked: p[1] != "" && p[1] != "AT_FDCWD"}
			if filepath.IsAbs(p[3]) {
				c.path, c.walked = filepath.Clean(p[3]), false
			}
			calls = append(calls, c)
		}
	}
	if err := lines.Err(); err != nil {
		tr.t.Fatal(err)
	}
	if len(calls) == 0 {
		tr.t.Fatal("strace reported nothing")
	}
	return calls
}
