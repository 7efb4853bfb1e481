package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/config"
)

// home is a home folder with a project of Claude Code, one of Codex, and copies of both elsewhere.
func home(t *testing.T) (dir string, env func(string) string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const rollout = "sessions/2026/01/02/rollout-2026-01-02T12-00-00-01990000-0000-7000-8000-000000000001.jsonl"
	for name, text := range map[string]string{
		".claude/projects/-shop/one.jsonl": `{"uuid":"a","parentUuid":null,"sessionId":"one","type":"user","message":{"role":"user","content":"hi"},"timestamp":"2026-01-02T10:00:00.000Z","cwd":"/shop","version":"2"}`,
		".claude/projects/-desk/two.jsonl": `{}`,
		".codex/" + rollout:                `{"timestamp":"2026-01-02T12:00:00.000Z","type":"session_meta","payload":{"id":"01990000-0000-7000-8000-000000000001"}}`,
	} {
		for _, at := range []string{dir, filepath.Join(dir, "copy")} {
			path := filepath.Join(at, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, func(name string) string { return map[string]string{"HOME": dir}[name] }
}

// say formats locations.
func say(dir string, locations []location) string {
	var list []string
	for _, p := range locations {
		if p.isMissing {
			continue
		}
		root, err := filepath.Rel(dir, p.Root)
		if err != nil {
			root = p.Root
		}
		list = append(list, fmt.Sprintf("%s %s/%s -%v %s %t", p.Agent.Name(), filepath.ToSlash(root), p.Below, p.except, p.namespace, p.redact))
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

func TestLocations(t *testing.T) {
	dir, env := home(t)
	off, yes := false, true
	for name, c := range map[string]struct {
		args  []string
		watch []config.Watch
		said  wish
		want  string
	}{
		"every agent":        {want: "claude .claude/projects/ -[] n true; codex .codex/ -[] n true"},
		"an agent":           {args: []string{"codex"}, want: "codex .codex/ -[] n true"},
		"by its format":      {args: []string{"claude-code"}, want: "claude .claude/projects/ -[] n true"},
		"its folder":         {args: []string{".claude"}, want: "claude .claude/projects/ -[] n true"},
		"a project":          {args: []string{".claude/projects/-shop"}, want: "claude .claude/projects/-shop -[] n true"},
		"a part and a whole": {args: []string{".claude/projects/-shop", "claude", ".claude"}, want: "claude .claude/projects/ -[] n true"},
		"a copy":             {args: []string{"copy/.claude"}, want: "claude copy/.claude/projects/ -[] n true"},
		"a project's copy":   {args: []string{"copy/.claude/projects/-shop"}, want: "claude copy/.claude/projects/-shop -[] n true"},
		"one that is listed goes where that says, and nowhere else": {watch: []config.Watch{{Root: ".claude/projects/-shop", Namespace: "shop", Redact: &off}},
			want: "claude .claude/projects/ -[-shop] n true; claude .claude/projects/-shop -[] shop false; codex .codex/ -[] n true"},
		"all of an agent is listed": {watch: []config.Watch{{Root: ".codex", Agent: "codex", Namespace: "c"}},
			want: "claude .claude/projects/ -[] n true; codex .codex/ -[] c true"},
		"what the call says of redaction counts": {watch: []config.Watch{{Root: "copy/.codex", Redact: &yes}}, said: wish{redact: false, explicit: true},
			want: "claude .claude/projects/ -[] n false; codex .codex/ -[] n false; codex copy/.codex/ -[] n false"},
		"one that is not there yet": {watch: []config.Watch{{Root: "later", Agent: "pi"}},
			want: "claude .claude/projects/ -[] n true; codex .codex/ -[] n true; pi later/ -[] n true"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.args {
				if strings.ContainsAny(c.args[i], "./") {
					c.args[i] = filepath.Join(dir, c.args[i])
				}
			}
			for i := range c.watch {
				c.watch[i].Root = filepath.Join(dir, c.watch[i].Root)
			}
			c.said.routing.Namespace, c.said.redact = "n", c.said.redact || !c.said.explicit
			locations, err := locationsOf(c.args, config.Config{Watch: c.watch}, c.said, env)
			if err != nil {
				t.Fatal(err)
			}
			if got := say(dir, locations); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// The state has separate names for parts of a folder, so that files outside of a part do not count as removed.
func TestLocationID(t *testing.T) {
	var whole, part, rest location
	whole.Root, part.Root, rest.Root = "/r", "/r", "/r"
	part.Below, rest.except = "a", []string{"a"}
	if whole.id() == part.id() || part.id() == rest.id() || whole.id() == rest.id() {
		t.Errorf("got ids %q, %q, %q", whole.id(), part.id(), rest.id())
	}
	for name, want := range map[string][3]bool{"a/x": {true, true, false}, "a": {true, true, false}, "ab/x": {true, false, true}, "b": {true, false, true}} {
		if got := [3]bool{whole.has(name), part.has(name), rest.has(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if !part.enters("a") || !part.enters("a/b") || part.enters("b") || part.enters("ab") {
		t.Error("the location reads the wrong folders")
	}
	part.Below = "a/b/c"
	if !part.enters("a") || !part.enters("a/b") || part.enters("a/c") {
		t.Error("the location skips a folder on the way")
	}
}

func TestBackfill(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{"all": {}, "30d": now.AddDate(0, 0, -30), "90m": now.Add(-90 * time.Minute), "none": now.Add(-2 * time.Second)} {
		var b backfill
		if err := b.Set(text); err != nil || !b.from(now).Equal(want) {
			t.Errorf("%s: %v, %v, want %v", text, b.from(now), err, want)
		}
	}
	for _, text := range []string{"", "d", "0d", "-1d", "1.5d", "1y", "30", "999999999d", "nothing"} {
		if new(backfill).Set(text) == nil {
			t.Errorf("%q: got no error", text)
		}
	}
	if (&backfill{}).from(now) != (time.Time{}) {
		t.Error("all is not the default")
	}
}
