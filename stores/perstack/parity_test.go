package perstack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack"
)

// TestParity checks the behavior of the original, on every backend.
func TestParity(t *testing.T) {
	withKey(t)
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for _, part := range []func(*testing.T, *tally.Store){parityJobs, parityPaths, parityCheckpoints, parityEvents, paritySettings, parityTotals, parityRuns, parityQueries, parityLarge, parityLive, parityProjects} {
			part(t, st)
		}
	})
}

func parityTotals(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-15 totals follow the latest checkpoint, and the events that say what a step used", func(t *testing.T) {
		h := perstack.JobOf(st, "p15")
		for step := int64(1); step < 3; step++ {
			c := checkpoint("p15", "r", fmt.Sprint("c", step), step, messages(0, 1))
			c.Usage = perstack.Usage{InputTokens: 100 * step, TotalTokens: 100 * step}
			need(h.SaveCheckpoint(ctx, c))
		}
		if have := need(h.Totals(ctx)); have.Usage.InputTokens != 200 || have.Steps != 2 || have.Said != 0 {
			t.Errorf("the totals by checkpoints are %+v", have)
		}
		bare := perstack.JobOf(st, "p15-bare")
		need(bare.Session().Append(ctx, log.Any, &events.CheckpointSaved{ID: "c", Kind: events.CheckpointStep, Step: 4, Raw: events.Raw(`{"id":"c"}`)}))
		if have := need(bare.Totals(ctx)); have.Steps != 4 || have.Usage.TotalTokens != 0 {
			t.Errorf("the totals after a checkpoint without usage are %+v", have)
		}
		for _, child := range []string{"a", "b"} { // at the same time, below the run: each reports its own usage
			need(h.Record(ctx, ending("p15", child, "e", 3, 7)))
			need(perstack.JobOf(st, "p15").Record(ctx, ending("p15", child, "e", 3, 7)))
		}
		want := perstack.Usage{InputTokens: 14, OutputTokens: 4, ReasoningTokens: 2, TotalTokens: 18, CachedInputTokens: 2}
		have := need(h.Totals(ctx))
		if diff := cmp.Diff(perstack.Totals{Steps: 3, Usage: want, Said: 2}, have); diff != "" {
			t.Error(diff)
		}
	})
}

func parityRuns(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-17 delegation is a tree", func(t *testing.T) {
		h := perstack.JobOf(st, "p17")
		need(h.SaveCheckpoint(ctx, checkpoint("p17", "root", "c0", 1, messages(0, 1))))
		by := func(run, of, at, call string) {
			c := checkpoint("p17", run, "c-"+run, 2, messages(0, 1))
			c.DelegatedBy = &perstack.DelegatedBy{Expert: expert, ToolCallID: call, ToolName: "n", CheckpointID: at, RunID: of}
			need(h.SaveCheckpoint(ctx, c))
		}
		by("left", "root", "c0", "t1")
		by("below", "left", "c-left", "t3")
		by("loop", "loop", "c-loop", "t4")
		by("lost", "gone", "c9", "t5")
		start := need(checkpoint("p17", "right", "c-right", 2, nil).Raw())
		start = need(rawjson.SetMember(start, "delegatedBy", events.Raw(`{"runId":"root","checkpointId":"c0","toolCallId":"t2","toolName":"n","expert":{}}`)))
		need(h.Record(ctx, event("p17", "right", "e", "startRun", 1, 2, events.Field{Name: "initialCheckpoint", Value: start})))
		var tree func([]*perstack.Node) string
		tree = func(list []*perstack.Node) string {
			var all []string
			for _, n := range list {
				all = append(all, n.ID+"<"+n.Checkpoint+" "+n.ToolCall+">"+tree(n.Children))
			}
			return "(" + strings.Join(all, ", ") + ")"
		}
		const want = "(root< >(left<c0 t1>(below<c-left t3>()), right<c0 t2>()), loop<c-loop t4>(), lost<c9 t5>())"
		if have := tree(need(h.Tree(ctx))); have != want {
			t.Errorf("the run is\n%s, want\n%s", have, want)
		}
	})
}

