package ingest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// byFolder maps folders to namespaces.
func byFolder(cwd string) string {
	return map[string]string{"/shop": "shop", "/mill": "mill"}[cwd]
}

// of returns the rig limited to a namespace.
func (r *rig) of(namespace string) *rig {
	part := *r
	part.namespace = namespace
	return &part
}

// where maps session ids to their namespaces.
func (r *rig) where() map[string]string {
	r.t.Helper()
	homes := make(map[string][]string)
	for _, rec := range r.of("").records() {
		if id := rec.Subject.ID; !slices.Contains(homes[id], rec.Subject.Namespace) {
			homes[id] = append(homes[id], rec.Subject.Namespace)
		}
	}
	where := make(map[string]string)
	for id, list := range homes {
		slices.Sort(list)
		where[id] = strings.Join(list, " and ")
	}
	return where
}

func (r *rig) mustBeIn(when string, want map[string]string) {
	r.t.Helper()
	if got := r.where(); !maps.Equal(got, want) {
		r.t.Errorf("%s: sessions are in %v, want %v", when, got, want)
	}
}

// promptsIn returns lines of a session of Claude Code in a folder. snapshot is a line without a folder.
func promptsIn(cwd string, from, n int) string {
	return strings.ReplaceAll(prompts(from, n), `"type":"user"`, `"type":"user","cwd":"`+cwd+`"`)
}

const snapshot = `{"type":"file-history-snapshot","messageId":"m","snapshot":{"timestamp":"2026-01-02T03:00:01.000Z"},"isSnapshotUpdate":false}` + "\n"

// answer is the model's answer to the first of them.
const answer = `{"parentUuid":"u0","type":"assistant","uuid":"a0","cwd":"/pier","timestamp":"2026-01-02T03:04:01.000Z","message":{"id":"msg_0","role":"assistant","model":"m",` +
	`"content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}}` + "\n"

// sidechain returns lines of its subagent.
func sidechain(cwd string, from, n int) string {
	return strings.ReplaceAll(promptsIn(cwd, from, n), `"type":"user"`, `"isSidechain":true,"agentId":"a","type":"user"`)
}

// Sessions go to the namespace of the first folder in their lines, or without one to the default namespace. An invalid
// namespace is reported once and ignored.
func TestNamespaces(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	asked := make(map[string]int)
	var mu sync.Mutex
	r.namespaces = func(cwd string) string {
		mu.Lock()
		defer mu.Unlock()
		if asked[cwd]++; cwd == "/odd" {
			return "no namespace"
		}
		return byFolder(cwd)
	}
	files := map[string]string{
		"-shop/s.jsonl":  promptsIn("/shop", 0, 2) + promptsIn("/mill", 2, 1),
		"-mill/s.jsonl":  snapshot + snapshot + promptsIn("/mill", 0, 1),
		"-pier/s.jsonl":  promptsIn("/pier", 0, 1),
		"-none/s.jsonl":  snapshot,
		"-late/s.jsonl":  prompts(0, 1) + promptsIn("/shop", 1, 1), // a message does not wait
		"-odd/s.jsonl":   promptsIn("/odd", 0, 1),
		"-odd/s2.jsonl":  promptsIn("/odd", 0, 1),
		"-torn/s.jsonl":  snapshot + `{"type":"us`,
		"-blank/s.jsonl": "\n" + promptsIn("/shop", 0, 1),
	}
	for name, content := range files {
		r.write(name, content)
	}
	r.run()
	r.mustBeIn("after an import", map[string]string{"claude/-shop/s": "shop", "claude/-mill/s": "mill", "claude/-pier/s": "default", "claude/-none/s": "default",
		"claude/-late/s": "default", "claude/-odd/s": "default", "claude/-odd/s2": "default", "claude/-torn/s": "default", "claude/-blank/s": "shop"})
	if want := map[string]int{"/shop": 2, "/mill": 1, "/pier": 1, "/odd": 2}; !maps.Equal(asked, want) {
		t.Errorf("the route was asked about %v, want %v", asked, want)
	}
	if len(r.problems) != 1 || !strings.Contains(r.problems[0].Reason, "no namespace") {
		t.Errorf("problems are %v, want one", r.problems)
	}
	given := r.of("shop").given()
	maps.Copy(given, r.of("mill").given())
	maps.Copy(given, r.of("default").given())
	files["-torn/s.jsonl"] = snapshot
	if !maps.Equal(given, files) {
		t.Errorf("the restored files are %q", given)
	}
}

