package logtest_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// model is a log in its simplest form: a list.
type model struct {
	list []events.Event
}

func (m *model) last(s events.Subject) (at events.Offset) {
	for i, e := range m.list {
		if e.Subject == s {
			at = events.Offset(i + 1)
		}
	}
	return at
}

func (m *model) find(e events.Event) (at events.Offset, same bool) {
	for i, x := range m.list {
		if x.Subject == e.Subject && x.ID == e.ID {
			return events.Offset(i + 1), x.Type == e.Type && string(x.Data) == string(e.Data)
		}
	}
	return 0, false
}

// append returns the expected answer of an append, as text.
func (m *model) append(s events.Subject, kind string, at events.Offset, typ string, evs []events.Event) string {
	var first, last events.Offset
	have := 0
	for _, e := range evs {
		o, same := m.find(e)
		switch {
		case o == 0:
			continue
		case !same:
			return "invalid id"
		}
		have++
		if first == 0 || o < first {
			first = o
		}
		last = max(last, o)
	}
	switch have {
	case 0:
	case len(evs):
		return fmt.Sprint("duplicate ", first, last)
	default:
		return fmt.Sprint("partial ", have)
	}
	switch kind {
	case "at":
		if m.last(s) != at {
			return fmt.Sprint("conflict ", m.last(s))
		}
	case "since":
		for i, e := range m.list {
			if e.Subject == s && e.Type == typ && events.Offset(i+1) > at {
				return fmt.Sprint("conflict ", m.last(s))
			}
		}
	}
	m.list = append(m.list, evs...)
	return fmt.Sprint("stored ", events.Offset(len(m.list)-len(evs)+1), events.Offset(len(m.list)))
}

func answer(t *rapid.T, ack log.Ack, err error) string {
	if conflict, ok := errors.AsType[*log.ConflictError](err); ok {
		return fmt.Sprint("conflict ", conflict.Have)
	}
	if partial, ok := errors.AsType[*log.PartialError](err); ok {
		return fmt.Sprint("partial ", len(partial.Have))
	}
	if invalid, ok := errors.AsType[*events.InvalidError](err); ok {
		return "invalid " + invalid.Field
	}
	switch {
	case err != nil:
		t.Fatal(err)
	case ack.Duplicate:
		return fmt.Sprint("duplicate ", ack.First, ack.Last)
	}
	return fmt.Sprint("stored ", ack.First, ack.Last)
}

// TestModel appends and reads at random with several handles, and compares each answer with the model's.
func TestModel(t *testing.T) {
	subjects := []events.Subject{events.Session("", "a"), events.Session("n", "a"), events.Document("", "note", "a")}
	types := []string{"com.example.x", "com.example.y"}
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		mem := memlog.New(memlog.Config{})
		defer mem.Close()
		var handles []*log.Log
		for range rapid.IntRange(1, 3).Draw(rt, "handles") {
			f := &logtest.Faulty{Backend: mem, Next: logtest.Sometimes(1, 4, logtest.Twice)}
			l, err := log.OpenOn(ctx, f, log.Config{})
			if err != nil {
				rt.Fatal(err)
			}
			handles = append(handles, l)
		}
		var m model
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				l := rapid.SampledFrom(handles).Draw(rt, "handle")
				s := rapid.SampledFrom(subjects).Draw(rt, "subject")
				var evs []events.Event
				for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 11), 1, 3, rapid.ID[int]).Draw(rt, "ids") {
					evs = append(evs, events.Event{
						ID: strconv.Itoa(n), Source: "test://model", Subject: s, ContentType: "text/plain",
						Type: types[n%2], Data: []byte(rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(rt, "data")),
					})
				}
				kind := rapid.SampledFrom([]string{"any", "at", "since"}).Draw(rt, "expect")
				at := events.Offset(rapid.IntRange(0, len(m.list)+1).Draw(rt, "at"))
				if rapid.Bool().Draw(rt, "right") {
					at = m.last(s)
				}
				typ := rapid.SampledFrom(types).Draw(rt, "type")
				x := map[string]log.Expect{"any": log.Any, "at": log.At(at), "since": log.Since(at, typ)}[kind]
				want := m.append(s, kind, at, typ, evs)
				ack, err := l.Append(ctx, s, x, evs...)
				if got := answer(rt, ack, err); got != want {
					rt.Fatalf("append: got %s, want %s", got, want)
				}
			},
			"read": func(rt *rapid.T) {
				l := rapid.SampledFrom(handles).Draw(rt, "handle")
				r := events.Range{
					After: events.Offset(rapid.IntRange(0, len(m.list)+1).Draw(rt, "after")),
					Upto:  events.Offset(rapid.IntRange(0, len(m.list)+1).Draw(rt, "upto")),
					Limit: rapid.IntRange(0, 5).Draw(rt, "limit"),
				}
				switch s := rapid.SampledFrom(subjects).Draw(rt, "subject"); rapid.IntRange(0, 3).Draw(rt, "filter") {
				case 0:
					r.Subject = s
				case 1:
					r.Namespace = s.Namespace
				case 2:
					r.Kind = s.Kind
				}
				back := rapid.Bool().Draw(rt, "back")
				got, want := []events.Offset{}, []events.Offset{}
				read := l.Read
				if back {
					read = l.ReadBack
				}
				for rec, err := range read(ctx, r) {
					if err != nil {
						rt.Fatal(err)
					}
					got = append(got, rec.Offset)
				}
				for i := range m.list {
					at := events.Offset(i + 1)
					if back {
						at = events.Offset(len(m.list) - i)
					}
					if r.Includes(m.list[at-1].Subject, at) && (r.Limit == 0 || len(want) < r.Limit) {
						want = append(want, at)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					rt.Fatalf("read %+v back %v: got %v, want %v", r, back, got, want)
				}
			},
		})
	})
}
