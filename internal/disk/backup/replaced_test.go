package backup

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// between calls do before the second part of a file is read.
type between struct {
	context.Context
	asked *int
	do    func()
}

func (b between) Err() error {
	if *b.asked++; *b.asked == 2 {
		b.do()
	}
	return nil
}

// A file that is replaced while it is copied, and whose old bytes are overwritten, is copied as it is then.
func TestReplacedWhileTaken(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "1.blk"), filepath.Join(t.TempDir(), "backups")
	before, after := bytes.Repeat([]byte("a"), 3<<20), bytes.Repeat([]byte("b"), 3<<20)
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx := between{t.Context(), new(int), func() {
		if err := replace(path, after); err != nil {
			t.Error(err)
		}
	}}
	m, err := w.Take(ctx, Manifest{Log: "l", Time: time.Now()}, []Source{{Name: "1.blk", Path: path, Size: 3 << 20}}, func(int64, int64) {})
	if err != nil || len(m.Files) != 1 || len(m.Files[0].Parts) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	if got, err := os.ReadFile(object(dir, m.Files[0].Parts[0].Sum)); err != nil || !bytes.Equal(got, after) {
		t.Errorf("the backup does not have the new content: %v", err)
	}
	if v, err := Verify(t.Context(), dir, func(int64, int64) {}); err != nil || v.Unused > 0 || v.Objects != 1 {
		t.Errorf("what was read of the old file is still there: %+v, %v", v, err)
	}
}

// replace replaces a file, and overwrites the old bytes with zeros.
func replace(path string, data []byte) error {
	old, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer old.Close()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	_, err = old.WriteAt(make([]byte, len(data)), 0)
	return err
}
