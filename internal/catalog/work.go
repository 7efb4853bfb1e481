package catalog

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Work is the view of open work: queues and their items, inboxes and their messages, flows, agents, documents that
// expire, and subjects whose owner is gone. It is a projector.View. WorkReader reads it. The view decides nothing: for
// each due entry, a daemon reads the log again and decides.
//
// Only these subjects are folded, so a log of conversations costs almost nothing. A record is folded at the commit,
// onto the rows of its subject, so only the records since the last commit are in memory. Rows of queues and items are
// written after all records are folded, because most of them have several.
type Work struct {
	viewFile
	pending []workStep
	held    int64
	refold  bool // everything must be folded again

	queues map[[2]string]*queueRows // by namespace and id, during a commit
}

// workStep is the effect of a record on the rows.
type workStep struct {
	subject events.Subject
	fold    func(context.Context) error
}

// NewWork returns the view in a directory, for a projector.Runner.
func NewWork(dir string, lg *slog.Logger) *Work {
	return newWork(filepath.Join(dir, WorkFileName), current, lg)
}

func newWork(path, set string, lg *slog.Logger) *Work {
	return &Work{viewFile: viewFile{form: workForm, path: path, set: set, logger: lg}}
}

// Name implements projector.View.
func (w *Work) Name() string { return w.view }

func (w *Work) clear() { w.pending, w.held, w.refold = nil, 0, false }

// Begin implements projector.View.
func (w *Work) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	w.clear()
	return w.begin(ctx)
}

// Reset implements projector.View.
func (w *Work) Reset(ctx context.Context) error {
	w.clear()
	return w.reset(ctx)
}

// Wants implements projector.Selective.
func (w *Work) Wants(sub events.Subject) bool { return projector.IsWork(sub) }

// Apply implements projector.View.
func (w *Work) Apply(_ context.Context, f projector.Fact) error {
	if !w.Wants(f.Subject) {
		return nil
	}
	fold := w.foldOf(f)
	if fold == nil {
		return nil
	}
	w.pending = append(w.pending, workStep{f.Subject, fold})
	w.held += int64(256 + len(f.Data))
	return nil
}

// foldOf returns the effect of a record on the rows, or nil.
func (w *Work) foldOf(f projector.Fact) func(context.Context) error {
	sub := f.Subject
	if !sub.IsSession() {
		return w.documentFold(f)
	}
	kind, name, _ := strings.Cut(sub.ID, "/")
	switch kind {
	case events.KindQueue:
		return func(ctx context.Context) error { return w.foldQueue(ctx, name, f) }
	case events.KindItem:
		return func(ctx context.Context) error { return w.foldItem(ctx, f) }
	case events.KindInbox:
		m := mailIn(name, f)
		return func(ctx context.Context) error { return w.foldInbox(ctx, m) }
	case events.KindAgent:
		return func(ctx context.Context) error { return w.foldAgent(ctx, name, f) }
	case events.KindFlow:
		return func(ctx context.Context) error { return w.foldFlow(ctx, name, f) }
	}
	return nil
}

// Held implements projector.View.
func (w *Work) Held() int64 { return w.held }

// Quarantine implements projector.View.
func (w *Work) Quarantine(q projector.Quarantine) {
	w.aside = append(w.aside, q)
	w.pending = slices.DeleteFunc(w.pending, func(s workStep) bool { return s.subject == q.Subject })
}

// Forget implements projector.View. Rows depend on the records of several subjects in log order, so one subject cannot
// be folded again alone. The next run folds all of them.
func (w *Work) Forget(context.Context, events.Subject) error {
	w.refold = true
	return nil
}

// Commit implements projector.View.
func (w *Work) Commit(ctx context.Context, c projector.Cursor) error {
	if w.refold {
		return w.Reset(ctx)
	}
	w.queues = make(map[[2]string]*queueRows)
	defer func() { w.queues = nil }()
	err := w.commit(ctx, c, func(ctx context.Context) error {
		for _, s := range w.pending {
			if err := s.fold(ctx); err != nil {
				return err
			}
		}
		return w.storeQueues(ctx)
	})
	if err == nil {
		clear(w.pending)
		w.pending, w.held = w.pending[:0], 0
		w.scrub(ctx)
	}
	return err
}

// Close closes the file. The next writer folds uncommitted records again.
func (w *Work) Close() error { return w.close() }
