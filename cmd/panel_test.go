package cmd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/errata"
)

// playPanel records the runs of a panel in a store, as a program does that knows
// the package: playpanel store tree
//
// Three models answer three questions. The first run writes a file and the second
// another version of it; the third fails for one model.
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

// run plays one run, which writes the plan if there is something to write.
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
