package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/testkit"
)

// An agentTalk is a generated file of Claude Code or Codex: prompts, answers with usage, ways back, and invalid lines.
type agentTalk struct {
	t     *rapid.T
	b     strings.Builder
	n     int
	spots []string // parents for prompts
	last  string
}

func (k *agentTalk) end() string {
	return rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n", "\n\n", " \n"}).Draw(k.t, "end")
}

func (k *agentTalk) line(text string) { k.b.WriteString(text + k.end()) }

func (k *agentTalk) at() string {
	return fmt.Sprintf("2026-01-02T03:%02d:%02d.000Z", k.n/60%60, k.n%60)
}

// entry writes an entry of Claude Code and returns its uuid.
func (k *agentTalk) entry(kind, parent, rest string) string {
	k.n++
	uuid, ref := fmt.Sprintf("%08d-0000-4000-8000-000000000000", k.n), `"`+parent+`"`
	if parent == "" {
		ref = "null"
	}
	k.line(fmt.Sprintf(`{"parentUuid":%s,"isSidechain":false,"type":%q,"uuid":%q,"timestamp":%q,"cwd":"/pier",%s}`, ref, kind, uuid, k.at(), rest))
	k.last = uuid
	return uuid
}

func (k *agentTalk) prompt(parent string) {
	k.spots = append(k.spots, parent)
	k.entry("user", parent, `"message":{"role":"user","content":"Go on"}`)
	for i := range rapid.IntRange(1, 3).Draw(k.t, "lines") {
		k.entry("assistant", k.last, fmt.Sprintf(`"message":{"id":"msg_%d","role":"assistant","model":"m","content":[{"type":"text","text":"so"}],"usage":{"input_tokens":3,"output_tokens":%d}}`, len(k.spots), i+1))
	}
}

// odd writes an invalid entry.
func (k *agentTalk) odd() {
	switch rapid.IntRange(0, 4).Draw(k.t, "odd") {
	case 0:
		k.line(`{"type":"progress"}`) // identical each time
	case 1:
		k.line("torn {\x00\xff")
	case 2:
		k.b.WriteString(" \n\t\n")
	case 3:
		k.line(`{"type":"summary","summary":"Title ` + strconv.Itoa(k.n) + `","leafUuid":"` + k.last + `"}`)
	case 4:
		k.line(`{"type":"system","uuid":"` + k.last + `","again":true}`)
	}
}

func claudeTalk(t *rapid.T) (name, content string) {
	k := &agentTalk{t: t}
	k.prompt("")
	for range rapid.IntRange(0, 6).Draw(t, "moves") {
		switch rapid.IntRange(0, 3).Draw(t, "move") {
		case 0:
			i := rapid.IntRange(0, len(k.spots)-1).Draw(t, "to")
			to := k.spots[i]
			k.spots = k.spots[:i]
			k.prompt(to)
		case 1:
			k.odd()
		default:
			k.prompt(k.last)
		}
	}
	return "-pier/s.jsonl", k.b.String()
}

const threadID = "019b0000-0000-7000-8000-000000000001"

func rolloutName(id string) string {
	name := "rollout-2026-01-02T03-04-05-" + threadID
	if id != threadID {
		name += "_" + id
	}
	return name + ".jsonl"
}

