package errata_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata"
)

func mustPersist(t *testing.T, s *errata.Session, run errata.Run) string {
	t.Helper()
	ref, err := s.PersistRunState(t.Context(), run)
	must(t, err)
	return ref.ID
}

func mustMetadata(t *testing.T, s *errata.Session) errata.Metadata {
	t.Helper()
	m, err := s.Metadata(t.Context())
	must(t, err)
	return m
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return string(data)
}

// sampleRun returns a run with every member set.
func sampleRun() errata.Run {
	return errata.Run{
		Prompt: strings.Repeat("ü", 119) + "<b>",
		Responses: []errata.Response{
			{ModelID: "a", Text: "<A>", LatencyMS: 12, InputTokens: 3, OutputTokens: 4, ReasoningTokens: 2, CostUSD: 1e-7, Steps: 2, StopReason: "complete",
				ToolCalls: map[string]int{"bash": 1}, ProposedWrites: []errata.FileWrite{{Path: "x", Delete: true}, {Path: "y", Content: "z"}}},
			{ModelID: "b", Error: "broken"},
		},
		Events: map[string][]errata.Event{"a": {{Type: "text", Data: "A"}, {Type: "snapshot", Data: "no"}, {Type: "request", Data: "no"}}},
		Tools:  []string{"bash"},
		At:     time.Date(2026, 3, 1, 10, 0, 0, 120_000_000, time.FixedZone("", 2*3600)),
	}
}

