package perstack_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/stores/perstack"
)

func parityEvents(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	text := events.Field{Name: "text", Value: events.Raw(`"<ok>"`)}
	t.Run("P-08 an event is stored, and the run is there with it", func(t *testing.T) {
		e := event("p08", "r", "e1", "completeRun", 5, 2, text)
		must(t, perstack.DefaultStoreEvent(ctx, st, e))
		list := need(perstack.GetEventContents(ctx, st, "p08", "r"))
		if diff := cmp.Diff([]perstack.Event{e}, list); diff != "" {
			t.Error(diff)
		}
		metas := need(perstack.GetEventsByRun(ctx, st, "p08", "r"))
		h := perstack.JobOf(st, "p08")
		if raw := need(h.EventBytes(ctx, metas[0].Offset)); !bytes.Equal(raw, need(e.Raw())) {
			t.Errorf("the event is %s", raw)
		}
		if runs := need(h.Runs(ctx)); len(runs) != 1 || runs[0].ID != "r" || runs[0].Outcome != "completed" || runs[0].ExpertKey != "coder@1" {
			t.Errorf("the runs are %+v", runs)
		}
		for _, bad := range []perstack.Event{event("p08", "r", "e", "", 1, 1), event("p08", "r", "e", "t", -1, 1), event("p08", "r", "", "t", 1, 1), event("p08", "r", "e", "t", 1, -1)} {
			if err := perstack.DefaultStoreEvent(ctx, st, bad); err == nil {
				t.Errorf("the invalid event %+v was stored", bad)
			}
		}
	})
	t.Run("P-09 metas by step, contents by time, up to a step", func(t *testing.T) {
		if list := need(perstack.GetEventsByRun(ctx, st, "p09", "r")); len(list) != 0 {
			t.Errorf("the events are %v", list)
		}
		for i, e := range []struct{ at, step int64 }{{30, 1}, {10, 2}, {20, 1}, {5, 3}} {
			must(t, perstack.DefaultStoreEvent(ctx, st, event("p09", "r", fmt.Sprint("e", i), fmt.Sprint("type-", i), e.at, e.step)))
		}
		_, err := perstack.JobOf(st, "p09").Session().Append(ctx, logAny, &events.RunProgressed{Run: events.RunRef{Kind: "expert", ID: "r"}, Kind: "odd", Raw: events.Raw(`{"id":1}`)})
		must(t, err) // as an import keeps corrupt events
		var metas, contents, early []string
		for _, m := range need(perstack.GetEventsByRun(ctx, st, "p09", "r")) {
			metas = append(metas, fmt.Sprint(m.Type, " ", m.Timestamp, " ", m.StepNumber))
		}
		for _, e := range need(perstack.GetEventContents(ctx, st, "p09", "r")) {
			contents = append(contents, e.ID)
		}
		for _, e := range need(perstack.GetEventContents(ctx, st, "p09", "r", 2)) {
			early = append(early, e.ID)
		}
		if diff := cmp.Diff([][]string{{"type-0 30 1", "type-2 20 1", "type-1 10 2", "type-3 5 3"}, {"e3", "e1", "e2", "e0"}, {"e1", "e2", "e0"}}, [][]string{metas, contents, early}); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("P-09 a new handle lists what one does that has read the job, and a page at a time", func(t *testing.T) {
		h := perstack.JobOf(st, "p09-page")
		need(h.Totals(ctx)) // a job without records is not read yet
		record := func(typ string, at, step int64) {
			need(h.Record(ctx, event("p09-page", "r", fmt.Sprint(typ, at), typ, at, step)))
		}
		record("startRun", 1, 4)
		need(h.Totals(ctx))
		for i := range int64(5) {
			record("callTools", 20-i, 6-i)
		}
		record(strings.Repeat("é", 150), 7, 3)
		record("late", 253402300800001, 3) // after the last time that the log can express
		_, err := h.Session().Append(ctx, logAny, &events.RunProgressed{Run: events.RunRef{Kind: "expert", ID: "r"}, Kind: "odd", Step: 9, Raw: events.Raw(`{"type":"even"}`)},
			&events.RunProgressed{Run: events.RunRef{Kind: "flow", ID: "r"}, Kind: "callTools", Raw: events.Raw(`{"type":"callTools"}`)})
		must(t, err)
		record("completeRun", 30, 9)
		want := need(h.EventList(ctx, "r"))
		if len(want) != 9 || want[0].StepNumber != 2 || want[8].Type != "completeRun" || want[2].Timestamp+want[3].Timestamp+want[1].Timestamp != 7+253402300800001+17 {
			t.Errorf("the events are %v", want)
		}
		if diff := cmp.Diff(want, need(perstack.JobOf(st, "p09-page").EventList(ctx, "r"))); diff != "" {
			t.Error(diff)
		}
		for _, paged := range []*perstack.Handle{h, perstack.JobOf(st, "p09-page")} {
			var list []perstack.EventMeta
			for after := events.Offset(0); ; after = list[len(list)-1].Offset {
				page := need(paged.EventPage(ctx, "r", after, 2))
				if list = append(list, page...); len(page) < 2 {
					break
				}
			}
			slices.SortStableFunc(list, func(a, b perstack.EventMeta) int { return int(a.StepNumber - b.StepNumber) })
			if diff := cmp.Diff(want, list); diff != "" {
				t.Error(diff)
			}
		}
	})
	t.Run("P-10 two events of one time, step and type are both kept, one that is repeated once", func(t *testing.T) {
		for _, id := range []string{"a", "b", "a"} {
			must(t, perstack.DefaultStoreEvent(ctx, st, event("p10", "r", id, "callTools", 5, 1)))
		}
		must(t, perstack.StoreJob(ctx, st, perstack.CreateInitialJob("p10", "coder"))) // stored later
		if _, err := perstack.JobOf(st, "p10").Record(ctx, event("p10", "r", "b", "callTools", 5, 1)); err != nil {
			t.Error(err)
		}
		if list := need(perstack.GetEventContents(ctx, st, "p10", "r")); len(list) != 2 || list[0].ID != "a" || list[1].ID != "b" {
			t.Errorf("the list is %v", list)
		}
	})
	t.Run("P-09 an event has its lists back, whoever reads it", func(t *testing.T) {
		h := perstack.JobOf(st, "p09-lists")
		whole := rawjson.AppendArray(nil, messages(0, 4))
		e := event("p09-lists", "r", "e", "startGeneration", 1, 1, events.Field{Name: "messages", Value: whole})
		need(h.SaveCheckpoint(ctx, checkpoint("p09-lists", "r", "c", 1, messages(0, 4))))
		need(h.Record(ctx, e))
		need(perstack.JobOf(st, "p09-lists").Record(ctx, e)) // a handle without a cache
		if list := need(perstack.GetEventContents(ctx, st, "p09-lists", "r")); len(list) != 1 || !bytes.Equal(list[0].Payload[0].Value, whole) {
			t.Errorf("the list is %v", list)
		}
		metas := need(h.EventList(ctx, "r"))
		rec := need(st.Log.Record(ctx, metas[0].Offset))
		if len(rec.Data) > len(whole)/2 {
			t.Errorf("the record has %d bytes, the messages %d", len(rec.Data), len(whole))
		}
		if rec = need(st.Loader().Whole(ctx, rec)); !bytes.Contains(rec.Data, whole) {
			t.Error("the record that Loader.Whole returns lacks the message")
		}
	})
}

func parityLarge(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	t.Run("P-24 what is larger than an event can be comes back", func(t *testing.T) {
		testkit.NotUnderRace(t)
		big := func(id string) events.Raw {
			return events.Raw(`{"id":"` + id + `","type":"userMessage","contents":[{"id":"p","type":"textPart","text":"` + strings.Repeat("b", events.MaxData) + `"}]}`)
		}
		h := perstack.JobOf(st, "p24")
		c := checkpoint("p24", "r", "c", 1, []events.Raw{big("1"), message(1)})
		need(h.SaveCheckpoint(ctx, c))
		e := event("p24", "r", "e", "callTools", 1, 1, events.Field{Name: "newMessage", Value: big("2")})
		need(h.Record(ctx, e))
		again := perstack.JobOf(st, "p24")
		if have := need(again.Checkpoint(ctx, "c")).Messages; len(have) != 2 || !bytes.Equal(have[0], c.Messages[0]) {
			t.Error("the loaded checkpoint differs from the saved one")
		}
		if have := need(again.Events(ctx, "r", perstack.AllSteps)); len(have) != 1 || !bytes.Equal(have[0].Payload[0].Value, big("2")) {
			t.Error("the loaded event differs from the recorded one")
		}
	})
}

func parityLive(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	delta := func(job, id, text string) perstack.Event {
		return event(job, "r", id, "streamRunResult", 1, 1, events.Field{Name: "delta", Value: rawjson.AppendString(nil, text)})
	}
	t.Run("P-22 pieces of text are kept, sampled or dropped; what is completed is always kept", func(t *testing.T) {
		for policy, want := range map[perstack.DeltaPolicy]int{perstack.KeepDeltas: 200, perstack.SampleDeltas: 3, perstack.DropDeltas: 0} {
			job := fmt.Sprint("p22-", policy)
			h := perstack.JobWith(st, job, perstack.Options{Deltas: policy})
			need(h.Record(ctx, event(job, "r", "s", "startStreamingRunResult", 1, 1)))
			for i := range 200 {
				need(h.Record(ctx, delta(job, fmt.Sprint("d", i), strings.Repeat("x", 50))))
			}
			need(h.Record(ctx, event(job, "r", "c", "completeStreamingRunResult", 1, 1, events.Field{Name: "text", Value: events.Raw(`"whole"`)})))
			n := 0
			for _, m := range need(h.EventList(ctx, "r")) {
				if m.Type == "streamRunResult" {
					n++
				}
			}
			if policy == perstack.SampleDeltas && (n < want || n > 40) || policy != perstack.SampleDeltas && n != want {
				t.Errorf("policy %d: got %d stored pieces", policy, n)
			}
			streams := need(h.Streams(ctx, "r"))
			if len(streams) != 1 || !streams[0].Finished || streams[0].Text != "whole" {
				t.Errorf("policy %d: the streams are %+v", policy, streams)
			}
		}
	})
	t.Run("P-38 who follows sees events and pieces of text; an unfinished text stays visible", func(t *testing.T) {
		h := perstack.JobWith(st, "p38", perstack.Options{Deltas: perstack.SampleDeltas})
		following, stop := context.WithTimeout(ctx, 5*time.Minute)
		defer stop()
		var kinds []string
		done := make(chan string, 1)
		go func() {
			text := ""
			for u, err := range perstack.JobOf(st, "p38").Follow(following, 0) {
				if err != nil {
					t.Error(err)
					break
				}
				kinds = append(kinds, u.Kind.String())
				if text += u.Delta; strings.HasSuffix(text, "three") {
					break
				}
			}
			done <- text
		}()
		must(t, perstack.StoreJob(ctx, st, perstack.CreateInitialJob("p38", "coder")))
		need(h.SaveCheckpoint(ctx, checkpoint("p38", "r", "c", 1, messages(0, 1))))
		need(h.Record(ctx, event("p38", "r", "s", "startStreamingRunResult", 1, 1)))
		for i, piece := range []string{"one ", "two ", "three"} {
			need(h.Record(ctx, delta("p38", fmt.Sprint("d", i), piece)))
		} // the producer sends no further event
		if text := <-done; text != "one two three" {
			t.Errorf("the follower got %q", text)
		}
		// The pieces are one event, or more if the machine paused between two.
		if want := []string{"job saved", "checkpoint saved", "event recorded"}; len(kinds) < 4 || len(kinds) > 6 || !slices.Equal(slices.Compact(kinds), want) {
			t.Errorf("the follower got the events %v, want %v", kinds, want)
		}
		streams := need(perstack.JobOf(st, "p38").Streams(ctx, "r"))
		if len(streams) != 1 || streams[0].Finished || streams[0].Text != "one two three" {
			t.Errorf("the streams are %+v", streams)
		}
		must(t, h.Flush(ctx))
	})
}
