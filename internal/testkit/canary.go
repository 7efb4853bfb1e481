package testkit

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Canary returns a secret value for a test, different for each name. It looks like a key. The test searches for it
// everywhere that it must not be.
func Canary(name string) string { return canaryBegin + name + canaryEnd }

// canaryBegin and canaryEnd begin and end every canary. HasCanary looks for each alone, so that it also finds a canary
// that was cut or shown in part.
const canaryBegin, canaryEnd = "sk-canary-", "-Zq8fW3kLm1"

// canaryForms are the encoded forms of canaryBegin and canaryEnd, in lower case.
var canaryForms = formsOf(canaryBegin, canaryEnd)

func formsOf(words ...string) (forms [][]byte) {
	for _, word := range words {
		b := []byte(word)
		var wide []byte
		for _, unit := range utf16.Encode([]rune(word)) {
			wide = append(wide, byte(unit), byte(unit>>8))
		}
		forms = append(forms, b, wide, []byte(hex.EncodeToString(b)), []byte(url.QueryEscape(word)))
		for shift := range 3 { // the base64 form depends on the bytes before the word
			text := base64.StdEncoding.EncodeToString(slices.Concat(make([]byte, shift), b))
			text = text[(shift*8+5)/6 : (shift+len(b))*8/6] // letters that encode bits of the word only
			forms = append(forms, []byte(text))
		}
	}
	for i := range forms {
		forms[i] = bytes.ToLower(forms[i])
	}
	return forms
}

// HasCanary reports whether data have a canary: unchanged or in another case, in base64, in hex, in UTF-16, as part of
// a URL, or inside compressed data.
func HasCanary(data []byte) bool { return hasCanary(data, 0) }

const (
	maxNested   = 3        // levels of compression
	maxUnpacked = 64 << 20 // bytes of each decompressed stream
)

func hasCanary(data []byte, depth int) bool {
	lower := bytes.ToLower(data)
	if slices.ContainsFunc(canaryForms, func(form []byte) bool { return bytes.Contains(lower, form) }) {
		return true
	}
	if depth == maxNested {
		return false
	}
	for _, p := range packers {
		for from := 0; ; from++ {
			i := bytes.Index(data[from:], p.magic)
			if i < 0 || p.atStart && from+i > 0 {
				break
			}
			from += i
			if hasCanary(unpacked(p, data[from:]), depth+1) {
				return true
			}
		}
	}
	return false
}

// unpacked returns decompressed data, as far as they can be read, or nil if they are not compressed.
func unpacked(p packer, data []byte) []byte {
	r, err := p.open(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	defer r.Close()
	out, _ := io.ReadAll(io.LimitReader(r, maxUnpacked)) // an error follows the compressed data, such as garbage
	return out
}

// A packer is a form of compression and its magic bytes.
type packer struct {
	magic   []byte
	atStart bool // the magic is too short to search for elsewhere
	open    func(io.Reader) (io.ReadCloser, error)
}

var packers = []packer{
	{magic: []byte{0x1f, 0x8b, 8}, open: func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{magic: []byte{0x28, 0xb5, 0x2f, 0xfd}, open: func(r io.Reader) (io.ReadCloser, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}},
	{magic: []byte("\xff\x06\x00\x00S2sTwO"), open: framed}, // as nats-server compresses blocks
	{magic: []byte("\xff\x06\x00\x00sNaPpY"), open: framed},
	{magic: []byte{0x78, 0x01}, atStart: true, open: zlib.NewReader},
	{magic: []byte{0x78, 0x9c}, atStart: true, open: zlib.NewReader},
	{magic: []byte{0x78, 0xda}, atStart: true, open: zlib.NewReader},
}

func framed(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(s2.NewReader(r)), nil }

// CanaryFiles lists the files below a folder, by their relative paths, that have a canary in their content or name, and
// counts the bytes that it read. It ignores files that another process removes meanwhile.
func CanaryFiles(t testing.TB, dir string) (found []string, read int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var data []byte
		if d.Type().IsRegular() {
			if data, err = os.ReadFile(path); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		if read += int64(len(data)); HasCanary(data) || HasCanary([]byte(d.Name())) {
			found = append(found, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, read
}
