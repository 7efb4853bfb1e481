package storecopy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/log"
)

// BenchmarkCopy copies a store of 20,000 records to a server that others run, without the comparison, beside a publisher
// that only publishes the same messages to the same kind of stream, with as many unanswered at a time.
func BenchmarkCopy(b *testing.B) {
	const n = 20_000
	srv, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: b.TempDir(), Private: true})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	from := srv.Log()
	var pending []*log.Pending
	for i := range n {
		e := events.Event{Source: "urn:test", Type: "x.y", Data: []byte(`"` + strings.Repeat("x", 500) + `"`)}
		pending = append(pending, from.AppendAsync(b.Context(), events.Session("", fmt.Sprint("s", i%100)), log.Any, e))
	}
	for _, p := range pending {
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			to, err := log.Open(b.Context(), connect(b), log.Config{})
			if err != nil {
				b.Fatal(err)
			}
			c := storecopy.Copier{From: from, To: to}
			if at, err := c.Run(b.Context()); at != n || err != nil {
				b.Fatal(at, err)
			}
		}
		b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("raw", func(b *testing.B) {
		var all []*nats.Msg
		for rec, err := range from.Read(b.Context(), events.Range{}) {
			if err != nil {
				b.Fatal(err)
			}
			h, data := events.EncodeBinary(rec.Event)
			h["Nats-Msg-Id"] = []string{rec.MsgID()}
			all = append(all, &nats.Msg{Subject: rec.Subject.NATS(), Header: h, Data: data})
		}
		for b.Loop() {
			nc := connect(b)
			if _, err := log.Open(b.Context(), nc, log.Config{}); err != nil { // makes the stream
				b.Fatal(err)
			}
			js, err := jetstream.New(nc)
			if err != nil {
				b.Fatal(err)
			}
			var acks []jetstream.PubAckFuture
			for i, m := range all {
				ack, err := js.PublishMsgAsync(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
				if err != nil {
					b.Fatal(err)
				}
				if acks = append(acks, ack); i >= 256 {
					<-acks[i-256].Ok()
				}
			}
			<-js.PublishAsyncComplete()
		}
		b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
}

// connect starts a server, as another operator would, and connects to it over the loopback interface.
func connect(b *testing.B) *nats.Conn {
	b.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(), MaxPayload: 16 << 20,
		NoSigs: true, NoLog: true, DisableJetStreamBanner: true})
	if err != nil {
		b.Fatal(err)
	}
	go s.Start()
	b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		b.Fatal("the server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	return nc
}
