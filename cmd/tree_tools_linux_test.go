package cmd_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// Each change that people and programs make to files becomes one revision. There is no echo, no file changes without a
// writer, and git sees no change.
func TestTreeTools(t *testing.T) {
	testkit.OnlyFull(t, "TestMeddling of internal/tree writes files as such tools do")
	testkit.Long(t)
	t.Parallel() // the test mostly waits
	for _, tool := range []string{"vim", "nano", "rsync", "git", "python3", "tar", "sed"} {
		_, err := exec.LookPath(tool)
		testkit.Needs(t, err == nil, tool)
	}
	k := keepTree(t, "bulk = \"never\"\n")
	tools := k.tools()
	names := slices.Sorted(maps.Keys(tools))
	for i, name := range names {
		names[i] = name + ".txt"
	}
	untouched := numbered(20)
	k.putAll(append(append([]string{"gone.txt"}, names...), untouched...), func(string) string { return "one\ntwo\n" })
	k.run("git", "init", "-q")
	k.run("git", "add", ".")
	k.run("git", "commit", "-qm", "first")
	before, from := k.stamps(), k.head()
	keeps := func() {
		t.Helper()
		now := k.stamps()
		for _, id := range untouched {
			if p := "docs/" + id; before[p] != now[p] {
				t.Errorf("%s was changed: got %s, want %s", p, now[p], before[p])
			}
		}
	}

	var all sync.WaitGroup
	for name, tool := range tools {
		if name != "nano" {
			all.Go(func() { tool.use(k.file(name + ".txt")) })
		}
	}
	tools["nano"].use(k.file("nano.txt")) // fails the test if nano does not start
	all.Wait()
	k.settled()
	taken := k.taken(from)
	for name, tool := range tools {
		id := name + ".txt"
		if got, is := k.text(id); !is || got != tool.want || taken[id] < 1 || taken[id] > max(tool.most, 1) {
			t.Errorf("%s: got %d revisions, the last %q, want %q", name, taken[id], got, tool.want)
		}
		delete(taken, id)
	}
	if len(taken) > 0 {
		t.Errorf("got further imported documents %v", taken)
	}
	keeps()
	left, err := filepath.Glob(k.folder + "/docs/.*")
	if err != nil || len(left) > 0 {
		t.Errorf("got files left %v, %v", left, err)
	}

	// git: another branch, a stash and its pop, and ignored files.
	k.run("git", "add", ".")
	k.run("git", "commit", "-qm", "second")
	k.isClean()
	from = k.head()
	k.run("git", "checkout", "-q", "-b", "other")
	for _, id := range names[:3] {
		k.write(id, "other\n")
	}
	k.write("new.txt", "new\n")
	k.remove("gone.txt")
	k.settled()
	k.run("git", "add", ".")
	k.run("git", "commit", "-qm", "third")
	k.gains("to a branch", from, 1, append([]string{"new.txt", "gone.txt"}, names[:3]...))
	k.isClean()

	from = k.head()
	k.run("git", "checkout", "-q", "-")
	k.gains("git checkout", from, 1, append([]string{"new.txt", "gone.txt"}, names[:3]...))
	k.isClean()

	from = k.head()
	k.write(names[0], "to be stashed\n")
	k.write("unknown.txt", "of nobody\n")
	k.gains("an edit", from, 1, []string{names[0], "unknown.txt"})
	from = k.head()
	k.run("git", "stash", "-q")
	k.run("git", "clean", "-qfd")
	k.gains("git stash and clean", from, 1, []string{names[0], "unknown.txt"})
	k.isClean()
	from = k.head()
	k.run("git", "stash", "pop", "-q")
	k.gains("git stash pop", from, 1, names[:1])
	if got, _ := k.text(names[0]); got != "to be stashed\n" {
		t.Errorf("after stash pop: got %q", got)
	}
	keeps()

	// An append changes only its own file.
	before, from = k.stamps(), k.head()
	if err := k.put(names[1], "by the log\n"); err != nil {
		t.Fatal(err)
	}
	k.gains("a write of the log", from, 0, nil)
	now := k.stamps()
	delete(before, "docs/"+names[1])
	for p, stamp := range before {
		if now[p] != stamp && !strings.HasPrefix(p, ".git/") {
			t.Errorf("%s was changed: got %s, want %s", p, now[p], stamp)
		}
	}
}

