package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// itemRows describes how a database keeps items.
type itemRows struct {
	driver, columns string
	skip            string // makes a claim skip rows that others are claiming
	syncs           string // query whether a commit is on the disk when it returns; empty: it always is
}

var (
	sqliteRows   = itemRows{driver: "sqlite", columns: "id INTEGER PRIMARY KEY, body blob NOT NULL, result blob"}
	postgresRows = itemRows{driver: "postgres", columns: "id bigserial PRIMARY KEY, body bytea NOT NULL, result bytea", skip: " FOR UPDATE SKIP LOCKED",
		syncs: "SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off'"}
)

// rowItems measures a table of a database; each step of an item is a transaction. Like tally it keeps finished items,
// and has an index of the others.
func rowItems(ctx context.Context, rows itemRows, url string, connections, workers int, d time.Duration) (measured, error) {
	table := "tally_bench (" + rows.columns + ", state int NOT NULL DEFAULT 0, attempt int NOT NULL DEFAULT 0, worker text, lease bigint)"
	return withTables(ctx, rows.driver, url, connections, []string{table}, func(db *sql.DB) (m measured, err error) {
		synced := true
		if rows.syncs != "" {
			err = db.QueryRowContext(ctx, rows.syncs).Scan(&synced)
		}
		if err == nil && !synced {
			err = errors.New("the server does not sync commits: want fsync and synchronous_commit on")
		}
		if err == nil {
			_, err = db.ExecContext(ctx, "CREATE INDEX tally_bench_ready ON tally_bench (id) WHERE state = 0")
		}
		if err != nil {
			return m, err
		}
		life, err := rowLife(ctx, db, rows, workers)
		if err != nil {
			return m, err
		}
		return lives(ctx, workers, d, life)
	})
}

func rowLife(ctx context.Context, db *sql.DB, rows itemRows, workers int) (l itemLife, err error) {
	var stmts [3]*sql.Stmt
	for n, text := range []string{
		"INSERT INTO tally_bench (body) VALUES ($1)",
		"UPDATE tally_bench SET state = 1, attempt = attempt + 1, worker = $1, lease = $2 WHERE id = (SELECT id FROM tally_bench WHERE state = 0 ORDER BY id LIMIT 1" + rows.skip + ") RETURNING id, body",
		"UPDATE tally_bench SET state = 2, result = $1 WHERE id = $2 AND worker = $3 AND state = 1",
	} {
		if stmts[n], err = db.PrepareContext(ctx, text); err != nil {
			return l, err
		}
	}
	claims := make([]int64, workers)
	return itemLife{
		enqueue: func(ctx context.Context, _ int) error {
			_, err := stmts[0].ExecContext(ctx, []byte(turnBytes))
			return err
		},
		claim: func(ctx context.Context, w int) error {
			for {
				var body []byte
				err := stmts[1].QueryRowContext(ctx, strconv.Itoa(w), time.Now().Add(itemLease).UnixMilli()).Scan(&claims[w], &body)
				if !errors.Is(err, sql.ErrNoRows) { // otherwise others were claiming all visible rows
					return err
				}
			}
		},
		finish: func(ctx context.Context, w int) error {
			done, err := stmts[2].ExecContext(ctx, itemResult, claims[w], strconv.Itoa(w))
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); err != nil || n != 1 {
				return errors.Join(err, fmt.Errorf("item %d was finished %d times", claims[w], n))
			}
			return nil
		},
	}, nil
}
