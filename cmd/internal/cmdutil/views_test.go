package cmdutil

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/log"
)

// An answer from the views of a store without an owner covers the whole store, also if the owner ended before its views
// had caught up.
func TestViewsShowAll(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		t.Setenv(name, filepath.Join(dir, "home"))
	}
	store := filepath.Join(dir, "store")
	t.Setenv("TALLY_STORE", store)
	a := &App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, logLevel: "error"}
	grow := func(id string) {
		t.Helper()
		err := a.WithStore(t.Context(), func(st *tally.Store) error {
			_, err := st.Session(id).Append(t.Context(), log.Any, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(`"x"`)}}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	listed := func() (ids []string) {
		t.Helper()
		err := a.WithViews(t.Context(), []string{"catalog"}, func(_ config.Config, v reads.Views) error {
			return idsIn(t.Context(), v.Catalog, &ids)
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	grow("a")
	if got := listed(); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("the views show %q", got)
	}
	kept := filesOf(t, store, catalog.FileName)
	grow("b")
	if got := listed(); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("the views show %q", got)
	}
	for path := range filesOf(t, store, catalog.FileName) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range kept {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := listed(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("B-12 views that are behind show %q", got)
	}
}

// idsIn lists the sessions of a catalog.
func idsIn(ctx context.Context, r catalog.Reader, ids *[]string) error {
	page, err := r.List(ctx, catalog.Query{Namespace: events.DefaultNamespace})
	for _, s := range page.Sessions {
		*ids = append(*ids, s.ID)
	}
	slices.Sort(*ids)
	return err
}

// filesOf reads a file of a folder and the files beside it that begin with its name.
func filesOf(t *testing.T, dir, name string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, name+"*"))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, path := range paths {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
