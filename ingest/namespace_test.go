package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
)

// byFolder are the namespaces of projects in a folder each.
func byFolder(cwd string) string {
	return map[string]string{"/shop": "shop", "/mill": "mill"}[cwd]
}

// of is the rig where only a namespace is spoken of.
func (r *rig) of(namespace string) *rig {
	part := *r
	part.namespace = namespace
	return &part
}

// where are the namespaces that sessions are in, by their ids.
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

// promptsIn are lines of a session of Claude Code that works in a folder, and snapshot is one
// that says no folder.
func promptsIn(cwd string, from, n int) string {
	return strings.ReplaceAll(prompts(from, n), `"type":"user"`, `"type":"user","cwd":"`+cwd+`"`)
}

const snapshot = `{"type":"file-history-snapshot","messageId":"m","snapshot":{"timestamp":"2026-01-02T03:00:01.000Z"},"isSnapshotUpdate":false}` + "\n"

// answer is what the model says to the first of them.
const answer = `{"parentUuid":"u0","type":"assistant","uuid":"a0","cwd":"/pier","timestamp":"2026-01-02T03:04:01.000Z","message":{"id":"msg_0","role":"assistant","model":"m",` +
	`"content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}}` + "\n"

// sidechain are lines of a sub-agent of it.
func sidechain(cwd string, from, n int) string {
	return strings.ReplaceAll(promptsIn(cwd, from, n), `"type":"user"`, `"isSidechain":true,"agentId":"a","type":"user"`)
}

// Sessions go where the first folder says that their lines say; without one, where all others
// go. A namespace that cannot be one is none, and said once.
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
		"-late/s.jsonl":  prompts(0, 1) + promptsIn("/shop", 1, 1), // a message is not held up
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
		t.Errorf("asked are %v, want %v", asked, want)
	}
	if len(r.problems) != 1 || !strings.Contains(r.problems[0].Reason, "no namespace") {
		t.Errorf("problems are %v, want one", r.problems)
	}
	given := r.of("shop").given()
	maps.Copy(given, r.of("mill").given())
	maps.Copy(given, r.of("default").given())
	files["-torn/s.jsonl"] = snapshot
	if !maps.Equal(given, files) {
		t.Errorf("files come back as %q", given)
	}
}

// A session that is left alone stays so, whatever becomes of its files and of what is said of
// its folder, as long as the state is there; its forks too. Nothing of it is stored.
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
	r.namespaces = byFolder // takes all
	r.write("-secret/s.jsonl", theirs+promptsIn("/secret", 2, 1))
	r.write("-secret/s/subagents/agent-a.jsonl", sidechain("/secret", 20, 3))
	r.run()
	r.mustBeIn("when it goes on", want)
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
		t.Errorf("with the state lost it is in %q, want that it is taken as it is said now", got)
	}
}

// A session stays where it began, whatever is said of its folder since: by the state, if the
// log is not asked as well; without the state, if it began where all others go. Else it is
// taken whole to where it belongs now.
func TestNamespaceStays(t *testing.T) {
	files := map[string]string{"-p/s.jsonl": snapshot + promptsIn("/shop", 0, 2), "-p/s/subagents/agent-a.jsonl": sidechain("/shop", 20, 2)}
	later := map[string]string{"-p/s.jsonl": promptsIn("/shop", 2, 2), "-p/s/subagents/agent-a.jsonl": sidechain("/shop", 22, 2), "-p/s/subagents/agent-b.jsonl": sidechain("/shop", 30, 2)}
	answers := map[string]func(string) string{"none": nil, "default": func(string) string { return "" }, "shop": byFolder, "mill": func(string) string { return "mill" }}
	home := map[string]string{"none": "default", "default": "default", "shop": "shop", "mill": "mill"}
	for was, first := range answers {
		for is, then := range answers {
			if then == nil && home[was] != "default" {
				continue // who does not ask knows of one namespace
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
				if isLost && was != is && home[was] != "default" { // as a new one
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
					t.Errorf("%s: %v", when, r.problems)
				}
			}
		}
	}
}

