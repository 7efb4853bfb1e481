package errata_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
)

// panelFixes has the checks in which tally has to be better than the original. Each is a promise that the original
// does not keep.
var panelFixes = []struct {
	name  string
	check func(context.Context, panelSystem) error
}{
	{"E-10 a prompt of two writers is recorded once", fixPrompts},
	{"E-14 a bad rating is not a win", fixRating},
	{"E-19 the note goes to the run that was rewound", fixMarker},
	{"E-21 the rewind stack survives a restart", fixStack},
	{"E-24 sums are exact", fixSum},
	{"E-24 costs survive a restart", fixCost},
	{"E-24 a resume counts what had completed once", fixResumedCost},
	{"E-27 a model that was cut off has not completed", fixCompleted},
	{"E-33 the rewound run is left out, not its repetition", fixStats},
	{"E-35 metadata and content stay side by side", fixPairs},
	{"E-37 a torn file takes nothing away", fixTorn},
	{"E-42 what is returned is the caller's own", fixIsolation},
	{"E-47 what cannot be written is an error", fixErrors},
}

func TestPanelFixes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for i, fix := range panelFixes {
			t.Run(fix.name, func(t *testing.T) {
				t.Parallel()
				own := need(st.In(fmt.Sprint(st.Namespace(), "-fix-", i)))
				if err := fix.check(t.Context(), &ourPanels{t, own}); err != nil {
					t.Errorf("tally: %v", err)
				}
			})
		}
	})
}

// The checks detect a difference: the original's behaviour passes none of them.
func TestPanelOriginalIsWorse(t *testing.T) {
	for _, fix := range panelFixes {
		t.Run(fix.name, func(t *testing.T) {
			err := fix.check(t.Context(), newOriginalPanels())
			if err == nil {
				t.Fatal("the check passes for the original's behaviour")
			}
			t.Log(err)
		})
	}
}

// The model behaves as the original: where both should agree, they do.
func TestPanelOriginalModel(t *testing.T) {
	ctx := t.Context()
	for name, sys := range map[string]panelSystem{"tally": &ourPanels{t, storetest.Memory(t, tally.Config{})}, "original": newOriginalPanels()} {
		s := sys.open("s")
		must(t, play(ctx, s, "q1", 0))
		must(t, play(ctx, s, "q2", 1))
		must(t, s.AccumulateCost(ctx, "a", 0.25))
		must(t, s.AccumulateCost(ctx, "b", 0.5))
		for i, want := range []bool{true, false} {
			if added := need(s.RecordPrompt(ctx, "q2")); added != want {
				t.Errorf("%s: prompt %d added: %v", name, i, added)
			}
		}
		r := need(s.Rewind(ctx))
		wantEqual(t, name+": note", r.Note, "[rewound]")
		wantEqual(t, name+": histories", need(sys.open("s").Histories(ctx)), map[string][]errata.Turn{"a": turns("q1", "A"), "b": turns("q1", "B")})
		wantEqual(t, name+": total", need(s.TotalCost(ctx)), events.Amount("0.75"))
		m := need(s.Metadata(ctx))
		if len(m.Runs) != 3 || m.Runs[1].Note != "[rewound]" || m.Runs[2].Type != "rewind" || m.Runs[2].PromptHash != m.Runs[1].PromptHash || m.PromptCount != 2 {
			t.Errorf("%s: got %+v", name, m)
		}
		must(t, s.RecordSelection(ctx, errata.SelectionParams{})) // the original annotates the marker, tally the run before it: neither wins
		if stats := sys.stats("s"); stats["a"].Participations != 1 || stats["a"].Wins != 0 {
			t.Errorf("%s: got %+v", name, stats)
		}
	}
}

// play makes a program's calls for one run of a panel of two. feed is the index of the run in the program's display.
func play(ctx context.Context, s panelSession, prompt string, feed int) error {
	panel, responses := []string{"a", "b"}, []errata.Response{answer("a", "A"), answer("b", "B")}
	lengths, err := s.AppendHistories(ctx, panel, responses, prompt)
	if err == nil {
		err = s.PersistRunState(ctx, prompt, responses, nil, nil)
	}
	if err != nil {
		return err
	}
	return s.PushRewindEntry(ctx, errata.RewindEntry{HistoryLengths: lengths, FeedIndex: feed, Prompt: prompt})
}

