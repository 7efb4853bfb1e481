package tavern

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
)

// PersistedAgent is an entry of a person's list of agents. Unknown members stay.
type PersistedAgent struct {
	ID              string        `json:"id"`
	Name            string        `json:"name"`
	SessionID       string        `json:"sessionId,omitempty"`
	ChatDescription string        `json:"chatDescription,omitempty"`
	Unknown         events.Fields `json:",unknown"`
}

// AgentChange is a change of an entry. Nil leaves a field unchanged.
type AgentChange struct {
	Name, SessionID, ChatDescription *string
}

// PersistedAgents returns the list of agents, in the order in which they were added, or an empty list. The list is one
// document; changes of it are transactions.
func (p *Personal) PersistedAgents(ctx context.Context) ([]PersistedAgent, error) {
	var list []PersistedAgent
	if err := p.get(ctx, agentsSetting, &list); err != nil && !errors.Is(err, tally.ErrNotFound) {
		return nil, err
	}
	return list, nil
}

// PersistedAgent returns an entry of the list.
func (p *Personal) PersistedAgent(ctx context.Context, id string) (PersistedAgent, error) {
	list, err := p.PersistedAgents(ctx)
	if err != nil {
		return PersistedAgent{}, err
	}
	if i := indexOfAgent(list, id); i >= 0 {
		return list[i], nil
	}
	return PersistedAgent{}, noAgent(id)
}

func indexOfAgent(list []PersistedAgent, id string) int {
	return slices.IndexFunc(list, func(a PersistedAgent) bool { return a.ID == id })
}

func noAgent(id string) error { return fmt.Errorf("agent %q: %w", id, tally.ErrNotFound) }

// AddAgent appends an agent to the list, or replaces the agent with the same id.
func (p *Personal) AddAgent(ctx context.Context, a PersistedAgent) error {
	if a.ID == "" {
		return &events.InvalidError{Field: "id", Reason: "it is empty"}
	}
	return p.changeAgents(ctx, func(_ *tally.Tx, list []PersistedAgent) ([]PersistedAgent, error) {
		if i := indexOfAgent(list, a.ID); i >= 0 {
			list[i] = a
			return list, nil
		}
		return append(list, a), nil
	})
}

// UpdateAgent changes an entry of the list.
func (p *Personal) UpdateAgent(ctx context.Context, id string, c AgentChange) error {
	return p.changeAgents(ctx, func(_ *tally.Tx, list []PersistedAgent) ([]PersistedAgent, error) {
		i := indexOfAgent(list, id)
		if i < 0 {
			return nil, noAgent(id)
		}
		a := &list[i]
		for _, f := range []struct{ field, to *string }{{&a.Name, c.Name}, {&a.SessionID, c.SessionID}, {&a.ChatDescription, c.ChatDescription}} {
			if f.to != nil {
				*f.field = *f.to
			}
		}
		return list, nil
	})
}

// RemoveAgent removes an agent from the list and deletes its session, in one transaction.
func (p *Personal) RemoveAgent(ctx context.Context, id string) error {
	return p.changeAgents(ctx, func(tx *tally.Tx, list []PersistedAgent) ([]PersistedAgent, error) {
		i := indexOfAgent(list, id)
		if i < 0 {
			return nil, noAgent(id)
		}
		if err := tx.Delete(ctx, kindSetting, AgentKey(id), "cleared"); err != nil && !errors.Is(err, tally.ErrNotFound) {
			return nil, err
		}
		return slices.Delete(list, i, i+1), nil
	})
}

// ClearAgents empties the list. Sessions stay: ClearSessions deletes them.
func (p *Personal) ClearAgents(ctx context.Context) error { return p.remove(ctx, agentsSetting) }

// changeAgents changes the list in a transaction.
func (p *Personal) changeAgents(ctx context.Context, change func(*tally.Tx, []PersistedAgent) ([]PersistedAgent, error)) error {
	d, err := p.documents()
	if err != nil {
		return err
	}
	return d.Tx(ctx, func(tx *tally.Tx) error {
		var list []PersistedAgent
		doc, err := tx.Read(ctx, kindSetting, agentsSetting)
		if err == nil && doc.Erased == "" {
			err = parseSetting(agentsSetting, doc.Data, &list)
		}
		if err != nil && !errors.Is(err, tally.ErrNotFound) {
			return err
		}
		if list, err = change(tx, list); err != nil {
			return err
		}
		w, err := settingWrite(list)
		if err != nil {
			return err
		}
		return tx.Save(ctx, kindSetting, agentsSetting, w)
	})
}
