package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
)

func TestJetStreamFaults(t *testing.T) {
	testkit.OnlyFull(t, "the same calls run on the backend in memory")
	testkit.NotUnderRace(t) // under the detector they run on the backend in memory, and concurrent calls in TestJetStream
	logtest.RunFaults(t, func(t *testing.T) log.Backend {
		s := mustServe(t, filepath.Join(t.TempDir(), "js"), nil)
		b, err := log.NewJetStream(t.Context(), mustDial(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// note returns an event whose data a test can find in the server's files.
func note(id, text string) events.Event {
	return events.Event{ID: id, Source: "test://log", Type: "com.example.note", ContentType: "text/plain", Data: []byte(text)}
}

func mustAppend(t testing.TB, l *log.Log, sub events.Subject, evs ...events.Event) log.Ack {
	t.Helper()
	ack, err := l.Append(t.Context(), sub, log.Any, evs...)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

// show returns the offsets that a read yields. Damage has a ! before its offset.
func show(t *testing.T, l *log.Log, r events.Range) []string {
	t.Helper()
	var got []string
	for rec, err := range l.Read(t.Context(), r) {
		damage, damaged := errors.AsType[*events.DamageError](err)
		switch {
		case damaged:
			got = append(got, fmt.Sprint("!", uint64(damage.Offset)))
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, fmt.Sprint(uint64(rec.Offset)))
		}
	}
	return got
}

// TestDamagedBlock flips a bit in the payload of a record of a stopped store. The server skips the record without an
// error, and reads report it.
func TestDamagedBlock(t *testing.T) {
	dir := t.TempDir()
	s := mustServe(t, dir, nil)
	l := mustOpen(t, mustDial(t, s), log.Config{})
	a, b := events.Session("", "a"), events.Session("", "b")
	for i := range 10 { // a is odd, b is even
		mustAppend(t, l, []events.Subject{a, b}[i%2], note("", "payload of record "+strconv.Itoa(i+1)+"."))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustStop(s)
	mustFlip(t, dir, "payload of record 4.")

	s = mustServe(t, dir, nil)
	l = mustOpen(t, mustDial(t, s), log.Config{})
	for _, c := range []struct {
		r    events.Range
		want string
	}{
		{events.Range{Subject: a}, "1 3 5 7 9"}, // the loss is not known yet, and then its subject is unknown
		{events.Range{}, "1 2 3 !4 5 6 7 8 9 10"},
		{events.Range{After: 3, Upto: 5}, "!4 5"},
		{events.Range{Subject: b}, "2 !4 6 8 10"},
		{events.Range{Subject: b, Upto: 7}, "2 !4 6"},
		{events.Range{Subject: b, After: 4}, "6 8 10"},
		{events.Range{Kind: "session"}, "1 2 3 !4 5 6 7 8 9 10"},
	} {
		if got := strings.Join(show(t, l, c.r), " "); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.r, got, c.want)
		}
	}
	if _, err := l.Record(t.Context(), 4); !isDamage(err) {
		t.Errorf("record 4: got %v, want a *DamageError", err)
	}
	if ack := mustAppend(t, l, b, note("", "more")); ack.Last != 11 {
		t.Errorf("the next record is at %v, want 11", ack.Last)
	}
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*events.DamageError](err)
	return ok
}

// mustFlip flips a bit of the first occurrence of a text in the blocks below a directory.
func mustFlip(t *testing.T, dir, text string) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		content, err := os.ReadFile(block)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(content, []byte(text)); i >= 0 {
			content[i] ^= 1
			if err := os.WriteFile(block, content, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no block of %v holds %q", blocks, text)
}

// TestForeignMessage publishes a message that is not an event: it is damage at its offset, and other records are not
// affected.
func TestForeignMessage(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	nc := mustDial(t, s)
	l := mustOpen(t, nc, log.Config{})
	a := events.Session("", "a")
	mustAppend(t, l, a, note("1", "x"))
	structured := &nats.Msg{Subject: a.NATS(), Header: nats.Header{"content-type": {"application/cloudevents+json"}}, Data: []byte(
		`{"specversion":"1.0","id":"4","source":"test://other","type":"com.example.note","data":{"b" :1}}`)}
	for _, m := range []*nats.Msg{
		{Subject: a.NATS(), Data: []byte("no event")},
		{Subject: "tally.v1.zz.default.session.x", Data: []byte("no subject either")},
		structured,
	} {
		if _, err := nc.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, l, a, note("old id", "x"))
	if got := strings.Join(show(t, l, events.Range{}), " "); got != "1 !2 !3 4 5" {
		t.Errorf("whole log: got %s, want 1 !2 !3 4 5", got)
	}
	if got := strings.Join(show(t, l, events.Range{Subject: a}), " "); got != "1 !2 4 5" {
		t.Errorf("one subject: got %s, want 1 !2 4 5", got)
	}
	rec, err := l.Record(t.Context(), 4)
	if err != nil || rec.ID != "4" || string(rec.Data) != `{"b" :1}` {
		t.Errorf("structured event: got %+v, %v, want id 4 with its data unchanged", rec, err)
	}
	for info, err := range l.Subjects(t.Context(), "", "") {
		if err != nil || info.Subject != a || info.Count != 4 {
			t.Errorf("subjects: got %+v, %v, want 4 records of one subject", info, err)
		}
	}
}

// A read that its caller ends early leaves no consumer and no subscription on the server.
func TestNothingIsLeftBehind(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	nc := mustDial(t, s)
	l := mustOpen(t, nc, log.Config{})
	a := events.Session("", "a")
	for range 20 {
		mustAppend(t, l, a, note("", "x"))
	}
	l.Read(t.Context(), events.Range{}) // without a loop nothing happens
	for _, r := range []events.Range{{}, {Subject: a}, {Subject: a, Upto: 7}} {
		for range l.Read(t.Context(), r) {
			break
		}
		for range l.ReadBack(t.Context(), r) {
			break
		}
		n := 0
		for range l.Follow(t.Context(), r) {
			if n++; n == 7 {
				break
			}
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testkit.Patience(time.Minute)); ; {
		stream, err := js.Stream(t.Context(), "TALLY_1")
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Consumers; n == 0 && nc.NumSubscriptions() <= 2 { // subscriptions for answers
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d consumers and %d subscriptions are left, want 0 and at most 2", n, nc.NumSubscriptions())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Follow continues without a gap after the server was restarted, and after its consumer was deleted.
func TestFollowSurvives(t *testing.T) {
	dir := t.TempDir()
	listen := func(port int) func(*server.Options) {
		return func(o *server.Options) { o.DontListen, o.Host, o.Port = false, "127.0.0.1", port }
	}
	s := mustServe(t, dir, listen(server.RANDOM_PORT))
	url := s.ClientURL()
	nc, err := nats.Connect(url, nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l := mustOpen(t, nc, log.Config{})
	a := events.Session("", "a")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, r := range []events.Range{{}, {Subject: a}} {
		start := mustAppend(t, l, a, note("", "x")).Last
		r.After = start - 1
		at := r.After
		for rec, err := range l.Follow(ctx, r) {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Offset != at+1 {
				t.Fatalf("Follow yielded %v after %v", rec.Offset, at)
			}
			at = rec.Offset
			switch at - start {
			case 2:
				mustDeleteConsumers(t, nc)
			case 4:
				_, port, _ := strings.Cut(strings.TrimPrefix(url, "nats://"), ":")
				n, err := strconv.Atoi(port)
				if err != nil {
					t.Fatal(err)
				}
				mustStop(s)
				s = mustServe(t, dir, listen(n))
				for !nc.IsConnected() {
					time.Sleep(5 * time.Millisecond)
				}
			}
			if at == start+8 {
				break
			}
			mustAppend(t, l, a, note("", "x"))
		}
		if at != start+8 {
			t.Fatalf("Follow ended at %v", at)
		}
	}
}

func mustDeleteConsumers(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "TALLY_1")
	if err != nil {
		t.Fatal(err)
	}
	names := stream.ConsumerNames(t.Context())
	all := slices.Collect(func(yield func(string) bool) {
		for name := range names.Name() {
			if !yield(name) {
				return
			}
		}
	})
	for _, name := range all {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
	}
}

// Open refuses a stream with any setting with which it could lose records. Each case changes one setting.
func TestOpenRefusesWhatCouldLoseRecords(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	nc := mustDial(t, s)
	l, err := log.Open(t.Context(), nc, log.Config{Stream: "GOOD"})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "GOOD_1")
	if err != nil {
		t.Fatal(err)
	}
	good := stream.CachedInfo().Config
	// One stream stays: with the last stream the server removes its folder, also after it has answered.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "GOOD_1"); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*jetstream.StreamConfig){
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"discard":              func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 },
		"retention":            func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"deny_delete":          func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"deny_purge":           func(c *jetstream.StreamConfig) { c.DenyPurge = false },
		"allow_rollup_hdrs":    func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, false },
		"allow_msg_ttl":        func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"storage":              func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"subjects":             func(c *jetstream.StreamConfig) { c.Subjects = []string{"tally.v1.00.*.*.*"} },
		"allow_atomic":         func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
		"allow_direct":         func(c *jetstream.StreamConfig) { c.AllowDirect = false },
		"duplicate_window":     func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
	} {
		c := good
		c.Name = field + "_1"
		change(&c)
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		_, err := log.Open(t.Context(), nc, log.Config{Stream: field})
		refused, ok := errors.AsType[*log.ConfigError](err)
		if !ok || refused.Field != field || refused.Stream != c.Name {
			t.Errorf("%s: got %v, want a *ConfigError for this field", field, err)
		}
		if err := js.DeleteStream(t.Context(), c.Name); err != nil {
			t.Fatal(err)
		}
	}
	good.Name, good.Subjects = "OTHERS_1", append(good.Subjects, "other.>")
	if _, err := js.CreateStream(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Open(t.Context(), nc, log.Config{Stream: "OTHERS"}); err == nil {
		t.Error("Open accepted a stream with more subjects")
	}
}

// If the store is full, an append returns ErrFull, and all acknowledged records stay readable.
func TestFullStore(t *testing.T) {
	s := mustServe(t, t.TempDir(), func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
	l := mustOpen(t, mustDial(t, s), log.Config{})
	a := events.Session("", "a")
	text := strings.Repeat("x", 100<<10)
	var err error
	n := 0
	for ; err == nil && n < 50; n++ {
		_, err = l.Append(t.Context(), a, log.Any, note("", text))
	}
	if !errors.Is(err, log.ErrFull) {
		t.Fatalf("after %d appends: %v, want ErrFull", n, err)
	}
	if got := len(show(t, l, events.Range{})); got != n-1 {
		t.Fatalf("%d records can be read, %d were acknowledged", got, n-1)
	}
}
