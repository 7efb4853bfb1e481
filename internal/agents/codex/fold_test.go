package codex_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/codex"
)

const (
	olderID = "01a00000-0000-7000-8000-000000000001"
	ownID   = "01b00000-0000-7000-8000-000000000002"
	newer   = "01c00000-0000-7000-8000-000000000003"
)

func TestFile(t *testing.T) {
	const at = "rollout-2026-01-02T03-04-05-"
	for name, want := range map[string]agents.File{
		"sessions/2026/01/02/" + at + ownID + ".jsonl":                             {Stem: ownID},
		"sessions/2026/01/02/" + at + ownID + ".jsonl.zst":                         {Stem: ownID},
		"archived_sessions/" + at + ownID + ".jsonl":                               {Stem: ownID, Archived: true},
		"archived_sessions/" + at + ownID + "_" + newer + ".jsonl.zst":             {Stem: newer, Archived: true},
		"2026/01/02/" + at + ownID + "_" + newer + ".jsonl":                        {Stem: newer},
		at + ownID + ".jsonl":                                                      {Stem: ownID},
		"session_index.jsonl":                                                      {},
		"sessions/2026/01/02/" + at + ownID + ".json":                              {},
		"sessions/2026/01/02/" + at + ownID + "_.jsonl":                            {},
		"sessions/2026/01/02/" + at + strings.ToUpper(ownID) + ".jsonl":            {},
		"sessions/2026/01/02/rollout-2026-13-02T03-04-05-" + ownID + ".jsonl":      {},
		"sessions/2026/01/02/rollout-" + ownID + ".jsonl":                          {},
		"backups/" + at + ownID + ".jsonl":                                         {},
		"sessions/2026/01/02/" + at + ownID + "_" + newer + "_" + ownID + ".jsonl": {},
	} {
		got, ok := codex.Agent{}.File(name, nil)
		if want.Stem != "" {
			want.Name, want.Session, want.Thread = name, "codex/"+ownID, agents.Main
		}
		if got != want || ok != (want.Stem != "") || ok != (codex.Agent{}).Wants(name) {
			t.Errorf("%s is %+v (%v), want %+v", name, got, ok, want)
		}
	}
}

func TestRoots(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"/x":               {"CODEX_HOME": "/x", "HOME": "/home/ada"},
		"/home/ada/.codex": {"HOME": "/home/ada"},
		"":                 {},
	} {
		got := strings.Join(codex.Agent{}.Roots(func(name string) string { return env[name] }), " ")
		if got != want {
			t.Errorf("%v: got %q, want %q", env, got, want)
		}
	}
}

// foldLines folds the lines of a file and returns their meanings.
func foldLines(t testing.TB, stem string, lines ...string) []agents.Meaning {
	t.Helper()
	name := "rollout-2026-01-02T03-04-05-" + ownID
	if stem != ownID {
		name += "_" + stem
	}
	f, ok := codex.Agent{}.File(name+".jsonl", nil)
	if !ok {
		t.Fatal(name)
	}
	fold, at := codex.Agent{}.Fold(f), int64(0)
	var list []agents.Meaning
	for _, line := range lines {
		span := agents.Span{Start: at, End: at + int64(len(line)) + 1}
		list = append(list, fold.Line(span, []byte(line)))
		at = span.End
	}
	return list
}

