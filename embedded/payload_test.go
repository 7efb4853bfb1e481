package embedded_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// A server accepts a mebibyte in a message by default. Values of every size come back from it byte for byte.
func TestPayloadOfAServer(t *testing.T) {
	home(t, nil)
	s := mustServe(t, " }\nmax_payload: 1MB\n")
	st := mustOpen(t, embedded.Options{URL: s.ClientURL()})
	most := st.Log.MaxData()
	if most != 1<<20-64<<10 {
		t.Errorf("got MaxData %d", most)
	}
	noise := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	t.Run("B-34 documents", func(t *testing.T) {
		for _, size := range []int{most - 1, most, most + 1, 1 << 20, 4<<20 + 1, 64 << 20} {
			if size == 64<<20 && !testkit.Full() {
				size = 8 << 20
			}
			if _, err := st.Documents().Save(t.Context(), "doc", "d", tally.Write{Data: noise[:size], ContentType: "application/octet-stream"}); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			d, err := st.Documents().Read(t.Context(), "doc", "d")
			if err != nil || !bytes.Equal(d.Data, noise[:size]) {
				t.Errorf("%d bytes: got %d, %v", size, len(d.Data), err)
			}
		}
	})
	t.Run("B-34 turns", func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 7<<16) // 7 MiB
		sub := events.Session("", "s")
		ready, err := st.ByReference(t.Context(), st.Stamp(events.Event{Subject: sub, Source: "test://embedded", ID: "big", Type: events.TypeTurnAppended, Data: turn("big", text).Data}))
		if err == nil {
			_, err = st.Log.Append(t.Context(), sub, log.Any, ready)
		}
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: sub}) {
			if err == nil {
				rec, err = projector.Resolve(t.Context(), st.Log, rec, st.MaxValue())
			}
			if err != nil || !bytes.Equal(rec.Data, turn("big", text).Data) {
				t.Errorf("got %d bytes, %v", len(rec.Data), err)
			}
		}
	})
	t.Run("B-34 an append of a thousand events", func(t *testing.T) {
		sub, evs, each := events.Session("", "many"), make([]events.Event, events.MaxAppend), 2<<10 // twice max_payload in all
		for i := range evs {
			evs[i] = events.Event{Source: "test://embedded", Type: "com.example.note", ContentType: events.ContentTypeRaw, Data: noise[i*each : (i+1)*each]}
		}
		ack, err := st.Log.Append(t.Context(), sub, log.At(0), evs...)
		if err != nil || int(ack.Last-ack.First) != len(evs)-1 {
			t.Fatalf("got %+v, %v", ack, err)
		}
		next := 0
		for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: sub}) {
			if err != nil || next == len(evs) || !bytes.Equal(rec.Data, evs[next].Data) {
				t.Fatalf("record %d: got %d bytes, %v", next, len(rec.Data), err)
			}
			next++
		}
		if next != len(evs) {
			t.Errorf("got %d records, want %d", next, len(evs))
		}
	})
	t.Run("one server keeps the log", func(t *testing.T) {
		list, size, err := st.Log.Replicas(t.Context())
		if err != nil || len(list) != 1 || list[0] != (log.Replica{Server: s.Name(), Leader: true, Current: true}) || size < 8<<20 {
			t.Errorf("got %+v with %d bytes, %v", list, size, err)
		}
	})
	t.Run("B-34 a server that takes too little", func(t *testing.T) {
		little := mustServe(t, " }\nmax_payload: 64KB")
		_, err := embedded.Open(t.Context(), embedded.Options{URL: little.ClientURL()})
		if wrong, ok := errors.AsType[*log.ConfigError](err); !ok || wrong.Have != "65536" || wrong.Need != "131072 or more" {
			t.Errorf("got %v", err)
		}
	})
}

// The views of a log are a cache of it, independent of the names of its server.
func TestViewsAreOfALog(t *testing.T) {
	home(t, nil)
	s := mustServe(t, " }")
	plain := s.ClientURL()
	names := []string{plain, plain + "," + strings.Replace(plain, "127.0.0.1", "localhost", 1), strings.Replace(plain, "127.0.0.1", "localhost", 1) + "," + plain,
		strings.Replace(plain, "://", "://ann:secret@", 1)}
	dirs := func() (list []string) {
		t.Helper()
		for _, url := range names {
			mustOpen(t, embedded.Options{URL: url})
			dir, err := natsdial.ViewsOf(url)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, dir)
		}
		return list
	}
	t.Run("B-35 one log, several names", func(t *testing.T) {
		before := dirs()
		for i, dir := range before {
			if dir != before[0] {
				t.Errorf("%s: got views in %s; %s has %s", names[i], dir, names[0], before[0])
			}
		}
		nc, err := nats.Connect(plain)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(t.Context(), log.FirstStream); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(before[0], 0o700); err != nil {
			t.Fatal(err)
		}
		if after := dirs(); after[0] == before[0] || after[3] != after[0] {
			t.Errorf("another log: got views in %q", after)
		}
		if _, err := os.Stat(before[0]); err != nil {
			t.Errorf("views that were used a moment ago: %v", err)
		}
	})
}
