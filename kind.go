package tally

import (
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// KindError reports that a session is of another kind than the caller asked for, or of a kind that cannot be rewound or
// forked. Nothing was written.
type KindError struct {
	ID   string
	Want string // kind that the caller asked for; "": one that can be rewound and forked
	Have string // kind that the session has
}

func (e *KindError) Error() string {
	if e.Want == "" {
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
