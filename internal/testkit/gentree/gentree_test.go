package gentree_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit/gentree"
)

// hashTree hashes names and contents of a folder.
func hashTree(t *testing.T, dir string) (sum string, files int) {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		data, err := os.ReadFile(path)
		fmt.Fprintf(h, "%q %d\n", rel, len(data))
		h.Write(data)
		files++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil)), files
}

func TestSameSeedSameBytes(t *testing.T) {
	for _, odd := range []bool{false, true} {
		var sums []string
		for _, seed := range []uint64{7, 7, 8} {
			dir := t.TempDir()
			st, err := gentree.Write(dir, gentree.Options{Seed: seed, Sessions: 8, Odd: odd})
			if err != nil {
				t.Fatal(err)
			}
			sum, files := hashTree(t, dir)
			if files != st.Files {
				t.Errorf("odd %v: got %d files, but the statistics have %d", odd, files, st.Files)
			}
			sums = append(sums, sum)
		}
		if sums[0] != sums[1] || sums[0] == sums[2] {
			t.Errorf("odd %v: got the hashes %q, want the first two equal and the third different", odd, sums)
		}
	}
}

// Plain trees have the form that their writer produces: each file is JSON, and turns have about the requested size.
func TestPlain(t *testing.T) {
	dir := t.TempDir()
	st, err := gentree.Write(dir, gentree.Options{Sessions: 20, Turns: 20})
	if err != nil {
		t.Fatal(err)
	}
	var lines, size int
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if filepath.Base(path) == "conversation.jsonl" {
			size += len(data)
		}
		for dec := json.NewDecoder(strings.NewReader(string(data))); err == nil; {
			var v any
			if err := dec.Decode(&v); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", path, err)
				break
			}
			if filepath.Base(path) == "conversation.jsonl" {
				lines++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines != st.Turns || st.Sessions != 20 {
		t.Errorf("got %d lines, but the statistics %+v", lines, st)
	}
	if mean := size / lines; mean < 700 || mean > 1500 {
		t.Errorf("got %d bytes per turn, want about 1000", mean)
	}
}
