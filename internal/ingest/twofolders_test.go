package ingest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTwoFolders(t *testing.T) {
	t.Run("net G3 of a file that is in two folders one is read and the other is named", func(t *testing.T) {
		inBubble(t, func(rt *rapid.T, dir string) {
			r := newRig(rt, dir, ofCodex)
			defer os.RemoveAll(filepath.Dir(r.dir))
			names := rapid.Permutation([]string{"sessions/2026/01/02/" + rolloutName(threadID), "archived_sessions/" + rolloutName(threadID)}).Draw(rt, "names")
			other := r // of the second file
			if rapid.Bool().Draw(rt, "is in another root") {
				other = newRig(rt, dir, ofCodex)
				defer os.RemoveAll(filepath.Dir(other.dir))
				names[1] = rapid.SampledFrom(names).Draw(rt, "name")
			}
			full := r.open()
			defer full.Close()
			stop := func() error { return nil }
			defer func() { stop() }()
			follow := func() {
				_, stop = r.following(&refusing{Log: full}, Source{Agent: ofCodex, Root: other.dir, ID: "other"})
			}
			_, content := codexTalk(rt)
			r.grow(names[0], content)
			follow()
			time.Sleep(time.Minute)
			if rapid.Bool().Draw(rt, "is not a copy") {
				_, content = codexTalk(rt)
			}
			other.grow(names[1], content)
			changed := rapid.IntRange(0, 1).Draw(rt, "changed")
			for range 2 {
				time.Sleep(10 * time.Minute)
				if other == r && rapid.Bool().Draw(rt, "restart") { // the log knows the name, but not the root
					must(rt, stop())
					follow()
				}
				[]*rig{r, other}[changed].grow(names[changed], `{"timestamp":"2026-01-02T04:00:00.000Z","type":"event_msg","payload":{"type":"x"}}`+"\n")
			}
			time.Sleep(10 * time.Minute)
			must(rt, stop())
			disk, given := r.files(), r.given()
			if len(given) != 1 || given[names[0]] != disk[names[0]] {
				rt.Errorf("the log has %q, want %s as it is:\n%s", given, names[0], disk[names[0]])
			}
			if len(r.problems) == 0 || slices.ContainsFunc(r.problems, func(p Problem) bool { return p.File != names[1] }) {
				rt.Errorf("got the problems %v, want them of %s", r.problems, names[1])
			}
		})
	})
}
