package tail

import (
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/testkit"
)

func TestReplaced(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	t.Run("net G5 a file with other content between the same beginning and end is rewritten", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			r, end := drawnRig(t, rt, nil)
			defer end()
			n := rapid.SampledFrom([]int{50, 5000, 20_000}).Draw(rt, "bytes")
			begin, last := text("begin", n), text("end", n)
			content := begin + text("a", 100) + last
			r.write("a.jsonl", content)
			r.run()
			r.mustHave("a", content)
			switch rapid.IntRange(0, 2).Draw(rt, "stop") {
			case 1:
				r.close()
			case 2:
				r.kill()
			}
			content = begin + text("b", 100) + last
			node := nodeOfPath(r, "a.jsonl")
			time.Sleep(10 * time.Millisecond) // so that the times of the two files differ
			switch rapid.SampledFrom([]string{"in place", "by rename", "deleted"}).Draw(rt, "how") {
			case "in place":
				r.write("a.jsonl", content)
			case "by rename":
				content += rapid.SampledFrom([]string{"", "more\n"}).Draw(rt, "more")
				r.replace("a.jsonl", content)
			case "deleted":
				content += rapid.SampledFrom([]string{"", "more\n"}).Draw(rt, "more")
				for range 10 { // most systems use the inode again
					must(r.t, os.Remove(r.path("a.jsonl")))
					if r.write("a.jsonl", content); nodeOfPath(r, "a.jsonl") == node {
						break
					}
				}
			}
			r.run()
			r.mustHave("a", content)
			r.mustBe("rewritten a.jsonl")
		})
	})
	t.Run("net G5 a file that is moved is never gone, however late its folder is looked at", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			slow := time.Duration(rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "slow")) * time.Second // of each listing
			var r *rig
			r, end := drawnRig(t, rt, func(o *Options) {
				o.Grace = time.Duration(rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(rt, "grace")) * time.Second
				o.Wants = func(_, rel string) bool {
					if !strings.HasSuffix(rel, ".tmp") {
						return true
					}
					r.now = r.now.Add(slow)
					return false
				}
			})
			defer end()
			folders := []string{"a", "b", "c"}
			for _, name := range folders {
				r.write(name+"/a.tmp", "")
				if rapid.Bool().Draw(rt, "is old") { // and is looked at less often
					at := r.now.Add(-48 * time.Hour)
					must(r.t, os.Chtimes(r.path(name), at, at))
				}
			}
			at, content := "a/x.jsonl", text("x", 3000)
			r.write(at, content)
			r.run()
			said := at
			for range rapid.IntRange(1, 4).Draw(rt, "moves") {
				to := rapid.SampledFrom(append(folders, "new", "b/new")).Draw(rt, "folder") + "/x.jsonl"
				if to == at {
					continue
				}
				r.rename(at, to)
				at = to
				if rapid.Bool().Draw(rt, "grows") {
					r.append(at, "more\n")
					content += "more\n"
				}
				for range rapid.IntRange(0, 20).Draw(rt, "steps") {
					r.now = r.now.Add(time.Duration(rapid.IntRange(100, 1500).Draw(rt, "ms")) * time.Millisecond)
					r.drain()
				}
			}
			r.run()
			for _, e := range r.events {
				_, to, isMoved := strings.Cut(e, " to ")
				if !isMoved {
					rt.Errorf("events are %q, want only moves", r.events)
				}
				said = to
			}
			if said != at {
				rt.Errorf("the file is %s, and the last event said %s: %q", at, said, r.events)
			}
			r.mustHave("x", content)
		})
	})
	t.Run("net G5 a file that is back is there in the state, and is not told again", func(t *testing.T) {
		r := newRig(t, nil)
		r.write("a", "one\n")
		r.run()
		must(t, os.Rename(r.path("a"), r.state+".away"))
		r.run()
		must(t, os.Rename(r.state+".away", r.path("a")))
		r.run()
		r.mustBe("gone a", "moved a to a")
		r.close()
		known, err := ReadState(r.state)
		if err != nil || known["r"]["a"].Gone {
			t.Errorf("the state says %+v, %v", known, err)
		}
		r.run()
		r.mustBe()
	})
}

func nodeOfPath(r *rig, rel string) node {
	info, err := os.Stat(r.path(rel))
	must(r.t, err)
	return nodeOf(info)
}
