//go:build unix

package cmd_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// Verification finds nothing in a healthy store, however its sessions grew and whenever their snapshots were taken.
func TestVerifyGrown(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	seeds, turns, steps := 1, 800, 10
	switch {
	case testkit.Soak():
		seeds = 8
	case !testkit.Full():
		turns, steps = 300, 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("B-21 a session that grew under a watch ", seed), func(t *testing.T) {
			t.Parallel()
			mustVerifyGrown(t, grownSession(uint64(seed), turns), steps)
		})
	}
	t.Run("B-21 recorded sessions as they grew", func(t *testing.T) {
		testkit.OnlyFull(t, "the subtest before has a session like those")
		t.Parallel()
		files, err := filepath.Glob(testkit.Data(t, "agents", "growth") + "/*.cuts")
		if err != nil || len(files) == 0 {
			t.Fatalf("got files %v, %v", files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(strings.TrimSuffix(file, ".cuts") + ".jsonl")
			if err != nil {
				t.Fatal(err)
			}
			cuts, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var list []int
			for _, word := range strings.Fields(string(cuts)) {
				n, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, n)
			}
			mustGrow(t, text, append(list, len(text)))
		}
	})
	t.Run("B-21 an import with snapshots at random points", func(t *testing.T) {
		testkit.OnlyFull(t, "TestBorders has snapshots at each point")
		t.Parallel()
		store := filepath.Join(t.TempDir(), "store")
		for _, name := range [][]string{{"claude", "projects"}, {"agents"}, {"tally", "travel"}} {
			c := command(t.Context(), store, "tally", "import", testkit.Data(t, name...))
			_, _ = c.CombinedOutput() // watch reports a file of no known agent
		}
		keepAtRandom(t, store, 60)
		output(t, nil, store, "tally", "verify")
	})
}

// grownSession returns a transcript whose results differ in size as much as real ones.
func grownSession(seed uint64, turns int) []byte {
	r := rand.New(rand.NewPCG(seed, 21))
	text := func(n int) string { return strings.Repeat("cake flour ", 1+n/11) }
	var b strings.Builder
	parent := "null"
	line := func(kind string, n int, message map[string]any) {
		raw, err := json.Marshal(message)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, `{"parentUuid":%s,"isSidechain":false,"cwd":"/srv/shop","sessionId":"grown","version":"2.1.42","type":"%s","uuid":"u-%d","timestamp":"2026-08-01T10:%02d:%02d.000Z","message":%s}`+"\n",
			parent, kind, n, n/60%60, n%60, raw)
		parent = fmt.Sprintf(`"u-%d"`, n)
	}
	usage := map[string]int{"input_tokens": 5, "output_tokens": 50}
	for n := 0; n < turns; n += 4 {
		line("user", n, map[string]any{"role": "user", "content": text(300)})
		line("assistant", n+1, map[string]any{"id": fmt.Sprint("g", n), "role": "assistant", "model": "claude-sonnet-4-6", "usage": usage,
			"content": []any{map[string]any{"type": "tool_use", "id": fmt.Sprint("t", n), "name": "Read", "input": map[string]any{}}}})
		size := []int{200, 300, 500, 800, 1500, 3000, 9000, 60_000, 120_000}[r.IntN(9)]
		line("user", n+2, map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": fmt.Sprint("t", n), "content": text(size)}}})
		line("assistant", n+3, map[string]any{"id": fmt.Sprint("h", n), "role": "assistant", "model": "claude-sonnet-4-6", "usage": usage,
			"content": []any{map[string]any{"type": "text", "text": text(size / 8)}}})
	}
	return []byte(b.String())
}

// mustVerifyGrown lets a file grow in a number of steps.
func mustVerifyGrown(t *testing.T, text []byte, steps int) {
	t.Helper()
	var cuts []int
	for i := range steps {
		cuts = append(cuts, len(text)*(i+1)/steps)
	}
	mustGrow(t, text, cuts)
}

// mustGrow makes a watch read a file at each of its lengths, and verifies the store.
func mustGrow(t *testing.T, text []byte, cuts []int) {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	dir := filepath.Join(store+"-home", ".claude", "projects", "-srv-shop")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, cut := range cuts {
		if err := os.WriteFile(filepath.Join(dir, "grown.jsonl"), text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		once := command(t.Context(), store, "tally", "watch", "--once")
		once.Env = agentEnv(once.Env)
		if out, err := once.CombinedOutput(); err != nil {
			t.Fatalf("watch --once: %v\n%s", err, out)
		}
	}
	output(t, nil, store, "tally", "verify")
}

// keepAtRandom takes snapshots of sessions at random records.
func keepAtRandom(t *testing.T, store string, times int) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Backend: "local", Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var records []events.Record
	for rec, err := range st.Log.Read(t.Context(), events.Range{Kind: events.KindSession}) {
		if err != nil {
			t.Fatal(err)
		}
		rec.Data = nil
		records = append(records, rec)
	}
	if len(records) < 1000 {
		t.Fatalf("got %d imported records", len(records))
	}
	for range times {
		rec := records[testkit.Random(t).IntN(len(records))]
		if _, err := st.Loader().Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
			t.Fatalf("%s at %v: %v", rec.Subject, rec.Offset, err)
		}
	}
}
