package keeper

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A keeper that ends before it has looked at the files leaves the problems that an earlier one noted. One that has
// looked at them, or has written the file, leaves those that exist.
func TestProblemsThatAreLeft(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(base, "state"))
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{})
	must(t, err)
	st, err := tally.Open(t.Context(), l, tally.Config{})
	must(t, err)
	defer st.Close()
	store, dir := filepath.Join(base, "store"), filepath.Join(base, ".tavern")
	tree := config.Tree{Name: "team", Layout: taverndir.Format, Target: config.TreeDir, Dir: dir, Namespace: st.Namespace(), Way: "both", MaxFile: 10}
	keep := func(ctx context.Context) (ts *Trees, ended chan struct{}) {
		t.Helper()
		ts, err := New(Config{Store: config.Config{Trees: []config.Tree{tree}}, Logger: slog.New(slog.DiscardHandler),
			Layout: func(string) (layouts.Layout, bool) { return taverndir.Layout{}, true }}, store)
		must(t, err)
		ended = make(chan struct{})
		go func() { ts.Run(ctx, st); close(ended) }()
		return ts, ended
	}
	// until keeps the tree until its status is as wanted.
	until := func(what string, is func(Status) bool) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		ts, ended := keep(ctx)
		k, err := ts.keep(ctx, tree)
		must(t, err)
		for late := time.Now().Add(testkit.Patience(time.Minute)); !is(k.status(ctx)); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("timeout: want %s: %+v", what, k.status(ctx))
			}
		}
		stop()
		<-ended
	}
	// leaves keeps the tree without a look at its files, and checks which problems the keeper leaves.
	leaves := func(what string) (s Status) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		_, ended := keep(ctx)
		<-ended
		s = readLeft(filepath.Join(store, folderName), tree)
		if len(s.Skipped) != 1 || s.Skipped[0].File != "docs/large" || len(s.Stuck) != 1 || s.Stuck[0].File != "docs/way.md" || s.Asking != "a question" || s.PID != 0 {
			t.Errorf("%s: the status is %+v, want the problems noted before", what, s)
		}
		return s
	}
	put := func(id, text string) events.Offset {
		t.Helper()
		rev, err := st.Documents().Save(t.Context(), "doc", id, tally.Write{Data: []byte(text), ContentType: "text/markdown"})
		must(t, err)
		return rev.Offset
	}

	must(t, os.MkdirAll(filepath.Join(dir, "docs", "way.md"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "docs", "large"), []byte("more than ten bytes"), 0o644))
	put("way", "text")
	until("two problems", func(s Status) bool { return len(s.Skipped) == 1 && len(s.Stuck) == 1 })
	left := readLeft(filepath.Join(store, folderName), tree)
	left.Asking = "a question"
	must(t, writeLeft(filepath.Join(store, folderName), tree.FileName(), left))

	if at, s := put("other", "text"), leaves("a keeper that ends at once"); s.Shown < at {
		t.Errorf("the tree shows the log to %v, want %v", s.Shown, at)
	}
	must(t, os.Rename(dir, dir+"-away"))
	must(t, os.WriteFile(dir, nil, 0o644))
	if s := leaves("a keeper that cannot open the folder"); s.Error == "" {
		t.Error("the status does not say why the tree was not kept")
	}
	must(t, os.Remove(dir))
	must(t, os.Rename(dir+"-away", dir))
	must(t, os.Remove(filepath.Join(dir, "docs", "way.md")))
	put("way", "new text")
	atOnce, stop := context.WithCancel(t.Context())
	stop()
	_, ended := keep(atOnce)
	<-ended
	if s := readLeft(filepath.Join(store, folderName), tree); len(s.Skipped) != 1 || len(s.Stuck) != 0 {
		t.Errorf("a keeper that ends at once, and has written the file: the status is %+v, want the skipped file alone", s)
	}
	must(t, os.Remove(filepath.Join(dir, "docs", "large")))
	until("no problem", func(s Status) bool { return len(s.Skipped)+len(s.Stuck) == 0 && s.Asking == "" })
	if s := readLeft(filepath.Join(store, folderName), tree); len(s.Skipped)+len(s.Stuck) > 0 || s.Asking != "" || s.Error != "" {
		t.Errorf("the status is %+v, want no problem", s)
	}
}
