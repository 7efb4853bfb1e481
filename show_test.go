package tally_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// shownMethods are the methods of Log that TestShow calls.
var shownMethods = map[string]bool{
	"Append": true, "AppendBuffered": true, "AppendSeries": true, "AppendAll": true, "AppendAsync": true, "AppendAsyncBuffered": true,
}

// Each way to append waits until files show the append. If they do not, it returns the error together with the ack, so
// callers do not repeat the append.
func TestShow(t *testing.T) {
	ctx := t.Context()
	full := errors.New("no room for the file")
	var asked []string
	var at events.Offset
	var answer error
	shows := func(_ context.Context, upto events.Offset, subs ...events.Subject) error {
		for _, sub := range subs {
			asked = append(asked, sub.Kind+"/"+sub.ID)
		}
		at = upto
		return answer
	}
	l, err := log.OpenOn(ctx, memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := tally.Open(ctx, l, tally.Config{Host: tally.Host{Shows: shows}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	big := make([]byte, events.MaxData+1)
	turn := func(id string) events.Event {
		e, err := events.New("urn:test", events.Session("default", id[:1]), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: []byte(`{"role":"user"}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	docs := st.Documents()
	for _, c := range []struct {
		name string
		want []string
		do   func() (events.Offset, error)
	}{
		{"Append", []string{"session/a"}, func() (events.Offset, error) {
			ack, err := st.Append(ctx, events.Session("default", "a"), log.Any, turn("a"))
			return ack.Last, err
		}},
		{"AppendSeries", []string{"session/b"}, func() (events.Offset, error) {
			ack, added, err := st.AppendSeries(ctx, events.Session("default", "b"), log.Any, turn("b"), turn("b2"))
			if added != 2 {
				t.Errorf("added %d events, want 2", added)
			}
			return ack.Last, err
		}},
		{"AppendAll", []string{"session/c", "session/d"}, func() (events.Offset, error) {
			acks, err := st.AppendAll(ctx, log.Part{Subject: events.Session("default", "c"), Events: []events.Event{turn("c")}},
				log.Part{Subject: events.Session("default", "d"), Events: []events.Event{turn("d")}})
			if len(acks) != 2 {
				t.Fatal(acks, err)
			}
			return acks[1].Last, err
		}},
		{"Log.Append", []string{"session/k"}, func() (events.Offset, error) {
			ack, err := st.Log.Append(ctx, events.Session("default", "k"), log.Any, turn("k"))
			return ack.Last, err
		}},
		{"Log.AppendBuffered", []string{"session/l"}, func() (events.Offset, error) {
			ack, err := st.Log.AppendBuffered(ctx, events.Session("default", "l"), log.Any, turn("l"))
			return ack.Last, err
		}},
		{"Log.AppendSeries", []string{"session/m"}, func() (events.Offset, error) {
			ack, _, err := st.Log.AppendSeries(ctx, events.Session("default", "m"), log.Any, turn("m"))
			return ack.Last, err
		}},
		{"Log.AppendAll", []string{"session/n", "session/o"}, func() (events.Offset, error) {
			acks, err := st.Log.AppendAll(ctx, log.Part{Subject: events.Session("default", "n"), Events: []events.Event{turn("n")}},
				log.Part{Subject: events.Session("default", "o"), Events: []events.Event{turn("o")}})
			return acks[1].Last, err
		}},
		{"Log.AppendAsync", []string{"session/p"}, func() (events.Offset, error) {
			ack, err := st.Log.AppendAsync(ctx, events.Session("default", "p"), log.Any, turn("p")).Wait(ctx)
			return ack.Last, err
		}},
		{"Log.AppendAsyncBuffered", []string{"session/q"}, func() (events.Offset, error) {
			ack, err := st.Log.AppendAsyncBuffered(ctx, events.Session("default", "q"), log.Any, turn("q")).Wait(ctx)
			return ack.Last, err
		}},
		{"Session.Append", []string{"session/e"}, func() (events.Offset, error) {
			ack, err := st.Session("e").AppendTurns(ctx, "main", []byte(`{"role":"user"}`))
			return ack.Last, err
		}},
		{"Documents.Create, by reference", []string{"doc/f"}, func() (events.Offset, error) {
			rev, err := docs.Create(ctx, "doc", "f", tally.Write{Data: big})
			return rev.Offset, err
		}},
		{"Documents.Tx", []string{"doc/g", "doc/h"}, func() (events.Offset, error) {
			err := docs.Tx(ctx, func(tx *tally.Tx) error {
				return errors.Join(tx.Save(ctx, "doc", "g", tally.Write{}), tx.Save(ctx, "doc", "h", tally.Write{}))
			})
			last, lerr := st.Log.Last(ctx, events.Document("default", "doc", "h"))
			if lerr != nil {
				t.Fatal(lerr)
			}
			return last.Offset, err
		}},
	} {
		if name, is := strings.CutPrefix(c.name, "Log."); is && !shownMethods[name] {
			t.Errorf("shownMethods lacks %s", name)
		}
		for _, answer = range []error{nil, &events.TreeError{Tree: "files", Path: "x", Err: full}} {
			if answer != nil && !strings.HasPrefix(strings.TrimPrefix(c.name, "Log."), "Append") {
				continue
			}
			asked, at = nil, 0
			got, err := c.do()
			if !errors.Is(err, answer) || err != nil && answer == nil || got == 0 || got != at || !slices.Equal(asked, c.want) {
				t.Errorf("%s, answered %v: got @%d, %v; waited for %v as of %v, want %v", c.name, answer, got, err, asked, at, c.want)
			}
		}
	}

	answer = &events.TreeError{Tree: "files", Path: "x", Err: full}
	rev, err := docs.Save(ctx, "doc", "i", tally.Write{Data: []byte("one")})
	if !errors.Is(err, full) || rev.Offset == 0 {
		t.Errorf("save that no file shows: got %+v, %v, want the revision and the error", rev, err)
	}
	if rev, err = docs.Update(ctx, "doc", "i", rev.Offset, tally.Write{Data: []byte("two")}); !errors.Is(err, full) || rev.Offset == 0 {
		t.Errorf("update that no file shows: got %+v, %v, want the revision and the error", rev, err)
	}
	if h, err := docs.Read(ctx, "doc", "i"); err != nil || string(h.Data) != "two" {
		t.Errorf("read: got %v, %v, want two", h, err)
	}
	asked = nil
	if _, err := st.Unshown().Documents().Save(ctx, "doc", "j", tally.Write{}); err != nil || asked != nil {
		t.Errorf("save by Unshown waited for files of %v, %v", asked, err)
	}
}