func TestPanelRuns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("E-11 the summary", func(t *testing.T) {
			s := errata.Of(st, "e11")
			mustPersist(t, s, sampleRun())
			m := mustMetadata(t, s)

			sum := m.Runs[0]
			if m.PromptCount != 1 || m.FirstPrompt != strings.Repeat("ü", 119)+"<" || m.LastPrompt != m.FirstPrompt || len(sum.PromptHash) != 67 || !strings.HasPrefix(sum.PromptHash, "ph_") {
				t.Errorf("got %+v", m)
			}
			sum.PromptHash = "ph_"
			const want = `{"timestamp":"2026-03-01T10:00:00.12+02:00","prompt_hash":"ph_","prompt_preview":"PREVIEW","models":["a","b"],"latencies_ms":{"a":12,"b":0},` +
				`"costs_usd":{"a":1e-7,"b":0},"input_tokens":{"a":3,"b":0},"output_tokens":{"a":4,"b":0},"tool_calls":{"a":{"bash":1},"b":null},"proposed_writes_count":{"a":2,"b":0}}`
			wantEqual(t, "summary", toJSON(t, sum), strings.Replace(want, "PREVIEW", strings.Repeat("ü", 60), 1))
			mustPersist(t, s, errata.Run{Prompt: "x" + strings.Repeat("ü", 60)})
			if m = mustMetadata(t, s); m.PromptCount != 2 || !strings.HasPrefix(m.FirstPrompt, "ü") || m.Runs[1].PromptPreview != "x"+strings.Repeat("ü", 59)+"\ufffd" {
				t.Errorf("got %+v", m)
			}
		})
		t.Run("E-12 the content", func(t *testing.T) {
			s := errata.Of(st, "e12")
			run := sampleRun()
			run.Prompt = "<p>"
			mustPersist(t, s, run)
			c, err := s.Content(t.Context())
			must(t, err)
			const want = `{"session_id":"e12","runs":[{"prompt":"\u003cp\u003e","prompt_hash":"HASH","models":[{"model_id":"a","text":"\u003cA\u003e",` +
				`"proposed_writes":[{"path":"x","content":"","delete":true},{"path":"y","content":"z"}],"events":[{"type":"text","data":"A"}],"stop_reason":"complete","steps":2,"reasoning_tokens":2},` +
				`{"model_id":"b","text":"","events":[]}]}]}`
			wantEqual(t, "content", toJSON(t, c), strings.Replace(want, "HASH", c.Runs[0].PromptHash, 1))
		})
		t.Run("null, absent and the rest without a run", func(t *testing.T) {
			s := errata.Of(st, "empty")
			at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
			must(t, s.SaveInitialMeta(t.Context(), errata.Metadata{ID: "empty", CreatedAt: at}))
			wantEqual(t, "metadata", toJSON(t, mustMetadata(t, s)), `{"id":"empty","created_at":"2026-03-01T10:00:00Z","last_active_at":"2026-03-01T10:00:00Z","prompt_count":0,"runs":null}`)
			c, err := s.Content(t.Context())
			must(t, err)
			wantEqual(t, "content", toJSON(t, c), `{"runs":null}`)
		})
		t.Run("E-13 note and selection touch the last run", func(t *testing.T) {
			s := errata.Of(st, "e13")
			must(t, s.UpdateLastRunNote(t.Context(), "nothing there"))
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "a"}))
			if _, err := st.Log.Last(t.Context(), s.Subject()); !errors.Is(err, log.ErrNotFound) {
				t.Errorf("the refused call wrote something: %v", err)
			}
			mustPersist(t, s, errata.Run{Prompt: "1", Responses: []errata.Response{answer("a", "A")}})
			mustPersist(t, s, errata.Run{Prompt: "2", Responses: []errata.Response{answer("a", "A"), answer("b", "B")}})
			must(t, s.UpdateLastRunNote(t.Context(), "n1"))
			must(t, s.UpdateLastRunNote(t.Context(), "n2"))
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "b", AppliedFiles: []string{"f"}}))
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "a"}))
			m := mustMetadata(t, s)
			if r := m.Runs[0]; r.Note != "" || r.Selected != "" {
				t.Errorf("got %+v", r)
			}
			if r := m.Runs[1]; r.Note != "n2" || r.Selected != "a" || len(r.AppliedFiles) != 1 {
				t.Errorf("got %+v", r)
			}
			err := s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "c"})
			if u, ok := errors.AsType[*errata.UnknownModelError](err); !ok || u.Model != "c" {
				t.Errorf("select an unknown model: %v", err)
			}
			ours := errata.SelectionParams{Prompt: "2", SelectedModelID: "a", Responses: []errata.Response{answer("b", "B"), answer("a", "A")}}
			must(t, s.RecordSelection(t.Context(), ours))
			late := ours
			late.Prompt = "1"
			other := ours
			other.Responses = []errata.Response{answer("a", "A"), answer("b", "of yesterday")}
			for _, p := range []errata.SelectionParams{late, other} {
				p.SelectedModelID = "b"
				if e, ok := errors.AsType[*errata.OtherRunError](s.RecordSelection(t.Context(), p)); !ok || e.Run.ID != m.Runs[1].Run {
					t.Errorf("select in another run: %+v", e)
				}
			}
			if r := mustMetadata(t, s).Runs[1]; r.Selected != "a" {
				t.Errorf("a selection in another run was recorded: %+v", r)
			}
			err = s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "a", Rating: "so-so"})
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Errorf("rate with an unknown rating: %v", err)
			}
		})
		t.Run("E-14 a bad rating is not a win", func(t *testing.T) {
			s := errata.Of(st, "e14")
			run := errata.Run{Responses: []errata.Response{answer("a", "A"), answer("b", "B")}}
			for _, p := range []errata.SelectionParams{{SelectedModelID: "a", AppliedFiles: []string{"x"}}, {SelectedModelID: "b"}, {SelectedModelID: "a", Rating: "good"}, {SelectedModelID: "a", Rating: "bad"}} {
				mustPersist(t, s, run)
				must(t, s.RecordSelection(t.Context(), p))
			}
			m := mustMetadata(t, s)
			if r := m.Runs[3]; r.Selected != "" || r.Rating != "bad" {
				t.Errorf("got %+v", r)
			}
			stats, err := errata.StatsOf(t.Context(), st, errata.Filter{Session: "e14"})
			must(t, err)
			if a := stats["a"]; a.Wins != 2 || a.Losses != 1 || a.ThumbsDown != 1 || a.Participations != 4 || a.WinRate != 50 || a.BadRate != 25 {
				t.Errorf("the stats of a are %+v", a)
			}
			if b := stats["b"]; b.Wins != 1 || b.Losses != 2 || b.ThumbsDown != 0 {
				t.Errorf("the stats of b are %+v", b)
			}
		})
		t.Run("a newer version of a run", func(t *testing.T) {
			s := errata.Of(st, "again")
			id := mustPersist(t, s, errata.Run{Prompt: "1", Responses: []errata.Response{answer("a", "old")}})
			mustPersist(t, s, errata.Run{Prompt: "2"})
			mustPersist(t, s, errata.Run{ID: id, Prompt: "1", Responses: []errata.Response{answer("a", "new")}})
			c, err := s.Content(t.Context())
			if err != nil || len(c.Runs) != 2 || c.Runs[0].Models[0].Text != "new" {
				t.Errorf("got %+v, error %v", c, err)
			}
		})
		t.Run("E-35 metadata and content stay side by side", func(t *testing.T) {
			s := errata.Of(st, "e35")
			playRun(t, s, "p", 0)
			mustRewind(t, s, errata.WorkTree{})
			playRun(t, s, "later", 0)
			m := mustMetadata(t, s)
			c, err := s.Content(t.Context())
			must(t, err)
			if len(m.Runs) != 3 || len(c.Runs) != 3 {
				t.Fatalf("got %d runs in the metadata and %d in the content", len(m.Runs), len(c.Runs))
			}
			for i := range m.Runs {
				if m.Runs[i].Run != c.Runs[i].Run || m.Runs[i].Type == "" && m.Runs[i].PromptHash != c.Runs[i].PromptHash {
					t.Errorf("run %d: the metadata %+v do not match the content %+v", i, m.Runs[i], c.Runs[i])
				}
			}
			wantEqual(t, "marker", strings.Contains(toJSON(t, m), `"prompt_preview":"","models":null,"type":"rewind"}`), true)
		})
		t.Run("E-36 the redacted view", func(t *testing.T) {
			s := errata.Of(st, "e36")
			run := sampleRun()
			run.Prompt = "SECRET prompt"
			run.Responses[0].Text, run.Responses[0].ProposedWrites[1].Content = "SECRET text", "SECRET content"
			run.Events["a"][0].Data = "SECRET event"
			mustPersist(t, s, run)
			mustAppendHistories(t, s, []string{"a"}, run.Responses, run.Prompt)
			must(t, s.UpdateLastRunNote(t.Context(), "SECRET note"))
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "a", AppliedFiles: []string{"SECRET file"}}))
			m := mustMetadata(t, s)
			c, err := s.Content(t.Context())
			must(t, err)
			text := toJSON(t, m.Redacted()) + toJSON(t, c.Redacted())
			if strings.Contains(text, "SECRET") || !strings.Contains(text, `"selected":"a"`) || !strings.Contains(text, `"stop_reason":"complete"`) {
				t.Errorf("got %s", text)
			}
			if full := toJSON(t, m) + toJSON(t, c); strings.Count(full, "SECRET") != 11 {
				t.Errorf("the fork's source changed: %s", full)
			}
		})
		t.Run("E-39 last active tools", func(t *testing.T) {
			s := errata.Of(st, "e39")
			tools := func() []string {
				names, err := s.LastActiveTools(t.Context())
				must(t, err)
				return names
			}
			wantEqual(t, "before a run", tools(), []string(nil))
			mustPersist(t, s, errata.Run{Tools: []string{"bash", "read"}})
			wantEqual(t, "after it", tools(), []string{"bash", "read"})
			must(t, s.SetLastActiveTools(t.Context(), []string{"web"}))
			wantEqual(t, "set", tools(), []string{"web"})
			mustPersist(t, s, errata.Run{Tools: []string{}})
			wantEqual(t, "after a run without", tools(), []string{})
			must(t, s.SetLastActiveTools(t.Context(), []string{"web"}))
			wantEqual(t, "set again", tools(), []string{"web"})
		})
		t.Run("figures that cannot be are refused", func(t *testing.T) {
			s := errata.Of(st, "wrong")
			zero := 0.0
			for name, r := range map[string]errata.Response{"no model": {}, "negative cost": {ModelID: "a", CostUSD: -1}, "NaN": {ModelID: "a", CostUSD: zero / zero}, "tokens": {ModelID: "a", InputTokens: -1},
				"overflow": {ModelID: "a", OutputTokens: 1 << 62}, "infinite": {ModelID: "a", CostUSD: 1 / zero}} {
				_, err := s.PersistRunState(t.Context(), errata.Run{Responses: []errata.Response{r}})
				if _, ok := errors.AsType[*events.InvalidError](err); !ok {
					t.Errorf("%s: got the error %v", name, err)
				}
			}
		})
	})
}

