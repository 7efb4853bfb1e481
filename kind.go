package tally

import (
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// KindError reports a session of another kind than the caller asked for, or a kind that does not allow a rewind, a fork or
// an erasure. Nothing was written.
type KindError struct {
	ID   string // of the session; of a document, its name
	Want string // kind that the caller asked for; "": one that allows it
	Have string // kind that the session or document has
	Why  string // reason; "": the kind is neither rewound nor forked
}

func (e *KindError) Error() string {
	switch {
	case e.Why != "":
		return fmt.Sprintf("%s is of the kind %s: %s", e.ID, e.Have, e.Why)
	case e.Want == "":
		return fmt.Sprintf("session %q is of kind %s, which is neither rewound nor forked", e.ID, e.Have)
	}
	return fmt.Sprintf("session %q is of kind %s, not %s", e.ID, e.Have, e.Want)
}

// checkRewind returns a *KindError for a session that cannot be rewound or forked.
func checkRewind(sub events.Subject, l *projector.Ledger) error {
	if events.CanRewind(l.Kind) {
		return nil
	}
	return &KindError{ID: sub.ID, Have: l.Kind}
}

// CheckKind returns a *KindError for a session that exists and is of another kind.
func CheckKind(sub events.Subject, l *projector.Ledger, want string) error {
	if l.Records == 0 || l.Kind == want {
		return nil
	}
	return &KindError{ID: sub.ID, Want: want, Have: l.Kind}
}
