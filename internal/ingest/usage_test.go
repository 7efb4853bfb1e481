package ingest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// Each line of a response has its usage so far.
func TestLargestUsage(t *testing.T) {
	t.Run("net G6 of the lines of a response the larger count wins in every class of tokens", func(t *testing.T) {
		dir := t.TempDir()
		rapid.Check(t, func(rt *rapid.T) {
			r := newRig(rt, dir, ofClaude)
			defer os.RemoveAll(filepath.Dir(r.dir))
			k := &agentTalk{t: rt}
			k.entry("user", "", `"message":{"role":"user","content":"Go on"}`)
			want := make(map[string]events.Tokens) // by model: each response has one of its own
			for n := range rapid.IntRange(1, 3).Draw(rt, "responses") {
				var list []events.Tokens
				var most events.Tokens
				for range rapid.IntRange(1, 4).Draw(rt, "lines") {
					more := rapid.SampledFrom([]int64{0, 0, 1, 7})
					most = most.Add(events.Tokens{Input: more.Draw(rt, "input"), Output: more.Draw(rt, "output"), CacheRead: more.Draw(rt, "read"), CacheWrite: more.Draw(rt, "written")})
					list = append(list, most)
				}
				model := fmt.Sprint("m", n)
				if most != (events.Tokens{}) {
					want[model] = most
				}
				for _, u := range rapid.Permutation(list).Draw(rt, "order") {
					k.entry("assistant", k.last, fmt.Sprintf(`"message":{"id":"msg_%d","role":"assistant","model":%q,"content":[],"usage":{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d}}`,
						n, model, u.Input, u.Output, u.CacheRead, u.CacheWrite))
				}
			}
			for line := range strings.Lines(k.b.String()) {
				if r.grow("-pier/s.jsonl", line); rapid.Bool().Draw(rt, "rests") {
					r.run() // and the response is counted so far
				}
			}
			r.run()
			have := make(map[string]events.Tokens)
			for _, c := range r.session("claude/-pier/s").Ledger.Costs {
				have[c.Model] = have[c.Model].Add(c.Tokens)
			}
			if !maps.Equal(have, want) {
				rt.Errorf("by model, the usage is %v, want %v", have, want)
			}
		})
	})
}