// factsOf returns the payloads of facts of one type.
func factsOf[P events.Payload](list []agents.Meaning) []P {
	var all []P
	for _, m := range list {
		for _, f := range append(m.Before[:len(m.Before):len(m.Before)], m.After...) {
			if p, ok := f.Payload.(P); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// The first line determines the session's project, parent and fork. No password of a repository's URL is stored.
func TestCreated(t *testing.T) {
	const meta = `{"timestamp":"2026-01-02T03:04:06.000Z","type":"session_meta","payload":{"id":"` + ownID + `","timestamp":"2026-01-02T03:04:05.500Z","cwd":"pier","cli_version":"0.169.0"%}}`
	for more, want := range map[string]events.SessionCreated{
		``: {Project: "pier"},
		`,"git":{"repository_url":"https://ada:secret@example.org/sea/quay.git"}`:                                {Project: "quay"},
		`,"git":{"repository_url":"git@example.org:sea/quay.git/"}`:                                              {Project: "quay"},
		`,"git":{"repository_url":"file"}`:                                                                       {Project: "file"},
		`,"source":{"subagent":{"thread_spawn":{"parent_thread_id":"` + olderID + `"}}}`:                         {Project: "pier", Parent: &events.Lineage{Session: "codex/" + olderID}},
		`,"forked_from_id":"` + olderID + `"`:                                                                    {Project: "pier", Parent: &events.Lineage{Session: "codex/" + olderID}},
		`,"forked_from_id":"no thread"`:                                                                          {Project: "pier"},
		`,"forked_from_id":"` + olderID + `","history_base":{"thread_id":"` + olderID + `","end_byte_offset":7}`: {Project: "pier", Fork: &events.Fork{Session: "codex/" + olderID}},
	} {
		want.Kind, want.CreatedAt, want.CWD, want.Settings = "transcript", "2026-01-02T03:04:05.500Z", "pier", events.Raw(`{"agent":"codex","version":"0.169.0"}`)
		got := factsOf[*events.SessionCreated](foldLines(t, ownID, strings.Replace(meta, "%", more, 1)))
		if len(got) != 1 || !reflect.DeepEqual(*got[0], want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", more, got[0], want)
		}
	}
	for _, line := range []string{"", "torn", `{"timestamp":"2026-01-02T03:04:05.500Z"}`} {
		if got := factsOf[*events.SessionCreated](foldLines(t, ownID, line, line)); len(got) != 1 || got[0].Kind != "transcript" || got[0].Validate() != nil {
			t.Errorf("a file with the first line %q: got %+v", line, got)
		}
	}
}

// A file after a revert has the rewind before the session's beginning, even for a rewind to before everything. So an
// ingester without a file of the session waits for the first one, which knows the origin of a fork.
func TestRevertIsNoBeginning(t *testing.T) {
	meta := `{"timestamp":"2026-01-02T03:04:05.000Z","ordinal":0,"type":"session_meta","payload":{"id":"` + ownID + `","forked_from_id":"` + olderID + `","history_mode":"paginated"}}`
	before := foldLines(t, newer, meta)[0].Before
	if len(before) != 2 || before[0].Key != "rewound" || *before[0].Position != (agents.Position{}) || before[1].Key != "created" {
		t.Errorf("got %+v", before)
	}
}

// A torn line that was written again counts once, and so does a duplicate. Two different entries on one line both
// count.
func TestGlued(t *testing.T) {
	one := `{"timestamp":"2026-01-02T03:04:06.000Z","type":"event_msg","payload":{"type":"task_started","turn_id":"a"}}`
	two := `{"timestamp":"2026-01-02T03:04:07.000Z","type":"event_msg","payload":{"type":"task_started","turn_id":"b","more":{"timestamp":"x"}}}`
	for line, want := range map[string]string{
		one:                            "a",
		one + one:                      "a",
		one[:len(one)-1] + one:         "a",
		one[:5] + one[:40] + one:       "a",
		one + two:                      "ab",
		one + two[:30] + two:           "ab",
		two + one[:30]:                 "b",
		"\x00\x00" + one:               "a",
		one[:30]:                       "",
		strings.Repeat(one[:30], 1000): "",
	} {
		got := ""
		for _, p := range factsOf[*events.RunCreated](foldLines(t, ownID, line)) {
			got += p.Run.ID
		}
		if got != want {
			t.Errorf("%s: turns %q, want %q", line, got, want)
		}
	}
}

// Bad counts cost nothing, and a model without a name is unknown.
func TestCost(t *testing.T) {
	record := func(usage string) string {
		return `{"timestamp":"2026-01-02T03:04:06.000Z","ordinal":3,"type":"token_usage_record","payload":{"thread_id":"` + ownID + `","turn_id":"t","response_id":"r","usage":` + usage + `}}`
	}
	for usage, want := range map[string]*events.Tokens{
		`{"input_tokens":10,"cached_input_tokens":4,"cache_write_input_tokens":1,"output_tokens":5,"reasoning_output_tokens":2}`: {Input: 5, CacheRead: 4, CacheWrite: 1, Output: 5, Reasoning: 2},
		`{"input_tokens":10,"cached_input_tokens":40,"output_tokens":5}`:                                                         {Input: 10, CacheRead: 40, Output: 5},
		`{"input_tokens":0,"output_tokens":0}`:                                                                                   nil,
		`{"input_tokens":-1}`:                                                                                                    nil,
		`{"input_tokens":1e3}`:                                                                                                   nil,
		`null`:                                                                                                                   nil,
	} {
		got := factsOf[*events.CostAccrued](foldLines(t, ownID, record(usage)))
		switch {
		case want == nil && len(got) == 0:
		case want == nil || len(got) != 1 || *got[0].Tokens != *want || got[0].Model != "unknown" || got[0].Response != "r":
			t.Errorf("%s: got %+v, want %+v", usage, got, want)
		}
	}
}

// B-17: if a count has only totals, the usage of a response is their difference. If that is impossible, the usage is
// unknown, not zero.
func TestTotals(t *testing.T) {
	total := func(in, cached, out int, last string) string {
		return fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:06.000Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":%d,"cached_input_tokens":%d,"output_tokens":%d}%s}}}`, in, cached, out, last)
	}
	zero := `,"last_token_usage":{"input_tokens":0,"output_tokens":0}`
	for _, c := range []struct {
		what  string
		lines []string
		want  string
	}{
		{"two totals", []string{total(10, 2, 1, ""), total(10, 2, 1, ""), total(25, 9, 3, "")}, "8/2/1 8/7/2"},
		{"the total of a parent", []string{total(10, 2, 1, zero), total(25, 9, 3, "")}, "8/7/2"},
		{"a last usage of zeros", []string{total(10, 2, 1, ""), total(25, 9, 3, zero)}, "8/2/1 8/7/2"},
		{"the last usage where there is one", []string{total(10, 2, 1, `,"last_token_usage":{"input_tokens":4,"output_tokens":1}`), total(25, 9, 3, "")}, "4/0/1 8/7/2"},
		{"a total that began again", []string{total(10, 2, 5, ""), total(12, 2, 3, ""), total(15, 2, 4, "")}, "8/2/5 ? 3/0/1"},
	} {
		t.Run("B-17 "+c.what, func(t *testing.T) {
			var got []string
			for _, p := range factsOf[*events.CostAccrued](foldLines(t, ownID, c.lines...)) {
				if p.Tokens == nil {
					got = append(got, "?")
					continue
				}
				got = append(got, fmt.Sprintf("%d/%d/%d", p.Tokens.Input, p.Tokens.CacheRead, p.Tokens.Output))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}

// FuzzLine checks that equal lines have equal results, that the keys of a line's facts differ, and that every fact
// can be stored.
func FuzzLine(f *testing.F) {
	meta := `{"timestamp":"2026-01-02T03:04:05.000Z","ordinal":0,"type":"session_meta","payload":{"id":"` + ownID + `","forked_from_id":"` + olderID + `","subagent_history_start_ordinal":3,"history_base":{"thread_id":"` + olderID + `","end_byte_offset":9}}}`
	for _, lines := range []string{
		meta + "\n" + `{"timestamp":"2026-01-02T03:04:06.000Z","type":"event_msg","payload":{"type":"task_started","turn_id":"` + newer + `"}}`,
		`{"timestamp":"x","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}}` + "\n" + `{"timestamp":"x","type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":99999999999}}`,
		`{"type":"event_msg","payload":{"type":"task_started"}}` + "\n" + `{"type":"event_msg","payload":{"type":"turn_aborted","error":1}}`,
		`{"type":"turn_context","payload":{"model":"m","turn_id":"` + olderID + `"}}` + "\n" + `{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":9223372036854775807},"last_token_usage":{"input_tokens":9223372036854775807,"cached_input_tokens":9223372036854775807}}}}`,
		meta[:50] + meta + meta,
	} {
		f.Add(lines, true)
		f.Add(lines, false)
	}
	f.Fuzz(func(t *testing.T, lines string, isRevision bool) {
		stem := ownID
		if isRevision {
			stem = newer
		}
		list := strings.Split(lines, "\n")
		got := foldLines(t, stem, list...)
		if again := foldLines(t, stem, list...); !reflect.DeepEqual(got, again) {
			t.Fatalf("%q has two results: %+v and %+v", lines, got, again)
		}
		for _, m := range got {
			if m.Thread != agents.Main && m.Thread != agents.Log {
				t.Fatalf("got a line in thread %q", m.Thread)
			}
			keys := make(map[string]bool)
			for _, fact := range append(m.Before[:len(m.Before):len(m.Before)], m.After...) {
				if keys[fact.Key] {
					t.Fatalf("%q has two facts with the key %s", lines, fact.Key)
				}
				keys[fact.Key] = true
				checkFact(t, fact)
			}
		}
	})
}

func checkFact(t *testing.T, f agents.Fact) {
	t.Helper()
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		if p.Fork != nil {
			p.Fork.Offset = 1
		}
		if (p.Fork != nil) != (f.Position != nil) {
			t.Fatalf("got a fork of %+v at position %+v", p.Fork, f.Position)
		}
	case *events.SessionRewound:
		if p.To = 1; f.Position == nil {
			t.Fatal("got a rewind without a target")
		}
	}
	if data, err := events.Encode(f.Payload); err != nil || bytes.Contains(data, []byte("\n")) {
		t.Fatalf("encode %+v: %v", f.Payload, err)
	}
}
