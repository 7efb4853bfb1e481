package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/lib/pq" // a driver of rowCommits
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // a driver of rowCommits

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Names of the measurements.
const (
	whatDurable    = "tally durable"
	whatBuffered   = "tally buffered"
	whatSyncAlways = "JetStream sync_always"
	whatAsync      = "JetStream default"
	whatDisk       = "write + fdatasync"
	whatPostgres   = "PostgreSQL row commits"
	whatSQLite     = "SQLite row commits"
	whatBatching   = "tally durable, batches of 100 beside 64"
	whatBeside     = "tally durable, beside one that batches"
	whatBesideCopy = "tally durable, beside a file copy"
)

// benchTurn is the size of a turn, in bytes.
const benchTurn = 512

// ways are the ways to write; each has a directory of its own.
var ways = []struct {
	what string
	run  func(ctx context.Context, dir string, producers int, d time.Duration) (measured, error)
}{
	{whatDurable, func(ctx context.Context, dir string, producers int, d time.Duration) (measured, error) {
		return tallyAppends(ctx, dir, producers, d, (*log.Log).Append)
	}},
	{whatSyncAlways, func(ctx context.Context, dir string, producers int, d time.Duration) (measured, error) {
		return rawPublishes(ctx, dir, producers, d, true)
	}},
	{whatBuffered, func(ctx context.Context, dir string, producers int, d time.Duration) (measured, error) {
		return tallyAppends(ctx, dir, producers, d, (*log.Log).AppendBuffered)
	}},
	{whatAsync, func(ctx context.Context, dir string, producers int, d time.Duration) (measured, error) {
		return rawPublishes(ctx, dir, producers, d, false)
	}},
	{whatSQLite, sqliteCommits},
}

// produce runs producers that call write for the duration d, and returns the measurement.
func produce(ctx context.Context, producers int, d time.Duration, write func(ctx context.Context, producer int) error) (measured, error) {
	var mu sync.Mutex
	var all []int64 // microseconds
	var failed error
	var running sync.WaitGroup
	began := time.Now()
	for p := range producers {
		running.Go(func() {
			var own []int64
			for time.Since(began) < d && ctx.Err() == nil {
				before := time.Now()
				if err := write(ctx, p); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				own = append(own, time.Since(before).Microseconds())
			}
			mu.Lock()
			all = append(all, own...)
			mu.Unlock()
		})
	}
	running.Wait()
	took := time.Since(began)
	if failed != nil || len(all) == 0 {
		return measured{}, failed
	}
	return quantiles(all, took), nil
}

// quantiles returns the distribution of call times in microseconds.
func quantiles(all []int64, took time.Duration) measured {
	slices.Sort(all)
	at := func(share float64) int64 { return all[min(int(share*float64(len(all))), len(all)-1)] }
	return measured{PerSecond: float64(len(all)) / took.Seconds(), P50: at(0.5), P99: at(0.99), P999: at(0.999), Appends: len(all)}
}

// turnBytes returns a turn of benchTurn bytes.
var turnBytes = events.Raw(fmt.Sprintf(`{"role":"user","content":"%0*d"}`, benchTurn-30, 0))

// benchEvent returns a turn for the producer's own session.
func benchEvent(producer int) (events.Event, error) {
	sub := events.Session("bench", "producer-"+strconv.Itoa(producer))
	return events.New("urn:tally:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: turnBytes}}})
}

type appendMethod func(*log.Log, context.Context, events.Subject, log.Expect, ...events.Event) (log.Ack, error)

func tallyAppends(ctx context.Context, dir string, producers int, d time.Duration, method appendMethod) (m measured, err error) {
	err = withStore(ctx, dir, func(l *log.Log) (err error) {
		m, err = produce(ctx, producers, d, appendOne(l, method))
		return err
	})
	return m, err
}

// withStore runs f on a new store.
func withStore(ctx context.Context, dir string, f func(*log.Log) error) error {
	dir, err := os.MkdirTemp(dir, "store-")
	if err != nil {
		return err
	}
	s, err := embedded.Start(ctx, embedded.ServerOptions{Dir: dir, Private: true})
	if err != nil {
		return err
	}
	return errors.Join(f(s.Log()), s.Close(), discard(dir))
}

// discard removes the files of a step and the pages that are not written back, so that the next step has the disk to
// itself.
func discard(dir string) error { return errors.Join(os.RemoveAll(dir), syncAll(filepath.Dir(dir))) }

// appendOne appends an event of a producer.
func appendOne(l *log.Log, method appendMethod) func(context.Context, int) error {
	return func(ctx context.Context, p int) error {
		e, err := benchEvent(p)
		if err == nil {
			_, err = method(l, ctx, e.Subject, log.Any, e)
		}
		return err
	}
}

// besideBatches measures 64 producers and, at the same time, one that appends a hundred events at once. Its figures
// are those of batches.
func besideBatches(ctx context.Context, dir string, d time.Duration) (found []measured, err error) {
	const others, batch = 64, 100
	err = withStore(ctx, dir, func(l *log.Log) error {
		var batches measured
		var failed error
		var running sync.WaitGroup
		running.Go(func() {
			batches, failed = produce(ctx, 1, d, func(ctx context.Context, _ int) error {
				evs := make([]events.Event, batch)
				for i := range evs {
					if evs[i], failed = benchEvent(others); failed != nil {
						return failed
					}
				}
				_, err := l.Append(ctx, evs[0].Subject, log.Any, evs...)
				return err
			})
		})
		beside, err := produce(ctx, others, d, appendOne(l, (*log.Log).Append))
		running.Wait()
		batches.What, batches.Producers = whatBatching, 1
		beside.What, beside.Producers = whatBeside, others
		found = []measured{batches, beside}
		return errors.Join(err, failed)
	})
	return found, err
}

// besideCopy measures 16 producers while a large file is written to the same disk without a sync.
func besideCopy(ctx context.Context, dir string, d time.Duration) (found []measured, err error) {
	const producers = 16
	copying, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = copyFile(copying, filepath.Join(dir, "copy")) })
	err = withStore(ctx, dir, func(l *log.Log) error {
		m, err := produce(ctx, producers, d, appendOne(l, (*log.Log).Append))
		m.What, m.Producers = whatBesideCopy, producers
		found = []measured{m}
		return err
	})
	stop()
	running.Wait()
	return found, errors.Join(err, failed)
}

