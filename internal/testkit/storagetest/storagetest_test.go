package storagetest_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

func TestMem(t *testing.T) {
	storagetest.Run(t, storagetest.Limits{}, func(*testing.T) layouts.Storage { return storagetest.NewMem(storagetest.MemOptions{}) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantNames(t *testing.T, m *storagetest.Mem, want ...string) {
	t.Helper()
	if got := m.Foreign().Names(); !slices.Equal(got, want) {
		t.Errorf("the files are %q, want %q", got, want)
	}
}

// Names that differ only in case or Unicode form name one file, which keeps its first name.
func TestFold(t *testing.T) {
	m, ctx := storagetest.NewMem(storagetest.MemOptions{Fold: true}), t.Context()
	for _, name := range []string{"Dir/Caf\u00e9", "dir/CAFE\u0301", "DIR/x"} {
		must(t, m.Write(ctx, name, 0o644, storagetest.Bytes(name)))
	}
	wantNames(t, m, "Dir/", "Dir/Caf\u00e9", "Dir/x")
	if got := storagetest.Text(t, m, "dir/caf\u00e9"); got != "dir/CAFE\u0301" {
		t.Errorf("got the content %q", got)
	}
	must(t, m.Foreign().Rename("dir", "DIR"))
	must(t, m.Foreign().Rename("dir/x", "dir/X"))
	wantNames(t, m, "DIR/", "DIR/Caf\u00e9", "DIR/X")
	displaced, err := m.Swap(ctx, "dir/x", 0o644, storagetest.Bytes("new"))
	must(t, err)
	must(t, m.Delete(ctx, displaced))
	wantNames(t, m, "DIR/", "DIR/Caf\u00e9", "DIR/X")
}

// An open handle refers to a file, not to a name: writes through it after the file was displaced are in the displaced
// file.
func TestForeign(t *testing.T) {
	m, ctx := storagetest.NewMem(storagetest.MemOptions{}), t.Context()
	f := m.Foreign()
	must(t, f.Put("a/x", "one"))
	open, err := f.Open("a/x", false)
	must(t, err)
	r, err := m.Read(ctx, "a/x")
	must(t, err)
	displaced, err := m.Swap(ctx, "a/x", 0o644, storagetest.Bytes("ours"))
	must(t, err)
	open.WriteAt("edit", 3)
	if got := storagetest.Text(t, m, displaced); got != "oneedit" {
		t.Errorf("the displaced content is %q", got)
	}
	open.Truncate(2)
	open.Append("!")
	if got := storagetest.Text(t, m, displaced); got != "on!" || got != open.Content() {
		t.Errorf("the displaced content is %q, that of the open handle %q", got, open.Content())
	}
	had := make([]byte, 10)
	if n, _ := r.Read(had); string(had[:n]) != "one" {
		t.Errorf("a reader that was opened before got %q", had[:n])
	}
	must(t, m.Delete(ctx, displaced))
	before, err := m.Stat(ctx, "a/x")
	must(t, err)
	must(t, f.Forge("a/x", "OURS"))
	if after, err := m.Stat(ctx, "a/x"); err != nil || after != before || storagetest.Text(t, m, "a/x") != "OURS" {
		t.Errorf("the entry was %+v, is %+v, error %v", before, after, err)
	}
	must(t, f.Replace("a/x", "replaced"))
	must(t, f.Append("a/x", "+"))
	must(t, f.Mkdir("b/c"))
	must(t, f.Symlink("b/l"))
	must(t, f.Rename("a", "b/c/a"))
	must(t, f.Chmod("b/c/a/x", 0o600))
	wantNames(t, m, "b/", "b/c/", "b/c/a/", "b/c/a/x", "b/l@")
	copied := m.Clone()
	if err := f.Rename("b", "b/c/b"); err == nil {
		t.Error("a move of a folder into itself succeeded")
	}
	if _, err := m.Read(ctx, "b/l"); !errors.Is(err, layouts.ErrNotFile) {
		t.Errorf("read a link: %v", err)
	}
	if _, err := m.Stat(ctx, "b/l/x"); !errors.Is(err, layouts.ErrNotFile) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read below a link: %v", err)
	}
	if _, err := m.Swap(ctx, "b/l", 0o644, storagetest.Bytes("x")); !errors.Is(err, layouts.ErrNotFile) {
		t.Errorf("swap a link: %v", err)
	}
	must(t, f.Remove(""))
	wantNames(t, m)
	wantNames(t, copied, "b/", "b/c/", "b/c/a/", "b/c/a/x", "b/l@")
	if got := copied.Foreign().Files(); len(got) != 1 || got["b/c/a/x"] != "replaced+" {
		t.Errorf("got %q", got)
	}
}

// Watchers receive changes in order, also in virtual time, and may call the storage meanwhile.
func TestMemWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := storagetest.NewMem(storagetest.MemOptions{Now: time.Now}), t.Context()
		var said []string
		ended, ready := make(chan error, 1), make(chan struct{})
		go func() {
			ended <- m.Watch(ctx, func() { close(ready) }, func(name string) {
				said = append(said, name)
				_, _ = m.Stat(ctx, "x")
			})
		}()
		<-ready
		must(t, m.Foreign().Put("a/x", "1"))
		must(t, m.Foreign().Rename("a", "b"))
		must(t, m.Write(ctx, "b/y.tally-tmp-1", 0o644, storagetest.Bytes("1")))
		must(t, m.Foreign().Remove("b"))
		m.Quiet()
		// A watcher that is quick hears of the new file and of its content.
		if got, want := slices.Compact(said), []string{"a", "a/x", "a", "b"}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
		said = nil
		m.Overflow()
		m.Quiet()
		if want := []string{""}; !slices.Equal(said, want) {
			t.Errorf("reported %q, want %q", said, want)
		}
		broken := errors.New("broken")
		m.EndWatch(broken)
		if err := <-ended; !errors.Is(err, broken) {
			t.Errorf("Watch ended with %v", err)
		}
	})
}