// A declined session stays declined while the state exists, regardless of changes of its files and of the route. So do
// its forks. None of it is stored.
func TestLeftAlone(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	only := func(cwd string) string {
		if cwd == "/shop" {
			return ""
		}
		return leftAlone
	}
	r.namespaces = only
	mine, theirs := snapshot+promptsIn("/shop", 0, 2), snapshot+promptsIn("/secret", 0, 2)
	r.write("-shop/s.jsonl", mine)
	r.write("-secret/s.jsonl", theirs)
	r.write("-secret/s/subagents/agent-a.jsonl", sidechain("/secret", 20, 2))
	r.run()
	want := map[string]string{"claude/-shop/s": "default"}
	r.mustBeIn("at first", want)
	r.namespaces = byFolder // accepts all
	r.write("-secret/s.jsonl", theirs+promptsIn("/secret", 2, 1))
	r.write("-secret/s/subagents/agent-a.jsonl", sidechain("/secret", 20, 3))
	r.run()
	r.mustBeIn("when it goes on", want)
	if r.alone != 1 {
		t.Errorf("got %d declined sessions, want one with two files", r.alone)
	}
	r.write("-secret/s.jsonl", promptsIn("/secret", 5, 1))
	r.run()
	r.namespaces = only // under its new name it is another session
	if err := os.Rename(filepath.Join(r.dir, "-secret/s.jsonl"), filepath.Join(r.dir, "-secret/moved.jsonl")); err != nil {
		t.Fatal(err)
	}
	r.run()
	if err := os.RemoveAll(filepath.Join(r.dir, "-secret/s")); err != nil {
		t.Fatal(err)
	}
	r.run()
	r.mustBeIn("rewritten, moved and gone", want)
	if len(r.problems) > 0 {
		t.Errorf("problems are %v", r.problems)
	}
	r.lose()
	r.namespaces = byFolder
	r.write("-secret/s.jsonl", theirs)
	r.run()
	if got := r.where()["claude/-secret/s"]; got != "default" {
		t.Errorf("without the state the session is in %q, want the namespace of the current route", got)
	}
}

// A session stays in its namespace, regardless of a changed route: with the state, without asking the log; without it,
// if the session is in the default namespace. Otherwise it is stored completely in the namespace of the current route.
func TestNamespaceStays(t *testing.T) {
	files := map[string]string{"-p/s.jsonl": snapshot + promptsIn("/shop", 0, 2), "-p/s/subagents/agent-a.jsonl": sidechain("/shop", 20, 2)}
	later := map[string]string{"-p/s.jsonl": promptsIn("/shop", 2, 2), "-p/s/subagents/agent-a.jsonl": sidechain("/shop", 22, 2), "-p/s/subagents/agent-b.jsonl": sidechain("/shop", 30, 2)}
	answers := map[string]func(string) string{"none": nil, "default": func(string) string { return "" }, "shop": byFolder, "mill": func(string) string { return "mill" }}
	home := map[string]string{"none": "default", "default": "default", "shop": "shop", "mill": "mill"}
	for was, first := range answers {
		for is, then := range answers {
			if then == nil && home[was] != "default" {
				continue // without a route there is one namespace
			}
			for _, isLost := range []bool{false, true} {
				when := fmt.Sprintf("%s, then %s, state lost: %v", was, is, isLost)
				r := newRig(t, t.TempDir(), ofClaude)
				r.namespaces = first
				for name, content := range files {
					r.write(name, content)
				}
				r.run()
				r.mustBeIn(when+", at first", map[string]string{"claude/-p/s": home[was]})
				r.namespaces = then
				for name, content := range later {
					r.grow(name, content)
				}
				if isLost {
					r.lose()
				}
				want := home[was]
				if isLost && was != is && home[was] != "default" { // as a new session
					want = home[is]
				}
				r.run()
				r.lose()
				r.run()
				switch {
				case isLost && want != home[was]:
					both := []string{home[was], want}
					slices.Sort(both)
					r.mustBeIn(when, map[string]string{"claude/-p/s": strings.Join(both, " and ")})
				case !isLost && want != home[is] && want != "default": // the state was lost at the end
				default:
					r.mustBeIn(when, map[string]string{"claude/-p/s": want})
				}
				r.of(want).mustGive(when, r.files())
				if len(r.problems) > 0 {
					t.Errorf("%s: got %v", when, r.problems)
				}
			}
		}
	}
}

// A session's namespace is known for a new file even if only its state records it, and also for a file that was read to
// its end without the state.
func TestNamespaceState(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.namespaces = byFolder
	name, sub := "-p/s.jsonl", "-p/s/subagents/agent-a.jsonl"
	content := promptsIn("/shop", 0, 1) + strings.ReplaceAll(answer, "/pier", "/shop") // silence after it yields an event
	r.write(name, content)
	r.run()
	r.lose()
	r.run() // the log knew how far it was read
	r.namespaces = func(string) string { return "mill" }
	r.write(sub, sidechain("/mill", 10, 2))
	r.kicked([]string{sub, name})
	r.mustBeIn("with a file more", map[string]string{"claude/-p/s": "shop"})
	r.grow(name, promptsIn("/mill", 2, 1))
	r.run()
	r.move(name, "-q/s.jsonl") // another session
	r.run()
	r.run()
	r.mustBeIn("under another name", map[string]string{"claude/-p/s": "shop", "claude/-q/s": "mill"})
	if got := r.of("shop").field("claude/-p/s", fieldGone); got != "true" {
		t.Errorf("the field gone without the file is %q", got)
	}
	if got := r.of("shop").given(); got[name] != content+promptsIn("/mill", 2, 1) || got[sub] != sidechain("/mill", 10, 2) {
		t.Errorf("the restored files are %q", got)
	}
}

