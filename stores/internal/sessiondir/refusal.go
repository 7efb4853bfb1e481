package sessiondir

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// revive brings an archived session back. The caller's state is outdated then, so revive returns ErrChanged, or
// another error.
func (in *Intake) revive(ctx context.Context, s *projector.Session, status events.Raw) error {
	if status == nil {
		status = events.Raw("null")
	}
	e, err := events.New(in.Source, s.Subject, &events.SessionUpdated{Set: events.Fields{{Name: "status", Value: status}}, Reason: "import"})
	if err != nil {
		return err
	}
	ack, err := in.Target.Append(ctx, s.Subject, log.Since(s.Offset(), events.TypeSessionUpdated), in.Named(e, s.Offset(), "revived", ""))
	if err == nil && !ack.Duplicate {
		in.Added(1)
	}
	return cmp.Or(err, ErrChanged)
}

// erased returns why the import must not change a session if content of its turns was erased, and else "". A tree shows
// the remaining turns of such a session, and imports edits of them.
func (in *Intake) erased(s *projector.Session) string {
	if in.Options.Part {
		return ""
	}
	for _, name := range s.Threads.Names() {
		for _, t := range s.Threads.Turns(name) {
			if t.Erased != "" {
				return fmt.Sprintf("content of the session was erased (receipt %s), and it differs from the %s", t.Erased, in.noun)
			}
		}
	}
	return ""
}

// refusal returns why the import must not change a session, "" if it may.
func (in *Intake) refusal(ctx context.Context, s *projector.Session, kind, birth string, p Plan) (string, error) {
	have := s.Ledger.Origin()
	switch {
	case kind != "" && s.Ledger.Kind != kind:
		return "the session exists and is of kind " + s.Ledger.Kind, nil
	case have == nil:
		return "the session exists, was not imported and differs from the " + in.noun, nil
	case !in.isSameOrigin(have, birth):
		return fmt.Sprintf("the session exists, was imported from %s and differs from this one", in.another(have.Root)), nil
	}
	since, err := ChangedSince(ctx, in.Target, s.Subject, in.Source)
	if err != nil || !p.Contradicts(since) {
		return "", err
	}
	return "the session was changed after its last import, and differs from the " + in.noun, nil
}

func (in *Intake) another(root string) string {
	if in.noun == "file" {
		return fmt.Sprintf("another file (below %q)", root)
	}
	return fmt.Sprintf("another folder (%q)", root)
}

// wayOut tells the user how to import a refused session.
func (in *Intake) wayOut() string {
	return "import into another namespace (--namespace), or take the " + in.noun + "'s content over it (--merge)"
}
