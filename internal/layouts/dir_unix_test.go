//go:build unix

package layouts_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storagetest"
)

// Dir follows no link, inside the folder or out of it, and does not block on pipes and sockets.
func TestDirOdd(t *testing.T) {
	d, name := openDir(t)
	ctx := t.Context()
	must(t, d.Write(ctx, "in/file", 0o644, text("inside")))
	must(t, os.WriteFile(filepath.Join(name, "..", "outside"), []byte("outside"), 0o644))
	for link, to := range map[string]string{"l-out": "../outside", "l-in": "in/file", "l-folder": "in", "l-up": "..", "l-none": "none", "l-self": "l-self"} {
		must(t, os.Symlink(to, filepath.Join(name, link)))
	}
	must(t, syscall.Mkfifo(filepath.Join(name, "pipe"), 0o644))
	l, err := net.Listen("unix", filepath.Join(name, "socket"))
	must(t, err)
	defer l.Close()
	for _, odd := range []string{"l-out", "l-in", "l-folder", "l-up", "l-none", "l-self", "pipe", "socket"} {
		if e, err := d.Stat(ctx, odd); err != nil || e.Size != -1 || e.Dir {
			t.Errorf("stat of %s: got %+v, error %v", odd, e, err)
		}
		r, err := d.Read(ctx, odd)
		if err == nil {
			r.Close()
		}
		_, swapErr := d.Swap(ctx, odd, 0o644, text("x"))
		_, displaceErr := d.Displace(ctx, odd)
		for what, err := range map[string]error{"read": err, "append": d.Append(ctx, odd, []byte("x")), "swap": swapErr, "displace": displaceErr} {
			if !errors.Is(err, layouts.ErrNotFile) {
				t.Errorf("%s %s: %v", what, odd, err)
			}
		}
	}
	for _, below := range []string{"l-folder/file", "l-up/outside", "l-self/x", "pipe/x"} {
		r, err := d.Read(ctx, below)
		if err == nil {
			r.Close()
		}
		_, statErr := d.Stat(ctx, below)
		_, listErr := d.List(ctx, below)
		_, swapErr := d.Swap(ctx, below, 0o644, text("x"))
		for what, err := range map[string]error{"read": err, "append": d.Append(ctx, below, []byte("x")), "swap": swapErr, "stat": statErr, "list": listErr,
			"delete": d.Delete(ctx, below), "write": d.Write(ctx, below, 0o644, text("x"))} {
			if !errors.Is(err, layouts.ErrNotFile) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s: %v", what, below, err)
			}
		}
	}
	must(t, d.Write(ctx, "l-in", 0o644, text("a file")))
	must(t, d.Delete(ctx, "l-out"))
	if got := read(t, d, "l-in") + read(t, d, "in/file"); got != "a fileinside" {
		t.Errorf("got the content %q", got)
	}
	if data, err := os.ReadFile(filepath.Join(name, "..", "outside")); err != nil || string(data) != "outside" {
		t.Errorf("the file outside has %q, error %v", data, err)
	}
	list, err := d.List(ctx, "")
	must(t, err)
	odd := 0
	for _, e := range list {
		if e.Size < 0 {
			odd++
		}
	}
	if odd != 6 || len(list) != 8 {
		t.Errorf("the list is %+v", list)
	}
}

// Append leaves the other names of a file with their content.
func TestDirAppendToShared(t *testing.T) {
	d, name := openDir(t)
	must(t, d.Write(t.Context(), "a/log", 0o600, text("1\n")))
	must(t, os.Link(filepath.Join(name, "a", "log"), filepath.Join(name, "..", "copy")))
	for range 2 {
		must(t, d.Append(t.Context(), "a/log", []byte("2\n")))
	}
	if data, err := os.ReadFile(filepath.Join(name, "..", "copy")); err != nil || string(data) != "1\n" {
		t.Errorf("the content under the other name is %q, error %v", data, err)
	}
	if e, err := d.Stat(t.Context(), "a/log"); err != nil || e.Mode != 0o600 || read(t, d, "a/log") != "1\n2\n2\n" {
		t.Errorf("%+v, %v, %q", e, err, read(t, d, "a/log"))
	}
}