func parityQueries(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-23 queries, with the original's words for nothing", func(t *testing.T) {
		empty := need(st.In("p23"))
		h := perstack.JobOf(empty, "X")
		_, err := perstack.MostRecentRun(ctx, empty)
		_, err2 := h.MostRecentRun(ctx)
		_, err3 := h.MostRecentCheckpoint(ctx)
		for i, want := range []string{"No runs found", "No runs found for job X", "No checkpoints found for job X"} {
			if have := []error{err, err2, err3}[i]; have == nil || have.Error() != want || !errors.Is(have, tally.ErrNotFound) {
				t.Errorf("got the error %v, want %s", have, want)
			}
		}
		for i, key := range []string{"a", "b", "a"} {
			s := setting(fmt.Sprint("j", i), "r", "k", int64(100+i))
			s.ExpertKey = key
			must(t, perstack.StoreRunSetting(ctx, empty, s, nil, nil))
		}
		if run := need(perstack.MostRecentRun(ctx, empty)); run.JobID != "j2" {
			t.Errorf("the most recent run is of %s", run.JobID)
		}
		experts := need(perstack.RecentExperts(ctx, empty, 0))
		if diff := cmp.Diff([]perstack.RecentExpert{{Key: "a", LastUsed: 102}, {Key: "b", LastUsed: 101}}, experts); diff != "" {
			t.Error(diff)
		}
		need(h.SaveCheckpoint(ctx, checkpoint("X", "r", "c1", 2, nil)))
		need(h.SaveCheckpoint(ctx, checkpoint("X", "r", "c2", 2, nil)))
		need(h.SaveCheckpoint(ctx, checkpoint("X", "r", "c3", 1, nil)))
		if c := need(h.MostRecentCheckpoint(ctx)); c.ID != "c2" {
			t.Errorf("the most recent checkpoint is %s", c.ID)
		}
		need(h.Record(ctx, event("X", "r", "e1", "callTools", 9, 1)))
		need(h.Record(ctx, event("X", "s", "e2", "startRun", 3, 1)))
		var rows []string
		for _, r := range need(h.EventRows(ctx, "")) {
			rows = append(rows, r.RunID+" "+r.ID)
		}
		if !slices.Equal(rows, []string{"s 3-1-startRun", "r 9-1-callTools"}) {
			t.Errorf("the rows are %v", rows)
		}
	})
}

// P-25: the original's functions, with its arguments.
var (
	_ func(string, string, ...int64) perstack.Job                                                                      = perstack.CreateInitialJob
	_ func(context.Context, *tally.Store, perstack.Job) error                                                          = perstack.StoreJob
	_ func(context.Context, *tally.Store, string) (perstack.Job, error)                                                = perstack.RetrieveJob
	_ func(context.Context, *tally.Store) ([]perstack.Job, error)                                                      = perstack.GetAllJobs
	_ func() string                                                                                                    = perstack.GetJobsDir
	_ func(string) string                                                                                              = perstack.GetJobDir
	_ func(string) string                                                                                              = perstack.GetCheckpointDir
	_ func(string, string) string                                                                                      = perstack.GetCheckpointPath
	_ func(string, string) string                                                                                      = perstack.DefaultGetRunDir
	_ func(context.Context, *tally.Store, perstack.Checkpoint) error                                                   = perstack.DefaultStoreCheckpoint
	_ func(context.Context, *tally.Store, string, string) (perstack.Checkpoint, error)                                 = perstack.DefaultRetrieveCheckpoint
	_ func(context.Context, *tally.Store, string) ([]perstack.Checkpoint, error)                                       = perstack.GetCheckpointsByJobID
	_ func(context.Context, *tally.Store, perstack.Event) error                                                        = perstack.DefaultStoreEvent
	_ func(context.Context, *tally.Store, string, string) ([]perstack.EventMeta, error)                                = perstack.GetEventsByRun
	_ func(context.Context, *tally.Store, string, string, ...int64) ([]perstack.Event, error)                          = perstack.GetEventContents
	_ func(context.Context, *tally.Store, perstack.RunSetting, perstack.FileSystem, func(string, string) string) error = perstack.StoreRunSetting
	_ func(context.Context, *tally.Store) ([]perstack.RunSetting, error)                                               = perstack.GetAllRuns
	_ func() perstack.FileSystem                                                                                       = perstack.CreateDefaultFileSystem
)
