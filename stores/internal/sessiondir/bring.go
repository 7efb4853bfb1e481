package sessiondir

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Work is the import of one session, after its files were read.
type Work struct {
	ID    string
	Place string // of its folder or file, for the report
	Kind  string // that a session must have to be changed; "": any
	Birth string // what the files say of its beginning

	Status events.Raw // what the files say of its status; nil: nothing

	Same   func() (bool, error)                       // reports whether the session gives the files back as they are
	Plan   func(origin *events.Origin) (Steps, error) // compares the files with the session
	Finish func(outcome *int)                         // reports what was read, and counts the session
}

// Steps is what has to happen so that a session gives its files back.
type Steps struct {
	// Contradicts reports whether that would undo what others did after the last import:
	// events of these types.
	Contradicts func(since map[string]bool) bool
	// Apply carries it out, and reports what does not come out.
	Apply func() error
}

// Bring brings one session in, which is as it was loaded. Nothing is added if it gives the
// files back already, or if it must not be changed by them: that is reported.
func (in *Intake) Bring(ctx context.Context, s *projector.Session, w Work) error {
	if in.Options.Part && IsArchived(s.Ledger) {
		return in.revive(ctx, s, w.Status)
	}
	fresh := s.Offset() == 0
	if !fresh {
		same, err := w.Same()
		if err != nil {
			return err
		}
		if same {
			w.Finish(&in.Report.Unchanged)
			return nil
		}
	}
	p, err := w.Plan(in.Origin(s, w.Birth))
	if err != nil {
		return err
	}
	if !fresh && !in.Options.Merge {
		reason, err := in.refusal(ctx, s, w.Kind, w.Birth, contradicts(p.Contradicts))
		if err != nil {
			return err
		}
		if reason != "" {
			in.Report.Sessions++
			in.Report.Refused = append(in.Report.Refused, w.ID)
			in.Problem(w.Place, 0, reason+": "+in.wayOut())
			return nil
		}
	}
	before := in.Report.Events
	if err := p.Apply(); err != nil {
		return err
	}
	switch {
	case fresh:
		w.Finish(&in.Report.Added)
	case in.Report.Events == before:
		w.Finish(&in.Report.Unchanged) // somebody else brought it in meanwhile
	default:
		w.Finish(&in.Report.Changed)
	}
	return nil
}

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
func (in *Intake) refusal(ctx context.Context, s *projector.Session, kind, birth string, p interface{ Contradicts(map[string]bool) bool }) (string, error) {
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

// contradicts is Steps' until no store has closures.
type contradicts func(map[string]bool) bool

func (c contradicts) Contradicts(since map[string]bool) bool { return c(since) }
