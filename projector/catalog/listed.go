package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/tallylog/tally/projector"
)

// Listed lists the sessions of a kind, "" for all, in the order of their ids, as the
// catalog in a directory has them. One that left a session aside is ErrNoView.
func Listed(ctx context.Context, dir, namespace, kind string) ([]projector.Listed, error) {
	r, err := Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	aside, err := readQuarantine(ctx, r.db, current)
	if err == nil && len(aside) > 0 {
		return nil, fmt.Errorf("%w: %s was left aside", ErrNoView, aside[0].Subject)
	}
	if err != nil {
		return nil, r.wrap(err)
	}
	rows, err := r.db.QueryContext(ctx, `SELECT s.id, s.kind, s.raw_offset, coalesce(r.kind, ''), count(r.id) FROM sessions s
		LEFT JOIN runs r ON r.session=s.session AND r.versions>0
		WHERE s.namespace=? AND (s.kind=? OR ?='') GROUP BY s.session, r.kind ORDER BY s.id`, namespace, kind, kind)
	var list []projector.Listed
	err = each(rows, err, func() error {
		var s projector.Listed
		var run string
		var results int
		if err := rows.Scan(&s.ID, &s.Kind, offset(&s.Raw), &run, &results); err != nil {
			return err
		}
		if n := len(list); n == 0 || list[n-1].ID != s.ID {
			s.Results = make(map[string]int)
			list = append(list, s)
		}
		if results > 0 {
			list[len(list)-1].Results[run] = results
		}
		return nil
	})
	return list, r.wrap(err)
}

// Folded calls f with a directory in which views are, made of the log for that and removed
// afterwards: for those who need them where they cannot be kept.
func Folded(ctx context.Context, l projector.Follower, views []View, lg *slog.Logger, f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "tally-views-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, v := range views {
		e := v.New(dir, lg)
		r := &projector.Runner{Log: l, View: e, Logger: lg}
		if err := errors.Join(r.CatchUp(ctx, nil), e.Close()); err != nil {
			return err
		}
	}
	return f(dir)
}
