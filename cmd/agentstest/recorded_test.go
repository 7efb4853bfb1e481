package agentstest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// recorded copies a folder of recorded agent data to a machine and imports it. A second call imports nothing.
func recorded(t *testing.T, agent, below, folder string) (m *machine, root string) {
	t.Helper()
	m = newMachine(t)
	root = filepath.Join(m.home, filepath.FromSlash(below))
	if err := os.CopyFS(root, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	watch := []string{"watch", agent, "--once", "--redact", "off"}
	m.tally(watch...)
	before := len(m.records())
	m.tally(watch...)
	m.tally("import", root)
	if n := len(m.records()) - before; n != 0 {
		t.Errorf("a second import of %s: got %d new events", folder, n)
	}
	return m, root
}

// The store has the threads of each recorded version of Codex as they were.
func TestRecordedCodex(t *testing.T) {
	testkit.OnlyFull(t, "packages ingest and agents read the same files")
	folders, err := filepath.Glob(filepath.Join(testkit.Data(t, "agents"), "codex-0.*"))
	if err != nil {
		t.Fatal(err)
	}
	answers := recordedAnswers(t)
	homes, forks, reverts, asked := 0, 0, 0, 0
	for _, folder := range folders {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		homes++
		m, root := recorded(t, "codex", ".codex", folder)
		c := m.compareCodex(root)
		c.lines()
		c.bytes()
		f, r := c.places()
		forks, reverts = forks+f, reverts+r
		c.costs()
		for _, answer := range answers {
			if _, ok := c.threads()[answer.ID]; ok {
				c.is(answer)
				asked++
			}
		}
	}
	if homes < 2 || forks == 0 || reverts == 0 || asked == 0 {
		t.Errorf("got %d homes, %d forks, %d reverts, %d answers", homes, forks, reverts, asked)
	}
}

// recordedAnswers returns the answers of app-servers about threads.
func recordedAnswers(t *testing.T) (list []thread) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(testkit.Data(t, "agents"), "codex-appserver-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for line := range strings.Lines(read(t, name)) {
			var m struct{ Result struct{ Thread thread } }
			text, ok := strings.CutPrefix(line, "< ")
			if ok && json.Unmarshal([]byte(text), &m) == nil && len(m.Result.Thread.Turns) > 0 {
				list = append(list, m.Result.Thread)
			}
		}
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Gemini CLI's list of messages has the messages that a resume wrote again and the later ones. The usage of the first
// run is its own report.
func TestRecordedGemini(t *testing.T) {
	testkit.OnlyFull(t, "packages ingest and agents read the same files")
	m, root := recorded(t, "gemini", ".gemini", testkit.Data(t, "agents", "gemini-0.61"))
	c := m.compare("gemini", "gemini", root, isChat)
	c.lines()
	c.bytes()
	said := parsedLines[geminiResult](t, read(t, testkit.Data(t, "agents", "gemini-0.61-stream.jsonl")))
	session := "gemini/" + said[0].ID
	m.same(session, m.chatted(session), []string{"user: what is here", "assistant: Hello number 2 from a model that needs no network.",
		"user: and now", "assistant: Hello number 3 from a model that needs no network."})
	want := said[len(said)-1].tokens().plus(tokens{Input: 800, Output: 27, Reasoning: 7, CacheRead: 100}) // the only answer of the second run
	if got := m.cost(session).Spent.Tokens; got != want {
		t.Errorf("%s: got %+v, want %+v", session, got, want)
	}
}

// The store agrees with pi's description of its session at the end, and with its usage.
func TestRecordedPi(t *testing.T) {
	testkit.OnlyFull(t, "packages ingest and agents read the same files")
	m, root := recorded(t, "pi", ".pi/agent", testkit.Data(t, "agents", "pi-0.73"))
	c := m.compare("pi", "pi", root, isPi)
	c.lines()
	c.bytes()
	type said struct {
		Type, ID string
		Messages []json.RawMessage
	}
	list := parsedLines[said](t, read(t, testkit.Data(t, "agents", "pi-0.73-json.jsonl")))
	session, end := "pi/"+list[0].ID, list[len(list)-1]
	var want []string
	for _, message := range end.Messages {
		want = append(want, string(message))
	}
	m.same(session, m.piMessages(session, 0), want)
	if got := m.cost(session).Spent; got.Tokens != (tokens{Input: 160, Output: 12, CacheRead: 40}) || got.USD != "0.00018799999999999996" {
		t.Errorf("%s: got %+v", session, got)
	}
	if slices.ContainsFunc(c.records, func(r record) bool { return r.Event.Type == "tally.session.rewound.v1" }) {
		t.Error("no leaf was moved")
	}
}
