package errata_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/errata"
	"github.com/tallylog/tally/stores/errata/erratadir"
)

// panelSession is the common interface of tally and the model of the original for one session, with the original's
// names.
type panelSession interface {
	Histories(context.Context) (map[string][]errata.Turn, error)
	AppendHistories(ctx context.Context, panelIDs []string, responses []errata.Response, userPrompt string) (map[string]int, error)
	PromptHistory(context.Context) ([]string, error)
	RecordPrompt(context.Context, string) (bool, error)
	Metadata(context.Context) (errata.Metadata, error)
	Content(context.Context) (errata.Content, error)
	PersistRunState(ctx context.Context, lastPrompt string, responses []errata.Response, collector errata.Collector, toolNames []string) error
	RecordSelection(context.Context, errata.SelectionParams) error
	PushRewindEntry(context.Context, errata.RewindEntry) error
	CanRewind(context.Context) (bool, error)
	Rewind(context.Context) (errata.RewindResult, error)
	AccumulateCost(ctx context.Context, modelID string, cost float64) error
	TotalCost(context.Context) (events.Amount, error)
	CostPerModel(context.Context) (map[string]events.Amount, error)
	LoadCheckpoint(context.Context) (*errata.Checkpoint, error)
}

// panelSystem is a set of sessions.
type panelSystem interface {
	open(id string) panelSession // opens a session as a starting program does
	// runs begins a run of a session, and saves the responses of its models.
	runs(s panelSession, responses ...errata.Response) error
	stats(id string) map[string]errata.Stats
	fill()          // makes all later writes fail
	tear(id string) // truncates the content file of a session in the middle
}

// ourPanels implements panelSystem by tally.
type ourPanels struct {
	t  *testing.T
	st *tally.Store
}

func (o *ourPanels) open(id string) panelSession {
	return need(errata.New(o.t.Context(), o.st, errata.Options{SessionID: id}))
}

func (o *ourPanels) runs(s panelSession, responses ...errata.Response) error {
	saver := s.(*errata.Store).SaveCheckpoint("q", modelsOf(responses), false)
	for _, r := range responses {
		if err := saver.Finish(o.t.Context(), r); err != nil {
			return err
		}
	}
	return nil
}

func (o *ourPanels) stats(id string) map[string]errata.Stats {
	return need(errata.StatsOf(o.t.Context(), o.st, errata.Filter{Session: id}))
}

func (o *ourPanels) fill() {
	o.st = storetest.Faulty(o.t, func() logtest.Fault { return logtest.Dropped })
}

// tear imports the session into a store from a folder, twice: complete, and then with the truncated file.
func (o *ourPanels) tear(id string) {
	ctx, dir := o.t.Context(), filepath.Join(o.t.TempDir(), "data")
	d := need(layouts.OpenDir(dir))
	defer d.Close()
	need(layouts.Export(ctx, o.st, erratadir.Layout{}, d, layouts.ExportOptions{Session: id}))
	o.st = need(o.st.In(o.st.Namespace() + "-imported"))
	if r := need((erratadir.Layout{}).Import(ctx, o.st, dir, layouts.ImportOptions{})); len(r.Problems) > 0 {
		panic(r.Problems)
	}
	name := "sessions/" + id + "/session_content.json"
	content := layouttest.ReadTree(o.t, dir)[name]
	writeTree(o.t, dir, map[string]string{name: content[:len(content)/2]})
	if r := need((erratadir.Layout{}).Import(ctx, o.st, dir, layouts.ImportOptions{})); len(r.Problems) != 1 || r.Problems[0].File != name {
		panic(fmt.Sprintf("the torn file is not named: %v", r.Problems))
	}
}

func modelsOf(responses []errata.Response) []string {
	var ids []string
	for _, r := range responses {
		ids = append(ids, r.ModelID)
	}
	return ids
}

// originalPanels is a model of errata's session datastore: one object for each session keeps all state in memory,
// rewrites whole files, and prints its errors. It behaves as the original in every call.
type originalPanels struct {
	disk    map[string]string
	isFull  bool
	printed []string
}

func newOriginalPanels() *originalPanels { return &originalPanels{disk: make(map[string]string)} }

func (o *originalPanels) write(name string, v any) {
	data, err := json.Marshal(v)
	if err == nil && o.isFull {
		err = errors.New("no space left on device")
	}
	if err != nil {
		o.printed = append(o.printed, fmt.Sprintf("warning: %s: %v", name, err))
		return
	}
	o.disk[name] = string(data)
}

