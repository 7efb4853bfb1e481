package embedded_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
)

// takeBackup backs a store up as the command does. With keep, it removes all but so many backups.
func takeBackup(t *testing.T, st *tally.Store, dir string, keep int) (m backup.Manifest) {
	t.Helper()
	w, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	store := st.ViewsDir()
	image := mustImage(t, store, func() (events.Offset, error) { return st.Log.Durable(t.Context()) })
	var files []backup.Source
	for _, f := range image.Files {
		files = append(files, backup.Source(f))
	}
	m, err = w.Take(t.Context(), backup.Manifest{Time: time.Now(), Source: store, Log: image.Log, Program: "test", Servers: image.Servers, Durable: uint64(image.Durable)}, files, func(int64, int64) {})
	if err == nil && keep > 0 {
		_, err = w.Keep(keep)
	}
	if err == nil {
		err = storedir.NoteBackups(store, w.Dir())
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mustRestore restores a backup, and opens what it has.
func mustRestore(t *testing.T, m backup.Manifest, dir string) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "restored")
	if err := m.Restore(t.Context(), dir, target, func(string) error { return nil }, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	o := hoardOptions(t, target)
	o.Still = true
	st, err := embedded.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	v, err := st.Loader().Verify(t.Context(), nil)
	if err != nil || len(v.Findings) > 0 || v.Records < int(m.Durable) {
		t.Errorf("the restored store has %d records, want %d: %v, %v", v.Records, m.Durable, v.Findings, err)
	}
}

// Backups from before an erasure have the content, and the receipt names their folder. Later ones do not have it.
func TestForgetAndBackups(t *testing.T) {
	testkit.NotUnderRace(t) // a test of files
	dir := t.TempDir()
	backups := filepath.Join(dir, "backups")
	st, err := embedded.Open(t.Context(), hoardOptions(t, filepath.Join(dir, "store")))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	create := func(id, text string) {
		t.Helper()
		if _, err := st.Documents().Create(t.Context(), "doc", id, tally.Write{Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	create("a", testkit.Canary("doc"))
	create("b", "stays")
	old := takeBackup(t, st, backups, 0)
	r, err := st.Forget(t.Context(), tally.Forget{Document: "doc/a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("X-22 older ones are listed", func(t *testing.T) {
		day := old.Time.UTC().Format(time.DateOnly)
		if want, have := "backups in "+backups+": 1, from "+day+" to "+day, strings.Join(r.Unreached, "\n"); !strings.Contains(have, want) {
			t.Errorf("not reached is\n%s\nwant %s", have, want)
		}
		if found, _ := testkit.CanaryFiles(t, backups); len(found) == 0 {
			t.Error("the older backup does not have the content")
		}
	})
	t.Run("X-22 a later one, and no other: no word", func(t *testing.T) {
		m := takeBackup(t, st, backups, 1)
		if found, read := testkit.CanaryFiles(t, backups); len(found) > 0 || read == 0 {
			t.Errorf("%d bytes read; found in %v", read, found)
		}
		mustRestore(t, m, backups)
	})
	t.Run("X-22 a folder that is gone is not listed", func(t *testing.T) {
		if err := storedir.NoteBackups(st.ViewsDir(), filepath.Join(dir, "none")); err != nil {
			t.Fatal(err)
		}
		create("c", testkit.Canary("doc"))
		r, err := st.Forget(t.Context(), tally.Forget{Document: "doc/c"})
		if have := strings.Join(r.Unreached, "\n"); err != nil || strings.Contains(have, "none") || !strings.Contains(have, backups) {
			t.Errorf("not reached is %s, %v", have, err)
		}
	})
}

// A backup that is made during an erasure is whole.
func TestBackupsDuringForget(t *testing.T) {
	testkit.OnlyFull(t, "TestForgetAndBackups, and TestReplacedWhileTaken of backup")
	testkit.NotUnderRace(t)
	h := newHoard(t)
	want := 6
	if testkit.Soak() {
		want = 50
	}
	backups := filepath.Join(t.TempDir(), "backups")
	var taken []backup.Manifest
	for round := 0; len(taken) < want; round++ {
		dir := filepath.Join(t.TempDir(), "store")
		copyStore(t, dir, h.dir)
		st := h.mustOpen(dir)
		scopes := h.scopes()
		ctx, over := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := st.Forget(t.Context(), scopes[round%2].forget)
			over()
			done <- err
		}()
		for isOver := false; !isOver && len(taken) < want; {
			taken = append(taken, takeBackup(t, st, backups, 0))
			isOver = ctx.Err() != nil
		}
		h.must(<-done)
		h.must(st.Close())
	}
	t.Run("X-22 backups during a forget", func(t *testing.T) {
		for _, m := range taken {
			mustRestore(t, m, backups)
		}
	})
}
