package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/message"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// rolloutMeta is the first line of a rollout, and usage is a usage record, as the test reads them.
type rolloutMeta struct {
	Payload struct {
		HistoryBase *struct {
			ThreadID      string `json:"thread_id"`
			EndByteOffset int64  `json:"end_byte_offset"`
		} `json:"history_base"`
		ForkedFrom  string `json:"forked_from_id"`
		ThreadUsage *struct {
			Input     int64 `json:"input_tokens"`
			Cached    int64 `json:"cached_input_tokens"`
			Output    int64 `json:"output_tokens"`
			Reasoning int64 `json:"reasoning_output_tokens"`
		} `json:"thread_token_usage"`
	}
}

func metaOf(t *testing.T, line string) (m rolloutMeta) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// recordedHomes ingests recordings of real versions of Codex.
func recordedHomes(t *testing.T) map[string]*rig {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(testkit.Data(t, "agents"), "codex-0.1*"))
	if err != nil {
		t.Fatal(err)
	}
	homes := make(map[string]*rig)
	for _, folder := range folders {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		r := newRig(t, t.TempDir(), ofCodex)
		if err := os.CopyFS(r.dir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		r.run()
		if len(r.problems) > 0 {
			t.Errorf("%s: got %v", folder, r.problems)
		}
		homes[filepath.Base(folder)] = r
	}
	if len(homes) < 2 {
		t.Fatalf("found %d recorded homes", len(homes))
	}
	return homes
}

// stemOf returns the id of a rollout from its name.
func stemOf(name string) string {
	return strings.TrimSuffix(name, ".jsonl")[len(name)-len(".jsonl")-36:]
}

// For recorded threads, each line is one event and the files can be restored. Forks and rewinds refer to the event of
// the line that Codex names, and the usage equals that of Codex.
func TestRecordedCodex(t *testing.T) {
	forks, reverts, usages := 0, 0, 0
	for version, r := range recordedHomes(t) {
		ends := make(map[string]map[int64]events.Offset) // by stem and end of line
		sessions := make(map[string]string)              // by stem
		lines := 0
		for _, rec := range r.records() {
			name, at, ok := parse(rec.Extensions[extLine])
			if !ok {
				continue
			}
			lines++
			stem := stemOf(name)
			if ends[stem] == nil {
				ends[stem] = make(map[int64]events.Offset)
			}
			ends[stem][at.End], sessions[stem] = rec.Offset, rec.Subject.ID
		}
		disk, want := r.files(), 0
		for name, content := range r.given() {
			if disk[name] != content {
				t.Errorf("%s: %s is not restored", version, name)
			}
		}
		contents := make(map[string]string)
		for name, content := range disk {
			if strings.Contains(name, "rollout-") {
				contents[stemOf(name)] = content
			}
		}
		for name, content := range disk {
			if !strings.HasSuffix(name, ".jsonl") || !strings.Contains(name, "rollout-") {
				continue
			}
			want += strings.Count(content, "\n")
			stem, list := stemOf(name), strings.SplitAfter(content, "\n")
			s := r.session(sessions[stem])
			m := metaOf(t, list[0]).Payload
			if base := m.HistoryBase; base != nil {
				to := ends[base.ThreadID][int64(strings.LastIndexByte(contents[base.ThreadID][:base.EndByteOffset], '\n')+1)]
				switch {
				case sessions[stem] != "codex/"+stem:
					reverts++
					if base.EndByteOffset > 0 && !goesTo(s, to) {
						t.Errorf("%s: the rewinds of %s are %v, want %v", version, stem, s.Ledger.Rewinds, to)
					}
				case s.Ledger.Fork == nil || *s.Ledger.Fork != (events.Fork{Session: "codex/" + m.ForkedFrom, Offset: to}):
					t.Errorf("%s: %s is a fork of %v, want %v", version, stem, s.Ledger.Fork, to)
				default:
					forks++
				}
			}
			for i := len(list) - 1; i >= 0 && sessions[stem] == "codex/"+stem && s.Ledger.Parent == nil && len(s.Ledger.Rewinds) == 0; i-- {
				if list[i] == "" {
					continue
				}
				if u := metaOf(t, list[i]).Payload.ThreadUsage; u != nil {
					usages++
					want := events.Tokens{Input: u.Input - u.Cached, CacheRead: u.Cached, Output: u.Output, Reasoning: u.Reasoning}
					if got := usageIn(r, s); got != want {
						t.Errorf("%s: the usage of %s is %+v, want %+v", version, stem, got, want)
					}
					break
				}
			}
		}
		if lines != want {
			t.Errorf("%s: got %d events, want %d", version, lines, want)
		}
		before := len(r.records())
		r.lose()
		r.run()
		if n := len(r.records()); n != before {
			t.Errorf("%s: a second reading added %d events", version, n-before)
		}
	}
	if forks == 0 || reverts == 0 || usages == 0 {
		t.Errorf("found %d recorded forks, %d reverts and %d sums of usage", forks, reverts, usages)
	}
}

