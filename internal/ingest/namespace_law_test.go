package ingest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// With namespaces, each has the content that an Ingester stores for its files alone, for any growth and any crashes.
func TestNamespaceLaw(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(rt *rapid.T, number int, cwd string) map[string]string{
		"claude": claudeIn, "codex": codexIn, "gemini": geminiIn, "pi": talkIn(piTalk, "s1"), "acp": talkIn(acpTalk, "c1", "gull"),
	}
	for name, play := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rapid.Check(t, func(rt *rapid.T) { namespaceLaw(rt, dir, talks[name].agent, play) })
		})
	}
}

func namespaceLaw(rt *rapid.T, dir string, agent agents.Agent, play func(*rapid.T, int, string) map[string]string) {
	r := newRig(rt, dir, agent)
	defer os.RemoveAll(filepath.Dir(r.dir))
	r.namespaces = byFolder
	parts := make(map[string]map[string]string) // files by namespace
	begun := make(map[string]int)               // by file: how far it must be read to know the folder
	for number := range rapid.IntRange(1, 4).Draw(rt, "sessions") {
		cwd := rapid.SampledFrom([]string{"/pier", "/shop", "/mill"}).Draw(rt, "cwd")
		home, namespace := play(rt, number, cwd), byFolder(cwd)
		if namespace == "" || agent == ofGemini {
			namespace = events.DefaultNamespace
		}
		if parts[namespace] == nil {
			parts[namespace] = make(map[string]string)
		}
		maps.Copy(parts[namespace], home)
		for name, content := range home {
			begun[name] = saysWhere(agent, content, cwd)
		}
	}
	from := make(map[string]int)
	for round := range 2 {
		for _, namespace := range slices.Sorted(maps.Keys(parts)) {
			for _, name := range slices.Sorted(maps.Keys(parts[namespace])) {
				content := parts[namespace][name]
				cut := len(content)
				if round == 0 && agent != ofCodex { // its files are read in order, each to its end
					cut = rapid.IntRange(0, len(content)).Draw(rt, "cut")
				}
				if isAmbiguous(content, cut) || cut < begun[name] || cut < from[name] {
					continue
				}
				r.grow(name, content[from[name]:cut])
				from[name] = cut
			}
		}
		for range rapid.IntRange(0, 2).Draw(rt, "deaths") {
			r.stopped(rapid.IntRange(0, 40).Draw(rt, "at"), rapid.Bool().Draw(rt, "stored"), rapid.IntRange(0, 2).Draw(rt, "state"))
		}
		r.run()
	}
	if len(r.problems) > 0 {
		rt.Fatalf("got the problems %v", r.problems)
	}
	sessions := 0
	for namespace, files := range parts {
		alone := newRig(rt, dir, agent)
		defer os.RemoveAll(filepath.Dir(alone.dir))
		alone.namespace = namespace
		for name, content := range files {
			alone.write(name, content)
		}
		alone.run()
		part := r.of(namespace)
		part.mustBe(alone)
		if got, want := part.given(), alone.given(); !reflect.DeepEqual(got, want) {
			rt.Fatalf("the restored files of %s are\n%q\nwant those of an ingester of its own\n%q", namespace, got, want)
		}
		sessions += len(alone.sessions())
	}
	if len(r.where()) != sessions {
		rt.Fatalf("sessions are in the namespaces %v, want %d sessions", r.where(), sessions)
	}
}

// saysWhere returns the end of the line that names the folder of a session, or 0.
func saysWhere(agent agents.Agent, content, cwd string) int {
	at := strings.Index(content, `"`+cwd+`"`)
	if at < 0 {
		return 0
	}
	at += strings.IndexByte(content[at:], '\n') + 1
	for isAnswered := agent != ofACP; !isAnswered; { // that was the request
		line, _, _ := strings.Cut(content[at:], "\n")
		at += len(line) + 1
		isAnswered = strings.TrimSpace(line) != ""
	}
	return at
}

// claudeIn is a session of Claude Code in a folder. With a subagent, it never goes back, which would remove the
// subagent's lines.
func claudeIn(rt *rapid.T, number int, cwd string) map[string]string {
	_, content := claudeTalk(rt)
	name, home := fmt.Sprintf("-p/s%d", number), make(map[string]string)
	content = strings.ReplaceAll(content, "/pier", cwd)
	if rapid.Bool().Draw(rt, "delegates") {
		of := func(lines string) string { return strings.ReplaceAll(lines, "03:04:00", "03:00:01") } // equally old, in any read order
		content = of(promptsIn(cwd, 0, rapid.IntRange(1, 5).Draw(rt, "prompts")))
		home[name+"/subagents/agent-a.jsonl"] = of(sidechain(cwd, 60, rapid.IntRange(1, 3).Draw(rt, "lines")))
	}
	home[name+".jsonl"] = strings.Repeat(snapshot, rapid.IntRange(0, 2).Draw(rt, "snapshots")) + content
	return home
}

// codexIn is a thread of Codex in a folder.
func codexIn(rt *rapid.T, number int, cwd string) map[string]string {
	home := make(map[string]string)
	reverted(rt, home, number)
	for name, content := range home {
		home[name] = strings.ReplaceAll(content, `"/pier"`, `"`+cwd+`"`)
	}
	return home
}

// geminiIn is a session of Gemini CLI, which names no folder.
func geminiIn(rt *rapid.T, number int, _ string) map[string]string {
	name, content := geminiTalk(rt)
	id := fmt.Sprintf("%08d", number)
	return map[string]string{strings.ReplaceAll(name, "5a5a5a5a", id): strings.ReplaceAll(content, "5a5a5a5a", id)}
}

// talkIn is a session of another agent in a folder, with ids of its own.
func talkIn(talk func(*rapid.T) (string, string), ids ...string) func(*rapid.T, int, string) map[string]string {
	return func(rt *rapid.T, number int, cwd string) map[string]string {
		name, content := talk(rt)
		for _, id := range ids {
			to := fmt.Sprintf("%s-%d", id, number)
			name, content = strings.ReplaceAll(name, id, to), strings.ReplaceAll(content, id, to)
		}
		return map[string]string{name: strings.ReplaceAll(content, "/pier", cwd)}
	}
}
