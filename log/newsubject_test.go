package log_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// apiRequests counts the requests of one kind to a server's JetStream API.
type apiRequests struct {
	mu   sync.Mutex
	kind string
	n    int
}

func countRequests(t *testing.T, nc *nats.Conn, kind string) *apiRequests {
	t.Helper()
	r := &apiRequests{kind: kind}
	if _, err := nc.Subscribe("$JS.API.>", func(m *nats.Msg) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if strings.HasPrefix(m.Subject, "$JS.API."+r.kind) {
			r.n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return r
}

// take returns the number of requests since the last call.
func (r *apiRequests) take(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	if err := nc.Flush(); err != nil { // the server has passed on what it received before
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.n
	r.n = 0
	return n
}

// An owner that appends named events to new subjects makes hardly any consumers. Of a stream that it did not begin it asks for
// few subjects, and then for all of them at once.
func TestNewSubjectsMakeNoConsumers(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	spy := mustDial(t, s)
	consumers, infos := countRequests(t, spy, "CONSUMER.CREATE."), countRequests(t, mustDial(t, s), "STREAM.INFO.")
	const subjects = 1000
	for round := range 3 {
		l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
		consumers.take(t, spy) // of the opening
		infos.take(t, spy)
		for i := range subjects {
			mustAppend(t, l, events.Session("", fmt.Sprint(round, "-", i)), note(fmt.Sprint("e", i), "x"))
		}
		if n := consumers.take(t, spy); n > subjects/100 { // the filter takes some for old ones
			t.Errorf("round %d: %d new subjects made %d consumers, want at most %d", round, subjects, n, subjects/100)
		}
		if n := infos.take(t, spy); n > subjects/10 {
			t.Errorf("round %d: %d new subjects made %d requests for the stream's information, want at most %d", round, subjects, n, subjects/10)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// An owner that has forgotten the identities of subjects with few records reads them without a consumer.
func TestShortSubjectsMakeNoConsumers(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	spy := mustDial(t, s)
	consumers := countRequests(t, spy, "CONSUMER.CREATE.")
	l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
	const subjects = 100
	for round := range 4 {
		consumers.take(t, spy)
		for i := range subjects {
			sub := events.Session("", fmt.Sprint(i))
			mustAppend(t, l, sub, note(fmt.Sprint("e", round), "x"))
			if ack := mustAppend(t, l, sub, note("e0", "x")); !ack.Duplicate {
				t.Fatalf("the first event of %v is stored twice: %+v", sub, ack)
			}
			l.ForgetIDs()
		}
		if n := consumers.take(t, spy); n > 0 {
			t.Errorf("round %d: %d subjects made %d consumers, want none", round, subjects, n)
		}
	}
}

// A record that cannot be read hides no other identity of its subject, whichever of the subject's records it is.
func TestShortSubjectWithDamage(t *testing.T) {
	const records = 3
	for lost := range records {
		t.Run(fmt.Sprint("record ", lost+1), func(t *testing.T) {
			dir, a := t.TempDir(), events.Session("", "a")
			s := mustServe(t, dir, nil)
			l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
			for i := range records {
				mustAppend(t, l, a, note(fmt.Sprint("e", i), "x"))
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			mustStop(s)
			spoil(t, natsfile.Path(natsfile.Messages(dir, "TALLY_1"), 1), uint64(lost+1))

			s = mustServe(t, dir, nil)
			l = mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
			if _, few, ok, err := l.Few(t.Context(), a, records); ok || err != nil {
				t.Errorf("a subject with a lost record has the records %v (%v), want no answer", few, err)
			}
			mustForget(t, s)
			for i := range records {
				if i == lost {
					continue
				}
				if ack, err := l.Append(t.Context(), a, log.Any, note(fmt.Sprint("e", i), "x")); err != nil || !ack.Duplicate || ack.Last != events.Offset(i+1) {
					t.Errorf("event %d of %d, beside the lost one: got %+v, %v, want a duplicate at %d", i+1, records, ack, err, i+1)
				}
			}
		})
	}
}

// A subject whose last record cannot be read is not new: its other records keep their ids.
func TestSubjectWithDamageIsNotNew(t *testing.T) {
	for _, others := range []int{0, 100} { // subjects before and between: few enough for a list, and too many
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			dir, a := t.TempDir(), events.Session("", "a")
			small := func(l *log.Log, from int) {
				for i := range others {
					mustAppend(t, l, events.Session("", fmt.Sprint("o", from+i)), note("", "x"))
				}
			}
			s := mustServe(t, dir, nil)
			l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
			mustAppend(t, l, a, note("first", "first"))
			small(l, 0)
			mustAppend(t, l, a, note("second", "second"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			mustStop(s)
			spoil(t, natsfile.Path(natsfile.Messages(dir, "TALLY_1"), 1), uint64(others+2)) // the server keeps its index, which has the subject

			s = mustServe(t, dir, nil)
			l = mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
			mustForget(t, s)
			if ack, err := l.Append(t.Context(), a, log.Any, note("first", "first")); err != nil || !ack.Duplicate || ack.Last != 1 {
				t.Errorf("an id that was stored before the lost record: got %+v, %v, want a duplicate at 1", ack, err)
			}
		})
	}
}

// mustForget makes a server forget the ids of its messages.
func mustForget(t *testing.T, s *server.Server) {
	t.Helper()
	js, err := jetstream.New(mustDial(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "TALLY_1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * cfg.Duplicates)
}

// TestIdentitiesOfNewSubjects appends named events to old and new subjects, over segments, processes and servers. No
// subject with a record is taken for a new one, the few records of a subject are all of them, and each identity is stored once. (Within two minutes the server would
// recognise an identity by itself.)
func TestIdentitiesOfNewSubjects(t *testing.T) {
	testkit.NotUnderRace(t) // nothing runs beside it
	short := 0
	rapid.Check(t, func(rt *rapid.T) {
		dir, index := t.TempDir(), filepath.Join(t.TempDir(), "index")
		s := mustServe(t, dir, nil)
		open := func() *log.Log {
			return mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 6000, Dir: index}}})
		}
		l := open()
		stored, subjects := make(map[string]events.Offset), make(map[string][]events.Offset)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 20).Draw(rt, "step") {
			case 0:
				if err := l.Close(); err != nil {
					rt.Fatal(err)
				}
				mustStop(s)
				s = mustServe(t, dir, nil)
				l = open()
			case 1:
				if err := l.Close(); err != nil {
					rt.Fatal(err)
				}
				l = open()
			default:
				name, id := fmt.Sprint("s", rapid.IntRange(0, 40).Draw(rt, "subject")), fmt.Sprint("e", rapid.IntRange(0, 2).Draw(rt, "id"))
				sub := events.Session("", name)
				if isNew, err := l.IsNew(t.Context(), sub); err != nil || isNew && subjects[name] != nil {
					rt.Fatalf("%s is taken for a new subject (%v), but has records: %v", name, isNew, err)
				}
				if from, few, ok, err := l.Few(t.Context(), sub, 2); err != nil || ok && !slices.Equal(few, slices.DeleteFunc(slices.Clone(subjects[name]), func(at events.Offset) bool { return at <= from })) {
					rt.Fatalf("%s has few records behind %v: got %v (%v), want those of %v", name, from, few, err, subjects[name])
				} else if ok && len(few) > 0 {
					short++
				}
				if rapid.IntRange(0, 3).Draw(rt, "forgets") == 0 {
					l.ForgetIDs()
				}
				ack, err := l.Append(t.Context(), sub, log.Any, note(id, id))
				if err != nil {
					rt.Fatal(err)
				}
				before, was := stored[name+id]
				if was != ack.Duplicate || was && before != ack.Last {
					rt.Fatalf("%s of %s: got %+v; stored before at %v (0: never)", id, name, ack, before)
				}
				if stored[name+id] = ack.Last; !was {
					subjects[name] = append(subjects[name], ack.Last)
				}
			}
		}
		if err := l.Close(); err != nil {
			rt.Fatal(err)
		}
		mustStop(s)
	})
	if short == 0 {
		t.Error("no subject was found to have few records")
	}
}

// A server lists at most 100,000 subjects in an answer. The list of a segment's subjects has those of every page.
func TestSubjectsOfEveryPageAreListed(t *testing.T) {
	nc := mustDial(t, mustServe(t, t.TempDir(), nil))
	const pages, page = 3, 2
	if _, err := nc.Subscribe("$JS.API.STREAM.INFO.PAGED", func(m *nats.Msg) {
		var query struct{ Offset int }
		subjects := make(map[string]int)
		err := json.Unmarshal(m.Data, &query)
		for i := query.Offset; i < min(query.Offset+page, pages*page); i++ {
			subjects[fmt.Sprint("subject.", i)] = 1
		}
		var answer []byte
		if err == nil {
			answer, err = json.Marshal(map[string]any{"total": pages * page, "state": map[string]any{"subjects": subjects}})
		}
		if err == nil {
			err = m.Respond(answer)
		}
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	mayHave, err := log.ListSubjects(t.Context(), nc, "PAGED")
	if err != nil {
		t.Fatal(err)
	}
	for i := range pages * page {
		if subject := fmt.Sprint("subject.", i); !mayHave(subject) {
			t.Errorf("%s is not in the list", subject)
		}
	}
}

// An offset that an event once had is not used again, although its event is lost and with it the end of the log.
func TestLostOffsetsAreNotUsedAgain(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	sub := events.Session("", "s")
	open := func(above events.Offset) *log.Log {
		return mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Above: above}}})
	}
	l := open(0)
	for i := range 3 {
		mustAppend(t, l, sub, note(fmt.Sprint("e", i), "x"))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(10)
	if got := mustAppend(t, l, sub, note("next", "x")).Last; got != 11 {
		t.Errorf("the event behind offset 10 got %v", got)
	}
	for at := events.Offset(1); at <= 11; at++ {
		rec, err := l.Record(t.Context(), at)
		if there := at <= 3 || at == 11; there != (err == nil) || there && rec.Offset != at {
			t.Errorf("%v: got a record of %v, %v", at, rec.Offset, err)
		}
	}
}
