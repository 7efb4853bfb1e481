package ailoop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/ailoop"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
)

// The files of histories are live: a saved snapshot is written to its file, and a file that a program with a File
// store writes is saved.
func TestLive(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	st, _ := storetest.Live(t, "", ailoopdir.Layout{})
	settle := func() {
		t.Helper()
		if err := st.KeepFiles(ctx, ailoopdir.Layout{}.Name(), dir); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	h := ailoop.Of(st, "support-42")
	file := ailoop.NewFile(filepath.Join(dir, "support-42.json"))
	t.Run("H-05 a history's file is pretty JSON, as a File store writes it", func(t *testing.T) {
		var chat ailoop.Snapshot
		for _, text := range []string{"one", "two", "<three> & \u2028"} {
			chat = chat.Append(ailoop.UserMessage(text))
			mustSave(t, h, chat)
			own := ailoop.NewFile(filepath.Join(t.TempDir(), "x.json"))
			mustSave(t, own, chat)
			want, err := os.ReadFile(own.Path())
			if err != nil {
				t.Fatal(err)
			}
			if have, err := os.ReadFile(file.Path()); err != nil || string(have) != string(want) {
				t.Errorf("the file is %s, error %v, want %s", have, err, want)
			}
		}
	})
	t.Run("H-05 a program with a File store goes on with it", func(t *testing.T) {
		mustSave(t, file, mustLoad(t, file).Append(ailoop.UserMessage("by file")))
		settle()
		if chat := mustLoad(t, h); chat.Len() != 4 || !strings.Contains(readFile(t, file.Path()), "by file") {
			t.Errorf("got %d messages", chat.Len())
		}
		mustSave(t, h, mustLoad(t, h).Append(ailoop.UserMessage("by the log")))
		if chat := mustLoad(t, file); chat.Len() != 5 {
			t.Errorf("got %d messages in the file", chat.Len())
		}
		mustSave(t, ailoop.NewFile(filepath.Join(dir, "new.json")), mustLoad(t, file))
		settle()
		if chat := mustLoad(t, ailoop.Of(st, "new")); chat.Len() != 5 {
			t.Errorf("got %d messages in a new file", chat.Len())
		}
		want, r := layouttest.Exported(t, st, ailoopdir.Layout{})
		layouttest.MustBeClean(t, r)
		layouttest.MustEqual(t, want, layouttest.ReadLive(t, dir))
	})
	t.Run("D-41 the files alone give equal histories", func(t *testing.T) { layouttest.Alone(t, st, ailoopdir.Layout{}, dir) })
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
