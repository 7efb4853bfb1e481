package tally_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log/memlog"
)

func TestRenames(t *testing.T) {
	t.Run("net T3 a document that is renamed again and again names the last name before, and its links follow", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
			defer st.Close()
			d, at, content, before := st.Documents(), "a", "text 0", ""
			names := []string{"a", "b", "c", "d"}
			must := func(err error) {
				if err != nil {
					rt.Fatal(err)
				}
			}
			must(second(d.Save(ctx, "doc", at, linked(content, link("see", "z")))))
			must(second(d.Save(ctx, "doc", "z", linked("z", link("see", "a")))))
			revisions := 1
			for n := range rapid.IntRange(1, 6).Draw(rt, "steps") {
				if revisions++; rapid.IntRange(0, 3).Draw(rt, "writes") == 0 {
					content = fmt.Sprint("text ", n)
					doc, err := d.Read(ctx, "doc", at)
					must(err)
					must(second(d.Save(ctx, "doc", at, linked(content, doc.Meta.Links...))))
					continue
				}
				to := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == at })).Draw(rt, "to")
				must(second(d.Rename(ctx, "doc", at, 0, to)))
				before, at = at, to
			}
			doc, err := d.Read(ctx, "doc", at)
			must(err)
			want := []events.Link{link("see", "z")}
			if before != "" {
				want = append(want, link("renamed-from", before))
			}
			if !slices.Equal(doc.Meta.Links, want) || string(doc.Data) != content {
				rt.Errorf("the document has %q and the links %v, want %q and %v", doc.Data, doc.Meta.Links, content, want)
			}
			list, err := d.History(ctx, "doc", at, 0, 0)
			list = slices.DeleteFunc(list, func(c tally.Change) bool { return c.Deleted })
			if len(list) != revisions || err != nil {
				rt.Errorf("the document has %d revisions, %v, want %d", len(list), err, revisions)
			}
			if links, err := d.Links(ctx, "doc", "z"); err != nil || len(links) != 1 || links[0].To.ID != at || links[0].Dangling {
				rt.Errorf("the link to the document leads to %v, %v, want %s", links, err, at)
			}
		})
	})
}
