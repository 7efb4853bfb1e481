package tallydir

import (
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// Contradicts implements sessiondir.Plan. Adding turns after those of other writers removes nothing.
func (p *plan) Contradicts(since map[string]bool) bool {
	if sessiondir.MovesThreads(since) && p.rewrites || since[events.TypeSessionRewound] && (p.rewrites || p.main >= 0 || p.traces >= 0) {
		return true
	}
	if since[events.TypeRunFinished] {
		for _, s := range p.runs {
			if p.s.Ledger.Run(s.role.run) != nil {
				return true
			}
		}
	}
	if !since[events.TypeSessionUpdated] || p.updated == nil {
		return false
	}
	_, trajectory := p.updated.Set.Get("trajectory")
	return trajectory || p.updated.Raw != nil
}

// fullID returns the id for a shortened folder name. The folder's files have it.
func (f *folder) fullID() string {
	for _, name := range []string{metaName, turnsName} {
		if id := f.idIn(name); layouts.FileName(id) == f.name() {
			return id
		}
	}
	return f.name()
}

// idIn reads the id from meta.json or from the first line of a conversation.
func (f *folder) idIn(name string) string {
	s := f.file(name)
	if s == nil {
		return ""
	}
	if name == metaName {
		data, err := f.read(s)
		if err != nil {
			return ""
		}
		v, err := sessiondir.ReadJSON(data, 0)
		if err != nil {
			return ""
		}
		return v.Object.Text("id")
	}
	r, err := f.Tree.Open(s.Full)
	if err != nil {
		return ""
	}
	defer r.Close()
	id := ""
	_ = sessiondir.EachTurn(r, f.Limit, func(t sessiondir.TurnLine) error { // the id is optional: an unreadable file has none
		id = t.Step.Text("conversationId")
		return io.EOF // the rest is not needed
	})
	return id
}
