package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// file returns the name under which Restore reads text as a manifest, whatever text contains.
func file(text []byte) string {
	sum := sha256.Sum256(text)
	return "20261122T150227.123Z-" + hex.EncodeToString(sum[:])[:nameSum] + nameEnd
}

// FuzzManifest checks parse on manifests of other programs: no file leaves the directory. A restore writes nowhere
// else, and ends with an error, because the contents are missing, or with empty files.
func FuzzManifest(f *testing.F) {
	_, text, err := Manifest{Version: 1, Time: time.Unix(1, 0), Bytes: 3, Files: []File{{Name: "a/b", Parts: []Part{{Size: 3}}}, {Name: "c"}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, name := range []string{"../x", "/x", "a/../../x", "", ".", "a//b", "a/", `..\\x`, "C:x", "c", "c/d", "a\\u0000", "lock", strings.Repeat("x", 300)} {
		f.Add([]byte(`{"version":1,"files":[{"name":"c"},{"name":"` + name + `"}]}`))
	}
	for _, part := range []string{
		`{"size":-1}`, `{"size":9223372036854775807},{"size":9223372036854775807}`, `{"size":0}`, `{"size":1,"sha256":"AB"}`, `null`,
	} {
		f.Add([]byte(`{"version":1,"bytes":1,"files":[{"name":"c","parts":[` + part + `]}]}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse(file(text), text)
		if err != nil {
			return
		}
		dir := t.TempDir()
		parent := filepath.Join(dir, "parent")
		err = m.Restore(t.Context(), filepath.Join(dir, "b"), filepath.Join(parent, "new"), func(string) error { return nil }, func(int64, int64) {})
		if _, ok := errors.AsType[*DamageError](err); m.Bytes > 0 && err == nil || err != nil && ok && m.Bytes == 0 {
			t.Fatalf("%d bytes: %v", m.Bytes, err)
		}
		for _, d := range []struct{ path, may string }{{dir, "parent"}, {parent, "new"}} {
			entries, err := os.ReadDir(d.path)
			for _, e := range entries {
				if e.Name() != d.may {
					t.Fatalf("the restore created %s in %s", e.Name(), d.path)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// Encoding a manifest restores the text, except for unknown members.
		m.Version = Version
		if name, again, err := m.encode(); err != nil {
			t.Fatal(err)
		} else if _, err := parse(name, again); err != nil && m.Time.Year() < 10_000 {
			t.Fatalf("%s, written again: %v", again, err)
		}
	})
}

// A name that leaves the directory is refused, on every system.
func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"mark": true, "jetstream/$G/streams/TALLY_1/msgs/1.blk": true, "damaged/TALLY_1-3.blk.1": true,
		"": false, ".": false, "..": false, "../x": false, "a/../b": false, "/x": false, "a//b": false, "a/": false, `a\b`: false, "C:x": false, "a\x00": false, "\xff": false,
	} {
		if err := checkName(name); (err == nil) != want {
			t.Errorf("%q: got the error %v", name, err)
		}
	}
}
