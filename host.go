package tally

import (
	"context"
	"database/sql"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Host is what the process around a Store provides: its projectors, views and trees of files. Package embedded fills it
// in. Each field may be nil or zero.
type Host struct {
	// Keep runs the projectors, from Open to Close: the one that writes snapshots, and
	// one for each view. The owner of a store sets it; other processes leave the work to
	// the owner.
	Keep  bool
	Views []projector.View // over all subjects

	// PatientViews are views that may be a little behind. They yield the machine to appends, as projector.Patient says,
	// until a call of Wait asks for them.
	PatientViews []projector.View

	Policy projector.Policy // how often a snapshot of Config.Snapshots is written
	Cursor string           // file with the position of the projector of snapshots
	Room   func() error     // called before a view is written: see projector.Runner

	// ViewsDir is the folder of the views' files, which another process may write. "": there are no files. Shown waits
	// until the named view shows an offset, if another process writes the view.
	ViewsDir string
	Shown    func(ctx context.Context, view string, at events.Offset) error

	// Own are the views that the program brings: see package projector/view. nil: none.
	Own OwnViews

	// Shows is called after each append, before that returns: it waits until the files of trees in mode sync show the
	// subjects as of an offset. An error is an *events.TreeError. nil: the store has no trees in mode sync.
	Shows func(ctx context.Context, at events.Offset, subs ...events.Subject) error

	// KeepFiles is [Store.KeepFiles] of a namespace; nil: this process keeps no trees.
	KeepFiles func(ctx context.Context, namespace, layout, dir string) error

	// Catalog lists sessions from the view "catalog". Progress lists the progress in the runs of one session. nil:
	// lists are read from the log.
	Catalog  func(ctx context.Context, q projector.SessionQuery) ([]projector.Listed, error)
	Progress func(ctx context.Context, q projector.ProgressQuery) ([]projector.Progress, error)

	// Lister lists documents from the view "catalog". nil: lists are read from the log.
	Lister func(ctx context.Context, q projector.DocumentQuery) (list []projector.DocumentListed, next string, err error)

	// Lacks returns the lost records that a view does not show, among lost and others that the process knows. nil: it
	// is lost itself.
	Lacks func(ctx context.Context, view string, lost []log.Hole) ([]log.Hole, error)

	// Queue returns a queue from the view "work", without finished items and with at most limit of the free ones, 0 for
	// all, and the offset up to which the view has read. nil: queues are read from the log.
	Queue func(ctx context.Context, namespace, id string, limit int) (*projector.Work, events.Offset, error)

	// Usage returns how much the store, owners and kinds hold in documents, and their limits. SetLimit sets a limit, 0
	// for none. nil: this process does not count, and limits cannot be set through it.
	Usage    func(ctx context.Context) ([]projector.Usage, error)
	SetLimit func(ctx context.Context, scope string, bytes int64) error

	// Erase removes the content of a plan's records, folds its subjects again, appends the receipt, and then returns. If it
	// returns an error after the store has the plan, the next owner of the store carries the plan out. nil: no process
	// can change the records of this store.
	Erase func(ctx context.Context, p erasure.Plan) error

	// Beside runs from Open until its context ends in Close. It does the owner's work other than views.
	Beside func(ctx context.Context, st *Store)

	// OnClose is called last by Close: it closes what the log depends on.
	OnClose func() error
}

// OwnViews are the views that a program brings. If a view has another name, the error of each method is ErrNotFound.
type OwnViews interface {
	Runners() []*projector.Runner // of the views that this process keeps
	Wait(ctx context.Context, view string, at events.Offset) error
	Open(ctx context.Context, view string) (*sql.DB, error)
	Rebuild(ctx context.Context, view string) error
	Retry(ctx context.Context, view string) ([]projector.Quarantine, error)
	Verify(ctx context.Context) ([]projector.Finding, error)

	// Refold makes the views forget what the log has erased of subjects: see [projector.Runner.Refold]. A view that
	// another program brings is built again.
	Refold(ctx context.Context, subjects []events.Subject) error
}
