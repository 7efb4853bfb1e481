package errata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

const wayOut = "import into another namespace (--namespace), or take the folder's content over it (--merge)"

// origin is what the session shall say of where it comes from. The first name of
// the root stays.
func (im *importer) origin(s *projector.Session, u *unit) *events.Origin {
	o := &events.Origin{Format: Format, Root: im.root, Marker: im.marker, Birth: u.birth}
	if have := s.Ledger.Origin(); have != nil && im.isSameOrigin(have, u.birth) {
		o.Root, o.Birth = have.Root, cmp.Or(o.Birth, have.Birth)
	}
	return o
}

// refusal says why a session must not be changed by this folder, "" if it may.
func (im *importer) refusal(ctx context.Context, p *plan) (string, error) {
	if p.fresh() || im.o.Merge {
		return "", nil
	}
	have := p.s.Ledger.Origin()
	switch {
	case have == nil:
		return "the session exists, was not imported and differs from the folder: " + wayOut, nil
	case !im.isSameOrigin(have, p.u.birth):
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
		case rec.Type == events.TypeRunFinished, rec.Type == events.TypeRunAnnotated:
			c.runs = true
		case rec.Type == events.TypeSessionUpdated, rec.Type == events.TypeCheckpointSaved, rec.Type == events.TypeCheckpointCleared:
			c.head = true
		}
	}
	return c, nil
}

// contradicts reports whether a plan would undo any of it. To add turns to what
// others added takes nothing away.
func (c changes) contradicts(p *plan) bool {
	return c.threads && p.rewrites || c.rewound && (p.rewrites || p.extends) || c.runs && p.again || c.head && p.head
}

// refuse reports a session that is left as it is.
func (im *importer) refuse(u *unit, reason string) {
	if reason == "" {
		return
	}
	im.report.Sessions++
	im.report.Refused = append(im.report.Refused, u.id)
	im.problem(path.Join(u.dir, beside[u.id]), 0, reason)
}
