package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
)

// A stream with records comes back if its description is damaged, also if the mark is lost.
func TestDamagedDescription(t *testing.T) {
	image := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: image})
	ids := fillSegments(t, s.Log(), 0, 3)
	mustClose(t, s)
	for name, text := range map[string]string{"empty": "", "cut": `{"name":"TALLY_1","subj`, "other": "{}"} {
		for _, gone := range []string{"", "mark", "watermark"} {
			if gone == "watermark" && name != "empty" {
				continue // the watermark has no part in this
			}
			t.Run("net D1 "+name+", without "+gone, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				copyStore(t, dir, image)
				err := os.WriteFile(filepath.Join(natsfile.Streams(dir), "TALLY_1", natsfile.MetaFile), []byte(text), 0o600)
				if gone != "" {
					err = errors.Join(err, os.Remove(filepath.Join(dir, gone)))
				}
				if err != nil {
					t.Fatal(err)
				}
				s := mustStart(t, embedded.ServerOptions{Dir: dir, Private: true})
				defer mustClose(t, s)
				if got := mustRead(t, s.Log(), events.Range{}); !slices.Equal(got, ids) {
					t.Errorf("got %v, want %v", got, ids)
				}
			})
		}
	}
}