func fixPrompts(ctx context.Context, sys panelSystem) error { // E-10
	one, two := sys.open("one"), sys.open("two")
	for _, s := range []panelSession{one, two} {
		if _, err := s.RecordPrompt(ctx, "same"); err != nil {
			return err
		}
	}
	list, err := sys.open("three").PromptHistory(ctx)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("recorded %q", list)
	}
	return err
}

func fixRating(ctx context.Context, sys panelSystem) error { // E-14
	s := sys.open("s")
	if err := errors.Join(play(ctx, s, "q", 0), s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a", Rating: "bad"})); err != nil {
		return err
	}
	if a := sys.stats("s")["a"]; a.Wins != 0 || a.ThumbsDown != 1 {
		return fmt.Errorf("got %d wins and %d thumbs down", a.Wins, a.ThumbsDown)
	}
	return nil
}

func fixMarker(ctx context.Context, sys panelSystem) error { // E-19
	s := sys.open("s")
	// The display begins with a message, so a run's index in it differs from that in the list.
	if err := errors.Join(play(ctx, s, "q1", 1), play(ctx, s, "q2", 2)); err != nil {
		return err
	}
	if _, err := s.Rewind(ctx); err != nil {
		return err
	}
	m, err := s.Metadata(ctx)
	if err != nil {
		return err
	}
	for _, run := range m.Runs {
		if rewound := run.PromptPreview == "q2"; strings.HasPrefix(run.Note, "[rewound]") != rewound {
			return fmt.Errorf("run %q of type %q has the note %q", run.PromptPreview, run.Type, run.Note)
		}
	}
	return nil
}

func fixStack(ctx context.Context, sys panelSystem) error { // E-21
	if err := play(ctx, sys.open("s"), "q", 0); err != nil {
		return err
	}
	again := sys.open("s")
	if ok, err := again.CanRewind(ctx); !ok || err != nil {
		return fmt.Errorf("CanRewind after a restart is %v, error %v", ok, err)
	}
	_, err := again.Rewind(ctx)
	return err
}

func fixSum(ctx context.Context, sys panelSystem) error { // E-24
	s := sys.open("s")
	if err := errors.Join(s.AccumulateCost(ctx, "a", 0.1), s.AccumulateCost(ctx, "a", 0.2)); err != nil {
		return err
	}
	return wantTotal(ctx, s, "0.3")
}

func fixCost(ctx context.Context, sys panelSystem) error { // E-24
	if err := sys.open("s").AccumulateCost(ctx, "a", 0.25); err != nil {
		return err
	}
	return wantTotal(ctx, sys.open("s"), "0.25")
}

func wantTotal(ctx context.Context, s panelSession, want events.Amount) error {
	total, err := s.TotalCost(ctx)
	if err == nil && total != want {
		err = fmt.Errorf("the total is %s, want %s", total, want)
	}
	return err
}

func fixResumedCost(ctx context.Context, sys panelSystem) error { // E-24
	s := sys.open("s")
	if err := sys.runs(s, answer("a", "A"), errata.Response{ModelID: "b", Interrupted: true}); err != nil {
		return err
	}
	if err := errors.Join(s.AccumulateCost(ctx, "a", 0.125), s.AccumulateCost(ctx, "b", 0.25)); err != nil {
		return err
	}
	if _, err := s.LoadCheckpoint(ctx); err != nil {
		return err
	}
	// The resumed run counts all its models, including those that it did not run again.
	if err := errors.Join(s.AccumulateCost(ctx, "a", 0.125), s.AccumulateCost(ctx, "b", 0.5)); err != nil {
		return err
	}
	return wantTotal(ctx, s, "0.875")
}

func fixCompleted(ctx context.Context, sys panelSystem) error { // E-27
	cut := []errata.Response{{ModelID: "timeout", Text: "half", StopReason: errata.StopTimeout}, {ModelID: "interrupted", Interrupted: true}, {ModelID: "error", Error: "x"}}
	if err := sys.runs(sys.open("s"), append(cut, answer("done", "D"))...); err != nil {
		return err
	}
	c, err := sys.open("s").LoadCheckpoint(ctx)
	if err != nil {
		return err
	}
	if again := c.Remaining(); !reflect.DeepEqual(again, modelsOf(cut)) {
		return fmt.Errorf("a resume repeats %q", again)
	}
	return nil
}

