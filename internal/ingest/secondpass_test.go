package ingest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSecondPass(t *testing.T) {
	t.Run("net G2 one pass says all that a second one would", func(t *testing.T) {
		for name, talk := range talks {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(rt *rapid.T, dir string) {
					r := newRig(rt, dir, talk.agent)
					defer os.RemoveAll(filepath.Dir(r.dir))
					name, content := talk.play(rt)
					for range rapid.IntRange(1, 3).Draw(rt, "changes") {
						to := rapid.IntRange(0, len(content)).Draw(rt, "to")
						if isAmbiguous(content, to) {
							to = len(content)
						}
						switch rapid.IntRange(0, 3).Draw(rt, "change") {
						case 0:
							r.write(name, content[:to])
						case 1:
							os.Remove(filepath.Join(r.dir, name))
						default:
							r.grow(name, content[min(to, len(r.files()[name])):to])
						}
						os.Chtimes(filepath.Join(r.dir, name), time.Now(), time.Now()) // on this clock; it may be missing
						r.run()
						n, said := len(r.records()), len(r.problems)
						if rapid.Bool().Draw(rt, "loses its state") && len(r.files()) > 0 {
							r.lose()
						}
						time.Sleep(time.Hour)
						r.run()
						if list := r.records(); len(list) != n {
							rt.Errorf("a second pass appended %v", list[n:])
						}
						if len(r.problems) != said {
							rt.Errorf("a second pass reported %v", r.problems[said:])
						}
					}
				})
			})
		}
	})
}
