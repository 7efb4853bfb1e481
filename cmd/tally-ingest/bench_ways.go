package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// Names of what is measured.
const (
	whatDurable    = "tally durable"
	whatBuffered   = "tally buffered"
	whatSyncAlways = "JetStream sync_always"
	whatAsync      = "JetStream default"
	whatDisk       = "write + fdatasync"
)

// benchTurn is the size of a turn, in bytes.
const benchTurn = 512

// ways to write; each has a directory of its own.
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
}

// produce has so many producers call write for as long as d, and measures.
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
	slices.Sort(all)
	at := func(part float64) int64 { return all[min(int(part*float64(len(all))), len(all)-1)] }
	return measured{PerSecond: float64(len(all)) / took.Seconds(), P50: at(0.5), P99: at(0.99), P999: at(0.999), Appends: len(all)}, nil
}

// benchEvent is a turn of a session of the producer's own.
func benchEvent(producer int) (events.Event, error) {
	sub := events.Session("bench", fmt.Sprintf("producer-%d", producer))
	turn := events.Raw(fmt.Sprintf(`{"role":"user","content":"%0*d"}`, benchTurn-30, 0))
	return events.New("urn:tally:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: turn}}})
}

type appendMethod func(*log.Log, context.Context, events.Subject, log.Expect, ...events.Event) (log.Ack, error)

func tallyAppends(ctx context.Context, dir string, producers int, d time.Duration, method appendMethod) (m measured, err error) {
	dir, err = os.MkdirTemp(dir, "store-")
	if err != nil {
		return m, err
	}
	s, err := embedded.Start(ctx, embedded.ServerOptions{Dir: dir, Private: true})
	if err != nil {
		return m, err
	}
	defer s.Close()
	return produce(ctx, producers, d, func(ctx context.Context, p int) error {
		e, err := benchEvent(p)
		if err == nil {
			_, err = method(s.Log(), ctx, e.Subject, log.Any, e)
		}
		return err
	})
}

// rawPublishes measures the server alone: the same messages to the same subjects,
// by its own client.
func rawPublishes(ctx context.Context, dir string, producers int, d time.Duration, syncAlways bool) (m measured, err error) {
	dir, err = os.MkdirTemp(dir, "raw-")
	if err != nil {
		return m, err
	}
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, SyncAlways: syncAlways, DisableJetStreamBanner: true})
	if err != nil {
		return m, err
	}
	go srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	if !srv.ReadyForConnections(10 * time.Second) {
		return m, fmt.Errorf("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return m, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return m, err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "RAW", Subjects: []string{events.SubjectFilter}, AllowDirect: true}); err != nil {
		return m, err
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

// writeAndSync measures the disk alone: one write of an event's size and a sync of
// the file's data, one after the other.
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
