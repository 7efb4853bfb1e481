package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/tree/keeper"
)

// kept is a project of a team with a folder of files, and a process that keeps the folder.
type kept struct {
	t                      *testing.T
	project, folder, store string
	bin                    string // path of the program
	env                    []string
	serving                *exec.Cmd
	api                    *tally.Store // a store that appends and keeps no trees
}

// keepTree makes a project and starts a process that keeps its tree. The project's file has further settings of the
// tree.
func keepTree(t *testing.T, more string) *kept {
	t.Helper()
	k := newKept(t)
	k.says(more)
	k.serve()
	return k
}

// newKept makes a new project.
func newKept(t *testing.T) *kept {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{t: t, project: filepath.Join(base, "project"), store: filepath.Join(base, "store"), bin: bin}
	k.folder = filepath.Join(k.project, ".tavern")
	k.env = append(os.Environ(), "HOME="+base, "XDG_CONFIG_HOME="+base, "XDG_STATE_HOME="+filepath.Join(base, "state"), "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x")
	return k
}

// says writes the project's file.
func (k *kept) says(more string) {
	k.t.Helper()
	text := "namespace = \"project\"\n\n[[tree]]\nname = \"tavern\"\nlayout = \"tavern\"\ndir = \"" + k.folder + "\"\n" + more
	err := os.MkdirAll(k.project, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(k.project, "tally.toml"), []byte(text), 0o644)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kept) program(name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(k.t.Context(), name, args...)
	c.Dir, c.Env = k.project, k.env
	return c
}

// serve starts a process that keeps the tree, and returns when it does.
func (k *kept) serve() {
	k.t.Helper()
	c := k.program(filepath.Join(k.bin, "tally"), "serve", "--store", k.store, "-o", "jsonl", "--log-level", "error")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.serving = c
	k.t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	k.until("somebody keeps the tree", func() bool {
		s, code := k.status()
		return s.PID == c.Process.Pid && s.Watching != "" || code > 6
	})
}

// stop ends the process that keeps the tree, by a signal.
func (k *kept) stop(how os.Signal) {
	k.t.Helper()
	if k.api != nil {
		k.api.Close()
		k.api = nil
	}
	if err := k.serving.Process.Signal(how); err != nil {
		k.t.Fatal(err)
	}
	k.serving.Wait()
}

// run runs a program in the folder. It must succeed.
func (k *kept) run(name string, args ...string) string {
	k.t.Helper()
	c := k.program(name, args...)
	c.Dir = k.folder
	out, err := c.CombinedOutput()
	if err != nil {
		k.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// tally runs the program in the project, and returns its output and exit code.
func (k *kept) tally(args ...string) (out string, code int) {
	k.t.Helper()
	c := k.program(filepath.Join(k.bin, "tally"), append(args, "--store", k.store, "--log-level", "error")...)
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	if exit, ok := errors.AsType[*exec.ExitError](c.Run()); ok {
		code = exit.ExitCode()
	}
	return b.String(), code
}

// treeStatus is what tree status prints.
type treeStatus struct {
	keeper.Status
	LagEvents uint64 `json:"lagEvents"`
}

func (k *kept) status() (s treeStatus, code int) {
	k.t.Helper()
	var list []treeStatus
	out, code := k.tally("tree", "status", "-o", "json")
	_, out, _ = strings.Cut(out, "[") // after a hint
	if err := json.Unmarshal([]byte("["+out), &list); err != nil || len(list) != 1 {
		k.t.Fatalf("%v: %d, %s", err, code, out)
	}
	s = list[0]
	return s, code
}

// until waits until so returns true.
func (k *kept) until(what string, so func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s, code := k.status()
			k.t.Fatalf("timeout: wait until %s: got %+v, %d", what, s, code)
		}
	}
}

// open opens the store beside the process that keeps the tree.
func (k *kept) open() *tally.Store {
	k.t.Helper()
	if k.api == nil {
		st, err := embedded.Open(k.t.Context(), embedded.Options{ConfigDir: k.project, Store: k.store})
		if err != nil {
			k.t.Fatal(err)
		}
		k.api = st
		k.t.Cleanup(func() { st.Close() })
	}
	return k.api
}

// put writes a document; its file is named by its id.
func (k *kept) put(id, text string) error {
	_, err := k.open().Documents().Save(k.t.Context(), "doc", id, tally.Write{Data: []byte(text)})
	return err
}

// putAll writes documents and returns when their files exist.
func (k *kept) putAll(ids []string, text func(id string) string) {
	k.t.Helper()
	for _, id := range ids {
		if err := k.put(id, text(id)); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *kept) file(id string) string { return filepath.Join(k.folder, "docs", id) }

// text returns the present content of a document, and whether it exists.
func (k *kept) text(id string) (string, bool) {
	doc, err := k.open().Documents().Read(k.t.Context(), "doc", id)
	if err != nil && !errors.Is(err, tally.ErrNotFound) {
		k.t.Fatal(err)
	}
	if err != nil {
		return "", false
	}
	return string(doc.Data), true
}

// settled waits until all earlier changes of files have been processed. Removals are processed last.
func (k *kept) settled() {
	k.t.Helper()
	const id = "settled.txt"
	for _, there := range []bool{true, false} {
		var err error
		if there {
			err = os.WriteFile(k.file(id), []byte("x"), 0o644)
		} else {
			err = os.Remove(k.file(id))
		}
		if err != nil {
			k.t.Fatal(err)
		}
		k.until("a file is taken in", func() bool { _, is := k.text(id); return is == there })
	}
}

// taken counts the edits imported since an offset, by document.
func (k *kept) taken(since events.Offset) map[string]int {
	k.t.Helper()
	n := make(map[string]int)
	for rec, err := range k.open().Log.Read(k.t.Context(), events.Range{After: since}) {
		if err != nil {
			k.t.Fatal(err)
		}
		if rec.Extensions[events.ExtActor] == "tree:tavern" && rec.Subject.ID != "settled.txt" {
			n[rec.Subject.ID]++
		}
	}
	return n
}

func (k *kept) head() events.Offset {
	k.t.Helper()
	at, err := k.open().Log.Durable(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	return at
}

// stamps returns the inodes and times of the files in the folder.
func (k *kept) stamps() map[string]string {
	k.t.Helper()
	list := make(map[string]string)
	err := filepath.WalkDir(k.folder, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			st := info.Sys().(*syscall.Stat_t)
			list[strings.TrimPrefix(p, k.folder+"/")] = fmt.Sprint(st.Ino, st.Mtim, st.Mode)
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return list
}

// isClean fails if the tree and the log differ, or git sees a change.
func (k *kept) isClean() {
	k.t.Helper()
	if out, code := k.tally("tree", "verify"); code != 0 {
		k.t.Errorf("verify: got %d, %s", code, out)
	}
	k.until("what came out of the files' places is removed", func() bool {
		left, err := filepath.Glob(k.folder + "/*/*.tally-tmp-*")
		return err == nil && len(left) == 0
	})
	if out := k.run("git", "status", "--porcelain", "."); out != "" {
		k.t.Errorf("git status: got %s", out)
	}
}

// numbered returns the ids of n documents.
func numbered(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("n%04d.txt", i))
	}
	return list
}
