package storagetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
)

// Limits of a storage. The zero value has none.
type Limits struct {
	Names int                 // number of names in CI; 0: 10,000
	Large int                 // bytes of the largest object in CI; 0: 64 MiB
	Modes bool                // permission bits are not kept
	Alone bool                // only one swap runs at a time
	Name  func(s string) bool // reports whether a name is possible; nil: every name is
}

// The soak has no smaller numbers.
const (
	manyNames = 10_000
	largeSize = 64 << 20
)

func orMost(n, most int) int {
	if n == 0 || testkit.Soak() {
		n = most
	}
	return testkit.Times(n)
}

// Run tests the promises of a storage. open returns an empty one for each test.
func Run(t *testing.T, l Limits, open func(t *testing.T) layouts.Storage) {
	test := func(name string, run func(t *testing.T, st layouts.Storage)) {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
	test("files", func(t *testing.T, st layouts.Storage) { files(t, st, l) })
	test("folders", folders)
	test("appends", appends)
	test("paths that lead out", leadOut)
	test("whole or not at all", whole)
	test("versions", versions)
	test("many names", func(t *testing.T, st layouts.Storage) { names(t, st, l) })
	test("a large object", func(t *testing.T, st layouts.Storage) { large(t, st, orMost(l.Large, largeSize)) })
	test("readers see no part", readers)
	if _, ok := open(t).(layouts.Swapper); ok {
		test("swap", func(t *testing.T, st layouts.Storage) { swap(t, st.(layouts.Swapper)) })
		if !l.Alone {
			test("swap loses nothing", func(t *testing.T, st layouts.Storage) { swapLaw(t, st.(layouts.Swapper)) })
		}
	}
	if _, ok := open(t).(layouts.Watcher); ok {
		test("watch", func(t *testing.T, st layouts.Storage) { watch(t, st) })
	}
	if _, ok := open(t).(layouts.Syncer); ok {
		test("sync", func(t *testing.T, st layouts.Storage) {
			must(t, st.Write(t.Context(), "a/b/c", 0o644, Bytes("x")))
			must(t, st.(layouts.Syncer).Sync(t.Context(), "", "a", "a/b"))
		})
	}
	t.Run("calls that fail", func(t *testing.T) { faults(t, open) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Text returns the content of a file.
func Text(t *testing.T, st layouts.Storage, name string) string {
	t.Helper()
	r, err := st.Read(t.Context(), name)
	if err != nil {
		t.Fatalf("read %q: %v", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %q: %v", name, err)
	}
	return string(data)
}

func wantText(t *testing.T, st layouts.Storage, name, want string) {
	t.Helper()
	if got := Text(t, st, name); got != want {
		t.Errorf("the content of %q is %.80q, want %.80q", name, got, want)
	}
}

// wantGone checks that a path has no entry.
func wantGone(t *testing.T, st layouts.Storage, name string) {
	t.Helper()
	if _, err := st.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of %q: %v", name, err)
	}
	if r, err := st.Read(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of %q: %v", name, err)
		if err == nil {
			r.Close()
		}
	}
}

// wantNames checks the names in a folder. Names of folders end with a slash.
func wantNames(t *testing.T, st layouts.Storage, folder string, want ...string) {
	t.Helper()
	list, err := st.List(t.Context(), folder)
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || len(want) > 0) {
		t.Fatalf("list %q: %v", folder, err)
	}
	var got []string
	for _, e := range list {
		if e.Dir {
			e.Name += "/"
		}
		got = append(got, e.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the folder %q has %q, want %q", folder, got, want)
	}
}

func files(t *testing.T, st layouts.Storage, l Limits) {
	ctx := t.Context()
	wantNames(t, st, "")
	wantGone(t, st, "a")
	wantGone(t, st, "a/b")
	for _, content := range []string{"one", "", "two\r\n\x00\xff", strings.Repeat("long ", 1000), "3"} {
		must(t, st.Write(ctx, "a/b.json", 0o644, Bytes(content)))
		wantText(t, st, "a/b.json", content)
		e, err := st.Stat(ctx, "a/b.json")
		if err != nil || e.Name != "b.json" || e.Dir || e.Size != int64(len(content)) || e.Mode != 0o644 {
			t.Errorf("stat of %d bytes: %+v, %v", len(content), e, err)
		}
		list, err := st.List(ctx, "a")
		if err != nil || len(list) != 1 || !sameEntry(list[0], e) {
			t.Errorf("the list has %+v, stat returns %+v, error %v", list, e, err)
		}
	}
	for _, mode := range []fs.FileMode{0o755, 0o600, 0o700, 0o644} {
		must(t, st.Write(ctx, "mode", mode, Bytes("x")))
		if e, err := st.Stat(ctx, "mode"); err != nil || e.Mode != mode && !l.Modes {
			t.Errorf("mode %o: got %+v, error %v", mode, e, err)
		}
	}
	must(t, st.Delete(ctx, "mode"))
	wantGone(t, st, "mode")
	if err := st.Delete(ctx, "mode"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("delete a second time: %v", err)
	}
	wantText(t, st, "a/b.json", "3")
}

func sameEntry(a, b layouts.FileInfo) bool {
	same := a.ModTime.Equal(b.ModTime)
	a.ModTime, b.ModTime = time.Time{}, time.Time{}
	return same && a == b
}

func folders(t *testing.T, st layouts.Storage) {
	ctx := t.Context()
	for _, name := range []string{"a.txt", "a/b/c/d", "a/b/c.d", "a/b.c", "ab/x", "z", "A"} {
		must(t, st.Write(ctx, name, 0o644, Bytes(name)))
	}
	wantNames(t, st, "", "A", "a/", "a.txt", "ab/", "z")
	wantNames(t, st, "a", "b/", "b.c")
	wantNames(t, st, "a/b", "c/", "c.d")
	wantNames(t, st, "a/b/c", "d")
	if e, err := st.Stat(ctx, "a/b"); !errors.Is(err, fs.ErrNotExist) && (err != nil || !e.Dir || e.Name != "b") { // some have none
		t.Errorf("stat of a folder: %+v, error %v", e, err)
	}
	var found []string
	for f, err := range layouts.Walk(ctx, st, "a") {
		must(t, err)
		if found = append(found, f.Path); f.Dir || f.Size != int64(len(f.Path)) || f.Name != path.Base(f.Path) {
			t.Errorf("got the unexpected entry %+v", f)
		}
	}
	if slices.Sort(found); !slices.Equal(found, []string{"a/b.c", "a/b/c.d", "a/b/c/d"}) {
		t.Errorf("the files are %q", found)
	}
	if _, err := st.List(ctx, "z"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("list of a file: %v", err)
	}
	if _, err := st.List(ctx, "gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("list of a missing folder: %v", err)
	}
	if r, err := st.Read(ctx, "a/b"); err == nil {
		if _, err = io.ReadAll(r); err == nil {
			t.Error("a read of a folder succeeded")
		}
		r.Close()
	}
	if err := st.Delete(ctx, "a/b"); err == nil {
		t.Error("a deletion of a folder with files succeeded")
	}
	wantGone(t, st, "z/below")
	wantGone(t, st, "a/b/c/d/e")
	must(t, st.Delete(ctx, "a/b/c/d"))
	if err := st.Delete(ctx, "a/b/c"); err != nil && !errors.Is(err, fs.ErrNotExist) { // some have no empty ones
		t.Error(err)
	}
	wantNames(t, st, "a/b", "c.d")
	wantNames(t, st, "a/b/c")
}

func appends(t *testing.T, st layouts.Storage) {
	ctx, want := t.Context(), ""
	for n := range 20 {
		line := fmt.Sprintf("%d\xff\n", n)
		want += line
		must(t, st.Append(ctx, "x/log", []byte(line)))
	}
	wantText(t, st, "x/log", want)
	must(t, st.Append(ctx, "x/log", nil))
	wantText(t, st, "x/log", want)
	must(t, st.Write(ctx, "x/log", 0o600, Bytes("new\n")))
	must(t, st.Append(ctx, "x/log", []byte("more")))
	wantText(t, st, "x/log", "new\nmore")
	if e, err := st.Stat(ctx, "x/log"); err != nil || e.Size != 8 {
		t.Errorf("%+v, %v", e, err)
	}
}

func leadOut(t *testing.T, st layouts.Storage) {
	ctx := t.Context()
	for _, name := range []string{"../outside", "x/../../outside", "/outside", ".", "..", "", "x//y", "x/", "x/.", "a\x00b", strings.Repeat("x", 256)} {
		_, readErr := st.Read(ctx, name)
		_, statErr := st.Stat(ctx, name)
		errs := map[string]error{"read": readErr, "stat": statErr, "delete": st.Delete(ctx, name),
			"append": st.Append(ctx, name, []byte("x")), "write": st.Write(ctx, name, 0o644, Bytes("x"))}
		if name != "" {
			_, errs["list"] = st.List(ctx, name)
		}
		if s, ok := st.(layouts.Swapper); ok {
			_, errs["swap"] = s.Swap(ctx, name, 0o644, Bytes("x"))
			_, errs["displace"] = s.Displace(ctx, name)
			must(t, st.Write(ctx, "x.tally-tmp-1", 0o644, Bytes("x")))
			errs["restore to"] = s.Restore(ctx, "x.tally-tmp-1", name)
			errs["restore from"] = s.Restore(ctx, name, "y")
			must(t, st.Delete(ctx, "x.tally-tmp-1"))
		}
		for what, err := range errs {
			if _, ok := errors.AsType[*layouts.PathError](err); !ok {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	wantNames(t, st, "")
}

// whole: a failed write leaves the old content, and no other file.
func whole(t *testing.T, st layouts.Storage) {
	ctx := t.Context()
	must(t, st.Write(ctx, "f/a", 0o644, Bytes("old")))
	broken := errors.New("broken")
	for _, size := range []int{0, 1, 100_000, 700_000} {
		half := func(w io.Writer) error { w.Write(make([]byte, size)); return broken }
		for _, name := range []string{"f/a", "f/new"} {
			if err := st.Write(ctx, name, 0o644, half); !errors.Is(err, broken) {
				t.Errorf("write of %d bytes that fails: %v", size, err)
			}
			ended, cancel := context.WithCancel(ctx)
			if err := st.Write(ended, name, 0o644, func(w io.Writer) error { w.Write(make([]byte, size)); cancel(); return nil }); err == nil {
				t.Errorf("a write of %d bytes with a cancelled context succeeded", size)
			}
			if s, ok := st.(layouts.Swapper); ok {
				if displaced, err := s.Swap(ctx, name, 0o644, half); !errors.Is(err, broken) || displaced != "" {
					t.Errorf("a swap that fails: %q, %v", displaced, err)
				}
			}
		}
	}
	wantText(t, st, "f/a", "old")
	wantNames(t, st, "f", "a")
}

// versions: the version changes with each change, and only then.
func versions(t *testing.T, st layouts.Storage) {
	ctx := t.Context()
	version := func() string {
		t.Helper()
		e, err := st.Stat(ctx, "a/b")
		must(t, err)
		return e.Version
	}
	must(t, st.Write(ctx, "a/b", 0o644, Bytes("one")))
	had := []string{version()}
	if had[0] == "" {
		t.Skip("the storage has no versions")
	}
	changed := func(what string) {
		t.Helper()
		v := version()
		if slices.Contains(had, v) {
			t.Errorf("got the version %q again after %s", v, what)
		}
		had = append(had, v)
	}
	wantText(t, st, "a/b", "one")
	must(t, st.Write(ctx, "a/other", 0o644, Bytes("one")))
	if v := version(); v != had[0] {
		t.Errorf("the version changed from %q to %q without a change", had[0], v)
	}
	must(t, st.Write(ctx, "a/b", 0o644, Bytes("two two")))
	changed("a write")
	must(t, st.Append(ctx, "a/b", []byte("more")))
	changed("an append")
	if s, ok := st.(layouts.Swapper); ok {
		displaced, err := s.Swap(ctx, "a/b", 0o644, Bytes("three"))
		must(t, err)
		changed("a swap")
		if e, err := st.Stat(ctx, displaced); err != nil || e.Size != int64(len("two twomore")) {
			t.Errorf("the displaced file is %+v, error %v", e, err)
		}
	}
}

// names: any bytes, in one folder and in many.
func names(t *testing.T, st layouts.Storage, l Limits) {
	ctx, rnd, count := t.Context(), rand.New(rand.NewPCG(1, 2)), orMost(l.Names, manyNames)
	want := make(map[string]bool)
	hard := []string{":", "a:b", "a=3Ab", "=", "==", "=3D", "%3A", "*", "?", "[a-z]", "a[b", `a\b`, `\`, ">", "a.>", ".a", "a.", " ", "-", "é", "e\u0301", "\xff", "\xc3", "\n", "\r\n", "#",
		"\u2028", "\x7f", "$", "{a}", "&amp;", "\"", "'", strings.Repeat("n", 255), strings.Repeat("\xfe", 255), "NUL", "content"}
	for n := 0; len(want) < count; n++ {
		name := fmt.Sprintf("name-%d", n)
		switch {
		case n < len(hard):
			name = hard[n]
		case n%4 == 0:
			b := make([]byte, 1+rnd.IntN(30))
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			name = strings.NewReplacer("/", "", "\x00", "").Replace(string(b))
		}
		if layouts.IsFileName(name) && (l.Name == nil || l.Name(name)) {
			want[name] = true
		}
	}
	for name := range want {
		must(t, st.Write(ctx, "many/"+name, 0o644, Bytes(name)))
	}
	list, err := st.List(ctx, "many")
	must(t, err)
	if len(list) != len(want) || !slices.IsSortedFunc(list, func(a, b layouts.FileInfo) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("the list has %d names, want %d, sorted", len(list), len(want))
	}
	for n, e := range list {
		if !want[e.Name] || e.Dir || e.Size != int64(len(e.Name)) {
			t.Fatalf("the list has %+v", e)
		}
		if n%10 == 0 {
			wantText(t, st, "many/"+e.Name, e.Name)
		}
	}
	for _, name := range hard { // as folders too
		if l.Name == nil || l.Name(name) {
			must(t, st.Write(ctx, "dirs/"+name+"/x", 0o644, Bytes(name)))
			wantNames(t, st, "dirs/"+name, "x")
			wantText(t, st, "dirs/"+name+"/x", name)
		}
	}
	for _, name := range hard {
		if want[name] {
			must(t, st.Delete(ctx, "many/"+name))
			wantGone(t, st, "many/"+name)
		}
	}
}

// large: an object that is never in memory as a whole.
func large(t *testing.T, st layouts.Storage, size int) {
	ctx := t.Context()
	stream := func(w io.Writer) error {
		rnd, block := rand.New(rand.NewPCG(3, 4)), make([]byte, 64<<10)
		for n := 0; n < size; n += len(block) {
			for i := 0; i < len(block); i += 512 {
				block[i] = byte(rnd.Uint32())
			}
			if _, err := w.Write(block[:min(len(block), size-n)]); err != nil {
				return err
			}
		}
		return nil
	}
	sum := func(fill func(w io.Writer) error) hash.Hash {
		h := sha256.New()
		must(t, fill(h))
		return h
	}
	must(t, st.Write(ctx, "large", 0o644, stream))
	e, err := st.Stat(ctx, "large")
	if err != nil || e.Size != int64(size) {
		t.Errorf("%+v, %v", e, err)
	}
	r, err := st.Read(ctx, "large")
	must(t, err)
	defer r.Close()
	got := sum(func(w io.Writer) error { _, err := io.Copy(w, r); return err })
	if !bytes.Equal(got.Sum(nil), sum(stream).Sum(nil)) {
		t.Error("a read returned other bytes")
	}
}

// readers: a reader during writes sees one whole content.
func readers(t *testing.T, st layouts.Storage) {
	ctx := t.Context()
	content := func(n int) string { return strings.Repeat(string(rune('a'+n%26)), 1+n%7*20_000) }
	must(t, st.Write(ctx, "x", 0o644, Bytes(content(0))))
	done := make(chan error, 1)
	go func() {
		for n := range 40 {
			if err := st.Write(ctx, "x", 0o644, Bytes(content(n))); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		got := Text(t, st, "x")
		if got == "" || strings.Trim(got, got[:1]) != "" || got != content(strings.IndexByte("abcdefghijklmnopqrstuvwxyz", got[0])) &&
			got != content(26+strings.IndexByte("abcdefghijklmnopqrstuvwxyz", got[0])) {
			t.Fatalf("got %d bytes: %.20q", len(got), got)
		}
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
	}
}

func swap(t *testing.T, st layouts.Swapper) {
	ctx := t.Context()
	displaced, err := st.Swap(ctx, "a/b", 0o600, Bytes("one"))
	if err != nil || displaced != "" {
		t.Fatalf("%q, %v", displaced, err)
	}
	wantText(t, st, "a/b", "one")
	displaced, err = st.Swap(ctx, "a/b", 0o644, Bytes("two"))
	must(t, err)
	wantText(t, st, "a/b", "two")
	wantText(t, st, displaced, "one")
	if !layouts.IsTemporary(displaced) || !strings.HasPrefix(displaced, "a/") {
		t.Errorf("displaced to %q", displaced)
	}
	if err := st.Restore(ctx, displaced, "a/b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("restore over another file: %v", err)
	}
	wantText(t, st, "a/b", "two")
	second, err := st.Displace(ctx, "a/b")
	must(t, err)
	wantGone(t, st, "a/b")
	wantText(t, st, second, "two")
	if !layouts.IsTemporary(second) || second == displaced {
		t.Errorf("displaced to %q, the first time to %q", second, displaced)
	}
	if _, err := st.Displace(ctx, "a/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("displace a missing file: %v", err)
	}
	must(t, st.Restore(ctx, displaced, "a/b"))
	wantText(t, st, "a/b", "one")
	wantGone(t, st, displaced)
	if err := st.Restore(ctx, displaced, "a/c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("restore a missing file: %v", err)
	}
	must(t, st.Delete(ctx, second))
	long := strings.Repeat("l", 255) // the temporary name is no longer
	for range 2 {
		displaced, err = st.Swap(ctx, "a/"+long, 0o644, Bytes("x"))
		must(t, err)
	}
	must(t, st.Delete(ctx, displaced))
	must(t, st.Delete(ctx, "a/"+long))
	if _, flat := st.(layouts.Walker); !flat {
		if _, err := st.Swap(ctx, "a", 0o644, Bytes("x")); err == nil {
			t.Error("a swap of a folder succeeded")
		}
	}
	if _, err := st.Displace(ctx, "a"); err == nil {
		t.Error("a displacement of a folder succeeded")
	}
	wantNames(t, st, "a", "b")
}

// swapLaw: if several callers swap a file at once, each gets the content that another one wrote, and the final content
// is one of theirs.
func swapLaw(t *testing.T, st layouts.Swapper) {
	ctx, writers, rounds := t.Context(), 4, 25
	found := make(chan string, writers*rounds)
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			errs <- func() error {
				for n := range rounds {
					displaced, err := st.Swap(ctx, "x", 0o644, Bytes(fmt.Sprintf("%d.%d", w, n)))
					if err != nil {
						return err
					}
					if displaced == "" {
						continue
					}
					r, err := st.Read(ctx, displaced)
					if err != nil {
						return err
					}
					data, err := io.ReadAll(r)
					if err := errors.Join(err, r.Close(), st.Delete(ctx, displaced)); err != nil {
						return err
					}
					found <- string(data)
				}
				return nil
			}()
		}()
	}
	for range writers {
		must(t, <-errs)
	}
	close(found)
	had := map[string]int{Text(t, st, "x"): 1}
	for text := range found {
		had[text]++
	}
	for w := range writers {
		for n := range rounds {
			if text := fmt.Sprintf("%d.%d", w, n); had[text] != 1 {
				t.Errorf("the content %q was found %d times, want once", text, had[text])
			}
		}
	}
}

// watch: changes are reported.
func watch(t *testing.T, st layouts.Storage) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, ready, ended := make(chan string, 10_000), make(chan struct{}), make(chan error, 1)
	must(t, st.Write(ctx, "there/file", 0o644, Bytes("x")))
	go func() {
		ended <- st.(layouts.Watcher).Watch(ctx, func() { close(ready) }, func(name string) { said <- name })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	late := time.After(time.Minute) // the storage failed
	await := func(what, name string) {
		t.Helper()
		for {
			select {
			case got := <-said:
				if layouts.IsTemporary(got) {
					t.Errorf("reported %q", got)
				}
				if got == name || got == "" {
					return
				}
			case err := <-ended:
				t.Fatalf("Watch ended: %v", err)
			case <-late:
				t.Fatalf("%s: %q was not reported", what, name)
			}
		}
	}
	must(t, st.Write(ctx, "there/file", 0o644, Bytes("y")))
	await("a write", "there/file")
	must(t, st.Append(ctx, "there/file", []byte("z")))
	await("an append", "there/file")
	must(t, st.Write(ctx, "new/folders/file", 0o644, Bytes("x")))
	await("a new file", "new/folders/file")
	must(t, st.Append(ctx, "new/folders/file", []byte("x")))
	await("an append in a new folder", "new/folders/file")
	must(t, st.Delete(ctx, "new/folders/file"))
	await("a deletion", "new/folders/file")
	if s, ok := st.(layouts.Swapper); ok {
		displaced, err := s.Swap(ctx, "there/file", 0o644, Bytes("!"))
		must(t, err)
		await("a swap", "there/file")
		must(t, st.Delete(ctx, displaced))
		displaced, err = s.Displace(ctx, "there/file")
		must(t, err)
		await("a displacement", "there/file")
		must(t, s.Restore(ctx, displaced, "there/file"))
		await("a restoration", "there/file")
	}
	must(t, st.Delete(ctx, "there/file"))
	await("the last deletion", "there/file")
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Watch ended without an error")
		}
	case <-late:
		t.Error("Watch does not end")
	}
}

// faults: after a failed call the content is the old or the new one.
func faults(t *testing.T, open func(t *testing.T) layouts.Storage) {
	st := open(t)
	for _, fault := range []Fault{Fail, Unanswered, Torn, KillBefore, KillHalf, KillWhole, KillAfter} {
		t.Run(fault.String(), func(t *testing.T) {
			ctx, name := t.Context(), "f/"+strings.ReplaceAll(fault.String(), " ", "-")
			must(t, st.Write(ctx, name, 0o644, Bytes("old")))
			f := NewFaulty(st, func(c Call) Fault { return map[int]Fault{1: fault}[c.N] })
			kill := Killed(func() {
				if got := Text(t, f, name); got != "old" { // call 0
					t.Errorf("got the content %q", got)
				}
				if err := f.Write(ctx, name, 0o644, Bytes("new")); !errors.Is(err, ErrFaulty) {
					t.Errorf("write: %v", err)
				}
			})
			if want := fault >= KillBefore; (kill != nil) != want {
				t.Errorf("got the kill %v, want %v", kill, want)
			}
			want := "old"
			if fault == Unanswered || fault == KillAfter {
				want = "new"
			}
			wantText(t, st, name, want)
			if err := f.Delete(ctx, name); (kill != nil) != (err != nil) {
				t.Errorf("after the kill: %v", err)
			}
		})
	}
}

// RunCut tests a storage on a server with broken connections: cut at any byte that is sent, and after the request was
// done but before its answer. The file must then have the old or the new content. open returns a storage with a
// connection of its own, to a server at the address of c.
func RunCut(t *testing.T, c *Cut, open func(t *testing.T) layouts.Storage) {
	ctx, seen, st := t.Context(), make(map[string]int), open(t)
	old, next := strings.Repeat("old ", 1000), strings.Repeat("new!", 1000)
	write := func(what string) (cut bool) {
		t.Helper()
		err := st.Write(ctx, "f/x", 0o644, Bytes(next))
		if cut = c.Mend(); cut {
			st = open(t)
		}
		got := Text(t, st, "f/x")
		if got != next && (got != old || err == nil) || !cut && err != nil { // the cut may be behind the request
			t.Errorf("%s: got %.30q, error %v", what, got, err)
		}
		if seen[got[:4]]++; got == next {
			must(t, st.Write(ctx, "f/x", 0o644, Bytes(old)))
		}
		return cut
	}
	must(t, st.Write(ctx, "f/x", 0o644, Bytes(old)))
	for n := 0; n < 1<<20; n += 1 + n/7 {
		c.After(n)
		if !write(fmt.Sprintf("a cut at %d", n)) {
			break
		}
	}
	for range 3 {
		c.Mute()
		write("a lost answer")
	}
	if seen["old "] == 0 || seen["new!"] == 0 {
		t.Errorf("got the contents %v", seen)
	}
	if list, err := st.List(ctx, "f"); err != nil || slices.ContainsFunc(list, func(e layouts.FileInfo) bool { return !layouts.IsTemporary(e.Name) && e.Name != "x" }) {
		t.Errorf("the list is %+v, error %v", list, err)
	}
}
