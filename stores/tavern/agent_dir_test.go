package tavern_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// agentDir writes files into a new folder .tavern.
func agentDir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), ".tavern")
	for name, content := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte(content), 0o644))
	}
	return dir
}

// The folder of a repository is imported into any store, and exported from it into another one.
func TestAgentTravels(t *testing.T) {
	files := map[string]string{
		"docs/b.md": "b", "docs/a.md": "---\ntitle: A\n---\nx\r\n\xff", "docs/sub/main.go": "package main", "workflows/w.json": `{ "initial": "a", "states": {"a": {"end": true}} }`, "agents/kettle/agent.md": agentFile,
		"agents/kettle/sessions.jsonl": "{\"event\":\"session_started\",\"sessionId\":\"s\",\"timestamp\":\"2026-08-22T10:00:00Z\"}\nno line\n{\"event\":\"break\",\"timestamp\":\"2026-08-22T11:00:00Z\",\"reason\":\"why\"}\n",
	}
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx := t.Context()
		r := need(taverndir.Layout{}.Import(ctx, st, agentDir(t, files), layouts.ImportOptions{}))
		out, _ := layouttest.Exported(t, st, taverndir.Layout{})
		t.Run("D-53 clone and travel", func(t *testing.T) {
			other := need(tally.Open(ctx, logtest.Open(t), tally.Config{}))
			need(taverndir.Layout{}.Import(ctx, other, agentDir(t, out), layouts.ImportOptions{}))
			again, _ := layouttest.Exported(t, other, taverndir.Layout{})
			if diff := cmp.Diff(files, out) + cmp.Diff(out, again); diff != "" {
				t.Error(diff)
			}
			a, b := need(tavern.AgentOf(st, agentID).Info(ctx)), need(tavern.AgentOf(other, agentID).Info(ctx))
			if a.State != b.State || !slices.Equal(a.Commitments, b.Commitments) || string(a.Node) != string(b.Node) {
				t.Errorf("the agents are %+v and %+v", a, b)
			}
		})
		t.Run("D-32 the log of sessions", func(t *testing.T) {
			var have []string
			for _, e := range need(tavern.AgentOf(st, agentID).Info(ctx)).Log {
				have = append(have, fmt.Sprint(e.Event, " ", e.Session, " ", e.At, " ", e.Reason))
			}
			if want := []string{"started s 2026-08-22T10:00:00Z ", "break  2026-08-22T11:00:00Z why"}; !slices.Equal(have, want) {
				t.Errorf("got %q", have)
			}
			if len(r.Problems) != 1 || r.Problems[0].Line != 2 {
				t.Errorf("got the problems %+v", r.Problems)
			}
		})
		t.Run("D-08 documents are listed by their ids", func(t *testing.T) {
			list, _, err := st.Documents().List(ctx, docsQuery)
			must(t, err)
			var ids []string
			for _, d := range list {
				ids = append(ids, d.Subject.ID)
			}
			if !slices.Equal(ids, []string{"a", "b", "sub/main.go"}) {
				t.Errorf("got %q", ids)
			}
		})
		t.Run("D-68 what a person typed stays", func(t *testing.T) {
			a, now := tavern.AgentOf(st, agentID), maps.Clone(files)
			for n := range 12 {
				state := []string{"working", "waiting", "working", "idle"}[n%4]
				must(t, a.SetState(ctx, state, ""))
				now["agents/kettle/agent.md"] = strings.Replace(agentFile, "state: idle", "state: "+state, 1)
				out, _ := layouttest.Exported(t, st, taverndir.Layout{})
				if diff := cmp.Diff(now, out); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	})
}
