package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/stores/tavern"
)

// Names of the measurements of queues. An item is added, claimed and finished, and each step is durable when it
// returns.
const (
	whatItems         = "queue items"
	whatSQLiteItems   = "SQLite rows, claimed by update"
	whatPostgresItems = "PostgreSQL rows, SKIP LOCKED"
	whatRawItems      = "JetStream work queue, sync_always"
)

// itemPeers are the systems that queue items are compared with.
var itemPeers = []string{whatSQLiteItems, whatPostgresItems, whatRawItems,
	whatStreams + redisAlways, whatStreams + redisEverySecond, whatLists + redisAlways, whatLists + redisEverySecond}

// queueSteps returns the steps of the benchmark of queues.
func (b *bencher) queueSteps(dir string) []step {
	var steps []step
	for _, n := range b.producers {
		add := func(what string, run func(context.Context, time.Duration) (measured, error)) {
			steps = append(steps, one(what, n, run))
		}
		add(whatItems, func(ctx context.Context, d time.Duration) (measured, error) { return tallyItems(ctx, dir, n, d) })
		add(whatSQLiteItems, func(ctx context.Context, d time.Duration) (measured, error) {
			return inSQLite(dir, func(url string) (measured, error) { return rowItems(ctx, sqliteRows, url, 1, n, d) })
		})
		add(whatRawItems, func(ctx context.Context, d time.Duration) (measured, error) { return rawItems(ctx, dir, n, d) })
		if b.postgres != "" || os.Getenv("PGHOST") != "" {
			add(whatPostgresItems, func(ctx context.Context, d time.Duration) (measured, error) {
				return rowItems(ctx, postgresRows, b.postgres, n, n, d)
			})
		}
		if b.redis == "" {
			continue
		}
		for _, mode := range []string{redisAlways, redisEverySecond} {
			for what, life := range redisLives {
				add(what+mode, func(ctx context.Context, d time.Duration) (measured, error) {
					return redisItems(ctx, b.redis, mode, n, d, life)
				})
			}
		}
	}
	return append(steps,
		one(whatStarted, 1, func(ctx context.Context, d time.Duration) (measured, error) { return ackToStart(ctx, dir, d) }),
		step{whatStartedBeside, func(ctx context.Context, d time.Duration) ([]measured, error) {
			return ackToStartBeside(ctx, dir, d)
		}})
}

// itemLife has the calls of a worker. A worker claims the next item, and finishes the item that it claimed last.
type itemLife struct {
	enqueue, claim, finish func(ctx context.Context, number int) error
}

// lives runs workers that add, claim and finish items for the duration d. They add as many items as they claim, so
// that no claim waits for ever.
func lives(ctx context.Context, workers int, d time.Duration, item itemLife) (measured, error) {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	parts := []part{{What: "enqueue"}, {What: "claim"}, {What: "finish"}}
	spent := make([][]int64, len(parts))
	var failed error // the first error: later ones follow from the stop
	m, err := produce(life, workers, d, func(ctx context.Context, w int) error {
		var took [3]int64
		for n, f := range []func(context.Context, int) error{item.enqueue, item.claim, item.finish} {
			before := time.Now()
			if err := f(ctx, w); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = fmt.Errorf("%s: %w", parts[n].What, err)
				}
				cancel()
				return failed
			}
			took[n] = time.Since(before).Microseconds()
		}
		mu.Lock()
		defer mu.Unlock()
		for n := range took {
			spent[n] = append(spent[n], took[n])
		}
		return nil
	})
	if ctx.Err() != nil { // the parent context has the reason
		return m, nil
	}
	if err != nil || len(spent[0]) == 0 {
		return m, err
	}
	for n := range parts {
		q := quantiles(spent[n], d)
		parts[n].P50, parts[n].P99, parts[n].P999 = q.P50, q.P99, q.P999
	}
	m.Parts = parts
	return m, nil
}

// tallyItems measures a queue of a store with its views, as programs open it.
func tallyItems(ctx context.Context, dir string, workers int, d time.Duration) (m measured, err error) {
	err = withViews(ctx, dir, func(st *tally.Store, _ string) error {
		q, claims := tavern.QueueOf(st, benchKind), make([]*tavern.Claim, workers)
		if err := q.Create(ctx, tavern.QueueSettings{}); err != nil {
			return err
		}
		m, err = lives(ctx, workers, d, itemLife{
			enqueue: func(ctx context.Context, _ int) error {
				_, err := q.Enqueue(ctx, tavern.Item{Body: turnBytes})
				return err
			},
			claim: func(ctx context.Context, w int) (err error) {
				claims[w], err = q.Next(ctx, strconv.Itoa(w))
				return err
			},
			finish: func(ctx context.Context, w int) error { return claims[w].Finish(ctx, itemResult) },
		})
		return err
	})
	return m, err
}

// itemResult is the result of an item.
var itemResult = []byte(`"done"`)

// rawItems measures a work-queue stream of the server alone: acknowledged messages are removed, and claims are in the
// memory of the server.
func rawItems(ctx context.Context, dir string, workers int, d time.Duration) (m measured, err error) {
	err = withRaw(ctx, dir, true, func(js jetstream.JetStream) error {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "QUEUE", Subjects: []string{benchKind}, Retention: jetstream.WorkQueuePolicy}); err != nil {
			return err
		}
		c, err := js.CreateConsumer(ctx, "QUEUE", jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: itemLease, MaxAckPending: -1})
		if err != nil {
			return err
		}
		claims := make([]jetstream.Msg, workers)
		m, err = lives(ctx, workers, d, itemLife{
			enqueue: func(ctx context.Context, _ int) error {
				_, err := js.Publish(ctx, benchKind, turnBytes)
				return err
			},
			claim: func(ctx context.Context, w int) (err error) {
				claims[w], err = c.Next(jetstream.FetchContext(ctx))
				return err
			},
			finish: func(ctx context.Context, w int) error { return claims[w].DoubleAck(ctx) },
		})
		return err
	})
	return m, err
}

// itemLease is the duration of a peer's claim, the default of tally's queues.
const itemLease = 2 * time.Minute
