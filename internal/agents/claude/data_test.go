package claude_test

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/testkit"
)

// recorded returns the recorded transcripts by their names in a folder of projects.
func recorded(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for _, pattern := range []string{testkit.Data(t, "agents", "growth") + "/*.jsonl", testkit.Data(t, "claude", "projects") + "/*/*.jsonl"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			files["-recorded/"+filepath.Base(path)] = mustRead(t, path)
		}
	}
	if len(files) < 7 {
		t.Fatalf("found only %d transcripts", len(files))
	}
	return files
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// usage is a usage as encoding/json reads it from a line: the test counts independently.
type usage struct {
	Type    string
	Message struct {
		ID, Model string
		Usage     struct {
			Input      int64 `json:"input_tokens"`
			Output     int64 `json:"output_tokens"`
			CacheRead  int64 `json:"cache_read_input_tokens"`
			CacheWrite int64 `json:"cache_creation_input_tokens"`
		}
	}
}

// largest returns the usage of each response: that of its last line with the most output.
func largest(t *testing.T, content string) map[string]events.Tokens {
	t.Helper()
	took := make(map[string]events.Tokens)
	for d := json.NewDecoder(strings.NewReader(content)); ; {
		var u usage
		err := d.Decode(&u)
		if err == io.EOF {
			return took
		}
		var other *json.UnmarshalTypeError
		if err != nil && !errorAs(err, &other) {
			t.Fatal(err)
		}
		n := u.Message.Usage
		tokens := events.Tokens{Input: n.Input, Output: n.Output, CacheRead: n.CacheRead, CacheWrite: n.CacheWrite}
		if u.Type == "assistant" && tokens != (events.Tokens{}) && tokens.Output >= took[u.Message.ID].Output {
			took[u.Message.ID] = tokens
		}
	}
}

func errorAs(err error, target **json.UnmarshalTypeError) bool {
	e, ok := err.(*json.UnmarshalTypeError)
	*target = e
	return ok
}

// counted returns the costs that count, as the log's folds compute them, and their number.
func counted(facts []agents.Fact) (took map[string]events.Tokens, n int) {
	took = make(map[string]events.Tokens)
	list := of[*events.CostAccrued](facts)
	for _, c := range list {
		c.Response, _, _ = strings.Cut(c.Response, "/")
		if have, ok := took[c.Response]; !ok || c.Tokens.Output >= have.Output {
			took[c.Response] = *c.Tokens
		}
	}
	return took, len(list)
}

// For real sessions, the usage equals that of an independent count, with one event for each response. There are no
// rewinds, as in the recordings. Every turn that begins ends.
func TestRecorded(t *testing.T) {
	for name, content := range recorded(t) {
		d := foldFile(t, name, content)
		want := largest(t, content)
		got, n := counted(d.facts())
		if !maps.Equal(got, want) || n != len(want) {
			t.Errorf("%s: %d events for %d responses, want %d:\n%v\n%v", name, n, len(got), len(want), got, want)
		}
		if len(want) == 0 {
			t.Errorf("%s: got no response", name)
		}
		if r := d.rewinds(); r != nil {
			t.Errorf("%s: got rewinds to %d, want none", name, r)
		}
		open := make(map[string]int)
		for _, f := range d.facts() {
			switch p := f.Payload.(type) {
			case *events.RunCreated:
				open[p.Run.ID]++
			case *events.RunFinished:
				open[p.Run.ID] += 10
			}
		}
		for id, state := range open {
			if state != 11 {
				t.Errorf("%s: turn %s is in state %d, want an end", name, id, state)
			}
		}
		ids := make(map[string]bool)
		for i, m := range d.lines {
			if m.ID != "" && ids[m.ID] {
				t.Errorf("%s: line %d has the id of another line", name, i)
			}
			ids[m.ID] = true
		}
	}
}

// A file that grows has the same facts as a complete one: version after version, with pauses, and again from its
// first line after a restart.
func TestGrowth(t *testing.T) {
	cuts, err := filepath.Glob(testkit.Data(t, "agents", "growth") + "/*.cuts")
	if err != nil || len(cuts) == 0 {
		t.Fatalf("got %v, error %v", cuts, err)
	}
	for _, path := range cuts {
		content := mustRead(t, strings.TrimSuffix(path, ".cuts")+".jsonl")
		name := "-recorded/" + strings.TrimSuffix(filepath.Base(path), ".cuts") + ".jsonl"
		whole := foldFile(t, name, content)
		f, _ := claude.Agent{}.File(name, nil)
		straight, paused := claude.Agent{}.Fold(f), claude.Agent{}.Fold(f)
		var lines []agents.Meaning
		var facts []agents.Fact
		from := 0
		for _, word := range append(strings.Fields(mustRead(t, path)), strconv.Itoa(len(content))) {
			cut, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			end := strings.LastIndexByte(content[:cut], '\n') + 1
			if cut == len(content) {
				end = cut // the last line has no end yet
			}
			lines = append(lines, foldFrom(t, straight, int64(from), content[from:end])...)
			facts = append(facts, foldedFile{foldFrom(t, paused, int64(from), content[from:end]), paused.Quiet()}.facts()...)
			from = end

			version := foldFile(t, name, content[:end])
			if !reflect.DeepEqual(version.lines, lines) {
				t.Errorf("%s: the facts of the first %d bytes differ from those of the growing file", name, end)
			}
			once, _ := counted(version.facts())
			if grown, _ := counted(facts); !maps.Equal(grown, once) {
				t.Errorf("%s: the usage in the first %d bytes is %v, that of the growing file %v", name, end, once, grown)
			}
			if !maps.Equal(outcomes(version.facts()), outcomes(facts)) {
				t.Errorf("%s: the outcomes of turns in the first %d bytes differ from those of the growing file", name, end)
			}
		}
		if len(lines) != len(whole.lines) {
			t.Errorf("%s: %d lines, want %d", name, len(lines), len(whole.lines))
		}
	}
}

// outcomes returns the last outcome of each turn.
func outcomes(facts []agents.Fact) map[string]string {
	last := make(map[string]string)
	for _, r := range of[*events.RunFinished](facts) {
		last[r.Run.ID] = r.Outcome
	}
	return last
}

// Every line of a recorded file is in the log or in a conversation, and all messages are in a conversation.
func TestRecordedThreads(t *testing.T) {
	for name, content := range recorded(t) {
		d, threads := foldFile(t, name, content), make(map[string]int)
		for i, line := range slices.Collect(strings.Lines(content)) {
			isMessage := strings.Contains(line, `"type":"user","message"`) || strings.Contains(line, `"role":"assistant"`)
			if thread := d.lines[i].Thread; isMessage && thread == agents.Log {
				t.Errorf("%s: line %d is a message, but is in the thread of the log", name, i)
			}
			threads[d.lines[i].Thread]++
		}
		if len(threads) == 0 {
			t.Errorf("%s: got no thread", name)
		}
	}
}
