package tally_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/projector"
)

func linked(s string, links ...events.Link) tally.Write {
	w := text(s)
	w.Links = links
	return w
}

func link(rel, id string) events.Link { return events.Link{Rel: rel, To: "document/doc/" + id} }

// shown formats links: from -rel-> to, with a ? if the target does not exist.
func shown(list []tally.Linked) (lines []string) {
	for _, l := range list {
		line := l.From.ID + " -" + l.Link.Rel + "-> " + l.To.ID
		if l.Dangling {
			line += "?"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func mustShow(t *testing.T, what string, list []tally.Linked, err error, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, shown(list)); diff != "" || err != nil {
		t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
	}
}

// Links may lead to missing documents and are listed as dangling. Cycles of parents are refused. A rename keeps
// backlinks.
func linksAndParents(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	doc := func(id string) events.Subject { return events.Document("default", "doc", id) }
	mustCreate(t, d, "doc", "l/top", text("top"))
	mustCreate(t, d, "doc", "l/a", linked("a", link("parent", "l/top"), link("see", "l/nowhere"), events.Link{Rel: "by", To: "session/l/s"}))
	mustCreate(t, d, "doc", "l/b", linked("b", link("parent", "l/a"), link("see", "l/top")))
	list, err := d.Links(ctx, "doc", "l/a")
	mustShow(t, "links", list, err, "l/a -by-> l/s?", "l/a -parent-> l/top", "l/a -see-> l/nowhere?")
	list, err = d.Backlinks(ctx, doc("l/top"))
	mustShow(t, "backlinks", list, err, "l/a -parent-> l/top", "l/b -see-> l/top")
	list, err = d.Backlinks(ctx, events.Session("default", "l/s"))
	mustShow(t, "backlinks of a session", list, err, "l/a -by-> l/s?")

	for name, write := range map[string]func() error{
		"itself": func() error { _, err := d.Save(ctx, "doc", "l/b", linked("", link("parent", "l/b"))); return err },
		"above":  func() error { _, err := d.Save(ctx, "doc", "l/top", linked("", link("parent", "l/b"))); return err },
		"a document that does not exist yet": func() error {
			mustSave(t, d, "doc", "l/c", linked("", link("parent", "l/later")))
			_, err := d.Create(ctx, "doc", "l/later", linked("", link("parent", "l/c")))
			return err
		},
		"by an earlier name": func() error {
			mustSave(t, d, "doc", "l/old", text(""))
			mustSave(t, d, "doc", "l/below", linked("", link("parent", "l/old")))
			if _, err := d.Rename(ctx, "doc", "l/old", 0, "l/new"); err != nil {
				return nil
			}
			_, err := d.Save(ctx, "doc", "l/new", linked("", link("parent", "l/below")))
			return err
		},
		"in a transaction": func() error {
			return d.Tx(ctx, func(tx *tally.Tx) error {
				if err := tx.Save(ctx, "doc", "l/x", linked("", link("parent", "l/y"))); err != nil {
					return err
				}
				return tx.Save(ctx, "doc", "l/y", linked("", link("parent", "l/x")))
			})
		},
	} {
		if err := write(); !invalid(err) || !strings.Contains(err.Error(), "its own parent") {
			t.Errorf("cycle of parents, %s: got %v, want an *InvalidError", name, err)
		}
	}
	if _, err := d.Rename(ctx, "doc", "l/top", 0, "l/peak"); err != nil {
		t.Fatal(err)
	}
	list, err = d.Backlinks(ctx, doc("l/peak"))
	mustShow(t, "backlinks after the rename", list, err, "l/a -parent-> l/peak", "l/b -see-> l/peak")
	list, err = d.Links(ctx, "doc", "l/b")
	mustShow(t, "links after the rename", list, err, "l/b -parent-> l/a", "l/b -see-> l/peak")
	if _, err := d.Delete(ctx, "doc", "l/peak", 0, ""); err != nil {
		t.Fatal(err)
	}
	list, err = d.Links(ctx, "doc", "l/b")
	mustShow(t, "links after the deletion", list, err, "l/b -parent-> l/a", "l/b -see-> l/peak?")
}

// Of two concurrent writes that make two documents each other's parent, exactly one succeeds.
func TestParentsAtOnce(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	d, ctx := st.Documents(), t.Context()
	for i := range 50 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		mustCreate(t, d, "doc", a, text(""))
		mustCreate(t, d, "doc", b, text(""))
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for n, pair := range [][2]string{{a, b}, {b, a}} {
			wg.Go(func() { _, errs[n] = d.Save(ctx, "doc", pair[0], linked("", link("parent", pair[1]))) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: got errors %v and %v, want exactly one", i, errs[0], errs[1])
		}
	}
}

// Lists by prefix, owner, layer and order; pages without gaps or repeats while others write.
func listsByPrefix(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	const n = 60
	for i := range n {
		w := text(fmt.Sprint(i))
		w.Owner, w.Layer, w.Title = fmt.Sprint("owner ", i%3), "project", "a title"
		mustCreate(t, d, "d57", fmt.Sprintf("specs/%02d", i), w)
	}
	mustCreate(t, d, "d57", "specs", text("above"))
	mustCreate(t, d, "d57", "spect", text("behind"))
	deleted := mustCreate(t, d, "d57", "specs/gone", text("gone"))
	if _, err := d.Delete(ctx, "d57", "specs/gone", deleted.Offset, "done"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 200 {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if _, err := d.Save(ctx, "d57", fmt.Sprintf("specs/%02d/%d", i%n, i), text("new")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var found []string
	q := projector.DocumentQuery{Kind: "d57", Prefix: "specs/", Limit: 7}
	for {
		list, next, err := d.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if strings.Count(l.Subject.ID, "/") == 1 {
				found = append(found, l.Subject.ID)
			}
		}
		if q.After = next; next == "" {
			break
		}
	}
	close(stop)
	wg.Wait()
	if len(found) != n || !slices.IsSorted(found) || len(slices.Compact(slices.Clone(found))) != n {
		t.Errorf("%d documents by pages, want %d once and in order: %v", len(found), n, found)
	}
	list, next, err := d.List(ctx, projector.DocumentQuery{Kind: "d57", Prefix: "specs/", Owner: "owner 1"})
	if err != nil || len(list) != n/3 || next != "" {
		t.Errorf("by owner: got %d documents, next %q, %v, want %d", len(list), next, err, n/3)
	}
	last := mustSave(t, d, "d57", "specs/30", text("newest"))
	list, _, err = d.List(ctx, projector.DocumentQuery{Kind: "d57", Newest: true, Limit: 1})
	if err != nil || len(list) != 1 || list[0].Subject.ID != "specs/30" || list[0].Last != last.Offset || list[0].Revisions != 2 || list[0].Bytes != 6 || list[0].SHA256 != sum([]byte("newest")) {
		t.Errorf("newest: got %+v, %v, want specs/30", list, err)
	}
	list, _, err = d.List(ctx, projector.DocumentQuery{Kind: "d57", Prefix: "specs/gone", Deleted: true})
	if err != nil || len(list) != 1 || !list[0].Deleted {
		t.Errorf("deleted: got %+v, %v, want specs/gone", list, err)
	}
	if _, _, err := d.List(ctx, projector.DocumentQuery{After: "nonsense"}); !invalid(err) {
		t.Errorf("invalid After: got %v, want an *InvalidError", err)
	}
	if _, _, err := d.List(ctx, projector.DocumentQuery{Link: "nonsense"}); !invalid(err) {
		t.Errorf("invalid Link: got %v, want an *InvalidError", err)
	}
}

// Lists with and without a catalog are equal.
func TestListsAgree(t *testing.T) {
	st := storetest.Open(t, "memory")
	d, ctx := st.Documents(), t.Context()
	plain, err := tally.Open(ctx, tally.RawOf(st.Log), tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		w := linked(fmt.Sprint("text ", i), link("see", fmt.Sprint(i/2)), link("parent", "up"))
		w.Owner, w.Title = fmt.Sprint("owner ", i%2), fmt.Sprint("title ", i)
		if i == 3 {
			w.ExpiresAt = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		mustCreate(t, d, []string{"doc", "note"}[i%2], fmt.Sprint(i), w)
	}
	mustSave(t, d, "doc", "4", text("again"))
	for _, step := range []error{
		second(d.Rename(ctx, "doc", "2", 0, "two")), second(d.Rename(ctx, "doc", "two", 0, "zwei")),
		second(d.Delete(ctx, "doc", "6", 0, "done")), d.Purge(ctx, "doc", "8"),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if _, err := st.PutBlob(ctx, []byte("a blob")); err != nil {
		t.Fatal(err)
	}
	mustTurns(t, st.Session("s"), "x")
	for _, q := range []projector.DocumentQuery{
		{}, {Kind: "doc"}, {Kind: "none"}, {Prefix: "1"}, {Owner: "owner 1"}, {Layer: "project"}, {Deleted: true}, {Newest: true}, {Newest: true, Deleted: true}, {Kind: "blob"},
		{Link: "document/doc/zwei"}, {Link: "document/doc/two"}, {Link: "document/doc/2", Rel: "see"}, {Link: "document/doc/1", Rel: "parent"}, {Link: "document/doc/up", Rel: "parent"}, {Kind: "note", Link: "document/doc/zwei"},
		{Limit: 3}, {Limit: 3, Newest: true}, {Limit: 5, Deleted: true}, {Limit: 1, Link: "document/doc/up"},
	} {
		for pages := 0; ; pages++ {
			want, wantNext, err := d.List(ctx, q)
			have, haveNext, err2 := plain.Documents().List(ctx, q)
			if diff := cmp.Diff(want, have); diff != "" || wantNext != haveNext || errors.Join(err, err2) != nil || pages > 20 {
				t.Errorf("%+v: next %q by the catalog, %q by the log, errors %v, %v (-catalog +log):\n%s", q, wantNext, haveNext, err, err2, diff)
				break
			}
			if q.After = wantNext; wantNext == "" {
				break
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }
