package tally

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tallylog/tally/projector"
)

// own returns the views that the program brings.
func (st *Store) own(view string) (OwnViews, error) {
	if st.config.Host.Own == nil {
		return nil, fmt.Errorf("view %s: %w", view, ErrNotFound)
	}
	return st.config.Host.Own, nil
}

// View opens a view that the program brings for SQL queries: see package projector/view. It shows what the view has
// read, whichever process keeps it. The caller closes it soon, because a later version of the file replaces it. If the
// program has no such view, or no process has kept it yet, the error is ErrNotFound.
func (st *Store) View(ctx context.Context, view string) (*sql.DB, error) {
	own, err := st.own(view)
	if err != nil {
		return nil, err
	}
	return own.Open(ctx, view)
}

// Rebuild folds a view that the program brings from the first event on, beside the present one, and replaces that.
// Readers see one or the other. An interrupted Rebuild continues the next time.
func (st *Store) Rebuild(ctx context.Context, view string) error {
	own, err := st.own(view)
	if err != nil {
		return err
	}
	return own.Rebuild(ctx, view)
}

// Retry folds each subject in the quarantine of a view that the program brings from its first event, and returns those
// that are in the view again.
func (st *Store) Retry(ctx context.Context, view string) ([]projector.Quarantine, error) {
	own, err := st.own(view)
	if err != nil {
		return nil, err
	}
	return own.Retry(ctx, view)
}

// VerifyViews folds the views that the program brings from the first event on, and returns the first difference of each
// one. tally verify does so for tally's views.
func (st *Store) VerifyViews(ctx context.Context) ([]projector.Finding, error) {
	if st.config.Host.Own == nil {
		return nil, nil
	}
	return st.config.Host.Own.Verify(ctx)
}
