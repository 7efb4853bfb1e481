package taverndir_test

import (
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/tavern"
)

const template = `{"initial":"a","states":{"a":{"to":["b"]},"b":{"end":true}}}`

// An unknown value of a member, and an unknown file in a folder, are reported. The file stays as it is.
func TestOddWords(t *testing.T) {
	servitorWith := func(old, now string) string { return strings.Replace(servitor, old, now, 1) }
	for kind, c := range map[string]struct{ name, text, reason string }{
		"a state":                {"agents/kettle/agent.md", node(id1, "Kettle", "napping"), `state: "napping"`},
		"a state in capitals":    {"agents/kettle/agent.md", node(id1, "Kettle", "Working"), `state: "Working"`},
		"an empty state":         {"agents/kettle/agent.md", node(id1, "Kettle", ""), `state: ""`},
		"stopped without why":    {"agents/kettle/agent.md", node(id1, "Kettle", "stopped:"), `state: "stopped:"`},
		"a commitment's status":  {"agents/kettle/agent.md", strings.Replace(node(id1, "Kettle", "idle"), "⏳", "🚧", 1), "🚧"},
		"a servitor's mode":      {"servitors/fix/servitor.md", servitorWith("session_mode: plan", "session_mode: yolo"), `session_mode: "yolo"`},
		"a servitor's effort":    {"servitors/fix/servitor.md", servitorWith("session_mode: plan", "effort_level: extreme"), `effort_level: "extreme"`},
		"an entry of a log":      {"agents/kettle/sessions.jsonl", `{"event":"session_paused","timestamp":"2026-08-22T10:00:00Z"}` + "\n", "session_paused"},
		"a template":             {"workflows/w.json", `{"steps":[]}`, "not a valid workflow: data: line 1"},
		"a template, no JSON":    {"workflows/deep/w.json", "# Release\n", "not a valid workflow: data: line 1"},
		"a template, empty":      {"workflows/w.json", "", "not a valid workflow"},
		"an unknown target":      {"workflows/w.json", strings.Replace(template, `["b"]`, `["c"]`, 1), "not a valid workflow"},
		"an overlay of nobody":   {"overlays/x.md", "x", "overlays/<agent>/<path>"},
		"a flow":                 {"flows/f.json", "{}", "flows are in the log alone"},
		"a changeset":            {"changesets/c.json", "{}", "changesets are in the log alone"},
		"a message's class":      {"inbox/user/000000000001-m.md", "---\nclass: urgent\nfrom: user\nid: m\n---\n\nx", `class: "urgent"`},
		"an item's priority":     {"queues/q/items/000000000001-i.json", `{"id":"i","meta":{"id":"i","priority":12},"turn":1}` + "\n", "priority: 12"},
		"what dead items are":    {"queues/q/queue.json", `{"createdAt":"2026-08-22T10:00:00Z","settings":{"dead":"forget"}}` + "\n", "has values that are invalid for queue q"},
		"an item's state":        {"queues/q/items/000000000001-i.json", `{"id":"i","meta":{"id":"i"},"turn":1,"state":"finished"}` + "\n", "does not have the form of a file of queue q"},
		"how an item came back":  {"queues/q/items/000000000001-i.json", `{"id":"i","meta":{"id":"i"},"turn":1,"state":"paused","attempts":1,"history":[{"attempt":1,"worker":"w","returned":"failed"}]}` + "\n", "does not have the form of a file of queue q"},
		"a message that is none": {"inbox/user/hello.txt", "hi", "does not have the form of a file of inbox user"},
	} {
		t.Run("B-44 is named, and the file stays/"+kind, func(t *testing.T) {
			st, files := openStore(t), map[string]string{c.name: c.text, "docs/a.md": "a"}
			if strings.HasSuffix(c.name, "sessions.jsonl") {
				files["agents/kettle/agent.md"] = node(id1, "Kettle", "idle")
			}
			dir := folder(t, ".tavern", files)
			for range 2 {
				r := imported(t, st, dir, layouts.ImportOptions{})
				said := append(r.Problems, r.Notes...)
				if len(said) != 1 || said[0].File != c.name || !strings.Contains(said[0].Reason, c.reason) {
					t.Errorf("the problems are %+v, want %s", said, c.reason)
				}
				wantFiles(t, st, files)
			}
		})
	}
	t.Run("B-44 an agent in an unknown state is not one, and is once its state is known", func(t *testing.T) {
		st, dir := openStore(t), folder(t, ".tavern", map[string]string{"agents/kettle/agent.md": node(id1, "Kettle", "napping")})
		imported(t, st, dir, layouts.ImportOptions{})
		if a, err := tavern.AgentOf(st, id1).Info(t.Context()); err == nil {
			t.Errorf("the invalid file became the agent %+v", a)
		}
		files := map[string]string{"agents/kettle/agent.md": node(id1, "Kettle", "waiting")}
		write(t, dir, files)
		if r := imported(t, st, dir, layouts.ImportOptions{}); len(r.Problems) > 0 {
			t.Errorf("the report is %+v", r)
		}
		if a := need(tavern.AgentOf(st, id1).Info(t.Context())); a.State != tavern.AgentWaiting {
			t.Errorf("the agent is %+v", a)
		}
		wantFiles(t, st, files)
	})
	t.Run("B-44 a template of the store stays when its file is none any more", func(t *testing.T) {
		st, dir := openStore(t), folder(t, ".tavern", map[string]string{"workflows/w.json": template})
		if r := imported(t, st, dir, layouts.ImportOptions{}); len(r.Problems) > 0 {
			t.Fatalf("the report is %+v", r)
		}
		write(t, dir, map[string]string{"workflows/w.json": `{"steps":[]}`})
		if r := imported(t, st, dir, layouts.ImportOptions{}); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Reason, "the store keeps its version") {
			t.Errorf("the report is %+v", r)
		}
		wantFiles(t, st, map[string]string{"workflows/w.json": template})
	})
}