// A killed process leaves its completed changes, and makes no others.
func TestKilled(t *testing.T) {
	for fault, want := range map[storagetest.Fault][]string{
		storagetest.KillBefore: {"a=old"}, storagetest.KillHalf: {".a.tally-tmp-killed-0=n", "a=old"}, storagetest.KillWhole: {".a.tally-tmp-killed-0=new", "a=old"},
		storagetest.KillAfter: {".a.tally-tmp-00000001=old", "a=new"},
	} {
		t.Run(fault.String(), func(t *testing.T) {
			m, ctx := storagetest.NewMem(storagetest.MemOptions{}), t.Context()
			must(t, m.Foreign().Put("a", "old"))
			f := storagetest.NewFaultyWhole(m, func(storagetest.Call) storagetest.Fault { return fault })
			var kill *storagetest.Kill
			if got := storagetest.Killed(func() {
				defer func() {
					if err := f.Delete(ctx, "a"); !errors.As(err, &kill) {
						t.Errorf("a deletion by the killed process: %v", err)
					}
				}()
				_, err := f.Swap(ctx, "a", 0o644, storagetest.Bytes("new"))
				t.Errorf("a write by the killed process: %v", err)
			}); got == nil || got.Fault != fault || got.Op != "swap" || got.Path != "a" {
				t.Errorf("the kill happened at %v", got)
			}
			var got []string
			for _, name := range m.Foreign().Names() {
				got = append(got, name+"="+m.Foreign().Files()[name])
			}
			if !slices.Equal(got, want) {
				t.Errorf("the files after the kill are %q, want %q", got, want)
			}
		})
	}
	m, ctx := storagetest.NewMem(storagetest.MemOptions{}), t.Context()
	f := storagetest.NewFaulty(m, func(c storagetest.Call) storagetest.Fault { return storagetest.Torn })
	if err := f.Append(ctx, "log", []byte("abcd")); !errors.Is(err, storagetest.ErrFaulty) || storagetest.Text(t, m, "log") != "ab" {
		t.Errorf("a torn append: %v", err)
	}
}
