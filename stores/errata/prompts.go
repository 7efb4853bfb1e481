package errata

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// PromptsSession is the session with the users' prompts of all sessions, and its thread.
const PromptsSession = "prompts"

// Prompts is the history of prompts, one for all sessions of a namespace. It is safe for concurrent use, also by
// several processes.
type Prompts struct{ s *Session }

// PromptsOf returns a handle on the history of prompts.
func PromptsOf(st *tally.Store) *Prompts { return &Prompts{Of(st, PromptsSession)} }

// List returns the prompts, newest first. It skips turns that are not prompts.
func (p *Prompts) List(ctx context.Context) ([]string, error) {
	head, err := p.s.head(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, turn := range slices.Backward(head.Threads.Turns(PromptsSession)) {
		if text, ok := promptOf(turn.Raw); ok {
			list = append(list, text)
		}
	}
	return list, nil
}

// Record adds a prompt unless it equals the newest one, and reports whether it did. If several writers record the
// same prompt at the same time, one adds it.
func (p *Prompts) Record(ctx context.Context, prompt string) (added bool, err error) {
	turn := panel.JSON(prompt)
	prompt, _ = promptOf(turn) // in the form in which it will be read
	add := &events.TurnAppended{Entries: []events.Entry{{Thread: PromptsSession, Turn: turn}}}
	if last, err := p.s.Store().Log.Last(ctx, p.s.Subject()); err == nil {
		// The last record usually has the newest prompt, so Record need not read anything else.
		if newest, ok := plainPrompt(last); ok {
			if newest == prompt {
				return false, nil
			}
			_, err := p.s.Append(ctx, log.At(last.Offset), add)
			if !errors.Is(err, log.ErrConflict) {
				return err == nil, err
			}
		}
	}
	_, err = p.s.Update(ctx, nil, func(now *projector.Outline) ([]events.Payload, error) {
		newest, err := newestPrompt(ctx, now)
		added = err == nil && (newest == nil || *newest != prompt)
		switch {
		case !added:
			return nil, err
		case now.Offset() == 0:
			return []events.Payload{&events.SessionCreated{Kind: events.KindPrompts, CreatedAt: events.TimestampOf(p.s.Store().Now())}, add}, nil
		}
		return []events.Payload{add}, nil
	})
	return added && err == nil, err
}

// newestPrompt returns the newest turn that is a prompt, or nil.
func newestPrompt(ctx context.Context, now *projector.Outline) (*string, error) {
	for n := now.Len(PromptsSession); n > 0; n-- {
		turns, err := now.Turns(ctx, PromptsSession, n-1, n)
		if err != nil {
			return nil, err
		}
		if text, ok := promptOf(turns[0].Raw); ok {
			return &text, nil
		}
	}
	return nil, nil
}

// plainPrompt returns the prompt of a record that only appends one.
func plainPrompt(rec events.Record) (string, bool) {
	a, ok := projector.Decode(rec).Payload.(*events.TurnAppended)
	if _, seen := rec.Basis(); !ok || seen || len(a.Entries) != 1 || len(a.Pins) > 0 || a.Entries[0].Thread != PromptsSession {
		return "", false
	}
	return promptOf(a.Entries[0].Turn)
}

// promptOf decodes a turn that is a JSON string.
func promptOf(turn json.RawMessage) (string, bool) {
	if len(turn) == 0 || turn[0] != '"' {
		return "", false
	}
	var text string
	err := json.Unmarshal(turn, &text)
	return text, err == nil
}
