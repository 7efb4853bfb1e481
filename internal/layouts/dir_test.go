package layouts_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

func openDir(t *testing.T) (*layouts.Dir, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "a", "b")
	d, err := layouts.OpenDir(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, name
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func read(t *testing.T, d *layouts.Dir, name string) string {
	t.Helper()
	r, err := d.Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDir(t *testing.T) {
	d, name := openDir(t)
	ctx := t.Context()
	if err := d.Write(ctx, "x/y/z.json", 0o600, text("one")); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(ctx, "x/y/z.json", 0o644, text("two")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d, "x/y/z.json"); got != "two" {
		t.Errorf("got the content %q", got)
	}
	e, err := d.Stat(ctx, "x/y/z.json")
	if err != nil || e.Size != 3 || e.Dir || e.Name != "z.json" || runtime.GOOS != "windows" && e.Mode != 0o644 {
		t.Errorf("stat: got %+v, error %v", e, err)
	}
	for range 2 {
		if err := d.Append(ctx, "x/log", []byte("l\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, d, "x/log"); got != "l\nl\n" {
		t.Errorf("the content after an append is %q", got)
	}
	list, err := d.List(ctx, "x")
	if err != nil || len(list) != 2 || list[0].Name != "log" || !list[1].Dir {
		t.Errorf("list: got %+v, error %v", list, err)
	}
	if list, err := d.List(ctx, ""); err != nil || len(list) != 1 {
		t.Errorf("list: got %+v, error %v", list, err)
	}
	if err := d.Delete(ctx, "x/log"); err != nil {
		t.Error(err)
	}
	if _, err := d.Stat(ctx, "x/log"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of a deleted file: %v", err)
	}
	broken := errors.New("broken")
	if err := d.Write(ctx, "x/y/z.json", 0o644, func(w io.Writer) error { fmt.Fprint(w, "half"); return broken }); !errors.Is(err, broken) {
		t.Errorf("a failing write: %v", err)
	}
	if got := read(t, d, "x/y/z.json"); got != "two" {
		t.Errorf("the content after a failed write is %q", got)
	}
	if entries, _ := os.ReadDir(filepath.Join(name, "x", "y")); len(entries) != 1 {
		t.Errorf("got %d files", len(entries))
	}
}

// T-30: no path leads out of the folder.
func TestDirIsConfined(t *testing.T) {
	d, name := openDir(t)
	ctx := t.Context()
	if err := os.WriteFile(filepath.Join(name, "..", "outside"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../outside", "x/../../outside", "/outside", ".", "..", "", "x//y", "x/", "x/.", "a\x00b"} {
		_, readErr := d.Read(ctx, path)
		_, statErr := d.Stat(ctx, path)
		for what, err := range map[string]error{"read": readErr, "stat": statErr, "delete": d.Delete(ctx, path),
			"append": d.Append(ctx, path, []byte("x")), "write": d.Write(ctx, path, 0o644, text("x"))} {
			if _, ok := errors.AsType[*layouts.PathError](err); !ok {
				t.Errorf("%s %q: %v", what, path, err)
			}
		}
	}
	if err := os.Symlink("..", filepath.Join(name, "up")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if _, err := d.Read(ctx, "up/outside"); err == nil {
		t.Error("a read followed a link out of the folder")
	}
	if err := d.Write(ctx, "up/outside", 0o644, text("x")); err == nil {
		t.Error("a write followed a link out of the folder")
	}
}

// Of a mode, ModeOf keeps whether the file is private, and whether it is executable.
func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	for perm, want := range map[fs.FileMode]int64{0o644: 0, 0o444: 0, 0o664: 0, 0o755: 0o755, 0o555: 0o755, 0o600: 0o600, 0o400: 0o600, 0o700: 0o700} {
		if got := layouts.ModeOf(perm); got != want {
			t.Errorf("ModeOf(%o) = %o, want %o", perm, got, want)
		}
	}
	if layouts.FileMode(0) != 0o644 || layouts.FileMode(0o755) != 0o755 {
		t.Error("modes do not survive the conversion")
	}
}

// Dir keeps the promises of a storage on each kind of file system, with exchange, with links, and with neither.
func TestDirStorage(t *testing.T) {
	limits := storagetest.Limits{Modes: runtime.GOOS == "windows", Name: func(s string) bool {
		return runtime.GOOS == "linux" || layouts.FileName(s) == s // names that every system accepts
	}}
	for name, set := range map[string]func(*layouts.Dir){
		"exchange": func(*layouts.Dir) {}, "links": func(d *layouts.Dir) { layouts.LackExchange(d, false) }, "neither": func(d *layouts.Dir) { layouts.LackExchange(d, true) },
		"durable": func(d *layouts.Dir) { d.Durable = true },
	} {
		t.Run(name, func(t *testing.T) {
			l := limits
			l.Names = 2000
			if name != "exchange" {
				l.Names, l.Large, l.Alone = 50, 1<<20, name != "durable"
			}
			storagetest.Run(t, l, func(t *testing.T) layouts.Storage {
				d, _ := openDir(t)
				set(d)
				return d
			})
		})
	}
}

// D-39: a durable folder syncs files before they get their names. Sync makes the names durable, also those of new
// folders.
func TestDirSynced(t *testing.T) {
	d, name := openDir(t)
	d.Durable = true
	var mu sync.Mutex
	var synced []string
	defer durable.Watch(func(path string) {
		mu.Lock()
		defer mu.Unlock()
		rel, err := filepath.Rel(name, path)
		if err != nil {
			t.Error(err)
		}
		rel, _, _ = strings.Cut(filepath.ToSlash(rel), ".tally-tmp-")
		synced = append(synced, rel)
	})()
	want := func(what string, names ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(synced)
		if !slices.Equal(synced, names) {
			t.Errorf("%s synced %q, want %q", what, synced, names)
		}
		synced = nil
	}
	ctx := t.Context()
	for range 2 {
		if _, err := d.Swap(ctx, "a/b/c", 0o644, text("x")); err != nil {
			t.Fatal(err)
		}
		want("a swap", "a/b/.c")
	}
	if err := d.Sync(ctx, "a/b"); err != nil {
		t.Fatal(err)
	}
	want("the first sync", ".", "a", "a/b")
	if err := d.Sync(ctx, "a/b", "gone"); err != nil {
		t.Fatal(err)
	}
	want("the second sync", "a/b")
	if err := d.Append(ctx, "a/log", []byte("x")); err != nil {
		t.Fatal(err)
	}
	want("an append", "a/log")
	if _, err := d.Swap(ctx, "d/e", 0o644, text("x")); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(ctx, "../outside"); err == nil {
		t.Error("a folder outside was synced")
	}
	mu.Lock()
	synced = nil
	mu.Unlock()
	if err := d.Sync(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	want("a sync after one that failed", ".", "d")
}

// Moved reports a folder that was moved or replaced.
func TestDirMoved(t *testing.T) {
	d, name := openDir(t)
	if d.Moved() {
		t.Error("Moved reports true for an unmoved folder")
	}
	if err := errors.Join(os.Rename(name, name+"2"), os.Mkdir(name, 0o755)); err != nil {
		t.Fatal(err)
	}
	if !d.Moved() {
		t.Error("Moved reports false for a replaced folder")
	}
	if err := errors.Join(d.Reopen(), d.Write(t.Context(), "x", 0o644, text("x"))); err != nil || d.Moved() {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(name, "x")); err != nil {
		t.Errorf("the file that was written after the replacement: %v", err)
	}
	if list, err := os.ReadDir(name + "2"); err != nil || len(list) > 0 {
		t.Errorf("the moved folder has %v, error %v", list, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
