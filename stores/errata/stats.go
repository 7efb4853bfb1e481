package errata

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Stats are the figures of a model, over runs that are not withdrawn.
type Stats struct {
	Participations int `json:"participations"`
	Wins           int `json:"wins"`       // it was selected
	Losses         int `json:"losses"`     // another model was selected
	ThumbsDown     int `json:"thumbsDown"` // it was rated bad, and no model was selected

	WinRate  float64 `json:"winRate"` // share of participations in percent
	LossRate float64 `json:"lossRate"`
	BadRate  float64 `json:"badRate"`

	AvgLatencyMS      float64 `json:"avgLatencyMs"` // averages over participations
	AvgCostUSD        float64 `json:"avgCostUsd"`
	AvgInputTokens    float64 `json:"avgInputTokens"`
	AvgOutputTokens   float64 `json:"avgOutputTokens"`
	AvgToolCalls      float64 `json:"avgToolCalls"`
	AvgProposedWrites float64 `json:"avgProposedWrites"`
}

// Filter selects runs. The zero value selects all.
type Filter struct {
	ConfigHash string // runs with this recipe; default: any
	Session    string // default: all panel sessions
}

// StatsOf returns the figures of each model in the panels of the namespace.
func StatsOf(ctx context.Context, st *tally.Store, f Filter) (map[string]Stats, error) {
	ids, hole := []string{f.Session}, error(nil)
	if f.Session == "" {
		if ids, hole = sessionIDs(ctx, st); projector.Tolerate(hole) != nil {
			return nil, hole
		}
	}
	t := make(statsTable)
	for _, id := range ids {
		rows, err := Of(st, id).Runs(ctx)
		if err != nil {
			return nil, err
		}
		for _, row := range counted(rows) {
			if f.ConfigHash == "" || row.Summary.ConfigHash == f.ConfigHash {
				t.add(row)
			}
		}
	}
	return t.finish(), hole
}

// counted returns the runs that are not rewound.
func counted(rows []Row) []Row {
	return slices.DeleteFunc(rows, func(row Row) bool { return row.IsMarker() || row.Rewound })
}

// statsTable collects sums by model.
type statsTable map[string]*Stats

func (t statsTable) add(row Row) {
	sum := row.Summary
	for i, model := range sum.Models {
		if slices.Contains(sum.Models[:i], model) {
			continue // twice in one panel: the maps have it once
		}
		if t[model] == nil {
			t[model] = new(Stats)
		}
		s := t[model]
		s.Participations++
		switch {
		case sum.Selected == model:
			s.Wins++
		case sum.Selected != "":
			s.Losses++
		case sum.Rating == "bad" && (row.rated == "" || row.rated == model):
			s.ThumbsDown++
		}
		s.AvgLatencyMS += float64(sum.LatenciesMS[model])
		s.AvgCostUSD += sum.CostsUSD[model]
		s.AvgInputTokens += float64(sum.InputTokens[model])
		s.AvgOutputTokens += float64(sum.OutputTokens[model])
		for _, n := range sum.ToolCalls[model] {
			s.AvgToolCalls += float64(n)
		}
		s.AvgProposedWrites += float64(sum.ProposedWritesCount[model])
	}
}

// finish computes averages and rates of the sums.
func (t statsTable) finish() map[string]Stats {
	list := make(map[string]Stats, len(t))
	for model, s := range t {
		n := float64(s.Participations)
		for _, sum := range []*float64{&s.AvgLatencyMS, &s.AvgCostUSD, &s.AvgInputTokens, &s.AvgOutputTokens, &s.AvgToolCalls, &s.AvgProposedWrites} {
			*sum /= n
		}
		s.WinRate, s.LossRate, s.BadRate = 100*float64(s.Wins)/n, 100*float64(s.Losses)/n, 100*float64(s.ThumbsDown)/n
		list[model] = *s
	}
	return list
}

// AmbiguousError reports that a prefix matches no session, or several.
type AmbiguousError struct {
	Prefix  string
	Matches []string
}

func (e *AmbiguousError) Error() string {
	if len(e.Matches) == 0 {
		return fmt.Sprintf("no session matches %q", e.Prefix)
	}
	return fmt.Sprintf("%q matches %d sessions: %s", e.Prefix, len(e.Matches), strings.Join(e.Matches, ", "))
}

// Is makes an AmbiguousError without matches match ErrNotFound.
func (e *AmbiguousError) Is(target error) bool {
	return target == tally.ErrNotFound && len(e.Matches) == 0
}

// sessionIDs lists the panel sessions of the namespace.
func sessionIDs(ctx context.Context, st *tally.Store) ([]string, error) {
	list, err := st.Sessions(ctx, events.KindPanel)
	var ids []string
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids, err
}

// List returns the panel sessions, the most recently active first.
func List(ctx context.Context, st *tally.Store) ([]Metadata, error) {
	ids, hole := sessionIDs(ctx, st)
	if projector.Tolerate(hole) != nil {
		return nil, hole
	}
	var list []Metadata
	for _, id := range ids {
		m, err := Of(st, id).Metadata(ctx)
		if err != nil {
			return nil, err
		}
		m.ID = id
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b Metadata) int { return b.LastActiveAt.Compare(a.LastActiveAt) })
	return list, hole
}

// Latest returns the id of the most recently active panel session. If there are no sessions, the error is
// ErrNotFound.
func Latest(ctx context.Context, st *tally.Store) (string, error) {
	list, err := List(ctx, st)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("no sessions found: %w", tally.ErrNotFound)
	}
	return list[0].ID, nil
}

// Resolve returns the id of the panel session with this id, or else of the only one whose id has this prefix. If
// there is no match, or several, the error is an *AmbiguousError.
func Resolve(ctx context.Context, st *tally.Store, prefix string) (string, error) {
	ids, hole := sessionIDs(ctx, st)
	if projector.Tolerate(hole) == nil && slices.Contains(ids, prefix) {
		return prefix, nil
	}
	if hole != nil {
		return "", hole
	}
	matches := slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	if len(matches) != 1 {
		return "", &AmbiguousError{prefix, matches}
	}
	return matches[0], nil
}
