package tallydir

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

const wayOut = "import into another namespace (--namespace), or take the folder's content over it (--merge)"

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
		return "the session exists, was not imported and differs from the folder: " + wayOut, nil
	case !im.isSameOrigin(have, p.f.birth):
		return fmt.Sprintf("the session exists, was imported from another folder (%q) and differs from this one: %s", have.Root, wayOut), nil
	}
	since, err := im.since(ctx, p.s.Subject)
	if err != nil || !since.contradicts(p) {
		return "", err
	}
	return "the session was changed after its last import, and differs from the folder: " + wayOut, nil
}

// changes says what others did to a session after its last import.
type changes struct {
	threads, rewound, runs, head bool
}

func (im *importer) since(ctx context.Context, sub events.Subject) (changes, error) {
	var c changes
	for rec, err := range im.target.Loader().Source.Read(ctx, events.Range{Subject: sub}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue
		}
		switch {
		case err != nil:
			return c, err
		case rec.Source == EventSource:
			c = changes{}
		case events.IsThread(rec.Type):
			c.threads = true
		case rec.Type == events.TypeSessionRewound:
			c.rewound = true
		case rec.Type == events.TypeRunFinished:
			c.runs = true
		case rec.Type == events.TypeSessionUpdated:
			c.head = true
		}
	}
	return c, nil
}

// contradicts reports whether a plan would undo any of it. To add turns to what
// others added takes nothing away.
func (c changes) contradicts(p *plan) bool {
	if c.threads && p.rewrites || c.rewound && (p.rewrites || p.main >= 0 || p.traces >= 0) {
		return true
	}
	if c.runs {
		for _, s := range p.runs {
			if p.s.Ledger.Run(s.place.run) != nil {
				return true
			}
		}
	}
	if !c.head || p.updated == nil {
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
	_ = foreign.EachTurn(r, f.limit, func(raw []byte) error { // the id is a help: a file that cannot be read has none
		if object, err := rawjson.Object(raw); err == nil {
			id = memberText(object, "conversationId")
		}
		return errStop
	})
	return id
}
