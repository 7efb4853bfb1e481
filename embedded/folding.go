package embedded

import (
	"context"
	"log/slog"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/projector"
)

// erasedNotice is the subject of the owner's notice that records were erased. Attached processes drop what they keep of
// the log.
const erasedNotice = "tally.api.v1.erased"

// folding makes everything that a store derives from its log forget what the log has erased.
type folding struct {
	st     *tally.Store
	dir    string         // of the views
	own    tally.OwnViews // views of this program; nil: none
	trees  *keeper.Trees
	tell   func() error // publishes erasedNotice; nil: there are no other processes
	logger *slog.Logger
}

// again removes the snapshots of subjects, folds the subjects again in the views, and writes their files in the trees
// again. The caller names the forks of the subjects too. It may be repeated after an error. A tree that cannot be
// written is no error: its folder may be away for long.
func (f folding) again(ctx context.Context, subjects []events.Subject) error {
	if f.tell != nil {
		if err := f.tell(); err != nil {
			return err
		}
	}
	if err := f.st.Loader().Erase(ctx, subjects...); err != nil {
		return err
	}
	for _, v := range catalog.Views(render.Opening, render.Said) {
		if err := f.refold(ctx, v, subjects); err != nil {
			return err
		}
	}
	err := f.refoldOwn(ctx, subjects)
	if lost := f.trees.Refold(ctx, subjects); lost != nil {
		f.logger.Warn("files may have erased content", "err", lost)
	}
	return err
}

// refold refolds one of tally's views, whether this process keeps it or nobody does.
func (f folding) refold(ctx context.Context, v catalog.View, subjects []events.Subject) error {
	for _, r := range f.st.Runners() {
		if r.View.Name() == v.Name {
			return v.Refold(ctx, f.dir, r, subjects)
		}
	}
	e := v.New(f.dir, f.logger)
	defer e.Close()
	return v.Refold(ctx, f.dir, &projector.Runner{Log: f.st.Log, View: e, Logger: f.logger}, subjects)
}

func (f folding) refoldOwn(ctx context.Context, subjects []events.Subject) error {
	if f.own != nil {
		return f.own.Refold(ctx, subjects)
	}
	return catalog.RemoveOwn(f.dir, func(catalog.OwnFile) bool { return false })
}