// codexTalk is a thread of the older kind: its usage has no ids, and it is rolled back.
func codexTalk(t *rapid.T) (name, content string) {
	k := &agentTalk{t: t}
	add := func(kind, payload string) {
		k.n++
		k.line(fmt.Sprintf(`{"timestamp":%q,"type":%q,"payload":%s}`, k.at(), kind, payload))
	}
	add("session_meta", `{"id":"`+threadID+`","cwd":"/pier","timestamp":"2026-01-02T03:04:05.000Z","cli_version":"0.118.0"}`)
	asked, total := 0, 0
	for range rapid.IntRange(1, 8).Draw(t, "moves") {
		if asked > 0 && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
			n := rapid.IntRange(1, asked).Draw(t, "turns")
			asked -= n
			add("event_msg", fmt.Sprintf(`{"type":"thread_rolled_back","num_turns":%d}`, n))
			continue
		}
		turn := fmt.Sprintf("019b0000-0000-7000-8000-%012d", k.n+10)
		add("event_msg", `{"type":"task_started","turn_id":"`+turn+`"}`)
		add("turn_context", `{"turn_id":"`+turn+`","model":"gpt-x"}`)
		add("response_item", `{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on"}]}`)
		add("response_item", `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"So"}]}`)
		took := rapid.IntRange(1, 9).Draw(t, "took")
		total += took
		add("event_msg", fmt.Sprintf(`{"type":"token_count","info":{"total_token_usage":{"input_tokens":%d,"output_tokens":0},"last_token_usage":{"input_tokens":%d,"output_tokens":0}}}`, total, took))
		add("event_msg", `{"type":"task_complete","turn_id":"`+turn+`"}`)
		asked++
	}
	return "sessions/2026/01/02/" + rolloutName(threadID), k.b.String()
}

// talks are the agents with their generators.
var talks = map[string]struct {
	agent agents.Agent
	play  func(*rapid.T) (name, content string)
}{"claude": {ofClaude, claudeTalk}, "codex": {ofCodex, codexTalk}, "gemini": {ofGemini, geminiTalk}, "pi": {ofPi, piTalk}, "acp": {ofACP, acpTalk}}

// isAmbiguous reports whether a file that is cut here ends with a complete line that continues.
func isAmbiguous(content string, at int) bool {
	rest := content[strings.LastIndexByte(content[:at], '\n')+1 : at]
	return isWhole([]byte(rest)) && at < len(content) && !strings.ContainsAny(content[at:at+1], " \r\n")
}

// A file that grows in any pieces, with ingesters that crash anywhere with or without their state, yields the same log
// as one import, and can be restored byte for byte.
func TestGrowth(t *testing.T) {
	t.Parallel()
	for name, talk := range talks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rapid.Check(t, func(rt *rapid.T) {
				r := newRig(rt, dir, talk.agent)
				defer os.RemoveAll(filepath.Dir(r.dir))
				name, content := talk.play(rt)
				cuts := rapid.SliceOfN(rapid.IntRange(0, len(content)), 0, 3).Draw(rt, "cuts")
				slices.Sort(cuts)
				from := 0
				for _, cut := range append(cuts, len(content)) {
					if isAmbiguous(content, cut) {
						continue
					}
					r.grow(name, content[from:cut])
					from = cut
					for range rapid.IntRange(0, 2).Draw(rt, "deaths") {
						r.stopped(rapid.IntRange(0, 20).Draw(rt, "at"), rapid.Bool().Draw(rt, "stored"), rapid.IntRange(0, 2).Draw(rt, "state"))
					}
					r.run()
					r.check(dir)
				}
			})
		})
	}
}

