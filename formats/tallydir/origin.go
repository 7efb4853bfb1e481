package tallydir

import (
	"context"
	"fmt"
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// origin is what the session shall say of where it comes from. The first name of
// the root stays.
func (im *importer) origin(s *projector.Session, f *folder) *events.Origin {
	o := &events.Origin{Format: Format, Root: im.root, Marker: im.marker, Birth: f.birth}
	have := s.Ledger.Origin()
	if have != nil && im.isSameOrigin(have, f.birth) {
		o.Root = have.Root
		if o.Birth == "" {
			o.Birth = have.Birth
		}
	}
	return o
}

// refusal says why a session must not be changed by this folder, "" if it may.
func (im *importer) refusal(ctx context.Context, p *plan) (string, error) {
	if p.fresh || im.o.Merge {
		return "", nil
	}
	have := p.s.Ledger.Origin()
	switch {
	case have == nil:
		return "the session exists, was not imported and differs from the folder: " + foreign.WayOut, nil
	case !im.isSameOrigin(have, p.f.birth):
		return fmt.Sprintf("the session exists, was imported from another folder (%q) and differs from this one: %s", have.Root, foreign.WayOut), nil
	}
	since, err := foreign.ChangedSince(ctx, im.target, p.s.Subject, EventSource)
	if err != nil || !contradicts(since, p) {
		return "", err
	}
	return "the session was changed after its last import, and differs from the folder: " + foreign.WayOut, nil
}

// contradicts reports whether a plan would undo what others did after the last
// import. To add turns to what others added takes nothing away.
func contradicts(since map[string]bool, p *plan) bool {
	if foreign.MovesThreads(since) && p.rewrites || since[events.TypeSessionRewound] && (p.rewrites || p.main >= 0 || p.traces >= 0) {
		return true
	}
	if since[events.TypeRunFinished] {
		for _, s := range p.runs {
			if p.s.Ledger.Run(s.place.run) != nil {
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

// refuse reports a session that is left as it is.
func (im *importer) refuse(f *folder, reason string) {
	if reason == "" {
		return
	}
	im.report.Sessions++
	im.report.Refused = append(im.report.Refused, f.id)
	im.problem(path.Join(conversations, f.name), 0, reason)
}

// fullID finds the id of which a folder's name is the shortened form: its files
// say it.
func (im *importer) fullID(f *folder) string {
	for _, name := range []string{metaName, turnsName} {
		if id := im.idIn(f, name); formats.FileName(id) == f.name {
			return id
		}
	}
	return f.name
}

// idIn reads the id from meta.json or from the first line of a conversation.
func (im *importer) idIn(f *folder, name string) string {
	s := f.file(name)
	if s == nil {
		return ""
	}
	if name == metaName {
		data, err := f.read(s)
		if err != nil {
			return ""
		}
		v, err := foreign.ReadJSON(data, 0)
		if err != nil {
			return ""
		}
		object, err := rawjson.Object(v.Raw)
		if err != nil {
			return ""
		}
		return memberText(object, "id")
	}
	r, err := f.tree.Open(s.full)
	if err != nil {
		return ""
	}
	defer r.Close()
	id := ""
	_ = foreign.EachTurn(r, f.limit, func(t foreign.TurnLine) error { // the id is a help: a file that cannot be read has none
		id = memberText(t.Step, "conversationId")
		return errStop
	})
	return id
}
