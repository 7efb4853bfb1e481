package statefile_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

type limits struct {
	Version int              `json:"version"`
	Limits  map[string]int64 `json:"limits"`
}

var sample = limits{1, map[string]int64{"store": 123456, "owner:ann": 17}}

// Read detects every flipped bit, and every pair of flipped bits in neighbouring bytes.
func TestFlippedBits(t *testing.T) {
	text, err := statefile.Encode(sample)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		for bit := range 8 {
			changed := []byte(string(text))
			changed[i] ^= 1 << bit
			wantDamage(t, changed)
			if i > 0 {
				changed[i-1] ^= 1 << (7 - bit)
				wantDamage(t, changed)
			}
		}
	}
	for n := range len(text) - 1 {
		wantDamage(t, text[:n])
	}
}

func wantDamage(t *testing.T, text []byte) {
	t.Helper()
	have := limits{Version: 99}
	err := statefile.Decode("x/limits.json", text, 1, &have)
	if !isDamage(err) || !strings.Contains(err.Error(), "limits.json") {
		t.Fatalf("%q: got the error %v", text, err)
	}
	if have.Version != 99 {
		t.Fatalf("%q: Read returned the damaged value %v", text, have)
	}
}

func isDamage(err error) bool {
	_, is := errors.AsType[*statefile.DamageError](err)
	return is
}

// Read returns the written value, also from a file of an earlier version, which has no checksum.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	var have limits
	if err := statefile.Read(path, 1, &have); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a missing file: %v", err)
	}
	if err := statefile.Write(path, sample, durable.WithSync); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Read(path, 1, &have); err != nil || !maps.Equal(have.Limits, sample.Limits) {
		t.Errorf("got %v, error %v", have, err)
	}
	old := `{"version":1,"limits":{"store":123456,"owner:ann":17}}` + "\n"
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	have = limits{}
	if err := statefile.Read(path, 1, &have); err != nil || !maps.Equal(have.Limits, sample.Limits) {
		t.Errorf("a file without a checksum: got %v, error %v", have, err)
	}
}

// A file without checksum is read strictly, and one of a newer version is named as such.
func TestStrict(t *testing.T) {
	for _, text := range []string{
		`{"version":1,"limitr":{"store":1}}`,
		`{"version":1,"Limits":{"store":1}}`,
		`{"version":1,"limits":{"store":1}} {}`,
		`{"version":1,"limits":{"store":1},"crc32":"00000000"}`,
		`{"limits":{"store":1}}`,
		`[]`, `null`, ``,
	} {
		wantDamage(t, []byte(text))
	}
	text, err := statefile.Encode(map[string]any{"version": 3, "more": true})
	if err != nil {
		t.Fatal(err)
	}
	var have limits
	if newer, is := errors.AsType[*statefile.NewerError](statefile.Decode("limits.json", text, 1, &have)); !is || newer.Version != 3 {
		t.Errorf("a file of a newer version: %v", err)
	}
}
