package errata

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// Metadata returns the session in the form of session_metadata.json.
func (s *Session) Metadata(ctx context.Context) (Metadata, error) {
	v, err := s.view(ctx)
	if err != nil {
		return Metadata{}, err
	}
	return v.metadata(s.ID()), nil
}

func (v *view) metadata(id string) Metadata {
	var m Metadata
	// A file of another program may contain anything: unreadable members are ignored.
	_ = json.Unmarshal(panel.ObjectJSON(v.Head()), &m)
	m.ID, m.Runs = cmp.Or(m.ID, id), nil
	for _, row := range v.rows {
		if !row.noSummary {
			m.Runs = append(m.Runs, row.Summary)
		}
	}
	return m
}

// Content returns the session in the form of session_content.json. It has one run for each run of Metadata, an empty
// one for a marker.
func (s *Session) Content(ctx context.Context) (Content, error) {
	v, err := s.view(ctx)
	if err != nil {
		return Content{}, err
	}
	return v.content(s.ID())
}

func (v *view) content(id string) (Content, error) {
	var c Content
	for _, row := range v.rows {
		if !row.Imported && !row.noContent { // the imported file has no content for it
			c.SessionID = id
			c.Runs = append(c.Runs, row.Content)
		}
	}
	if raw, said := v.head.Ledger.Fields.Get(panel.FieldContent); said {
		c.SessionID = panel.Object(raw).Text("session_id")
	}
	var err error
	c.Histories, err = historiesOf(v.head.Threads)
	return c, err
}

// LastActiveTools returns the names of the tools of the last run, or those set since; nil if there are neither.
func (s *Session) LastActiveTools(ctx context.Context) ([]string, error) {
	for f, err := range s.facts(ctx, s.Store().Log.ReadBack(ctx, events.Range{Subject: s.Subject()})) {
		if err != nil {
			return nil, err
		}
		switch p := f.Payload.(type) {
		case *events.RunFinished:
			if p.Run.Kind == panel.Kind && p.Tools != nil {
				return toolNamesIn(p.Tools), nil
			}
		case *events.SessionUpdated:
			if raw, ok := p.Set.Get("lastActiveTools"); ok {
				return toolNamesIn(raw), nil
			}
		}
	}
	return nil, nil
}

// SetLastActiveTools sets the active tools.
func (s *Session) SetLastActiveTools(ctx context.Context, names []string) error {
	have, err := s.LastActiveTools(ctx)
	if err != nil || (have == nil) == (names == nil) && slices.Equal(have, names) {
		return err
	}
	return s.set(ctx, "lastActiveTools", panel.JSON(names), true)
}

// Redacted returns the metadata without texts of users and models: prompts, previews, files and notes.
func (m Metadata) Redacted() Metadata {
	m.FirstPrompt, m.LastPrompt = "", ""
	m.Models, m.Runs = slices.Clone(m.Models), slices.Clone(m.Runs)
	for i := range m.Runs {
		m.Runs[i].PromptPreview, m.Runs[i].Note, m.Runs[i].AppliedFiles = "", "", nil
	}
	return m
}

// Redacted returns the content without texts of users and models. For each model, it keeps the stop reason, the
// number of steps and the reasoning tokens.
func (c Content) Redacted() Content {
	c.Histories, c.Runs = nil, slices.Clone(c.Runs)
	for i, run := range c.Runs {
		run.Prompt = ""
		run.Models = slices.Clone(run.Models)
		for j, m := range run.Models {
			run.Models[j] = ModelContent{ModelID: m.ModelID, Events: []Event{}, StopReason: m.StopReason, Steps: m.Steps, ReasoningTokens: m.ReasoningTokens}
		}
		c.Runs[i] = run
	}
	return c
}