// Where a session is, is known of the file that is met, if only its state says so: also of a
// file that was read to its end without it, and of one that is new.
func TestNamespaceState(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.namespaces = byFolder
	name, sub := "-p/s.jsonl", "-p/s/subagents/agent-a.jsonl"
	content := promptsIn("/shop", 0, 1) + strings.ReplaceAll(answer, "/pier", "/shop") // after which something follows from quiet
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
	r.move(name, "-q/s.jsonl") // which is another session
	r.run()
	r.run()
	r.mustBeIn("under another name", map[string]string{"claude/-p/s": "shop", "claude/-q/s": "mill"})
	if got := r.of("shop").field("claude/-p/s", fieldGone); got != "true" {
		t.Errorf("without its file it says %q", got)
	}
	if got := r.of("shop").given(); got[name] != content+promptsIn("/mill", 2, 1) || got[sub] != sidechain("/mill", 10, 2) {
		t.Errorf("files come back as %q", got)
	}
}

// A state that was written without namespaces says of all its sessions that they are where
// all are, also of one that the log has elsewhere too: without it that is where it is.
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

// What a file does is said of its session wherever that is, also if nobody watched, and only
// the first line said whose it is.
func TestNamespaceMoves(t *testing.T) {
	const line = `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"` + thread + `","cwd":"/shop"}}` + "\n"
	r := newRig(t, t.TempDir(), ofCodex)
	r.namespaces = byFolder
	name, away := "sessions/2026/01/02/"+rolloutName(thread), "archived_sessions/"+rolloutName(thread)
	r.write(name, line)
	r.run()
	r.namespaces = func(string) string { return "mill" }
	r.move(name, away)
	r.run()
	if got := r.of("shop").field("codex/"+thread, "status"); got != `"archived"` {
		t.Errorf("in the archive its status is %s", got)
	}
	r.remove(away)
	r.run()
	if got := r.of("shop").field("codex/"+thread, fieldGone); got != "true" {
		t.Errorf("without its file it says %q", got)
	}
	r.mustBeIn("when it is gone", map[string]string{"codex/" + thread: "shop"})

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
		t.Errorf("without its file it says %q", got)
	}
	g.mustBeIn("when it is gone", map[string]string{"gemini/" + id: "shop"})
}

// A session goes where the one is that it continues, so that it does; if that is not there,
// by its own folder.
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
			t.Errorf("of one that is %s it is a fork of %v, with the parent %v; %v", now, ledger.Fork, ledger.Parent, r.problems)
		}
	}
}