func goesTo(s *projector.Session, to events.Offset) bool {
	for _, r := range s.Ledger.Rewinds {
		if r.To == to && r.Reason == reasonSource {
			return true
		}
	}
	return false
}

// usageIn returns the usage in effect, including inherited records.
func usageIn(r *rig, s *projector.Session) (sum events.Tokens) {
	for _, rec := range r.records() {
		if p, ok := projector.Decode(rec).Payload.(*events.CostAccrued); ok && s.History.IsLive(rec.Offset) {
			sum.Input, sum.Output, sum.Reasoning, sum.CacheRead = sum.Input+p.Tokens.Input, sum.Output+p.Tokens.Output, sum.Reasoning+p.Tokens.Reasoning, sum.CacheRead+p.Tokens.CacheRead
		}
	}
	return sum
}

// Codex's answer to thread/read equals the turns in effect at the end of the last turn that it names.
func TestRecordedThreads(t *testing.T) {
	homes := recordedHomes(t)
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
			var a struct {
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
			if !bytes.HasPrefix(raw, []byte("< ")) || json.Unmarshal(raw[2:], &a) != nil || len(a.Result.Thread.Turns) == 0 {
				continue
			}
			var want []string
			for _, turn := range a.Result.Thread.Turns {
				for _, item := range turn.Items {
					switch item.Type {
					case "userMessage":
						want = append(want, "user: "+item.Content[0].Text)
					case "agentMessage":
						want = append(want, "assistant: "+item.Text)
					}
				}
			}
			asked++
			last := a.Result.Thread.Turns[len(a.Result.Thread.Turns)-1].ID
			if got := saidIn(t, homes, "codex/"+a.Result.Thread.ID, last); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s after turn %s:\n%q\nwant\n%q", a.Result.Thread.ID, last, got, want)
			}
		}
	}
	if asked < 2 {
		t.Errorf("found %d answers of Codex, want more", asked)
	}
}

// saidIn lists the speakers and texts of a session at the end of a turn.
func saidIn(t *testing.T, homes map[string]*rig, session, turn string) (list []string) {
	t.Helper()
	for _, r := range homes {
		var at, own events.Offset
		for _, rec := range r.records() {
			if rec.Subject.ID == session && own == 0 {
				own = rec.Offset
			}
			if p, ok := projector.Decode(rec).Payload.(*events.RunFinished); ok && p.Run.ID == turn {
				at = rec.Offset
			}
		}
		if own == 0 {
			continue
		}
		l := r.open()
		defer l.Close()
		s, err := (&projector.Loader{Source: l}).Session(context.Background(), events.Session("", session), max(at, own))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range s.Threads.Turns("main") {
			read, _ := message.Read(entry.Raw)
			for _, p := range read.Parts {
				if p.Kind == shapes.Said && p.Name != "compacted" && (p.Role == "user" || p.Role == "assistant") {
					list = append(list, p.Role+": "+p.Text)
				}
			}
		}
	}
	return list
}
