package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/tallylog/tally/projector"
)

// Listed lists the sessions that a query selects, from the catalog in a directory. If the catalog has quarantined a
// session, the error is ErrNoView.
func Listed(ctx context.Context, dir string, q projector.SessionQuery) ([]projector.Listed, error) {
	r, err := openWhole(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	where, order := "namespace=? AND (kind=? OR ?='') AND kind<>''", "id"
	if q.Stored {
		where += " AND raw_offset>0"
	}
	if q.Newest {
		order = "created_at DESC, id"
	}
	l := lists{byKey: make(map[int64]int), chosen: "FROM sessions s WHERE " + where + " ORDER BY " + order, args: []any{q.Namespace, q.Kind, q.Kind}}
	if q.Limit > 0 {
		l.chosen, l.args = l.chosen+" LIMIT ?", append(l.args, q.Limit)
	}
	tx, err := r.db.BeginTx(ctx, nil) // so that all reads see the same state
	if err != nil {
		return nil, r.wrap(err)
	}
	defer tx.Rollback()
	err = l.read(ctx, tx)
	if err == nil && q.Settings {
		err = l.readSettings(ctx, tx)
	}
	return l.list, r.wrap(err)
}

// openWhole opens the catalog in a directory, if it has no quarantined session.
func openWhole(ctx context.Context, dir string) (Reader, error) {
	r, err := Open(ctx, dir)
	if err != nil {
		return r, err
	}
	aside, err := readQuarantine(ctx, r.db, current)
	if err == nil && len(aside) > 0 {
		err = fmt.Errorf("%w: %s is quarantined", ErrNoView, aside[0].Subject.Name())
	} else {
		err = r.wrap(err)
	}
	if err != nil {
		r.Close()
	}
	return r, err
}

// lists is a list under construction.
type lists struct {
	chosen string // SQL that selects and orders the sessions
	args   []any
	list   []projector.Listed
	byKey  map[int64]int // index in list
}

// of returns the session with a key.
func (l *lists) of(key int64) *projector.Listed { return &l.list[l.byKey[key]] }

// read reads the sessions, and the number of their runs with a result.
func (l *lists) read(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, "SELECT session, id, kind, created_at, raw_offset "+l.chosen, l.args...)
	err = each(rows, err, func() error {
		s, key := projector.Listed{Results: make(map[string]int)}, int64(0)
		err := rows.Scan(&key, &s.ID, &s.Kind, &s.Began, offset(&s.Raw))
		l.byKey[key] = len(l.list)
		l.list = append(l.list, s)
		return err
	})
	if err != nil {
		return err
	}
	rows, err = db.QueryContext(ctx, "SELECT session, kind, count(*) FROM runs WHERE versions>0 AND session IN (SELECT session "+l.chosen+") GROUP BY session, kind", l.args...)
	return each(rows, err, func() error {
		var key int64
		var kind string
		var n int
		err := rows.Scan(&key, &kind, &n)
		l.of(key).Results[kind] = n
		return err
	})
}

// readSettings reads the settings of their runs.
func (l *lists) readSettings(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, "SELECT session, kind, id, setting_offset, touched_at FROM runs WHERE setting_offset>0 AND session IN (SELECT session "+l.chosen+") ORDER BY session, kind, id", l.args...)
	return each(rows, err, func() error {
		var key int64
		var s projector.RunSetting
		err := rows.Scan(&key, &s.Run.Kind, &s.Run.ID, offset(&s.Offset), &s.TouchedAt)
		in := l.of(key)
		in.Settings = append(in.Settings, s)
		return err
	})
}

// ProgressIn lists the progress that a query selects, from the catalog in a directory. If the catalog has quarantined a
// session, the error is ErrNoView.
func ProgressIn(ctx context.Context, dir string, q projector.ProgressQuery) ([]projector.Progress, error) {
	r, err := openWhole(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Progress(ctx, q)
}

// Folded builds views from the log in a temporary directory, calls f with it, and removes it. It is for callers that
// cannot store views.
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
