package erratadir_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// A session changes between the comparison and the append of an import. The import compares again, and has the same
// result as if the change had come first.
func TestChangedMeanwhile(t *testing.T) {
	unfinished := marshal(checkpoint{Prompt: "again", Timestamp: at(30), AdapterIDs: []string{"claude"}, Responses: nil})
	another := marshal(checkpoint{Prompt: "another", Timestamp: at(31), AdapterIDs: []string{"gpt"}, Responses: nil})
	a := layouttest.Change(two("ses_1").files(), one+"checkpoint.json", unfinished)
	longer := layouttest.Change(two("ses_1").ask("fifth", "a5", "b5").files(), one+"checkpoint.json", unfinished)
	rate := "bad"
	for name, p := range map[string]func(*projector.Session) events.Payload{
		"rewound":            func(s *projector.Session) events.Payload { return &events.SessionRewound{To: s.History.First()} },
		"checkpoint cleared": func(s *projector.Session) events.Payload { return clearsRun(s) },
		"annotated": func(s *projector.Session) events.Payload {
			return &events.RunAnnotated{Run: s.Ledger.Runs[0].Ref(), Rating: &rate}
		},
		"turn": func(*projector.Session) events.Payload {
			return &events.TurnAppended{Entries: []events.Entry{{Thread: "gpt", Turn: events.Raw(`{"role":"user","content":"x"}`)}}}
		},
	} {
		for next, files := range map[string]map[string]string{
			"longer": longer, "no checkpoint": layouttest.Change(a, one+"checkpoint.json", "-"), "other checkpoint": layouttest.Change(a, one+"checkpoint.json", another),
		} {
			t.Run(name+", folder with "+next, func(t *testing.T) {
				outcome := func(before bool) (refused []string, state string, tree map[string]string) {
					st, dir := openStore(t), folder(t, a)
					mustBeClean(t, st, dir)
					replaceTree(t, dir, files)
					other := func() {
						s := load(t, st, "ses_1")
						e, err := events.New("urn:test:live", s.Subject, p(s))
						must(t, err)
						e.Time = at(50)
						_, err = st.Append(t.Context(), s.Subject, log.At(s.Offset()), e)
						must(t, err)
					}
					m := &layouttest.Meddler{Target: st, Subject: events.Session(st.Name, "ses_1"), Meanwhile: other}
					if before {
						other()
						m.Called = true
					}
					r, err := (erratadir.Layout{}).Import(t.Context(), m, dir, layouts.ImportOptions{})
					if err != nil || !m.Called {
						t.Fatalf("the change during the import was made: %v; import error %v", m.Called, err)
					}
					return r.Refused, stateOf(load(t, st, "ses_1")), exported(t, st)
				}
				wantRefused, wantState, wantTree := outcome(true)
				refused, state, tree := outcome(false)
				if !slices.Equal(refused, wantRefused) || state != wantState {
					t.Errorf("refused %v, want %v as after a change before the import\nstate\n%s, want\n%s", refused, wantRefused, state, wantState)
				}
				mustEqual(t, wantTree, tree)
			})
		}
	}
}

// clearsRun clears the checkpoint of the unfinished run.
func clearsRun(s *projector.Session) events.Payload {
	for _, c := range s.Ledger.Checkpoints {
		if c.Kind == events.CheckpointResume && !c.Cleared {
			return &events.CheckpointCleared{Kind: c.Kind, ID: c.ID, Reason: "test"}
		}
	}
	panic("there is no checkpoint of a run")
}

// stateOf returns the parts of a session that an import could get wrong.
func stateOf(s *projector.Session) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Threads.Hash())
	for _, r := range s.Ledger.Runs {
		fmt.Fprintln(&b, "run", r.ID, len(r.Results), r.Rating, r.Note)
	}
	for _, c := range s.Ledger.Checkpoints {
		fmt.Fprintln(&b, "checkpoint", c.Kind, c.ID, c.Cleared, len(c.Saved), c.Prompt)
	}
	return b.String()
}

// A redacted export omits a text in place of a number, or of a list of names, whatever its origin.
func TestRedactedTextForNumber(t *testing.T) {
	base := two("ses_1").files()
	for _, c := range []struct{ name, old, with string }{
		{oneMeta, `"prompt_count":4`, `"prompt_count":"SECRET"`},
		{oneMeta, `"latencies_ms":{"claude":1,`, `"latencies_ms":{"claude":"SECRET",`},
		{oneMeta, `"latencies_ms":{"claude":1,`, `"latencies_ms":{"claude":["SECRET"],`},
		{oneMeta, `"latencies_ms":{"claude":1,`, `"latencies_ms":{"claude":{"x":"SECRET"},`},
		{oneMeta, `"latencies_ms":{"claude":1,"gpt":101}`, `"latencies_ms":"SECRET"`},
		{oneMeta, `"costs_usd":{"claude":0.000125,"gpt":0.00025}`, `"costs_usd":["SECRET"]`},
		{oneMeta, `"models":["claude","gpt"],"first_prompt"`, `"models":"SECRET","first_prompt"`},
		{oneMeta, `"models":["claude","gpt"],"first_prompt"`, `"models":[["SECRET"]],"first_prompt"`},
		{oneMeta, `"created_at":"2026-03-01T07:00:07-02:00"`, `"created_at":["SECRET"]`},
		{oneMeta, `"id":"ses_1"`, `"id":{"x":"SECRET"}`},
		{oneCont, `"steps":1`, `"steps":"SECRET"`},
		{oneCont, `"events":[]`, `"events":"SECRET"`},
		{oneCont, `"runs":[`, `"reasoning_tokens":"SECRET","runs":[`},
	} {
		if !strings.Contains(base[c.name], c.old) {
			t.Errorf("%s lacks %s: %.600s", c.name, c.old, base[c.name])
			continue
		}
		st := openStore(t)
		mustImport(t, st, folder(t, layouttest.Change(base, c.name, strings.Replace(base[c.name], c.old, c.with, 1))))
		out := t.TempDir()
		mustExport(t, st, erratadir.Layout{Redact: true}, out, layouts.ExportOptions{})
		files := readTree(t, out)
		if len(files) == 0 {
			t.Errorf("%s: the export is empty", c.with)
		}
		for name, data := range files {
			if strings.Contains(data, "SECRET") {
				t.Errorf("%s: %s contains the text: %.700s", c.with, name, data)
			}
		}
	}
}
