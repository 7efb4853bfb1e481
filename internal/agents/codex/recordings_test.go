package codex_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// recordedLine is a line of a rollout as the tests read it.
type recordedLine struct {
	Ordinal *int64
	Type    string
	Payload struct {
		Type, ID, TurnID string
		HistoryBase      *struct {
			ThreadID      string `json:"thread_id"`
			EndByteOffset int64  `json:"end_byte_offset"`
		} `json:"history_base"`
		ForkedFrom  string         `json:"forked_from_id"`
		ThreadUsage *recordedUsage `json:"thread_token_usage"`
		Turn        string         `json:"turn_id"`
		Info        *struct {
			Total recordedUsage `json:"total_token_usage"`
		}
	}
}

type recordedUsage struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_input_tokens"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_output_tokens"`
}

func (u recordedUsage) tokens() events.Tokens {
	return events.Tokens{Input: u.Input - u.Cached, CacheRead: u.Cached, Output: u.Output, Reasoning: u.Reasoning}
}

func linesOf(t testing.TB, content []byte) []recordedLine {
	t.Helper()
	var list []recordedLine
	for raw := range bytes.Lines(content) {
		var l recordedLine
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	return list
}

// recordings returns the homes that real versions of Codex wrote.
func recordings(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(testkit.Data(t, "agents"), "codex-0.*"))
	if err != nil {
		t.Fatal(err)
	}
	homes := make(map[string]map[string][]byte)
	for _, folder := range folders {
		home := make(map[string][]byte)
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") || folder == path {
				return err
			}
			name, err := filepath.Rel(folder, path)
			if err != nil {
				return err
			}
			home[filepath.ToSlash(name)], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(home) > 0 {
			homes[filepath.Base(folder)] = home
		}
	}
	if len(homes) < 2 {
		t.Fatalf("found %d recorded homes, want an older and a newer one", len(homes))
	}
	return homes
}

// A fork and a revert refer to the line at which Codex ends the history, and to before everything without one.
func TestRecordedForksAndReverts(t *testing.T) {
	checked := 0
	for version, home := range recordings(t) {
		s := store(t, home)
		for _, session := range s.sessions() {
			got := s.session(session, 0)
			var to []events.Offset
			for _, r := range got.Ledger.Rewinds {
				if r.Reason != "source" {
					t.Errorf("%s: got a rewind with the reason %q", session, r.Reason)
				}
				to = append(to, r.To)
			}
			for i, stem := range s.files(session) {
				meta := linesOf(t, named(t, home, stem))[0].Payload
				var want events.Offset
				if b := meta.HistoryBase; b != nil {
					end := bytes.LastIndexByte(named(t, home, b.ThreadID)[:b.EndByteOffset], '\n') + 1
					want = s.ends[b.ThreadID][int64(end)]
				}
				switch {
				case i > 0 && want == 0:
					want = s.first[session]
					fallthrough
				case i > 0:
					if checked++; len(to) == 0 || to[0] != want {
						t.Fatalf("%s, %s: rewinds to %v, want %v as the first", version, stem, to, want)
					}
					to = to[1:]
				case want != 0:
					if checked++; got.Ledger.Fork == nil || *got.Ledger.Fork != (events.Fork{Session: "codex/" + meta.ForkedFrom, Offset: want}) {
						t.Errorf("%s, %s: got a fork of %+v, want %s at %v", version, stem, got.Ledger.Fork, meta.ForkedFrom, want)
					}
				case meta.ForkedFrom != "":
					if checked++; got.Ledger.Fork != nil || got.Ledger.Parent == nil || got.Ledger.Parent.Session != "codex/"+meta.ForkedFrom {
						t.Errorf("%s, %s: parent %+v, want %s", version, stem, got.Ledger.Parent, meta.ForkedFrom)
					}
				}
			}
		}
	}
	if checked < 3 {
		t.Errorf("checked %d forks and reverts, want a fork by copy, a fork by reference and a revert", checked)
	}
}

// The usage of a thread equals the one that Codex reports. It counts the records in effect; older files also count
// removed turns.
func TestRecordedCost(t *testing.T) {
	for version, home := range recordings(t) {
		s := store(t, home)
		for _, session := range s.sessions() {
			files := s.files(session)
			var records, counts, copied *recordedUsage
			all := linesOf(t, named(t, home, files[len(files)-1]))
			for i, l := range all {
				if l.Payload.ThreadUsage != nil {
					records = l.Payload.ThreadUsage
				}
				if l.Payload.Info != nil {
					counts = &all[i].Payload.Info.Total
				}
				if l.Payload.Type == "task_started" && l.Payload.Turn < strings.TrimPrefix(session, "codex/") {
					copied = new(recordedUsage) // its end follows
				}
				if copied != nil && l.Payload.Type == "task_complete" && l.Payload.Turn < strings.TrimPrefix(session, "codex/") && counts != nil {
					*copied = *counts
				}
			}
			got := s.session(session, 0)
			switch {
			case records != nil:
				if got.Ledger.Parent != nil { // the copies of a sub-agent are counted with its parent
					break
				}
				if live := s.live(got); live != records.tokens() {
					t.Errorf("%s, %s: %+v, want %+v", version, session, live, records.tokens())
				}
			case counts != nil:
				sum := got.Ledger.Spent().Tokens
				if copied != nil {
					sum = plus(sum, copied.tokens())
				}
				if sum != counts.tokens() {
					t.Errorf("%s, %s: %+v, want %+v", version, session, sum, counts.tokens())
				}
			}
		}
	}
}

// rpcAnswer is app-server's answer about a thread.
type rpcAnswer struct {
	Result struct {
		Thread struct {
			ID    string
			Turns []struct {
				ID    string
				Items []struct {
					Type, Text string
					Content    []struct{ Text string }
				}
			}
		}
	}
}

// Whenever Codex was asked for the state of a thread, the session had that state.
func TestRecordedThreads(t *testing.T) {
	var homes []*stored
	for _, home := range recordings(t) {
		homes = append(homes, store(t, home))
	}
	logs, err := filepath.Glob(filepath.Join(testkit.Data(t, "agents"), "codex-appserver-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, name := range logs {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for raw := range bytes.Lines(content) {
			var a rpcAnswer
			if !bytes.HasPrefix(raw, []byte("< ")) || json.Unmarshal(raw[2:], &a) != nil || len(a.Result.Thread.Turns) == 0 {
				continue
			}
			asked++
			var want []string
			for _, turn := range a.Result.Thread.Turns {
				for _, item := range turn.Items {
					switch item.Type {
					case "userMessage":
						want = append(want, "user: "+item.Content[0].Text)
					case "agentMessage":
						want = append(want, "assistant: "+item.Text)
					default:
						want = append(want, "call")
					}
				}
			}
			last := a.Result.Thread.Turns[len(a.Result.Thread.Turns)-1].ID
			got := asOf(t, homes, "codex/"+a.Result.Thread.ID, last)
			if !slices.Equal(got, want) {
				t.Errorf("%s, thread %s after turn %s:\n%q\nwant\n%q", filepath.Base(name), a.Result.Thread.ID, last, got, want)
			}
		}
	}
	if asked < 2 {
		t.Errorf("found %d answers of Codex, want more", asked)
	}
}

// asOf returns the state of a session at the end of a turn. If that is before the session's beginning, it returns the
// inherited state.
func asOf(t *testing.T, homes []*stored, session, turn string) []string {
	t.Helper()
	for _, s := range homes {
		if s.first[session] == 0 {
			continue
		}
		var at, own events.Offset
		for _, rec := range s.records {
			if own == 0 && rec.Subject.ID == session {
				own = rec.Offset
			}
			if p, ok := projector.Decode(rec).Payload.(*events.RunFinished); ok && p.Run.ID == turn {
				at = rec.Offset
			}
		}
		if at == 0 {
			t.Fatalf("turn %s of %s has no end", turn, session)
		}
		return s.main(s.session(session, max(at, own)))
	}
	t.Fatalf("session %s is in no home", session)
	return nil
}

// Every line is in a thread, and the files can be restored from them.
func TestRecordedLines(t *testing.T) {
	for version, home := range recordings(t) {
		lines, turns := 0, 0
		for _, content := range home {
			lines += bytes.Count(content, []byte("\n"))
		}
		for _, rec := range store(t, home).records {
			if p, ok := projector.Decode(rec).Payload.(*events.TurnAppended); ok {
				turns++
				if e := p.Entries[0]; e.Thread != "main" && e.Thread != "log" {
					t.Errorf("%s: got a line in thread %q", version, e.Thread)
				}
			}
		}
		if lines != turns {
			t.Errorf("%s: got %d events for %d lines", version, turns, lines)
		}
	}
}
