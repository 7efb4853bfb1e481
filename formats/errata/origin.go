package errata

import (
	"cmp"
	"context"
	"fmt"
	"path"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/projector"
)

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
		return "the session exists, was not imported and differs from the folder: " + foreign.WayOut, nil
	case !im.isSameOrigin(have, p.u.birth):
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
	head := since[events.TypeSessionUpdated] || since[events.TypeCheckpointSaved] || since[events.TypeCheckpointCleared]
	return foreign.MovesThreads(since) && p.rewrites || since[events.TypeSessionRewound] && (p.rewrites || p.extends) ||
		(since[events.TypeRunFinished] || since[events.TypeRunAnnotated]) && p.again || head && p.head
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
