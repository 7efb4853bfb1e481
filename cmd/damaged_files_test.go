package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// answer is the output of a run of tally and its exit code.
type answer struct {
	code     int
	out, err string
}

func (s answer) String() string { return s.out + s.err }

// ask runs tally on a store.
func ask(t *testing.T, stdin, store string, args ...string) answer {
	t.Helper()
	return askBy(t, command(t.Context(), store, "tally", args...).Env, stdin, store, args...)
}

func askBy(t *testing.T, env []string, stdin, store string, args ...string) answer {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), within)
	defer stop()
	c := command(ctx, store, "tally", args...)
	var out, errw bytes.Buffer
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, strings.NewReader(stdin), &out, &errw
	err := c.Run()
	if ctx.Err() != nil {
		t.Fatalf("tally %v did not end within %v: %s%s", args, within, out.String(), errw.String())
	}
	return answer{codeOf(t, err), out.String(), errw.String()}
}

// A damaged file of limits removes no limit: documents are refused, and the file is named. A file of an earlier
// version has no checksum, and is read.
func TestDamagedLimits(t *testing.T) {
	t.Run("B-10 limits.json with two flipped bits", func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "store")
		path := filepath.Join(store, "limits.json")
		output(t, nil, store, "tally", "quota", "store", "100")
		sound, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("x", 200)
		if s := ask(t, large, store, "doc", "put", "--save", "doc/a"); s.code != 7 {
			t.Fatalf("the limit: got code %d, %v", s.code, s)
		}
		for name, text := range map[string]string{
			"the name of a member": strings.Replace(string(sound), `"limits"`, `"mimits"`, 1), // l and m differ in one bit
			"a scope":              strings.Replace(string(sound), `"store"`, `"sto2d"`, 1),
			"a number":             strings.Replace(string(sound), `100`, `900`, 1),
			"the checksum":         strings.Replace(string(sound), `"crc32"`, `"crc02"`, 1),
		} {
			if name != "a scope" && name != "the checksum" && !testkit.Full() {
				continue
			}
			put(t, path, text)
			for _, args := range [][]string{{"doc", "put", "--save", "doc/a"}, {"quota"}, {"quota", "owner:ann", "5"}, {"backup", filepath.Join(t.TempDir(), "b")}} {
				if s := ask(t, large, store, args...); s.code != 5 || !strings.Contains(s.err, "limits.json") {
					t.Errorf("%s: tally %v: got code %d: %v", name, args, s.code, s)
				}
			}
			if s := ask(t, "", store, "doc", "cat", "doc/a"); s.code != 4 {
				t.Errorf("%s: the document was written: %v", name, s)
			}
		}
		owner(t, store)
		if s := ask(t, large, store, "doc", "put", "--save", "doc/a"); s.code != 5 || !strings.Contains(s.err, "limits.json") {
			t.Errorf("attached to an owner: got code %d: %v", s.code, s)
		}
	})
	t.Run("B-10 limits.json of an earlier version", func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "store")
		path := filepath.Join(store, "limits.json")
		output(t, nil, store, "tally", "append")
		put(t, path, `{"version":1,"limits":{"store":100}}`+"\n")
		if s := ask(t, strings.Repeat("x", 200), store, "doc", "put", "--save", "doc/a"); s.code != 7 {
			t.Errorf("got code %d: %v", s.code, s)
		}
		output(t, nil, store, "tally", "quota", "owner:ann", "5")
		text, err := os.ReadFile(path)
		var file struct {
			Limits map[string]int64
			CRC32  string
		}
		if err := json.Unmarshal(text, &file); err != nil || file.CRC32 == "" || file.Limits["store"] != 100 || file.Limits["owner:ann"] != 5 {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A link on the path of a tree's file is neither followed nor waited for. Files below it are not written, a command
// that changes them gets an error at once, and all other files are written as before.
func TestLinkInTree(t *testing.T) {
	t.Run("B-10 a link in the folder of a tree", func(t *testing.T) {
		base := t.TempDir()
		project, outside := filepath.Join(base, "project"), filepath.Join(base, "outside")
		docs := filepath.Join(project, ".tavern", "docs")
		if err := errors.Join(os.MkdirAll(docs, 0o755), os.Mkdir(outside, 0o755)); err != nil {
			t.Fatal(err)
		}
		run := func(stdin string, args ...string) answer {
			c := exec.CommandContext(t.Context(), filepath.Join(bin, "tally"), append(args, "--store", filepath.Join(base, "store"))...)
			c.Dir, c.Env, c.Stdin = project, append(os.Environ(), "HOME="+base, "XDG_CONFIG_HOME="+base, "XDG_STATE_HOME="+base), strings.NewReader(stdin)
			var out, errw bytes.Buffer
			c.Stdout, c.Stderr = &out, &errw
			err := c.Run()
			return answer{codeOf(t, err), out.String(), errw.String()}
		}
		if a := run("", "init", "--tavern"); a.code != 0 {
			t.Fatal(a)
		}
		if a := run("one", "doc", "put", "--save", "doc/sub/x"); a.code != 0 {
			t.Fatal(a)
		}
		if err := errors.Join(os.Rename(filepath.Join(docs, "sub"), filepath.Join(docs, "was")), os.Symlink(outside, filepath.Join(docs, "sub"))); err != nil {
			t.Fatal(err)
		}
		a := run("two", "doc", "put", "--save", "doc/sub/y")
		if a.code != 3 || !strings.Contains(a.err, "docs/sub") || strings.Contains(a.err, "deadline") || strings.Count(a.err, "WARN") > 1 {
			t.Errorf("a write below the link: got code %d: %v", a.code, a)
		}
		if a := run("three", "doc", "put", "--save", "doc/z"); a.code != 0 || strings.Count(a.err, "WARN") > 1 {
			t.Errorf("a write elsewhere: got code %d: %v", a.code, a)
		}
		if text, err := os.ReadFile(filepath.Join(docs, "z")); err != nil || string(text) != "three" {
			t.Errorf("got %q, %v", text, err)
		}
		if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
			t.Errorf("the link's target: got %v, %v", list, err)
		}
		if a := run("", "tree", "status"); !strings.Contains(a.out, "docs/sub") {
			t.Errorf("the status does not name the link: %v", a)
		}
	})
}
