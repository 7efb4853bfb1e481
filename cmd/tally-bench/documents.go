package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Names of the measurements of documents.
const (
	whatUpdates         = "document updates"
	whatTransactions    = "transactions over 3 documents"
	whatBucketUpdates   = "JetStream bucket updates, sync_always"
	whatSQLiteUpdates   = "SQLite updates"
	whatPostgresUpdates = "PostgreSQL updates"
	whatNewestOfOne     = "newest of 1 revision"
	whatNewestOfMany    = "newest of 10,000 revisions"
	whatFirstPage       = "first 100 of 100,000 by prefix"
	whatWatched         = "from ack to watch"
)

const benchKind = "bench"

// documentSteps returns the steps of the benchmark of documents. Each writer has one document or three, and replaces
// its own last revision.
func (b *bencher) documentSteps(dir string) []step {
	var steps []step
	for _, n := range b.producers {
		steps = append(steps,
			one(whatUpdates, n, func(ctx context.Context, d time.Duration) (measured, error) { return documentUpdates(ctx, dir, n, d) }),
			one(whatSQLiteUpdates, n, func(ctx context.Context, d time.Duration) (measured, error) { return sqliteUpdates(ctx, dir, n, d) }),
			one(whatBucketUpdates, n, func(ctx context.Context, d time.Duration) (measured, error) { return bucketUpdates(ctx, dir, n, d) }))
		if b.postgres != "" || os.Getenv("PGHOST") != "" {
			steps = append(steps, one(whatPostgresUpdates, n, func(ctx context.Context, d time.Duration) (measured, error) {
				return rowUpdates(ctx, "postgres", b.postgres, "bytea", n, n, d)
			}))
		}
		steps = append(steps, one(whatTransactions, n, func(ctx context.Context, d time.Duration) (measured, error) { return transactions(ctx, dir, n, d) }))
	}
	return append(steps,
		step{whatNewestOfMany, func(ctx context.Context, d time.Duration) ([]measured, error) { return newestContents(ctx, dir, d) }},
		one(whatFirstPage, 1, func(ctx context.Context, d time.Duration) (measured, error) { return firstPage(ctx, dir, d) }),
		one(whatWatched, 1, func(ctx context.Context, d time.Duration) (measured, error) { return ackToWatch(ctx, dir, d) }))
}

// withViews runs f on a new store with its views, as programs open it.
func withViews(ctx context.Context, dir string, f func(st *tally.Store, dir string) error) error {
	dir, err := os.MkdirTemp(dir, "store-")
	if err != nil {
		return err
	}
	st, err := embedded.Open(ctx, embedded.Options{Backend: "local", Store: dir})
	if err != nil {
		return err
	}
	return errors.Join(f(st, dir), st.Close(), discard(dir))
}

var benchWrite = tally.Write{Data: turnBytes, ContentType: events.ContentTypeJSON}

func documentUpdates(ctx context.Context, dir string, writers int, d time.Duration) (m measured, err error) {
	err = withViews(ctx, dir, func(st *tally.Store, _ string) error {
		docs, base := st.Documents(), make([]events.Offset, writers)
		m, err = produce(ctx, writers, d, func(ctx context.Context, w int) error {
			var rev projector.Revision
			var err error
			if base[w] == 0 {
				rev, err = docs.Create(ctx, benchKind, strconv.Itoa(w), benchWrite)
			} else {
				rev, err = docs.Update(ctx, benchKind, strconv.Itoa(w), base[w], benchWrite)
			}
			base[w] = rev.Offset
			return err
		})
		return err
	})
	return m, err
}

func transactions(ctx context.Context, dir string, writers int, d time.Duration) (m measured, err error) {
	err = withViews(ctx, dir, func(st *tally.Store, _ string) error {
		docs := st.Documents()
		m, err = produce(ctx, writers, d, func(ctx context.Context, w int) error {
			return docs.Tx(ctx, func(tx *tally.Tx) error {
				for n := range 3 {
					id := fmt.Sprint(w, "-", n)
					if _, err := tx.Read(ctx, benchKind, id); err != nil && !errors.Is(err, tally.ErrNotFound) {
						return err
					}
					if err := tx.Save(ctx, benchKind, id, benchWrite); err != nil {
						return err
					}
				}
				return nil
			})
		})
		return err
	})
	return m, err
}

// bucketUpdates measures a key-value bucket of the server alone, which syncs each message. Every writer replaces its
// own last revision.
func bucketUpdates(ctx context.Context, dir string, writers int, d time.Duration) (m measured, err error) {
	err = withRaw(ctx, dir, true, func(js jetstream.JetStream) error {
		bucket, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "BENCH", History: 64})
		if err != nil {
			return err
		}
		last := make([]uint64, writers)
		m, err = produce(ctx, writers, d, func(ctx context.Context, w int) (err error) {
			last[w], err = bucket.Update(ctx, strconv.Itoa(w), turnBytes, last[w])
			return err
		})
		return err
	})
	return m, err
}

// sqliteUpdates measures tables in a SQLite file, by one connection.
func sqliteUpdates(ctx context.Context, dir string, writers int, d time.Duration) (measured, error) {
	return inSQLite(dir, func(url string) (measured, error) { return rowUpdates(ctx, "sqlite", url, "blob", 1, writers, d) })
}