// read leaves v unchanged if the file is missing or corrupt.
func (o *originalPanels) read(name string, v any) {
	if text, ok := o.disk[name]; ok {
		if err := json.Unmarshal([]byte(text), v); err != nil {
			o.printed = append(o.printed, fmt.Sprintf("warning: %s: %v", name, err))
		}
	}
}

func (o *originalPanels) open(id string) panelSession {
	s := &originalPanel{on: o, id: id, costs: make(map[string]events.Amount)}
	o.read(id+"/metadata", &s.meta)
	o.read(id+"/content", &s.content)
	for line := range strings.Lines(o.disk["prompts"]) {
		s.prompts = slices.Insert(s.prompts, 0, strings.TrimSuffix(line, "\n"))
	}
	return s
}

// runs saves the checkpoint as the incremental saver does: a final response is completed, even after an error.
func (o *originalPanels) runs(s panelSession, responses ...errata.Response) error {
	c := errata.Checkpoint{Prompt: "q", AdapterIDs: modelsOf(responses)}
	for _, r := range responses {
		snap := r.Snapshot()
		snap.Completed = true
		c.Responses = append(c.Responses, snap)
	}
	o.write(s.(*originalPanel).id+"/checkpoint", c)
	return nil
}

// stats counts the markers of each prompt, walks from the newest run to the oldest, and drops as many runs of the
// prompt.
func (o *originalPanels) stats(id string) map[string]errata.Stats {
	var meta errata.Metadata
	o.read(id+"/metadata", &meta)
	drop, list := make(map[string]int), make(map[string]errata.Stats)
	for _, run := range meta.Runs {
		if run.Type == "rewind" {
			drop[run.PromptHash]++
		}
	}
	for _, run := range slices.Backward(meta.Runs) {
		switch {
		case run.Type == "rewind":
		case drop[run.PromptHash] > 0:
			drop[run.PromptHash]--
		default:
			countRun(list, run)
		}
	}
	return list
}

// countRun adds a run. A model that was rated bad was selected, too, and so wins.
func countRun(list map[string]errata.Stats, run errata.RunSummary) {
	for _, model := range run.Models {
		s := list[model]
		s.Participations++
		switch {
		case run.Selected == model:
			s.Wins++
		case run.Selected != "":
			s.Losses++
		case run.Rating == "bad":
			s.ThumbsDown++
		}
		list[model] = s
	}
}

func (o *originalPanels) fill() { o.isFull = true }

func (o *originalPanels) tear(id string) {
	name := id + "/content"
	o.disk[name] = o.disk[name][:len(o.disk[name])/2]
}

// originalPanel is one session. In the original, only Rewind and LoadCheckpoint return an error.
type originalPanel struct {
	on      *originalPanels
	id      string
	meta    errata.Metadata
	content errata.Content
	prompts []string // newest first
	stack   []errata.RewindEntry
	costs   map[string]events.Amount
}

func (s *originalPanel) Histories(context.Context) (map[string][]errata.Turn, error) {
	return s.content.Histories, nil
}

func (s *originalPanel) AppendHistories(_ context.Context, panelIDs []string, responses []errata.Response, prompt string) (map[string]int, error) {
	if s.content.Histories == nil {
		s.content.Histories = make(map[string][]errata.Turn)
	}
	lengths := make(map[string]int)
	for _, id := range panelIDs {
		lengths[id] = len(s.content.Histories[id])
	}
	for i, r := range responses {
		if i < len(panelIDs) && r.OK() && r.Text != "" {
			s.content.Histories[panelIDs[i]] = append(s.content.Histories[panelIDs[i]], turns(prompt, r.Text)...)
		}
	}
	s.on.write(s.id+"/content", s.content)
	return lengths, nil
}

func (s *originalPanel) PromptHistory(context.Context) ([]string, error) { return s.prompts, nil }

// RecordPrompt compares with the prompts that this object loaded and recorded itself.
func (s *originalPanel) RecordPrompt(_ context.Context, prompt string) (bool, error) {
	if len(s.prompts) > 0 && s.prompts[0] == prompt {
		return false, nil
	}
	s.prompts = slices.Insert(s.prompts, 0, prompt)
	if !s.on.isFull {
		s.on.disk["prompts"] += prompt + "\n"
	}
	return true, nil
}