// A state from a time without namespaces places all its sessions in the default namespace, even if the log also has one
// elsewhere. Without the state the log decides.
func TestNamespaceOldState(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.write("-p/s.jsonl", promptsIn("/shop", 0, 2))
	r.run()
	other := newRig(t, t.TempDir(), ofClaude)
	other.store, other.namespace = r.store, "shop"
	other.write("-p/s.jsonl", promptsIn("/shop", 0, 2))
	other.run()
	r.namespaces = byFolder
	r.grow("-p/s.jsonl", promptsIn("/shop", 2, 1))
	r.run()
	r.of("default").mustGive("followed", r.files())
	r.lose()
	r.grow("-p/s.jsonl", promptsIn("/shop", 3, 1))
	r.run()
	r.of("shop").mustGive("without the state, where it is by its folder too", r.files())
	if len(r.problems) > 0 {
		t.Error(r.problems)
	}
}

// Changes of a file are recorded in its session in any namespace, even if no watcher ran and only the first line named
// the session.
func TestNamespaceMoves(t *testing.T) {
	const line = `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"` + threadID + `","cwd":"/shop"}}` + "\n"
	r := newRig(t, t.TempDir(), ofCodex)
	r.namespaces = byFolder
	name, away := "sessions/2026/01/02/"+rolloutName(threadID), "archived_sessions/"+rolloutName(threadID)
	r.write(name, line)
	r.run()
	r.namespaces = func(string) string { return "mill" }
	r.move(name, away)
	r.run()
	if got := r.of("shop").field("codex/"+threadID, "status"); got != `"archived"` {
		t.Errorf("the status in the archive is %s", got)
	}
	r.remove(away)
	r.run()
	if got := r.of("shop").field("codex/"+threadID, fieldGone); got != "true" {
		t.Errorf("the field gone without the file is %q", got)
	}
	r.mustBeIn("when it is gone", map[string]string{"codex/" + threadID: "shop"})

	const id = "5a5a5a5a-0000-4000-8000-000000000000"
	g := newRig(t, t.TempDir(), ofGemini)
	g.namespaces = byFolder
	chat := "pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl"
	g.write(chat, `{"sessionId":"`+id+`","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z"}`+"\n"+`{"$set":{"directories":["/shop"]}}`+"\n")
	g.run()
	g.namespaces = func(string) string { return "mill" }
	g.remove(chat)
	g.run()
	if got := g.of("shop").field("gemini/"+id, fieldGone); got != "true" {
		t.Errorf("the field gone without the file is %q", got)
	}
	g.mustBeIn("when it is gone", map[string]string{"gemini/" + id: "shop"})
}

// A session goes to the namespace of the session that it continues. If that is missing, its own folder decides.
func TestNamespaceForks(t *testing.T) {
	const parent, child = "019b0000-0000-7000-8000-00000000000a", "019b0000-0000-7000-8000-000000000001"
	first := fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":%q,"cwd":"/shop","history_mode":"paginated"}}`+"\n", parent)
	fork := fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:06.000Z","type":"session_meta","payload":{"id":%q,"cwd":"/mill","forked_from_id":%q,"history_base":{"thread_id":%q,"end_byte_offset":%d}}}`+"\n",
		child, parent, parent, len(first))
	name := func(id string) string { return "sessions/rollout-2026-01-02T03-04-05-" + id + ".jsonl" }
	for _, now := range []string{"none", "followed", "default"} {
		r := newRig(t, t.TempDir(), ofCodex)
		want := map[string]string{"codex/" + child: "mill"}
		if r.namespaces = byFolder; now == "default" {
			r.namespaces = nil
		}
		if now != "none" {
			r.write(name(parent), first)
			r.run()
			home := map[string]string{"followed": "shop", "default": "default"}[now]
			want = map[string]string{"codex/" + parent: home, "codex/" + child: home}
		}
		r.namespaces = byFolder
		r.write(name(child), fork)
		r.run()
		r.mustBeIn("a fork of one that is "+now, want)
		ledger := r.of(want["codex/"+child]).session("codex/" + child).Ledger
		if now == "none" && (ledger.Fork != nil || ledger.Parent == nil || len(r.problems) != 1) || now != "none" && (ledger.Fork == nil || len(r.problems) > 0) {
			t.Errorf("parent is %s: the session is a fork of %v with the parent %v; problems %v", now, ledger.Fork, ledger.Parent, r.problems)
		}
	}
}
