package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Verify folds the log from the start and compares the result with the files of views in a directory, row by row. It
// returns the first difference of each view. A view that is missing or of another version is not a difference, because
// it will be built. progress, if not nil, is called with the views' progress.
func Verify(ctx context.Context, src projector.Follower, dir string, views []View, progress func(view string, c projector.Cursor)) ([]projector.Finding, error) {
	var findings []projector.Finding
	tmp, err := os.MkdirTemp("", "tally-verify-")
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer os.RemoveAll(tmp)
	for _, v := range views {
		what, err := verify(ctx, src, v.New(tmp, slog.New(slog.DiscardHandler)), filepath.Join(dir, v.File), progress)
		if err != nil {
			return findings, err
		}
		if what != "" {
			findings = append(findings, projector.Finding{Subject: v.Name, What: what})
		}
	}
	return findings, nil
}

// verify compares one view with a fold from the start, up to the view's cursor.
func verify(ctx context.Context, src projector.Follower, fresh Edition, path string, progress func(string, projector.Cursor)) (string, error) {
	defer fresh.Close()
	if _, err := os.Stat(path); err != nil {
		return "", nil
	}
	r, err := openAny(ctx, fresh.own().form, path)
	if err != nil {
		if _, other := errors.AsType[*versionError](err); other {
			return "", nil // the next process to open the store rebuilds it
		}
		return damageOf(err)
	}
	defer r.Close()
	return compare(ctx, src, r, fresh, progress)
}

// compare reads the stored view in one transaction, so that concurrent writes do not affect it.
func compare(ctx context.Context, src projector.Follower, r *viewReader, fresh Edition, progress func(string, projector.Cursor)) (string, error) {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return "", r.wrap(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return "", r.wrap(err)
	}
	c, _, err := readCursor(ctx, conn, r.view)
	if err == nil {
		err = r.check(ctx, conn)
	}
	if own, is := fresh.(*ownView); is && err == nil {
		own.seed, err = seedOf(ctx, conn)
	}
	if err != nil || c.Offset == 0 {
		return damageOf(r.wrap(err))
	}
	run := &projector.Runner{Log: src, View: fresh, Upto: c.Offset}
	if err := run.CatchUp(ctx, func(c projector.Cursor) {
		if progress != nil {
			progress(fresh.Name(), c)
		}
	}); err != nil {
		return "", err
	}
	if at := run.Cursor(); at.Offset != c.Offset || at.EventID != c.EventID {
		return fmt.Sprintf("it is at event %q, %v; the log has %q at %v", c.EventID, c.Offset, at.EventID, at.Offset), nil
	}
	for _, table := range fresh.own().tables {
		var diff string
		if _, isOwn := fresh.(*ownView); isOwn {
			diff, err = ownDifference(ctx, conn, fresh.own().conn, table)
		} else {
			diff, err = difference(ctx, conn, fresh.own().conn, table, current, current)
		}
		if err != nil {
			return damageOf(r.wrap(err))
		}
		if diff != "" {
			return diff, nil
		}
	}
	return "", nil
}

// seedOf returns the quarantine of a view. Where the batches of an own view end decides which record fails.
func seedOf(ctx context.Context, q querier) (map[events.Subject]events.Offset, error) {
	list, err := readQuarantine(ctx, q, current)
	seed := make(map[events.Subject]events.Offset)
	for _, q := range list {
		seed[q.Subject] = q.Offset
	}
	return seed, err
}

// damageOf returns the text of an error that reports damage of the stored file. It passes on other errors.
func damageOf(err error) (string, error) {
	if errors.Is(err, ErrNoView) && !errors.Is(err, syscall.ENOSPC) {
		return err.Error(), nil
	}
	return "", err
}
