package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/errata"
)

// playPanel records the runs of a panel in a store, as a program that uses the package does: playpanel store tree
//
// Three models answer three questions. The first run writes a file and the second another version of it; the third
// fails for one model.
func playPanel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: playpanel store tree")
	}
	ctx := context.Background()
	st, err := embedded.Open(ctx, embedded.Options{Store: ts.MkAbs(args[0]), Backend: "local"})
	ts.Check(err)
	p := player{ctx: ctx, s: errata.Of(st, "ses_panel"), tree: ts.MkAbs(args[1])}
	err = errors.Join(
		p.s.SaveInitialMeta(ctx, errata.Metadata{Models: playedModels}),
		p.run("What is the plan?", "v1"),
		p.run("日本語で答えて", "v2"),
		p.run("And now?", ""),
	)
	ts.Check(errors.Join(err, st.Close()))
}

var playedModels = []string{"alpha", "beta", "gamma"}

// player plays the runs of a panel.
type player struct {
	ctx  context.Context
	s    *errata.Session
	tree string
	runs int
}

// run plays one run, which writes the plan unless it is empty.
func (p *player) run(prompt, plan string) error {
	p.runs++
	var responses []errata.Response
	happened := make(map[string][]errata.Event)
	for i, model := range playedModels {
		r := errata.Response{ModelID: model, Text: fmt.Sprintf("%s answers question %d: 日本語 and some words that go on for a while.", model, p.runs),
			LatencyMS: int64(100 * (i + 1)), InputTokens: 10, OutputTokens: 20, CostUSD: 0.0125, Steps: i + 1, StopReason: errata.StopComplete}
		if i == 2 && plan == "" {
			r.Text, r.Error, r.StopReason = "", "out of time", errata.StopTimeout
		}
		responses = append(responses, r)
		happened[model] = []errata.Event{{Type: "bash", Data: "ls -la"}}
	}
	var writes []errata.FileWrite
	if plan != "" {
		writes = []errata.FileWrite{{Path: "plan.txt", Content: plan}}
		responses[1].ProposedWrites = writes
	}
	snaps, err := errata.SnapshotFiles(p.tree, writes)
	if err != nil {
		return err
	}
	before, err := p.s.AppendHistories(p.ctx, playedModels, responses, prompt)
	if err != nil {
		return err
	}
	at := time.Date(2026, 3, 1, 9, p.runs, 0, 0, time.UTC)
	run, err := p.s.PersistRunState(p.ctx, errata.Run{Prompt: prompt, Responses: responses, Events: happened, At: at})
	if err != nil {
		return err
	}
	if _, err := p.s.PushRewindEntry(p.ctx, errata.RewindEntry{At: before.At, Run: run.ID, Prompt: prompt, HistoryLengths: before.Lengths}); err != nil {
		return err
	}
	for _, w := range writes {
		if err := os.WriteFile(filepath.Join(p.tree, w.Path), []byte(w.Content), 0o644); err != nil {
			return err
		}
	}
	return p.s.PushFileSnapshots(p.ctx, errata.WorkTree{Dir: p.tree}, snaps)
}

// cutPlay is the variable that makes a copy of these tests call a panel until it is killed.
const cutPlay = "TALLY_TEST_PANEL_CUT"

// cutScript is the script of such a copy.
type cutScript struct {
	Store    string
	Round    int
	Buffered bool // calls return before their events are durable
}

// said is the line that the copy prints for a call that has returned.
type said struct{ Call, Key string }

// playUntilKilled makes panel calls on one session, and prints each that has returned.
func playUntilKilled(text string) {
	var c cutScript
	ctx := context.Background()
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.play(ctx)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (c cutScript) play(ctx context.Context) error {
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: c.Store, NoSync: c.Buffered})
	if err != nil {
		return err
	}
	st, err := tally.Open(ctx, srv.Log(), tally.Config{})
	for n := 0; err == nil; n++ {
		err = playCalls(ctx, st, fmt.Sprintf("r%d-%d", c.Round, n), n%4 == 3)
	}
	return err
}

// playCalls makes each call that changes a panel once, under a key that finds it again. A rewound run has only the key
// of the rewind, because its own events are not in effect.
func playCalls(ctx context.Context, st *tally.Store, key string, rewound bool) error {
	s := errata.Of(st, "ses_cut")
	responses := []errata.Response{{ModelID: "m", Text: "answer to " + key}}
	var before errata.Appended
	for _, c := range []struct {
		name  string
		quiet bool
		call  func() error
	}{
		{"AppendHistories", rewound, func() (err error) {
			before, err = s.AppendHistories(ctx, []string{"m"}, responses, key)
			return err
		}},
		{"PersistRunState", false, func() error {
			_, err := s.PersistRunState(ctx, errata.Run{ID: key, Prompt: key, Responses: responses})
			return err
		}},
		{"PushRewindEntry", rewound, func() error {
			_, err := s.PushRewindEntry(ctx, errata.RewindEntry{ID: key, At: before.At, Run: key, HistoryLengths: before.Lengths})
			return err
		}},
		{"UpdateLastRunNote", rewound, func() error { return s.UpdateLastRunNote(ctx, key) }},
		{"RecordSelection", false, func() error { return s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "m"}) }},
		{"AccumulateCost", false, func() error {
			return s.AccumulateCost(ctx, tally.Cost{Model: key, USD: "1", Run: events.RunRef{ID: key}})
		}},
		{"RecordPrompt", false, func() error {
			_, err := errata.PromptsOf(st).Record(ctx, key)
			return err
		}},
		{"Rewind", !rewound, func() error {
			if !rewound {
				return nil
			}
			_, err := s.Rewind(ctx, errata.WorkTree{})
			return err
		}},
	} {
		if err := c.call(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if !c.quiet {
			fmt.Printf("{\"Call\":%q,\"Key\":%q}\n", c.name, key)
		}
	}
	return nil
}
