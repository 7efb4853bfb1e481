package catalog

import (
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// An item is in the view of open work and in search, and not among the sessions. Sessions that are no item's are.
func TestItemsAreNoSessions(t *testing.T) {
	dir, item := t.TempDir(), events.Session("", projector.ItemSession("q/é", "1"))
	records := turnsOf(t, events.Session("", "queue/q"), "a cake")
	for _, sub := range []events.Subject{item, events.Session("", "item/q"), events.Session("", "items/q/1")} {
		for _, rec := range turnsOf(t, sub, "another cake") {
			rec.Offset += records[len(records)-1].Offset
			records = append(records, rec)
		}
	}
	f, closed := searchedIn(t, dir, records)
	defer closed()
	list, err := Open(t.Context(), dir)
	must(t, err)
	defer list.Close()
	page, err := list.List(t.Context(), Query{Namespace: "default", Sort: ByID})
	must(t, err)
	var got []string
	for _, s := range page.Sessions {
		got = append(got, s.ID)
	}
	if want := []string{"item/q", "items/q/1", "queue/q"}; !slices.Equal(got, want) {
		t.Errorf("the sessions are %q, want %q", got, want)
	}
	if n, _, err := list.Count(t.Context(), "default"); n != 3 || err != nil {
		t.Errorf("the catalog counts %d sessions, %v", n, err)
	}
	found, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: "cake", Kind: events.KindItem})
	must(t, err)
	if len(found.Hits) != 2 || found.Hits[0].Session != "item/q" && found.Hits[1].Session != "item/q" {
		t.Errorf("the turns of items are %v", found.Hits)
	}
	for _, h := range found.Hits {
		if h.Kind != events.KindItem || !h.Live {
			t.Errorf("%s: kind %q, live %v", h.Session, h.Kind, h.Live)
		}
	}
}