func fixStats(ctx context.Context, sys panelSystem) error { // E-33
	s := sys.open("s")
	if err := errors.Join(play(ctx, s, "q", 0), s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "a"})); err != nil {
		return err
	}
	if _, err := s.Rewind(ctx); err != nil {
		return err
	}
	if err := errors.Join(play(ctx, s, "q", 1), s.RecordSelection(ctx, errata.SelectionParams{SelectedModelID: "b"})); err != nil {
		return err
	}
	stats := sys.stats("s")
	if a, b := stats["a"], stats["b"]; a.Participations != 1 || a.Wins != 0 || b.Wins != 1 {
		return fmt.Errorf("a has %d wins in %d runs, b %d", a.Wins, a.Participations, b.Wins)
	}
	return nil
}

func fixPairs(ctx context.Context, sys panelSystem) error { // E-35
	s := sys.open("s")
	if err := play(ctx, s, "rewound", 0); err != nil {
		return err
	}
	if _, err := s.Rewind(ctx); err != nil {
		return err
	}
	if err := play(ctx, s, "later", 1); err != nil {
		return err
	}
	m, err := s.Metadata(ctx)
	if err != nil {
		return err
	}
	c, err := s.Content(ctx)
	if err != nil {
		return err
	}
	for i, sum := range m.Runs {
		if sum.Type == "" && (i >= len(c.Runs) || c.Runs[i].Prompt != sum.PromptPreview) {
			return fmt.Errorf("content %[1]d does not belong to run %[1]d, %[2]q: %+[3]v", i, sum.PromptPreview, c.Runs)
		}
	}
	return nil
}

func fixTorn(ctx context.Context, sys panelSystem) error { // E-37
	s := sys.open("s")
	if err := play(ctx, s, "precious", 0); err != nil {
		return err
	}
	sys.tear("s")
	if err := play(ctx, sys.open("s"), "later", 1); err != nil {
		return err
	}
	h, err := sys.open("s").Histories(ctx)
	if err != nil {
		return err
	}
	if want := turns("precious", "A", "later", "A"); !reflect.DeepEqual(h["a"], want) {
		return fmt.Errorf("the remaining turns are %v", h["a"])
	}
	return nil
}

func fixIsolation(ctx context.Context, sys panelSystem) error { // E-42
	s := sys.open("s")
	if err := errors.Join(play(ctx, s, "q", 0), s.AccumulateCost(ctx, "a", 0.5)); err != nil {
		return err
	}
	if _, err := s.RecordPrompt(ctx, "q"); err != nil {
		return err
	}
	views := func() (string, func(), error) {
		h, err := s.Histories(ctx)
		p, err2 := s.PromptHistory(ctx)
		m, err3 := s.Metadata(ctx)
		c, err4 := s.CostPerModel(ctx)
		spoil := func() {
			h["a"][0].Content, p[0], m.Runs[0].Note, m.Runs[0].Models[0], c["a"] = "spoilt", "spoilt", "spoilt", "spoilt", "1000"
		}
		return fmt.Sprint(h, p, m.Runs, c), spoil, errors.Join(err, err2, err3, err4)
	}
	before, spoil, err := views()
	if err != nil {
		return err
	}
	spoil()
	after, _, err := views()
	if err == nil && after != before {
		err = fmt.Errorf("a caller's change of returned values is visible: %s", after)
	}
	return err
}

func fixErrors(ctx context.Context, sys panelSystem) error { // E-47
	sys.fill()
	s := sys.open("s")
	responses := []errata.Response{answer("a", "A")}
	_, appended := s.AppendHistories(ctx, []string{"a"}, responses, "q")
	_, recorded := s.RecordPrompt(ctx, "q")
	for name, err := range map[string]error{
		"AppendHistories": appended,
		"RecordPrompt":    recorded,
		"PersistRunState": s.PersistRunState(ctx, "q", responses, nil, nil),
		"PushRewindEntry": s.PushRewindEntry(ctx, errata.RewindEntry{Prompt: "q"}),
		"AccumulateCost":  s.AccumulateCost(ctx, "a", 1),
	} {
		if err == nil {
			return fmt.Errorf("%s: got no error though nothing was written", name)
		}
	}
	return nil
}
