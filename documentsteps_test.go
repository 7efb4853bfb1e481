package tally_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// stepped is a log in memory that calls reached before each call, with its name. With few, it guards only subjects that
// it writes, like a server that others run.
type stepped struct {
	sharedMem
	reached func(call string)
	few     bool
}

func (b *stepped) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	b.reached("publish")
	if b.few && slices.ContainsFunc(p.Writes, func(w log.Write) bool { return len(w.Messages) == 0 }) {
		return log.Receipt{}, log.ErrGuard
	}
	return b.sharedMem.Publish(ctx, p)
}

func (b *stepped) Get(ctx context.Context, at events.Offset) (log.Message, error) {
	b.reached("get")
	return b.sharedMem.Get(ctx, at)
}

func (b *stepped) Last(ctx context.Context, subject string) (log.Message, error) {
	b.reached("last")
	return b.sharedMem.Last(ctx, subject)
}

func (b *stepped) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	b.reached("scan")
	return b.sharedMem.Scan(ctx, q)
}

// on opens a store on a backend that outlives it.
func on(t testing.TB, b log.Backend, c tally.Config) *tally.Store {
	t.Helper()
	l, err := log.OpenOn(context.Background(), b, log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := tally.Open(context.Background(), l, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// kindOf returns the kind of an error that callers branch on.
func kindOf(err error) string {
	for kind, is := range map[string]error{"not found": tally.ErrNotFound, "exists": tally.ErrExists, "conflict": log.ErrConflict} {
		if errors.Is(err, is) {
			return kind
		}
	}
	switch {
	case err == nil:
		return "done"
	case events.IsDamage(err):
		return "damaged"
	}
	return err.Error()
}

// stateOf describes documents: the content of each one, its revisions, and the lease.
func stateOf(t testing.TB, st *tally.Store, ids ...string) string {
	t.Helper()
	var b strings.Builder
	d, ctx := st.Documents(), context.Background()
	for _, id := range ids {
		doc, err := d.Read(ctx, "doc", id)
		fmt.Fprint(&b, id, ": ", kindOf(err))
		if err == nil {
			fmt.Fprintf(&b, " %q", doc.Data)
		}
		list, _ := d.History(ctx, "doc", id, 0, 0)
		for _, c := range list {
			if c.Deleted {
				fmt.Fprint(&b, " -", c.Reason)
				continue
			}
			data := "unreadable"
			if doc, err := c.Read(ctx); err == nil {
				data = string(doc.Data)
			}
			fmt.Fprintf(&b, " +%s", data)
		}
		lease, err := d.Holder(ctx, "doc", id)
		fmt.Fprint(&b, " ", lease.Holder, " ", kindOf(err), "\n")
	}
	return b.String()
}

// byRef writes a document whose content is kept by reference, as large content is.
func byRef(ctx context.Context, st *tally.Store, id, content string) error {
	ref, err := st.PutBlob(ctx, []byte(content))
	if err != nil {
		return err
	}
	e := events.Event{Type: events.TypeDocumentWritten, ContentType: "text/plain"}
	_, err = st.Append(ctx, events.Document("default", "doc", id), log.Any, e.WithExtension(events.ExtDataRef, ref))
	return err
}

// A call of documents "a" and "b", which exist; base is the revision of "a".
type docCall func(ctx context.Context, st *tally.Store, base events.Offset) error

func refOf(id string) tally.Write { return linked("child", link("parent", id)) }

var docCalls = map[string]docCall{
	"save": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return second(st.Documents().Save(ctx, "doc", "a", text("saved")))
	},
	"update": func(ctx context.Context, st *tally.Store, base events.Offset) error {
		return second(st.Documents().Update(ctx, "doc", "a", base, text("updated")))
	},
	"create": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return second(st.Documents().Create(ctx, "doc", "a", text("created")))
	},
	"delete": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return second(st.Documents().Delete(ctx, "doc", "a", 0, ""))
	},
	"rename": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return second(st.Documents().Rename(ctx, "doc", "a", 0, "c"))
	},
	"purge": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return st.Documents().Purge(ctx, "doc", "a")
	},
	"link": func(ctx context.Context, st *tally.Store, _ events.Offset) error { // depends on its parent
		return second(st.Documents().Save(ctx, "doc", "b", refOf("a")))
	},
	"linkBack": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return second(st.Documents().Save(ctx, "doc", "a", refOf("b")))
	},
	"tx": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return st.Documents().Tx(ctx, func(tx *tally.Tx) error {
			a, err := tx.Read(ctx, "doc", "a")
			if err != nil {
				return err
			}
			return tx.Update(ctx, "doc", "a", text(string(a.Data)+"!"))
		})
	},
	"txBoth": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return st.Documents().Tx(ctx, func(tx *tally.Tx) error {
			a, err := tx.Read(ctx, "doc", "a")
			if err != nil {
				return err
			}
			return errors.Join(tx.Save(ctx, "doc", "a", text("left "+string(a.Data))), tx.Save(ctx, "doc", "b", text("right "+string(a.Data))))
		})
	},
	"txRefuses": func(ctx context.Context, st *tally.Store, _ events.Offset) error { // with an error that rests on both
		return st.Documents().Tx(ctx, func(tx *tally.Tx) error {
			a, err := tx.Read(ctx, "doc", "a")
			if err != nil {
				return err
			}
			b, err := tx.Read(ctx, "doc", "b")
			if err != nil {
				return err
			}
			return fmt.Errorf("%s and %s", a.Data, b.Data)
		})
	},
	"again": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return byRef(ctx, st, "a", "large content")
	},
	"same": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return byRef(ctx, st, "b", "large content")
	},
	"anew": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		_ = st.Documents().Purge(ctx, "doc", "a") // it may be missing
		return byRef(ctx, st, "a", "large content")
	},
	"foreign": func(ctx context.Context, st *tally.Store, _ events.Offset) error {
		return second(st.Append(ctx, events.Document("default", "doc", "a"), log.Any, events.Event{Type: "com.example.x"}))
	},
}