// rowUpdates measures a database with the same data as tally: a transaction replaces a row, if it has the expected
// revision, and adds the revision to the history.
func rowUpdates(ctx context.Context, driver, url, bytes string, connections, writers int, d time.Duration) (measured, error) {
	tables := []string{
		"tally_bench (id text PRIMARY KEY, revision bigint NOT NULL, data " + bytes + " NOT NULL)",
		"tally_bench_history (id text NOT NULL, revision bigint NOT NULL, data " + bytes + " NOT NULL, PRIMARY KEY(id, revision))",
	}
	return withTables(ctx, driver, url, connections, tables, func(db *sql.DB) (m measured, err error) {
		for w := range writers {
			if _, err := db.ExecContext(ctx, "INSERT INTO tally_bench VALUES ($1, 0, $2)", strconv.Itoa(w), []byte{}); err != nil {
				return m, err
			}
		}
		last := make([]int64, writers)
		return produce(ctx, writers, d, func(ctx context.Context, w int) error { return updateRow(ctx, db, w, &last[w]) })
	})
}

// updateRow replaces a row if it has the revision that the writer expects.
func updateRow(ctx context.Context, db *sql.DB, w int, last *int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	done, err := tx.ExecContext(ctx, "UPDATE tally_bench SET revision = revision + 1, data = $1 WHERE id = $2 AND revision = $3", []byte(turnBytes), strconv.Itoa(w), *last)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%d rows of document %d were replaced", n, w))
	}
	*last++
	if _, err := tx.ExecContext(ctx, "INSERT INTO tally_bench_history VALUES ($1, $2, $3)", strconv.Itoa(w), *last, []byte(turnBytes)); err != nil {
		return err
	}
	return tx.Commit()
}

// newestContents measures reads of a document with one revision, and of one with many.
func newestContents(ctx context.Context, dir string, d time.Duration) (found []measured, err error) {
	const many = 10_000
	data := make([]byte, 4<<10)
	err = withViews(ctx, dir, func(st *tally.Store, _ string) error {
		docs := st.Documents()
		if _, err := docs.Create(ctx, benchKind, "one", tally.Write{Data: data}); err != nil {
			return err
		}
		if err := fill(many, func(int) error {
			_, err := docs.Save(ctx, benchKind, "many", tally.Write{Data: data})
			return err
		}); err != nil {
			return err
		}
		for _, of := range []struct{ what, id string }{{whatNewestOfOne, "one"}, {whatNewestOfMany, "many"}} {
			m, err := produce(ctx, 1, d/2, func(ctx context.Context, _ int) error {
				_, err := docs.Read(ctx, benchKind, of.id)
				return err
			})
			if err != nil {
				return err
			}
			m.What, m.Producers = of.what, 1
			found = append(found, m)
		}
		return nil
	})
	return found, err
}

// fill calls a function a number of times, from several goroutines.
func fill(n int, write func(i int) error) error {
	const writers = 64
	var running sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		running.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				errs[w] = write(i)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func firstPage(ctx context.Context, dir string, d time.Duration) (m measured, err error) {
	const many = 100_000
	err = withViews(ctx, dir, func(st *tally.Store, _ string) error {
		docs := st.Documents()
		if err := fill(many, func(i int) error {
			_, err := docs.Save(ctx, benchKind, fmt.Sprintf("%d/%06d", i%10, i), tally.Write{Data: turnBytes[:64]})
			return err
		}); err != nil {
			return err
		}
		if _, err := st.Shows(ctx, "catalog"); err != nil {
			return err
		}
		m, err = produce(ctx, 1, d, func(ctx context.Context, _ int) error {
			list, _, err := docs.List(ctx, projector.DocumentQuery{Kind: benchKind, Prefix: "7/", Limit: 100})
			if err == nil && len(list) != 100 {
				err = fmt.Errorf("a page of %d", len(list))
			}
			return err
		})
		return err
	})
	return m, err
}

// ackToWatch measures the time from the acknowledgement of a revision until a watcher sees it.
func ackToWatch(ctx context.Context, dir string, d time.Duration) (m measured, err error) {
	err = withViews(ctx, dir, func(st *tally.Store, _ string) error {
		docs := st.Documents()
		watching, stop := context.WithCancel(ctx)
		defer stop()
		seen := make(chan events.Offset, 1)
		failed := make(chan error, 1)
		head, err := st.Log.Head(ctx)
		if err != nil {
			return err
		}
		go func() {
			defer close(failed)
			for c, err := range docs.Watch(watching, projector.DocumentQuery{Kind: benchKind}, head) {
				if err != nil {
					if watching.Err() == nil {
						failed <- err
					}
					return
				}
				seen <- c.Offset
			}
		}()
		var waits []int64
		for began := time.Now(); time.Since(began) < d && ctx.Err() == nil; {
			rev, err := docs.Save(ctx, benchKind, "watched", benchWrite)
			if err != nil {
				return err
			}
			acked := time.Now()
			select {
			case at := <-seen:
				if at != rev.Offset {
					return fmt.Errorf("the watcher saw %v, want %v", at, rev.Offset)
				}
			case err := <-failed:
				return err
			}
			waits = append(waits, time.Since(acked).Microseconds())
		}
		stop()
		m = quantiles(waits, d)
		return nil
	})
	return m, err
}