// L8: while another process replaces folders and files by links, Dir reads and writes nothing outside of the folder,
// and nothing in it through a link.
func TestDirAdversary(t *testing.T) {
	d, name := openDir(t)
	outside := filepath.Join(name, "..", "outside")
	must(t, errors.Join(os.Mkdir(outside, 0o755), os.Mkdir(filepath.Join(name, "d"), 0o755), os.Mkdir(filepath.Join(name, "real"), 0o755)))
	canary := testkit.Canary("outside") + strings.Repeat("-", 1<<20)
	for _, file := range []string{"x", "log"} {
		must(t, os.WriteFile(filepath.Join(outside, file), []byte(canary), 0o644))
	}
	ctx, stop := t.Context(), make(chan struct{})
	var all sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); all.Wait() })
	defer end()
	all.Go(func() {
		at := func(s string) string { return filepath.Join(name, filepath.FromSlash(s)) }
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(at("d"), at("away"))
			_ = os.Symlink([]string{"../outside", "real"}[n%2], at("d"))
			_ = os.Remove(at("d"))
			_ = os.Rename(at("away"), at("d"))
			_ = os.Remove(at("d/x"))
			_ = os.Symlink(outside+"/x", at("d/x"))
			_ = os.Remove(at("d/log"))
			_ = os.Symlink("../../outside/log", at("d/log"))
		}
	})
	rounds, done := 500, 0
	if testkit.Soak() {
		rounds = 30_000
	}
	for n := 0; n < rounds || done < rounds/20; n++ {
		if r, err := d.Read(ctx, "d/x"); err == nil {
			if data, _ := io.ReadAll(r); strings.Contains(string(data), canary) {
				t.Fatal("a read returned content from outside the folder")
			}
			r.Close()
			done++
		}
		if list, err := d.List(ctx, "d"); err == nil {
			for _, e := range list {
				if e.Size == int64(len(canary)) {
					t.Fatalf("the list has %+v", e)
				}
			}
			done++
		}
		for _, err := range []error{d.Write(ctx, "d/x", 0o644, text("ours")), d.Append(ctx, "d/log", []byte("ours"))} {
			if err == nil {
				done++
			}
		}
		if displaced, err := d.Swap(ctx, "d/x", 0o644, text("ours")); err == nil {
			if done++; displaced != "" {
				_ = d.Delete(ctx, displaced)
			}
		}
		_ = d.Delete(ctx, "d/x")
	}
	end()
	entries, err := os.ReadDir(outside)
	must(t, err)
	for _, e := range entries {
		if data, err := os.ReadFile(filepath.Join(outside, e.Name())); err != nil || string(data) != canary {
			t.Errorf("the file %s outside has %q, error %v", e.Name(), data, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(name, "real")); err != nil || len(entries) != 2 || len(left) != 0 {
		t.Errorf("the folder outside has %v, the target of the link has %v, error %v", entries, left, err)
	}
}

// If an editor saves by a rename during a swap, its content is not lost: it is the displaced file, or it is in place.
func TestDirSwapWhileSaved(t *testing.T) {
	if !hasExchange(t) {
		t.Skip("the file system cannot exchange names")
	}
	d, name := openDir(t)
	ctx := t.Context()
	saves := 50
	if testkit.Soak() {
		saves = 3_000
	}
	must(t, d.Write(ctx, "x", 0o644, text("first")))
	var mu sync.Mutex
	found, swaps := make(map[string]bool), 0
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				displaced, err := d.Swap(ctx, "x", 0o644, text("ours"))
				if err != nil {
					return err
				}
				mu.Lock()
				if swaps++; displaced != "" {
					found[read(t, d, displaced)] = true
					err = d.Delete(ctx, displaced)
				}
				mu.Unlock()
				if err != nil {
					return err
				}
			}
		}()
	}()
	for n := range saves {
		saved := fmt.Sprintf("save %d", n)
		must(t, os.WriteFile(filepath.Join(name, "editor"), []byte(saved), 0o644))
		must(t, os.Rename(filepath.Join(name, "editor"), filepath.Join(name, "x")))
		mu.Lock()
		for at := swaps; !found[saved] && swaps < at+2; { // the second swap from here began after the rename
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
		}
		if !found[saved] {
			t.Errorf("%q is lost", saved)
		}
		mu.Unlock()
	}
	close(stop)
	must(t, <-ended)
}

func hasExchange(t *testing.T) bool {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, errors.Join(os.WriteFile(a, nil, 0o644), os.WriteFile(b, nil, 0o644)))
	d, err := layouts.OpenDir(dir)
	must(t, err)
	defer d.Close()
	before, err := os.Stat(b)
	must(t, err)
	displaced, err := d.Swap(t.Context(), "b", 0o644, storagetest.Bytes("x"))
	must(t, err)
	after, err := os.Stat(filepath.Join(dir, displaced))
	must(t, err)
	return os.SameFile(before, after)
}

// If the folder is replaced by a link, as by a checkout, Reopen does not follow it.
func TestDirBecomesLink(t *testing.T) {
	d, name := openDir(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "mine"), []byte("mine"), 0o600))
	must(t, os.RemoveAll(name))
	must(t, os.Symlink(outside, name))
	if err := d.Reopen(); !errors.Is(err, layouts.ErrNotFile) || !d.Moved() {
		t.Errorf("Reopen followed a link: %v, moved %v", err, d.Moved())
	}
	if list, err := d.List(t.Context(), ""); err == nil && len(list) > 0 {
		t.Errorf("the folder has %v", list)
	}
	must(t, os.Remove(name))
	must(t, os.Symlink(filepath.Join(outside, "none"), name))
	if err := d.Reopen(); err == nil {
		t.Error("the folder was created at the target of a link")
	}
	must(t, os.Remove(name))
	if err := errors.Join(d.Reopen(), d.Write(t.Context(), "x", 0o644, text("x"))); err != nil || d.Moved() {
		t.Errorf("the folder was not created at its own path: %v", err)
	}
}