// copyFile writes a file of half a gigabyte over and over until ctx is done.
func copyFile(ctx context.Context, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for n := int64(0); ctx.Err() == nil && err == nil; n++ {
		_, err = f.WriteAt(chunk, n%512*int64(len(chunk)))
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

// postgresCommits measures a PostgreSQL server; each producer has a connection.
func postgresCommits(ctx context.Context, url string, producers int, d time.Duration) (measured, error) {
	return rowCommits(ctx, "postgres", url, "tally_bench (n bigserial PRIMARY KEY, session text NOT NULL, data bytea NOT NULL)", producers, producers, d)
}

// sqliteCommits measures a table in a SQLite file, by one connection.
func sqliteCommits(ctx context.Context, dir string, producers int, d time.Duration) (measured, error) {
	return inSQLite(dir, func(url string) (measured, error) {
		return rowCommits(ctx, "sqlite", url, "tally_bench (n INTEGER PRIMARY KEY, session text NOT NULL, data blob NOT NULL)", 1, producers, d)
	})
}

// inSQLite runs f on a SQLite file that loses nothing in a power cut: a write-ahead log, synced by each commit. SQLite
// has one writer at a time, so one connection is faster than many that wait for each other's lock.
func inSQLite(dir string, f func(url string) (measured, error)) (m measured, err error) {
	dir, err = os.MkdirTemp(dir, "sqlite-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, discard(dir)) }()
	return f("file:" + filepath.Join(dir, "bench.db") + "?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
}

// rowCommits measures a database: each transaction adds a row with the size of an event.
func rowCommits(ctx context.Context, driver, url, table string, connections, producers int, d time.Duration) (measured, error) {
	return withTables(ctx, driver, url, connections, []string{table}, func(db *sql.DB) (m measured, err error) {
		insert, err := db.PrepareContext(ctx, "INSERT INTO tally_bench (session, data) VALUES ($1, $2)")
		if err != nil {
			return m, err
		}
		data := make([]byte, benchTurn)
		return produce(ctx, producers, d, func(ctx context.Context, p int) error {
			_, err := insert.ExecContext(ctx, fmt.Sprintf("producer-%d", p), data)
			return err
		})
	})
}

// withTables runs f on a database with some tables, each given by name and columns, and drops them afterwards.
func withTables(ctx context.Context, driver, url string, connections int, tables []string, f func(*sql.DB) (measured, error)) (m measured, err error) {
	db, err := sql.Open(driver, url)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, "CREATE TABLE "+table); err != nil {
			return m, err
		}
		name, _, _ := strings.Cut(table, " ")
		defer func() {
			_, dropped := db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+name)
			err = errors.Join(err, dropped)
		}()
	}
	return f(db)
}

// rawPublishes measures the server alone: the same messages to the same subjects, by its own client.
func rawPublishes(ctx context.Context, dir string, producers int, d time.Duration, syncAlways bool) (m measured, err error) {
	err = withRaw(ctx, dir, syncAlways, func(js jetstream.JetStream) error {
		m, err = rawPublishesTo(ctx, js, producers, d)
		return err
	})
	return m, err
}

// withRaw runs f on a new server.
func withRaw(ctx context.Context, dir string, syncAlways bool, f func(jetstream.JetStream) error) (err error) {
	dir, err = os.MkdirTemp(dir, "raw-")
	if err != nil {
		return err
	}
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, SyncAlways: syncAlways, DisableJetStreamBanner: true})
	if err != nil {
		return err
	}
	go srv.Start()
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
		err = errors.Join(err, discard(dir))
	}()
	if !srv.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the server did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return f(js)
}

func rawPublishesTo(ctx context.Context, js jetstream.JetStream, producers int, d time.Duration) (measured, error) {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "RAW", Subjects: []string{events.SubjectFilter}, AllowDirect: true}); err != nil {
		return measured{}, err
	}
	return produce(ctx, producers, d, func(ctx context.Context, p int) error {
		e, err := benchEvent(p)
		if err != nil {
			return err
		}
		e.ID, e.Time = events.DerivedID(fmt.Sprint(time.Now().UnixNano()), fmt.Sprint(p)), time.Now()
		header, data := events.EncodeBinary(e)
		msg := &nats.Msg{Subject: e.Subject.NATS(), Header: make(nats.Header, len(header)+1), Data: data}
		maps.Copy(msg.Header, header)
		msg.Header["Nats-Msg-Id"] = []string{e.MsgID()}
		_, err = js.PublishMsg(ctx, msg)
		return err
	})
}

// writeAndSync measures the disk alone: single writes with the size of an event, each with a sync of the file's data.
func writeAndSync(ctx context.Context, dir string, d time.Duration) (m measured, err error) {
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err != nil {
		return m, err
	}
	defer f.Close()
	line := make([]byte, benchTurn+300) // an event has headers too
	return produce(ctx, 1, d, func(context.Context, int) error {
		if _, err := f.Write(line); err != nil {
			return err
		}
		return syncData(f)
	})
}