// A file that is cut, edited, replaced, deleted or restored yields the same state as an import. Its earlier content
// stays in the log.
func TestChanges(t *testing.T) {
	t.Parallel()
	for name, talk := range talks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rapid.Check(t, func(rt *rapid.T) {
				r := newRig(rt, dir, talk.agent)
				defer os.RemoveAll(filepath.Dir(r.dir))
				name, content := talk.play(rt)
				r.write(name, content)
				r.run()
				seen := r.records()
				for range rapid.IntRange(1, 3).Draw(rt, "changes") {
					_, other := talk.play(rt)
					lines := strings.SplitAfter(content, "\n")
					minimum := 0
					if talk.agent == ofGemini { // its first line names the session, so another first line is another session
						minimum = 1
					}
					at := rapid.IntRange(minimum, len(lines)-1).Draw(rt, "line")
					switch rapid.IntRange(0, 3).Draw(rt, "change") {
					case 0: // shorter
						content = strings.Join(lines[:max(1, at)], "")
					case 1: // other lines from one on
						content = strings.Join(lines[:at], "") + other
					case 2: // one line less in the middle
						content = strings.Join(append(slices.Clone(lines[:at]), lines[min(at+1, len(lines)):]...), "")
					case 3: // another line
						content = strings.Join(lines[:at], "") + `{"type":"progress","edited":1}` + "\n" + strings.Join(lines[at:], "")
					}
					if strings.TrimSpace(content) == "" {
						content = other
					}
					r.write(name, content)
					if rapid.Bool().Draw(rt, "dies") {
						r.stopped(rapid.IntRange(0, 8).Draw(rt, "at"), rapid.Bool().Draw(rt, "stored"), rapid.IntRange(0, 1).Draw(rt, "state"))
					}
					r.run()
					if given := r.given()[name]; given != whole(content) {
						rt.Fatalf("the restored file is\n%q\nwant\n%q", given, whole(content))
					}
					r.same(dir)
				}
				for i, rec := range r.records()[:len(seen)] {
					if !rec.Event.Equal(seen[i].Event) {
						rt.Fatalf("%s changed", rec.Offset)
					}
				}
			})
		})
	}
}

// same compares the turns in effect with those of an import.
func (r *rig) same(dir string) {
	r.t.Helper()
	other := newRig(r.t, dir, r.agent)
	for name, content := range r.files() {
		other.write(name, content)
	}
	other.run()
	for _, id := range other.sessions() {
		got, want := r.view(id).Turns, other.view(id).Turns
		for name := range want {
			if !slices.Equal(got[name], want[name]) {
				r.t.Fatalf("thread %[2]s of session %[1]s is\n%[3]q\nafter an import\n%[4]q", id, name, got[name], want[name])
			}
		}
	}
}

// Files of several sessions grow at the same time, with concurrent appends.
func TestMany(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(rt, dir, ofClaude)
		defer os.RemoveAll(filepath.Dir(r.dir))
		contents := make(map[string]string)
		for i := range rapid.IntRange(2, 8).Draw(rt, "sessions") {
			_, content := claudeTalk(rt)
			contents[fmt.Sprintf("-p%d/s%d.jsonl", i%3, i)] = content
		}
		from := make(map[string]int)
		for round := range 2 {
			for _, name := range slices.Sorted(maps.Keys(contents)) {
				content, cut := contents[name], len(contents[name])
				if round == 0 {
					cut = rapid.IntRange(0, len(content)).Draw(rt, "cut")
				}
				if !isAmbiguous(content, cut) {
					r.grow(name, content[from[name]:cut])
					from[name] = cut
				}
			}
			for range rapid.IntRange(0, 2).Draw(rt, "deaths") {
				r.stopped(rapid.IntRange(0, 60).Draw(rt, "at"), rapid.Bool().Draw(rt, "stored"), rapid.IntRange(0, 2).Draw(rt, "state"))
			}
			r.run()
			r.check(dir)
		}
	})
}

// inPieces feeds a file in random pieces, with crashes and losses of the state, and compares it with an import after
// each piece.
func (r *rig) inPieces(dir, name, content string, versions int, seed uint64) {
	r.t.Helper()
	draw := rand.New(rand.NewPCG(seed, 7))
	from := 0
	for i := range versions {
		to := len(content)
		if i < versions-1 {
			to = from + draw.IntN(len(content)-from+1)
		}
		if isAmbiguous(content, to) {
			continue
		}
		if torn := from + draw.IntN(to-from+1); !isAmbiguous(content, torn) {
			r.grow(name, content[from:torn])
			r.stopped(draw.IntN(40), draw.IntN(2) == 0, draw.IntN(3))
			from = torn
		}
		r.grow(name, content[from:to])
		from = to
		r.run()
		r.check(dir)
	}
}

