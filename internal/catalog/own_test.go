package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The names of files tell view and version. Others are not files of own views.
func TestOwnFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{ownFile("votes", 2), ownFile("votes", 10), ownFile("a.b", 1), ownFile("a-b_c", 1), "own-votes.v02.db", "own-votes.vx.db", "own-.v1.db", "own-votes.db", "own-votes.v2.db-wal", "views.db", "own-votes.v2.lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := OwnIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		got = append(got, filepath.Base(f.path))
	}
	if want := []string{"own-a-b_c.v1.db", "own-votes.v10.db", "own-votes.v2.db"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if list, err := OwnIn(filepath.Join(dir, "none")); err != nil || list != nil {
		t.Errorf("a missing directory: got %v, %v", list, err)
	}
	v := View{Name: "votes", File: ownFile("votes", 10)}
	kept, err := View{File: ownFile("votes", 2)}.Keep(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, is := keeperOf(filepath.Join(dir, ownFile("votes", 2))); !is || pid != os.Getpid() {
		t.Errorf("the keeper is process %d, %v, want %d", pid, is, os.Getpid())
	}
	if _, err := (View{File: ownFile("votes", 2)}).Keep(dir); err == nil {
		t.Error("two keep a view")
	}
	for n, held := range []bool{true, false} {
		if err := v.RemoveOlder(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, ownFile("votes", 2))); (err == nil) != held {
			t.Errorf("step %d: a lower version: got %v, want it there: %v", n, err, held)
		}
		if held {
			kept.Close()
		}
	}
	if pid, is := keeperOf(filepath.Join(dir, ownFile("votes", 2))); is || pid != 0 {
		t.Errorf("a view that no process keeps has the keeper %d", pid)
	}
}
