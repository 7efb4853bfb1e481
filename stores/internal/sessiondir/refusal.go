package sessiondir

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// revive has a session be there again that was put away. Then it is another one than was looked
// at: the error says so, if there is no other.
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

// refusal says why a session must not be changed by what is imported, "" if it may.
func (in *Intake) refusal(ctx context.Context, s *projector.Session, kind, birth string, p Plan) (string, error) {
	have := s.Ledger.Origin()
	switch {
	case kind != "" && s.Ledger.Kind != kind:
		return "the session exists and is of kind " + s.Ledger.Kind, nil
	case have == nil:
		return "the session exists, was not imported and differs from the " + in.unit, nil
	case !in.isSameOrigin(have, birth):
		return fmt.Sprintf("the session exists, was imported from %s and differs from this one", in.another(have.Root)), nil
	}
	since, err := ChangedSince(ctx, in.Target, s.Subject, in.Source)
	if err != nil || !p.Contradicts(since) {
		return "", err
	}
	return "the session was changed after its last import, and differs from the " + in.unit, nil
}

func (in *Intake) another(root string) string {
	if in.unit == "file" {
		return fmt.Sprintf("another file (below %q)", root)
	}
	return fmt.Sprintf("another folder (%q)", root)
}

// wayOut says what a user can do about what was refused.
func (in *Intake) wayOut() string {
	return "import into another namespace (--namespace), or take the " + in.unit + "'s content over it (--merge)"
}
