package testkit_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/tallylog/tally/internal/testkit"
)

// HasCanary finds a canary in every form, in every compression and in nested compressions, at any position. Otherwise a
// test that finds none would prove nothing.
func TestHasCanary(t *testing.T) {
	word := testkit.Canary("n1")
	quoted, err := json.Marshal(map[string]string{"url": "https://me:" + word + "@host"})
	if err != nil {
		t.Fatal(err)
	}
	var wide []byte
	for _, unit := range utf16.Encode([]rune(word)) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	forms := map[string][]byte{
		"as it is": []byte(word), "in JSON": quoted, "upper case": []byte(strings.ToUpper(word)), "its beginning": []byte(word[:11]), "its end": []byte(word[len(word)-11:]),
		"hex": []byte(hex.EncodeToString([]byte(word))), "upper hex": []byte(strings.ToUpper(hex.EncodeToString([]byte(word)))), "a query": []byte("?x=" + url.QueryEscape(word)), "UTF-16": wide,
	}
	for i := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64 ": base64.StdEncoding, "base64url ": base64.RawURLEncoding} {
			forms[name+strings.Repeat("x", i)] = []byte(enc.EncodeToString([]byte(strings.Repeat("\xfb", i) + word + " and more")))
		}
	}
	packers := map[string]func(io.Writer) io.WriteCloser{
		"nothing": func(w io.Writer) io.WriteCloser { return nopCloser{w} },
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"zlib":    func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"S2":      func(w io.Writer) io.WriteCloser { return s2.NewWriter(w) },
		"snappy":  func(w io.Writer) io.WriteCloser { return snappy.NewBufferedWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			e, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	}
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 1<<16)
	random.Read(noise)
	pack := func(by string, data []byte) []byte {
		var b bytes.Buffer
		w := packers[by](&b)
		if _, err := w.Write(data); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if testkit.HasCanary(noise) || testkit.HasCanary([]byte("canary, sk-, c2stY2FuYXJ5")) {
		t.Error("HasCanary is true for a text without a canary")
	}
	for name, form := range forms {
		for outer := range packers {
			for inner := range packers {
				text := slices.Concat(noise[:100], form, noise[100:5000])
				data := slices.Concat([]byte("head"), pack(outer, slices.Concat(noise[:9], pack(inner, text))), []byte("tail"))
				if outer == "zlib" || inner == "zlib" { // it has no magic bytes to search for
					data = pack(outer, pack(inner, text))
				}
				if !testkit.HasCanary(data) {
					t.Errorf("HasCanary did not find the form %s in %s in %s", name, inner, outer)
				}
			}
		}
	}
	if text := pack("gzip", pack("zstd", noise)); testkit.HasCanary(text) {
		t.Error("HasCanary is true for compressed text without a canary")
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Files and their names are searched, whatever the names are.
func TestCanaryFiles(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"a/b/.hidden": testkit.Canary("x"), "clean": "text", "a/" + testkit.Canary("name"): "", "a/.tmp-1": "x"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, read := testkit.CanaryFiles(t, dir)
	if slices.Sort(found); !slices.Equal(found, []string{"a/b/.hidden", "a/" + testkit.Canary("name")}) || read != int64(len(testkit.Canary("x"))+5) {
		t.Errorf("found the canary in %q, read %d bytes", found, read)
	}
}