// gains waits until all changes have settled, and expects a number of new revisions of each of some documents since an
// offset, and of no other document.
func (k *kept) gains(what string, since events.Offset, each int, ids []string) {
	k.t.Helper()
	k.settled()
	want := make(map[string]int)
	for _, id := range ids {
		want[id] = each
	}
	if got := k.taken(since); !maps.Equal(got, want) {
		k.t.Errorf("%s: got imported %v, want %v", what, got, want)
	}
}

func (k *kept) write(id, text string) {
	k.t.Helper()
	if err := os.WriteFile(k.file(id), []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kept) remove(id string) {
	k.t.Helper()
	if err := os.Remove(k.file(id)); err != nil {
		k.t.Fatal(err)
	}
}

// tool is a program that changes a file "one
// two
// ".
type tool struct {
	use  func(file string)
	want string // content of the file afterwards
	most int    // maximum number of revisions; 0: one
}

func (k *kept) tools() map[string]tool {
	t := k.t
	beside := t.TempDir()
	// other is a file elsewhere, with a text that the tree does not have.
	other := func(name string) string {
		p := filepath.Join(beside, name)
		if err := os.WriteFile(p, []byte("three\n"), 0o644); err != nil {
			t.Error(err)
		}
		return p
	}
	run := func(name string, args ...string) {
		c := k.program(name, args...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	vim := func(settings string) func(string) {
		return func(file string) {
			run("vim", "-es", "-u", "NONE", "-N", "-c", "set "+settings, "-c", "normal Gothree", "-c", "w", "-c", "q", file)
		}
	}
	return map[string]tool{
		"vim":        {use: vim("backupcopy=no backup writebackup swapfile"), want: "one\ntwo\nthree\n"},
		"viminplace": {use: vim("backupcopy=yes nowritebackup swapfile"), want: "one\ntwo\nthree\n"},
		"nano":       {use: func(file string) { k.nano(file) }, want: "threeone\ntwo\n"},
		"sed":        {use: func(file string) { run("sed", "-i", "s/two/three/", file) }, want: "one\nthree\n"},
		"cp":         {use: func(file string) { run("cp", other("cp"), file) }, want: "three\n"},
		"mv":         {use: func(file string) { run("mv", other("mv"), file) }, want: "three\n"},
		"rsync":      {use: func(file string) { run("rsync", other("rsync"), file) }, want: "three\n"},
		"rsyncinto":  {use: func(file string) { run("rsync", "--inplace", other("rsyncinto"), file) }, want: "three\n"},
		"rsynca":     {use: func(file string) { run("rsync", "-a", other("rsynca"), file) }, want: "three\n"},
		"truncate":   {use: func(file string) { run("truncate", "-s", "3", file) }, want: "one"},
		"python":     {use: func(file string) { run("python3", "-c", "import sys; open(sys.argv[1], 'w').write('three\\n')", file) }, want: "three\n"},
		"tar": {use: func(file string) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			_ = w.WriteHeader(&tar.Header{Name: filepath.Base(file), Size: 6, Mode: 0o644, ModTime: time.Unix(1, 0)})
			_, _ = w.Write([]byte("three\n"))
			_ = w.Close()
			c := k.program("tar", "x")
			c.Dir, c.Stdin = filepath.Dir(file), &b
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("tar: %v\n%s", err, out)
			}
		}, want: "three\n"},
		"shell": {use: func(file string) { run("bash", "-c", `for i in $(seq 50); do echo $i >> "$0"; done`, file) },
			want: "one\ntwo\n" + lines(50), most: 50},
		"pause": {use: func(file string) { run("bash", "-c", `for i in 1 2 3; do echo $i >> "$0"; sleep 0.3; done`, file) },
			want: "one\ntwo\n" + lines(3), most: 3},
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// nano writes a word into a file, like a user at a terminal.
func (k *kept) nano(file string) {
	term := newTerminal(k.t, 80, 24)
	c := k.program("nano", "--ignorercfiles", file)
	c.Env = append(c.Env, "TERM=vt100")
	term.run(c)
	term.await("two") // nano reads keys now
	for _, keys := range []string{"three", "\x0f", "\r", "\x18"} {
		term.press(keys)
	}
	if out, code := term.end(c); code != 0 {
		k.t.Errorf("nano: got exit code %d\n%s", code, out)
	}
}
