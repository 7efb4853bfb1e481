package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	odd := append([]byte{'\n', '#'}, unhex(t, firstKey)[2:]...)
	for name, c := range map[string]struct {
		text string
		ids  []string
	}{
		"a line":                   {firstKey, []string{"158eb6165ff8"}},
		"a line with its end":      {firstKey + "\n", []string{"158eb6165ff8"}},
		"upper case":               {strings.ToUpper(firstKey), []string{"158eb6165ff8"}},
		"a named key":              {"k1:" + firstKey, []string{"k1"}},
		"spaces, and CRLF":         {"  k1: " + firstKey + "\r\n\r\n", []string{"k1"}},
		"remarks, and empty lines": {"# of 2026\n\nk1:" + firstKey + "\n#k0:" + secondKey + "\nk2:" + secondKey, []string{"k1", "k2"}},
		"as it is":                 {string(unhex(t, firstKey)), []string{"158eb6165ff8"}},
		"as it is, with a newline": {string(odd), []string{idOf(odd)}},
	} {
		r, err := Parse([]byte(c.text))
		if err != nil || !slices.Equal(r.IDs(), c.ids) {
			t.Errorf("%s: %v, %v, want %v", name, r, err, c.ids)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		line int
		says string
	}{
		"nothing":                   {"", 0, "the file has no key"},
		"remarks alone":             {"# nothing\n\n", 0, "the file has no key"},
		"half a key":                {firstKey[:32], 1, "this one has 32 characters"},
		"a digit too few":           {"k1:" + firstKey + "\nk2:" + secondKey[1:], 2, "this one has 63 characters"},
		"no digit":                  {"k1:" + firstKey[:63] + "g", 1, "this one has 64 characters"},
		"a passphrase of 32 bytes":  {"correct horse battery staple 123", 1, "this one has 32 characters"},
		"a key of zeros":            {strings.Repeat("00", 32), 1, "all bytes of the key are the same"},
		"zeros, as they are":        {strings.Repeat("\x00", 32), 0, "all bytes of the key are the same"},
		"an id twice":               {"k1:" + firstKey + "\nk1:" + secondKey, 2, `an earlier key has the id "k1" too`},
		"a key twice":               {"k1:" + firstKey + "\n\nk2:" + firstKey, 3, "the key is the same as in line 1"},
		"an id with a control":      {"k\x1b1:" + firstKey, 1, "the id of a key is"},
		"no id before the colon":    {":" + firstKey, 1, "the id of a key is"},
		"a key in the place of one": {firstKey + ":" + secondKey, 1, "not a key itself"},
		"33 bytes":                  {string(unhex(t, firstKey)) + "\n", 1, ""},
		"too much":                  {strings.Repeat("#\n", maxFile), 0, "the file has more than 65536 bytes"},
	} {
		r, err := Parse([]byte(c.text))
		wrong, ok := errors.AsType[*FileError](err)
		if !ok || wrong.Line != c.line && name != "33 bytes" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, error %v", name, r, err)
		}
		if err != nil && showsKey(err.Error()) {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}

// showsKey reports whether a text contains a part of one of the keys of these tests.
func showsKey(text string) bool {
	for _, k := range []string{firstKey, secondKey} {
		for i := 0; i+8 <= len(k); i += 4 {
			if strings.Contains(text, k[i:i+8]) {
				return true
			}
		}
	}
	return false
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("k1:"+firstKey+"\n"), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, mode := range map[string]os.FileMode{"usual": 0o600, "read only": 0o400} {
		if r, err := ReadFile(write(name, mode)); err != nil || r.Newest() != "k1" {
			t.Errorf("%s: got %v, error %v", name, r, err)
		}
	}
	nowhere := filepath.Join(dir, "nowhere")
	if wrong, ok := errors.AsType[*FileError](second(ReadFile(nowhere))); !ok || wrong.Path != nowhere || strings.Contains(wrong.Reason, "nowhere") {
		t.Errorf("read a missing file: %v", wrong)
	}
	if wrong, ok := errors.AsType[*FileError](second(ReadFile(dir))); !ok || wrong.Path != dir {
		t.Errorf("read a folder: %v", wrong)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write("usual", 0o600), link); err != nil {
		t.Skip(err)
	}
	if r, err := ReadFile(link); err != nil || r.Newest() != "k1" {
		t.Errorf("read a link: got %v, error %v", r, err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("this system does not enforce modes")
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o660, 0o700, 0o601} {
		_, err := ReadFile(write("shared", mode))
		if wrong, ok := errors.AsType[*FileError](err); !ok || !strings.Contains(wrong.Reason, "It has to be 0600") {
			t.Errorf("read a file with mode %o: %v", mode, err)
		}
	}
	if os.Geteuid() == 0 {
		path := write("another's", 0o600)
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if wrong, ok := errors.AsType[*FileError](second(ReadFile(path))); !ok || !strings.Contains(wrong.Reason, "belongs to user 12345") {
			t.Errorf("read another user's file: %v", wrong)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Setenv(Variable, "")
	if _, err := FromEnvironment(); !errors.Is(err, ErrNoKey) {
		t.Error(err)
	}
	for _, key := range []string{firstKey, "k1:" + firstKey, strings.ToUpper(firstKey)} { // a user mistook the variable for that of the key
		t.Setenv(Variable, key)
		if wrong, ok := errors.AsType[*FileError](second(FromEnvironment())); !ok || wrong.Path != Variable || strings.Contains(strings.ToLower(wrong.Error()), firstKey[:8]) {
			t.Errorf("a key instead of a path: %v", wrong)
		}
	}
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(firstKey), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, path)
	if r, err := FromEnvironment(); err != nil || r.Newest() == "" {
		t.Errorf("got %v, error %v", r, err)
	}
}

// For any content of a file of keys, the keys seal and open, or the file is refused with an error that contains nothing
// of it.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", firstKey, "k1:" + firstKey + "\nk2:" + secondKey, "#\n\r\n" + firstKey, strings.Repeat("\x07", 31) + "\x00", ":", "k:"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if _, ok := errors.AsType[*FileError](err); err != nil && !ok {
			t.Fatal(err)
		}
		if err != nil {
			if len(data) == 64 {
				if _, bad := hex.DecodeString(string(data)); bad == nil && !strings.Contains(err.Error(), "the same") {
					t.Fatalf("64 hex digits were refused: %v", err)
				}
			}
			return
		}
		ids := slices.Clone(r.IDs())
		slices.Sort(ids)
		if len(ids) == 0 || len(slices.Compact(ids)) != len(r.IDs()) || slices.ContainsFunc(ids, func(id string) bool { return !isKeyID(id) }) {
			t.Fatalf("got %q", r.IDs())
		}
		box, err := r.Seal(data, "c")
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := r.Open(box, "c"); err != nil || !bytes.Equal(plain, data) {
			t.Fatal(err)
		}
	})
}