// follow follows the folder until the test is over.
func (r *rig) follow(t *testing.T, change func(*Options)) *Ingester {
	t.Helper()
	if err := os.MkdirAll(r.dir, 0o700); err != nil { // else it is looked for every few seconds
		t.Fatal(err)
	}
	l := r.open()
	o := r.options(l)
	o.Once = false
	change(&o)
	in, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { in.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
		if err := errors.Join(in.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return in
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s did not come", what)
}

// waits returns how many bytes wait for a cwd.
func (in *Ingester) waits() int64 { return in.Status().undecided }

// A line that says no folder waits for one that does, which brings it along; if none comes
// for long enough it goes where all others go. A message waits for nothing.
func TestNamespaceLive(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.namespaces = byFolder
	now := time.Now()
	var mu sync.Mutex
	in := r.follow(t, func(o *Options) {
		o.now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	lines := func(n int) func() bool { return func() bool { return in.Status().Lines == n } }
	r.write("-p/s.jsonl", snapshot)
	await(t, "a line that waits", func() bool { return in.waits() == int64(len(snapshot)) })
	r.grow("-p/s.jsonl", snapshot)
	await(t, "another one", func() bool { return in.waits() == 2*int64(len(snapshot)) })
	r.mustBeIn("without a folder", map[string]string{})
	r.grow("-p/s.jsonl", promptsIn("/shop", 0, 1))
	await(t, "all lines", lines(3))
	r.mustBeIn("with a folder", map[string]string{"claude/-p/s": "shop"})

	r.write("-p/t.jsonl", snapshot)
	await(t, "a line that waits", func() bool { return in.waits() == int64(len(snapshot)) })
	r.write("-p/t/subagents/agent-a.jsonl", sidechain("/mill", 0, 1)) // the sub-agent's line says it first
	await(t, "the lines of a session", lines(5))
	r.write("-p/u.jsonl", prompts(0, 1)) // no folder, but a message
	await(t, "a message", lines(6))

	r.write("-p/v.jsonl", snapshot)
	await(t, "a line that waits", func() bool { return in.waits() == int64(len(snapshot)) })
	mu.Lock()
	now = now.Add(time.Minute + time.Second)
	mu.Unlock()
	r.grow("-p/u.jsonl", prompts(1, 1)) // so that somebody looks at the clock
	await(t, "what waited for long enough", lines(8))
	r.grow("-p/v.jsonl", promptsIn("/shop", 0, 1))
	await(t, "a line behind it", lines(9))
	r.mustBeIn("at the end", map[string]string{"claude/-p/s": "shop", "claude/-p/t": "mill", "claude/-p/u": "default", "claude/-p/v": "default"})
	if got := r.of("mill").given()["-p/t.jsonl"]; got != snapshot || in.waits() != 0 {
		t.Errorf("it comes back as %q; %d bytes wait", got, in.waits())
	}
}

// Gemini, which may never say where it works, is not held up, and what does not fit into
// memory is not waited for.
func TestNamespaceLiveBounds(t *testing.T) {
	r := newRig(t, t.TempDir(), ofGemini)
	r.namespaces = byFolder
	in := r.follow(t, func(o *Options) { o.Quiet = time.Hour })
	r.write("pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl", `{"sessionId":"5a5a5a5a-0000-4000-8000-000000000000","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z"}`+"\n"+
		`{"id":"a","timestamp":"2026-01-02T03:04:06.006Z","type":"user","content":[{"text":"x"}]}`+"\n")
	await(t, "a message of Gemini CLI's", func() bool { return in.Status().Lines == 2 })

	c := newRig(t, t.TempDir(), ofClaude)
	c.namespaces = byFolder
	in = c.follow(t, func(o *Options) { o.Quiet = time.Hour })
	c.write("-p/s.jsonl", strings.Repeat(snapshot, 2*fileLinesOfTail))
	await(t, "more lines than may wait", func() bool { return in.Status().Lines == 2*fileLinesOfTail })
	c.mustBeIn("too many lines", map[string]string{"claude/-p/s": "default"})
}

// fileLinesOfTail is how many lines of a file are given before some are acknowledged.
const fileLinesOfTail = 512

// What waits is not acknowledged: who comes after a crash has it again.
func TestNamespaceWaitsAgain(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.namespaces = byFolder
	t.Run("killed", func(t *testing.T) {
		r.write("-p/s.jsonl", snapshot)
		in := r.follow(t, func(o *Options) { o.Quiet = time.Hour })
		await(t, "a line that waits", func() bool { return in.waits() > 0 })
	})
	r.grow("-p/s.jsonl", promptsIn("/shop", 0, 1))
	r.run()
	r.mustBeIn("after it", map[string]string{"claude/-p/s": "shop"})
	r.of("shop").mustGive("after it", r.files())
}

// Namespaces change nothing but where sessions are: each has what an Ingester brings in that
// has its files alone, however they grew and whoever died.
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
	parts := make(map[string]map[string]string) // by namespace, the files
	begun := make(map[string]int)               // by file, up to where it says where it is
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
				if round == 0 && agent != ofCodex { // whose files are read in order, and those before to their ends
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
		rt.Fatalf("%v", r.problems)
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
			rt.Fatalf("in %s files come back as\n%q\nalone as\n%q", namespace, got, want)
		}
		sessions += len(alone.sessions())
	}
	if len(r.where()) != sessions {
		rt.Fatalf("sessions are in %v, want %d", r.where(), sessions)
	}
}

// saysWhere returns where the line ends in a file by which it is known in which folder a
// session works; 0 if none says so.
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

// claudeIn is a session of Claude Code in a folder. One that has a sub-agent goes on without
// going back, which would take away what was read of the sub-agent by then.
func claudeIn(rt *rapid.T, number int, cwd string) map[string]string {
	_, content := claudeTalk(rt)
	name, home := fmt.Sprintf("-p/s%d", number), make(map[string]string)
	content = strings.ReplaceAll(content, "/pier", cwd)
	if rapid.Bool().Draw(rt, "delegates") {
		of := func(lines string) string { return strings.ReplaceAll(lines, "03:04:00", "03:00:01") } // as old, whichever file is read first
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

// geminiIn is a session of Gemini CLI, which says no folder.
func geminiIn(rt *rapid.T, number int, _ string) map[string]string {
	name, content := geminiTalk(rt)
	id := fmt.Sprintf("%08d", number)
	return map[string]string{strings.ReplaceAll(name, "5a5a5a5a", id): strings.ReplaceAll(content, "5a5a5a5a", id)}
}

// talkIn is a session of another agent in a folder, whose ids are its own.
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
