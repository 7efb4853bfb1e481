package errata

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// PromptsSession is the session, and the thread in it, that hold what users typed,
// whatever session they typed it in.
const PromptsSession = "prompts"

// Prompts is the history of prompts, one for all sessions of a namespace. It is
// safe for concurrent use, also by several processes.
type Prompts struct{ s *Session }

// PromptsOf returns a handle on the history of prompts.
func PromptsOf(st *tally.Store) *Prompts { return &Prompts{Of(st, PromptsSession)} }

// List returns the prompts, newest first. What is not a prompt is left out.
func (p *Prompts) List(ctx context.Context) ([]string, error) {
	head, err := p.s.head(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	turns := head.Threads.Turns(PromptsSession)
	for i := len(turns) - 1; i >= 0; i-- {
		if text, ok := promptOf(turns[i].Raw); ok {
			list = append(list, text)
		}
	}
	return list, nil
}

// Record adds a prompt unless it is exactly the newest one, and reports whether it
// did. Of several writers of the same prompt at once, one adds it.
func (p *Prompts) Record(ctx context.Context, prompt string) (bool, error) {
	turn := mustJSON(prompt)
	e, err := events.New(p.s.Store().Source(), p.s.Subject(), &events.TurnAppended{Entries: []events.Entry{{Thread: PromptsSession, Turn: turn}}})
	if err != nil {
		return false, err
	}
	ready, err := p.s.Store().Prepare(ctx, p.s.Subject(), []events.Event{e})
	if err != nil {
		return false, err
	}
	prompt, _ = promptOf(turn) // as it will be read
	// The same event in every attempt, so that a lost answer does not add it twice.
	added := false
	err = tally.Retry(ctx, func() (err error) {
		added, err = p.record(ctx, prompt, ready[0])
		return err
	}, log.ErrConflict, log.ErrUnknown)
	return added, err
}

// record decides on what is there now.
func (p *Prompts) record(ctx context.Context, prompt string, e events.Event) (bool, error) {
	last, id, at, err := p.last(ctx)
	switch {
	case err != nil:
		return false, err
	case id == e.ID:
		return true, nil // an earlier attempt was stored, its answer was lost
	case last != nil && *last == prompt:
		return false, nil
	case at == 0:
		at, err = p.begin(ctx)
		if err != nil {
			return false, err
		}
	}
	_, err = p.s.Store().Log.Append(ctx, p.s.Subject(), log.At(at), e)
	return err == nil, err
}

// begin creates the session, with its kind.
func (p *Prompts) begin(ctx context.Context) (events.Offset, error) {
	ack, err := p.s.Create(ctx, events.SessionCreated{Kind: events.KindPrompts, CreatedAt: events.TimestampOf(p.s.Store().Now())})
	if errors.Is(err, tally.ErrExists) {
		return 0, &log.ConflictError{Subject: p.s.Subject()} // somebody else began it: look again
	}
	return ack.Last, err
}

// last returns the newest prompt and the session's last record. As a rule the
// record is the prompt, and nothing else needs to be read.
func (p *Prompts) last(ctx context.Context) (prompt *string, id string, at events.Offset, err error) {
	rec, err := p.s.Store().Log.Last(ctx, p.s.Subject())
	if errors.Is(err, log.ErrNotFound) {
		return nil, "", 0, nil
	}
	if err != nil {
		return nil, "", 0, err
	}
	if text, ok := plainPrompt(rec); ok {
		return &text, rec.ID, rec.Offset, nil
	}
	head, err := p.s.head(ctx)
	if err != nil {
		return nil, "", 0, err
	}
	turns := head.Threads.Turns(PromptsSession)
	for i := len(turns) - 1; i >= 0; i-- {
		if text, ok := promptOf(turns[i].Raw); ok {
			return &text, head.Ledger.LastID, head.Offset(), nil
		}
	}
	return nil, head.Ledger.LastID, head.Offset(), nil
}

// plainPrompt returns the prompt of a record that brings one and does nothing else.
func plainPrompt(rec events.Record) (string, bool) {
	a, ok := projector.Decode(rec).Payload.(*events.TurnAppended)
	if _, seen := rec.Seen(); !ok || seen || len(a.Entries) != 1 || len(a.Pins) > 0 || a.Entries[0].Thread != PromptsSession {
		return "", false
	}
	return promptOf(a.Entries[0].Turn)
}

// promptOf reads a turn that is a JSON string.
func promptOf(turn json.RawMessage) (string, bool) {
	if len(turn) == 0 || turn[0] != '"' {
		return "", false
	}
	var text string
	err := json.Unmarshal(turn, &text)
	return text, err == nil
}