// Recorded sessions of each agent, in random pieces: after each piece the log equals an import of the file, and
// restores it.
func TestRecordedPieces(t *testing.T) {
	testkit.OnlyFull(t, "TestRecordedGrowth reads recorded sessions, too")
	t.Parallel()
	testkit.NotUnderRace(t) // one file, read by one worker
	versions := 4
	if testing.Short() {
		versions = 2
	}
	feed := func(name string, agent agents.Agent, root string, wants func(string) bool) {
		t.Run(name, func(t *testing.T) {
			dir, n := t.TempDir(), 0
			err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() || !d.Type().IsRegular() || !wants(path) {
					return err
				}
				rel, _ := filepath.Rel(root, path)
				rel = filepath.ToSlash(rel)
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if root == path {
					rel = filepath.Base(path)
				}
				for from, to := range map[string]string{"pi-large-session.jsonl": "--pi--/2025-01-01T00-00-00-000Z_large.jsonl", "acp-gemini-0.61.log": "gemini.acp.jsonl"} {
					if rel == from {
						rel = to
					}
				}
				if !agent.Wants(rel) && agent == ofClaude {
					rel = "-recorded/" + filepath.Base(rel)
				}
				if !agent.Wants(rel) || len(b) == 0 {
					return nil
				}
				n++
				r := newRig(t, dir, agent)
				r.inPieces(dir, rel, string(b), versions, uint64(n))
				return os.RemoveAll(filepath.Dir(r.dir))
			})
			if err != nil || n == 0 {
				t.Errorf("%d files, %v", n, err)
			}
			t.Logf("%d files", n)
		})
	}
	all := func(string) bool { return true }
	feed("gemini", ofGemini, testkit.Data(t, "agents", "gemini-0.61"), all)
	feed("pi", ofPi, testkit.Data(t, "agents", "pi-0.73"), all)
	feed("pi large", ofPi, testkit.Data(t, "agents", "pi-large-session.jsonl"), all)
	feed("acp", ofACP, testkit.Data(t, "agents", "acp-gemini-0.61.log"), all)
	feed("A12 claude", ofClaude, testkit.Data(t, "claude"), func(path string) bool { return strings.HasSuffix(path, ".jsonl") })
	feed("A12 growth", ofClaude, testkit.Data(t, "agents", "growth"), func(path string) bool {
		return strings.HasSuffix(path, ".jsonl") && (!testing.Short() || strings.Contains(path, "glued-1"))
	})
}

// Recorded sessions in their successive versions.
func TestRecordedGrowth(t *testing.T) {
	testkit.OnlyFull(t, "TestGrowth has generated files")
	t.Parallel()
	testkit.NotUnderRace(t) // one file, read by one worker
	dir := t.TempDir()
	paths, err := filepath.Glob(testkit.Data(t, "agents", "growth") + "/*.cuts")
	if err != nil || len(paths) == 0 {
		t.Fatalf("got %v, error %v", paths, err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(strings.TrimSuffix(path, ".cuts") + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		cuts, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content, name, from := string(b), "-recorded/"+strings.TrimSuffix(filepath.Base(path), ".cuts")+".jsonl", 0
		r := newRig(t, dir, ofClaude)
		versions := 0
		for i, word := range append(strings.Fields(string(cuts)), strconv.Itoa(len(content))) {
			cut, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			torn := from + (cut-from)*(i%7+1)/8
			if !isAmbiguous(content, torn) && torn > from {
				r.grow(name, content[from:torn])
				r.stopped(3+i*5, i%2 == 0, i%3)
				from = torn
			}
			if isAmbiguous(content, cut) {
				continue
			}
			r.grow(name, content[from:cut])
			from = cut
			r.run()
			r.check(dir)
			versions++
		}
		t.Logf("%s: %d versions, %d events, %d problems", filepath.Base(path), versions, len(r.records()), len(r.problems))
	}
}