func (s *originalPanel) Metadata(context.Context) (errata.Metadata, error) { return s.meta, nil }
func (s *originalPanel) Content(context.Context) (errata.Content, error)   { return s.content, nil }

func (s *originalPanel) PersistRunState(_ context.Context, prompt string, responses []errata.Response, _ errata.Collector, _ []string) error {
	hash := fmt.Sprintf("ph_%x", sha256.Sum256([]byte(prompt)))
	s.meta.PromptCount++
	s.meta.LastPrompt = prompt
	s.meta.Runs = append(s.meta.Runs, errata.RunSummary{PromptHash: hash, PromptPreview: prompt, Models: modelsOf(responses)})
	s.on.write(s.id+"/metadata", s.meta)
	s.content.Runs = append(s.content.Runs, errata.RunContent{Prompt: prompt, PromptHash: hash})
	s.on.write(s.id+"/content", s.content)
	return nil
}

// RecordSelection also selects the model that is rated bad.
func (s *originalPanel) RecordSelection(_ context.Context, p errata.SelectionParams) error {
	if n := len(s.meta.Runs); n > 0 {
		s.meta.Runs[n-1].Selected, s.meta.Runs[n-1].Rating = p.SelectedModelID, p.Rating
		s.on.write(s.id+"/metadata", s.meta)
	}
	return nil
}

func (s *originalPanel) PushRewindEntry(_ context.Context, entry errata.RewindEntry) error {
	s.stack = append(s.stack, entry)
	return nil
}

func (s *originalPanel) CanRewind(context.Context) (bool, error) { return len(s.stack) > 0, nil }

// Rewind adds a marker to the metadata and nothing to the content. It uses the index in the display as an index of
// the list of runs.
func (s *originalPanel) Rewind(context.Context) (errata.RewindResult, error) {
	if len(s.stack) == 0 {
		return errata.RewindResult{}, errors.New("nothing to rewind")
	}
	e := s.stack[len(s.stack)-1]
	s.stack = s.stack[:len(s.stack)-1]
	for id, n := range e.HistoryLengths {
		if n < len(s.content.Histories[id]) {
			s.content.Histories[id] = s.content.Histories[id][:n]
		}
		if len(s.content.Histories[id]) == 0 {
			delete(s.content.Histories, id)
		}
	}
	s.on.write(s.id+"/content", s.content)
	s.meta.Runs = append(s.meta.Runs, errata.RunSummary{PromptHash: fmt.Sprintf("ph_%x", sha256.Sum256([]byte(e.Prompt))), Type: "rewind"})
	result := errata.RewindResult{FeedIndex: e.FeedIndex}
	if i := e.FeedIndex; i >= 0 && i < len(s.meta.Runs) {
		s.meta.Runs[i].Note = strings.TrimSpace("[rewound] " + s.meta.Runs[i].Note)
		result.Note = s.meta.Runs[i].Note
	}
	s.on.write(s.id+"/metadata", s.meta)
	return result, nil
}

// AccumulateCost adds floats, in memory.
func (s *originalPanel) AccumulateCost(_ context.Context, model string, usd float64) error {
	have, _ := strconv.ParseFloat(string(s.costs[model]), 64) // "" is 0
	s.costs[model] = amountOf(have + usd)
	return nil
}

func amountOf(usd float64) events.Amount {
	return events.Amount(strconv.FormatFloat(usd, 'f', -1, 64))
}

func (s *originalPanel) TotalCost(context.Context) (events.Amount, error) {
	sum := 0.0
	for _, model := range slices.Sorted(maps.Keys(s.costs)) {
		usd, err := strconv.ParseFloat(string(s.costs[model]), 64)
		if err != nil {
			return "", err
		}
		sum += usd
	}
	return amountOf(sum), nil
}

func (s *originalPanel) CostPerModel(context.Context) (map[string]events.Amount, error) {
	return s.costs, nil
}

func (s *originalPanel) LoadCheckpoint(context.Context) (*errata.Checkpoint, error) {
	if s.on.disk[s.id+"/checkpoint"] == "" {
		return nil, nil
	}
	c := new(errata.Checkpoint)
	return c, json.Unmarshal([]byte(s.on.disk[s.id+"/checkpoint"]), c)
}
