package ingest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNeverGone(t *testing.T) {
	t.Run("net G5 the source of a session is not gone while its file is there, under any name and with any edit", func(t *testing.T) {
		inBubble(t, func(rt *rapid.T, dir string) {
			r := newRig(rt, dir, ofCodex)
			defer os.RemoveAll(filepath.Dir(r.dir))
			full := r.open()
			defer full.Close()
			stop := func() error { return nil }
			defer func() { stop() }()
			follow := func() { _, stop = r.following(&refusing{Log: full}) }
			names := []string{"sessions/2026/01/02/" + rolloutName(threadID), "sessions/2026/01/03/" + rolloutName(threadID), "archived_sessions/" + rolloutName(threadID)}
			at := names[0]
			_, content := codexTalk(rt)
			r.write(at, content)
			follow()
			for range rapid.IntRange(1, 3).Draw(rt, "moves") {
				time.Sleep(time.Duration(rapid.IntRange(1, 3).Draw(rt, "minutes")) * time.Minute)
				if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
					must(rt, stop())
					follow()
				}
				to := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == at })).Draw(rt, "to")
				lines := strings.SplitAfter(content, "\n")
				switch rapid.IntRange(0, 2).Draw(rt, "edit") {
				case 0:
					content += `{"timestamp":"2026-01-02T04:00:00.000Z","type":"event_msg","payload":{"type":"x"}}` + "\n"
				case 1: // without a line that is neither the first nor the last one: a file that lost its end counts as unchanged
					if len(lines) > 3 {
						i := rapid.IntRange(1, len(lines)-3).Draw(rt, "line")
						content = strings.Join(slices.Delete(lines, i, i+1), "")
					}
				}
				must(rt, os.Remove(filepath.Join(r.dir, filepath.FromSlash(at))))
				r.write(to, content)
				at = to
			}
			time.Sleep(time.Hour)
			must(rt, stop())
			gone, _ := r.session("codex/" + threadID).Ledger.Fields.Get(fieldGone)
			if string(gone) == "true" {
				rt.Errorf("the source is gone, and %s is there", at)
			}
			if given := r.given(); !maps.Equal(given, r.files()) {
				for name, text := range given {
					want, n := r.files()[name], 0
					for n < min(len(text), len(want)) && text[n] == want[n] {
						n++
					}
					rt.Errorf("%s has %d bytes, want %d; they differ at %d: %.150q, want %.150q; %v", name, len(text), len(want), n, text[n:], want[n:], r.problems)
				}
			}
		})
	})
}
