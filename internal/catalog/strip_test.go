package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// naiveStrip adds up the records of a session.
func naiveStrip(records testkit.Records) (list []StripBlock) {
	for _, rec := range records {
		first := rec.Offset / 64 * 64
		if len(list) == 0 || list[len(list)-1].First != first {
			list = append(list, StripBlock{First: first})
		}
		b := &list[len(list)-1]
		b.Records++
		b.At = max(b.At, events.TimestampOf(rec.Time))
		for _, th := range projector.Decode(rec).Brings() {
			for _, t := range th.Turns {
				said := saidOf(t)
				if b.Bytes += int64(len(t.Raw)); said.Roles == "user" {
					b.User++
				} else {
					b.Model++
				}
				for _, use := range said.Tools {
					if use.Error {
						b.Error++
					} else {
						b.Tool++
					}
				}
			}
		}
	}
	return list
}

// The strip of a session is the sum of its records, for any split into commits, any crash, and any session that is
// folded again.
func TestStrip(t *testing.T) {
	testkit.NotUnderRace(t)
	t.Run("W-05 strip", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			records, dir := activityLog().Draw(t, "log"), temporary(t)
			foldActivity(t, records, dir)
			a, err := OpenActivity(t.Context(), dir)
			must(t, err)
			defer a.Close()
			for _, id := range []string{"a", "b", "c", "none"} {
				var got []StripBlock
				for b, err := range a.Strip(t.Context(), "default", id) {
					must(t, err)
					got = append(got, b)
				}
				if diff := cmp.Diff(naiveStrip(records.Of(events.Session("", id))), got); diff != "" {
					t.Fatalf("%s (-records +strip):\n%s", id, diff)
				}
			}
		})
	})
}

// The filters of agent, model and status select the sessions that have them, and the first page needs no sorting.
func TestQuickFilters(t *testing.T) {
	t.Run("W-05 first page", quickFilters)
}

func quickFilters(t *testing.T) {
	dir := t.TempDir()
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	offset := events.Offset(0)
	set := func(id, kind, models, status string) {
		t.Helper()
		for _, p := range []events.Payload{&events.SessionCreated{Kind: kind, CreatedAt: "2026-01-01T00:00:00Z"}, &events.SessionUpdated{Set: events.Fields{
			{Name: "models", Value: events.Raw(models)}, {Name: "status", Value: events.Raw(fmt.Sprintf("%q", status))}}}} {
			offset++
			must(t, c.Apply(t.Context(), projector.Decode(record(t, events.Session("", id), offset, p))))
		}
	}
	set("claude/1", events.KindTranscript, `["opus","opus-mini"]`, "done")
	set("claude/2", events.KindTranscript, `["sonnet"]`, "idle")
	set("claudette/3", events.KindTranscript, `["opus-mini"]`, "done")
	set("claude/chat", "conversation", `["opus"]`, "done")
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: offset, EventID: fmt.Sprint("e", offset)}))
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	for want, q := range map[string]Query{
		"claude/1 claude/2": {Agent: "claude"}, "claudette/3": {Agent: "claudette"}, "": {Agent: "claud"},
		"claude/1 claude/chat": {Model: "opus"}, "claude/1 claudette/3": {Model: "opus-mini"}, "claude/2": {Model: "sonnet"},
		"claude/1 claude/chat claudette/3": {Status: "done"}, "claude/1": {Agent: "claude", Model: "opus", Status: "done"},
	} {
		q.Namespace, q.Sort, q.Limit = "default", ByActive, 20
		page, err := r.List(t.Context(), q)
		must(t, err)
		var got []string
		for _, s := range page.Sessions {
			got = append(got, s.ID)
		}
		if slices.Sort(got); strings.Join(got, " ") != want {
			t.Errorf("%+v: got %q, want %q", q, got, want)
		}
		if plan := planOf(t, r, q); strings.Contains(plan, "TEMP B-TREE") || !strings.Contains(plan, "USING INDEX") {
			t.Errorf("%+v: the plan is %s", q, plan)
		}
	}
}

// BenchmarkStrip reads the strip of a session with a million records.
func BenchmarkStrip(b *testing.B) {
	const records = 1_000_000
	dir, sub := b.TempDir(), events.Session("", "s")
	s := NewSearch(dir, saidOf, nullLogger)
	_, _, err := s.Begin(b.Context())
	must(b, err)
	for at := events.Offset(0); at < records; at += StripOffsets {
		*s.activity.strip.of(sub, at) = StripBlock{Records: StripOffsets, User: 20, Bytes: 40_000, At: "2026-01-01T00:00:00Z"}
	}
	must(b, s.Commit(b.Context(), projector.Cursor{Offset: records, EventID: "e"}))
	must(b, s.Close())
	a, err := OpenActivity(b.Context(), dir)
	must(b, err)
	defer a.Close()
	for b.Loop() {
		sum := 0
		for block, err := range a.Strip(b.Context(), "default", "s") {
			must(b, err)
			sum += block.Records
		}
		if sum != records {
			b.Fatalf("got %d records", sum)
		}
	}
}
