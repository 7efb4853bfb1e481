package tavern_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/text/unicode/norm"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
)

func TestKeys(t *testing.T) {
	t.Run("D-25 the example", func(t *testing.T) {
		if got := tavern.PathKey("/Users/yankee/Projects/foo_bar"); got != "-Users-yankee-Projects-foo-bar" {
			t.Errorf("the key is %q", got)
		}
	})
	t.Run("D-37 names", func(t *testing.T) {
		if got := tavern.ProjectKey("/Users/yankee/Projects/foo_bar"); got != "com.tavern.jake.session.-Users-yankee-Projects-foo-bar" {
			t.Errorf("the key of a project is %q", got)
		}
		if got := tavern.AgentKey("6F9619FF-8B86-D011-B42D-00C04FC964FF"); got != "com.tavern.agent.session.6F9619FF-8B86-D011-B42D-00C04FC964FF" {
			t.Errorf("the key of an agent is %q", got)
		}
	})
	// The right-hand sides are the results of JavaScript's path.normalize("NFC").replace(/[^a-zA-Z0-9]/g, "-").
	t.Run("D-25 the vendor's rule", func(t *testing.T) {
		for path, want := range map[string]string{
			"/nowhere/Projects/foo_bar":      "-nowhere-Projects-foo-bar",
			"/nowhere/my project/v1.2":       "-nowhere-my-project-v1-2",
			"/nowhere/caf\u00e9":             "-nowhere-caf-",
			"/nowhere/cafe\u0301":            "-nowhere-caf-",
			"/nowhere/\U0001F600x":           "-nowhere---x",
			"/nowhere/a/../b":                "-nowhere-b",
			"/nowhere/" + longName('x', 300): "-nowhere-" + longName('x', 300),
		} {
			if got := tavern.VendorKey(path); got != want {
				t.Errorf("the key of %q is %q, want %q", path, got, want)
			}
		}
	})
	t.Run("D-25 links", func(t *testing.T) {
		dir := need(filepath.EvalSymlinks(t.TempDir()))
		must(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
		must(t, os.Symlink("real", filepath.Join(dir, "link")))
		for _, below := range []string{"", "gone"} { // for a missing path, the links of its parents are resolved
			if got, want := tavern.VendorKey(filepath.Join(dir, "link", below)), tavern.VendorKey(filepath.Join(dir, "real", below)); got != want {
				t.Errorf("the key through the link is %q, want %q", got, want)
			}
		}
	})
	t.Run("D-25 long paths", func(t *testing.T) {
		key := "-" + longName('x', 250)
		for folder, want := range map[string]bool{key[:200] + "-1f3a": true, key: false, key[:200]: false, key[:199] + "y-1f3a": false} {
			if tavern.VendorFolder(folder, key) != want {
				t.Errorf("%q: want %v", folder, want)
			}
		}
		if short := longName('x', 200); !tavern.VendorFolder(short, short) || tavern.VendorFolder(short+"-1", short) {
			t.Error("VendorFolder does not require the whole name for a key of 200 characters")
		}
	})
}

func longName(r rune, n int) string { return strings.Repeat(string(r), n) }

// The folders of recorded transcripts have the names that their lines imply, if they were recorded in the named folder.
func TestVendorKeyOfRecordings(t *testing.T) {
	dir := testkit.Data(t, "claude", "projects")
	projects := need(tavern.TranscriptsOf(dir).Projects(t.Context()))
	if len(projects) == 0 {
		t.Fatal("found no projects")
	}
	for _, p := range projects {
		if !p.Guessed && !tavern.VendorFolder(p.Key, tavern.VendorKey(p.Path)) {
			t.Errorf("the folder of %q is %q", p.Path, p.Key)
		}
	}
}

// A key has one character for each UTF-16 code unit of the composed path, and keeps ASCII letters and digits.
func FuzzVendorKey(f *testing.F) {
	for _, s := range []string{"foo_bar", "caf\u0065\u0301", "\U0001F600", "a b.c", "-", "\u1112\u1161\u11ab"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		name = strings.ToValidUTF8(name, "?")
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 200 {
			t.Skip()
		}
		const parent = "/nowhere-of-all/"
		units := utf16.Encode([]rune(norm.NFC.String(parent + name)))
		want := make([]byte, len(units))
		for i, u := range units {
			want[i] = '-'
			if u < 128 && strings.IndexByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", byte(u)) >= 0 {
				want[i] = byte(u)
			}
		}
		if got := tavern.VendorKey(parent + name); got != string(want) {
			t.Errorf("the key of %q is %q, want %q", name, got, want)
		}
	})
}

// Projects whose paths have the same key keep separate settings.
func TestColliding(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		if st.Log.Shared() {
			return // personal_test.go tests it
		}
		t.Run("D-25 two projects with one key stay two", func(t *testing.T) {
			p := tavern.PersonalOf(st)
			paths := []string{"/a/b-c", "/a/b/c", "/a/b_c", "/a/b.c", "/a b/c", "/a/b/c/", "sha256:x", "/" + longName('d', 800), "/" + longName('d', 799) + "_", "/bad\xff"}
			for _, path := range paths {
				must(t, p.SetProjectSession(t.Context(), path, "session of "+strings.ToValidUTF8(path, "?")))
			}
			for _, path := range paths {
				if got := need(p.ProjectSession(t.Context(), path)); got != "session of "+strings.ToValidUTF8(path, "?") {
					t.Errorf("the setting of %.40q is %.60q", path, got)
				}
			}
			var listed []string
			for _, s := range need(p.ProjectSessions(t.Context())) {
				listed = append(listed, s.Path)
			}
			if want := slices.Sorted(slices.Values(paths)); !slices.Equal(listed, want) {
				t.Errorf("the list is %.300q", listed)
			}
			_, err := p.ProjectByKey(t.Context(), "com.tavern.jake.session.-a-b-c")
			ambiguous, ok := errors.AsType[*tavern.AmbiguousError](err)
			if !ok || !slices.Equal(ambiguous.Paths, []string{"/a/b-c", "/a/b/c", "/a/b_c"}) {
				t.Errorf("get by an ambiguous key: %v", err)
			}
			for _, path := range []string{"/a/b.c", "/a b/c"} {
				if got, err := p.ProjectByKey(t.Context(), tavern.ProjectKey(path)); err != nil || got.Path != path {
					t.Errorf("get %q by its key: %+v, error %v", path, got, err)
				}
			}
			must(t, p.ClearProjectSession(t.Context(), "/a/b_c"))
			must(t, p.ClearProjectSession(t.Context(), "/a/b/c"))
			if got := need(p.ProjectByKey(t.Context(), "com.tavern.jake.session.-a-b-c")); got.Path != "/a/b-c" {
				t.Errorf("the setting of the remaining project is %+v", got)
			}
			if _, err := p.ProjectByKey(t.Context(), "com.tavern.jake.session.-x"); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("get by an unknown key: %v", err)
			}
		})
	})
}
