package cmdutil

import (
	"context"
	"iter"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
)

// SessionIDs lists the ids of the sessions in a namespace.
func SessionIDs(ctx context.Context, st *tally.Store, namespace string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for info, err := range st.Log.Subjects(ctx, namespace, events.KindSession) {
			if !yield(info.Subject.ID, err) {
				return
			}
		}
	}
}
