package tally

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Host is what the process around a Store provides: the projectors that it runs, the views
// that it can ask, the trees of files that it keeps. Package embedded fills it in. Each
// field may be nil or zero.
type Host struct {
	// Keep runs the projectors, from Open to Close: the one that writes snapshots, and
	// one for each view. The owner of a store sets it; other processes leave the work to
	// the owner.
	Keep  bool
	Views []projector.View // over all subjects

	// PatientViews are views that may be a little behind: they leave the machine to
	// appends, as projector.Patient says, until a call of Wait asks for them.
	PatientViews []projector.View

	Policy projector.Policy // of Config.Snapshots: how often one is written
	Cursor string           // file that says how far the projector of snapshots has got
	Room   func() error     // called before a view is written: projector.Runner's

	// ViewsDir is the folder of the views' files, which another process may write. "": there
	// are no files. Shown waits until the view of a name shows an offset, if another process
	// writes the view.
	ViewsDir string
	Shown    func(ctx context.Context, view string, at events.Offset) error

	// Shows is called after each append, before that returns: it waits until the files of
	// trees in mode sync show what is at an offset in subjects. An error is a *TreeError.
	// nil: the store has no trees in mode sync.
	Shows func(ctx context.Context, at events.Offset, subs ...events.Subject) error

	// KeepFiles is [Store.KeepFiles] of a namespace; nil: this process keeps no trees.
	KeepFiles func(ctx context.Context, namespace, layout, dir string) error

	// Catalog lists sessions as the view "catalog" has them. Progress lists what happened in
	// the runs of one session. nil: lists are read from the log.
	Catalog  func(ctx context.Context, q projector.SessionQuery) ([]projector.Listed, error)
	Progress func(ctx context.Context, q projector.ProgressQuery) ([]projector.Progress, error)

	// Lister lists documents as the view "catalog" has them; nil: lists are read from the log.
	Lister func(ctx context.Context, q projector.DocumentQuery) (list []projector.DocumentListed, next string, err error)

	// Lacks returns the lost records that a view does not show: of those that the log knows of, and of
	// others that the process knows. nil: those that the log knows of.
	Lacks func(ctx context.Context, view string, lost []log.Hole) ([]log.Hole, error)

	// Queue returns a queue as the view "work" has it, without finished items and with at
	// most that many of the free ones, all if most is 0, and the offset up to which the
	// answer is true. nil: queues are read from the log.
	Queue func(ctx context.Context, namespace, id string, limit int) (*projector.Work, events.Offset, error)

	// Usage returns what the store, owners and kinds hold in documents, and their limits.
	// SetLimit sets one, 0 for no limit. nil: this process does not count, and limits cannot
	// be set from here.
	Usage    func(ctx context.Context) ([]projector.Usage, error)
	SetLimit func(ctx context.Context, scope string, bytes int64) error

	// Beside runs from Open to Close, when its context ends: the work of a store's owner
	// besides keeping views.
	Beside func(ctx context.Context, st *Store)

	// OnClose is called by Close, last: it closes what the log stands on.
	OnClose func() error
}
