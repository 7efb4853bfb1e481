package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
)

// madeTurn is a turn of the tables of internal/agents/message, which were written by hand after the makers'
// documentation: its bytes, and its parts, each on a line.
type madeTurn struct {
	name     string
	bytes    []byte
	response string // the response that it belongs to; empty if the turn names no response
	says     []string
}

// madeTurns reads the table of a maker.
func madeTurns(t *testing.T, file string) (list []madeTurn) {
	t.Helper()
	table, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range table.Files {
		turn, says, _ := strings.Cut(strings.ReplaceAll(string(f.Data), "$PNG", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"), "----\n")
		var line bytes.Buffer
		if err := json.Compact(&line, []byte(turn)); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		head, says, _ := strings.Cut(says, "\n")
		made := madeTurn{name: f.Name, bytes: line.Bytes(), says: strings.Split(says, "\n")}
		if words := strings.Fields(head); len(words) > 2 {
			made.response = words[2]
		}
		list = append(list, made)
	}
	return list
}

// usage sums the usage in the turns. A response that several turns mention counts once, with the values of the turn
// with the most output.
func usage(list []madeTurn) (sum events.Tokens) {
	responses := make(map[string]events.Tokens)
	for _, turn := range list {
		for _, line := range turn.says {
			var u events.Tokens
			n, _ := fmt.Sscanf(line, "usage %d in, %d out, %d reasoning, %d read, %d written", &u.Input, &u.Output, &u.Reasoning, &u.CacheRead, &u.CacheWrite)
			switch {
			case n < 5:
			case turn.response == "":
				sum = sum.Add(u)
			case u.Output >= responses[turn.response].Output:
				responses[turn.response] = u
			}
		}
	}
	for _, u := range responses {
		sum = sum.Add(u)
	}
	return sum
}

var (
	aPart = regexp.MustCompile(`^(said|reasoning|call|result|refusal) [^:]*: (.*)$`)
	aWord = regexp.MustCompile(`[A-Za-z]{4,}`)
)

// words returns the words of a part on a line of the table, and of its tool's name.
func words(line string) []string {
	m := aPart.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	return aWord.FindAllString(strings.ReplaceAll(m[2], `\n`, " "), -1)
}

// For the turns of every maker, show prints each word of texts, thoughts, calls and results, search finds the turn by
// it, and cost counts their tokens once.
func TestTurnsOfMakers(t *testing.T) {
	files, err := filepath.Glob("../internal/agents/message/testdata/*.txtar")
	if err != nil || len(files) < 7 {
		t.Fatalf("got files %v, %v", files, err)
	}
	for _, file := range files {
		maker := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(maker, func(t *testing.T) {
			testkit.Sample(t, 6)
			t.Parallel()
			store, list := filepath.Join(t.TempDir(), "store"), madeTurns(t, file)
			var lines [][]byte
			list = slices.DeleteFunc(list, func(turn madeTurn) bool { return turn.bytes[0] != '{' }) // append accepts objects only
			for _, turn := range list {
				lines = append(lines, turn.bytes)
			}
			output(t, bytes.NewReader(bytes.Join(lines, []byte("\n"))), store, "tally", "append", maker)
			shown := output(t, nil, store, "tally", "show", maker, "--tools", "full")
			for i, turn := range list {
				mustSayAll(t, turn, section(t, shown, i+1))
			}
			mustFindEach(t, store, maker, list)
			mustCount(t, store, maker, usage(list))
		})
	}
}

// section returns the part of show's output for the n-th turn.
func section(t *testing.T, shown string, n int) string {
	t.Helper()
	_, rest, ok := strings.Cut(shown, fmt.Sprintf("\n#%d  @", n))
	if !ok {
		t.Fatalf("show lacks turn %d:\n%s", n, shown)
	}
	text, _, _ := strings.Cut(rest, fmt.Sprintf("\n#%d  @", n+1))
	return text
}

func mustSayAll(t *testing.T, turn madeTurn, shown string) {
	t.Helper()
	for _, line := range turn.says {
		for _, word := range words(line) {
			if !strings.Contains(shown, word) {
				t.Errorf("%s: show lacks %q of %q:\n%s", turn.name, word, line, shown)
				break
			}
		}
	}
}

// mustFindEach searches for the longest word of each part.
func mustFindEach(t *testing.T, store, maker string, list []madeTurn) {
	t.Helper()
	found := make(map[string]string) // by word
	for i, turn := range list {
		for n, line := range turn.says {
			if !testkit.Full() && (i%4 > 0 || n > 0) {
				break // the default tier searches for the first line of every fourth turn
			}
			all := words(line)
			if len(all) == 0 {
				continue
			}
			word := slices.MaxFunc(all, func(a, b string) int { return len(a) - len(b) })
			if found[word] == "" {
				found[word] = output(t, nil, store, "tally", "search", word+"*", "--session", maker, "--limit", "0", "-o", "jsonl")
			}
			if at := fmt.Sprintf(`"offset":%d,`, i+1); !strings.Contains(found[word], at) {
				t.Errorf("%s: a search for %q of %q lacks %s\n%s", turn.name, word, line, at, found[word])
			}
		}
	}
}

// mustCount expects tokens in turns only.
func mustCount(t *testing.T, store, maker string, want events.Tokens) {
	t.Helper()
	var cost struct {
		Spent   struct{ Tokens events.Tokens }
		InTurns struct{ Tokens events.Tokens }
	}
	if err := json.Unmarshal([]byte(output(t, nil, store, "tally", "cost", maker, "-o", "json")), &cost); err != nil {
		t.Fatal(err)
	}
	if cost.InTurns.Tokens != want || cost.Spent.Tokens != (events.Tokens{}) {
		t.Errorf("got in turns %+v, want %+v; got spent %+v", cost.InTurns.Tokens, want, cost.Spent.Tokens)
	}
}