func TestPanelListing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("E-32 list, latest, prefix", func(t *testing.T) {
			if _, err := errata.Latest(t.Context(), st); err == nil || !errors.Is(err, tally.ErrNotFound) || !strings.HasPrefix(err.Error(), "no sessions found") {
				t.Errorf("got the error %v", err)
			}
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i, id := range []string{"ses_ab1", "ses_ab2", "ses_b", "ses_ab"} {
				must(t, errata.Of(st, id).SaveInitialMeta(t.Context(), errata.Metadata{ID: id, CreatedAt: at.AddDate(0, 0, i%3)}))
			}
			_, err := errata.Of(st, "ses_chat").AppendTurns(t.Context(), "main", []byte(`1`)) // of another kind
			must(t, err)
			list, err := errata.List(t.Context(), st)
			if err != nil || len(list) != 4 || list[0].ID != "ses_b" || list[1].ID != "ses_ab2" {
				t.Errorf("got %+v, error %v", list, err)
			}
			if id, err := errata.Latest(t.Context(), st); id != "ses_b" || err != nil {
				t.Errorf("got %q, error %v", id, err)
			}
			for prefix, want := range map[string]string{"ses_ab": "ses_ab", "ses_ab2": "ses_ab2", "ses_b": "ses_b", "ses_ab1": "ses_ab1"} {
				if id, err := errata.Resolve(t.Context(), st, prefix); id != want || err != nil {
					t.Errorf("the prefix %q resolves to %q, error %v", prefix, id, err)
				}
			}
			_, err = errata.Resolve(t.Context(), st, "ses_")
			if a, ok := errors.AsType[*errata.AmbiguousError](err); !ok || len(a.Matches) != 4 || errors.Is(err, tally.ErrNotFound) {
				t.Errorf("got the error %v", err)
			}
			if _, err = errata.Resolve(t.Context(), st, "none"); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("got the error %v", err)
			}
		})
		t.Run("E-33 stats leave rewound runs out by identity", func(t *testing.T) {
			s := errata.Of(st, "e33")
			playRun(t, s, "p", 0)
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "a"}))
			mustRewind(t, s, errata.WorkTree{})
			playRun(t, s, "p", 0) // the same prompt again
			must(t, s.RecordSelection(t.Context(), errata.SelectionParams{SelectedModelID: "b"}))
			stats, err := errata.StatsOf(t.Context(), st, errata.Filter{Session: "e33"})
			must(t, err)
			if a, b := stats["a"], stats["b"]; a.Participations != 1 || a.Wins != 0 || b.Wins != 1 {
				t.Errorf("got %+v", stats)
			}
			all, err := errata.StatsOf(t.Context(), st, errata.Filter{ConfigHash: "none"})
			if err != nil || len(all) != 0 {
				t.Errorf("got %+v, error %v", all, err)
			}
		})
		t.Run("E-33 of imported markers, by counting prompts", func(t *testing.T) {
			s := errata.Of(st, "imported")
			must(t, s.SaveInitialMeta(t.Context(), errata.Metadata{}))
			run := errata.Run{Prompt: "p", Responses: []errata.Response{answer("a", "A")}}
			mustPersist(t, s, run)
			m := mustMetadata(t, s)
			raw := `{"timestamp":"2026-01-01T00:00:00Z","prompt_hash":"` + m.Runs[0].PromptHash + `","prompt_preview":"","models":null,"type":"rewind"}`
			head, err := s.Load(t.Context(), "")
			must(t, err)
			e, err := events.New("test", s.Subject(), &events.SessionRewound{To: head.Offset(), Reason: "imported", Raw: []byte(raw)})
			must(t, err)
			_, err = st.Append(t.Context(), s.Subject(), log.At(head.Offset()), e)
			must(t, err)
			mustPersist(t, s, run)
			stats, err := errata.StatsOf(t.Context(), st, errata.Filter{Session: "imported"})
			if err != nil || stats["a"].Participations != 1 {
				t.Errorf("got %+v, error %v", stats, err)
			}
			m = mustMetadata(t, s)
			c, err := s.Content(t.Context())
			if err != nil || len(m.Runs) != 3 || len(c.Runs) != 2 || toJSON(t, m.Runs[1]) != raw {
				t.Errorf("%+v, %+v, %v", m.Runs, c.Runs, err)
			}
		})
	})
}

func TestPanelIDs(t *testing.T) {
	t.Run("E-38 UUIDv7 with a prefix", func(t *testing.T) {
		for _, prefix := range []string{errata.SessionIDPrefix, errata.RunIDPrefix, errata.ReportIDPrefix, errata.SessionReportIDPrefix} {
			a, b := errata.NewID(prefix), errata.NewID(prefix)
			if !strings.HasPrefix(a, prefix) || len(a) != len(prefix)+36 || a[len(prefix)+14] != '7' || a >= b {
				t.Errorf("%s, %s", a, b)
			}
		}
	})
}
