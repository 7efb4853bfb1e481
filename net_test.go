package tally_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/schedule"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
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

func TestMeanwhile(t *testing.T) {
	testkit.NotUnderRace(t) // one goroutine calls
	// begin returns two stores on one log, the first with steps, and the base of "a".
	begin := func(t *testing.T, few bool, reached func(string)) (st, other *tally.Store, base events.Offset) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st, other = on(t, &stepped{mem, reached, few}, tally.Config{}), on(t, mem, tally.Config{})
		if err := errors.Join(byRef(t.Context(), st, "a", "large content"), second(st.Documents().Save(t.Context(), "doc", "b", text("b")))); err != nil {
			t.Fatal(err)
		}
		a, err := st.Documents().Read(t.Context(), "doc", "a")
		if err != nil {
			t.Fatal(err)
		}
		return st, other, a.Offset
	}
	// inOrder returns the outcome of two calls one after the other.
	inOrder := func(t *testing.T, first, then string) (state string, firstErr, thenErr error) {
		st, other, base := begin(t, false, func(string) {})
		firstErr, thenErr = docCalls[first](t.Context(), st, base), docCalls[then](t.Context(), other, base)
		return stateOf(t, other, "a", "b", "c"), firstErr, thenErr
	}
	t.Run("net T3 a call of documents is as if before or behind whatever comes between its steps", func(t *testing.T) {
		calls := []string{"save", "update", "create", "delete", "rename", "purge", "link", "linkBack", "tx", "txBoth"}
		acts := []string{"save", "update", "delete", "rename", "purge", "link", "linkBack", "txBoth", "again", "same", "anew", "foreign"}
		for _, call := range calls {
			for _, act := range acts {
				t.Run(call+" "+act, func(t *testing.T) {
					if call == "purge" && act == "purge" {
						return // each may complete what the other began
					}
					var possible []string
					state, callErr, actErr := inOrder(t, call, act)
					possible = append(possible, kindOf(callErr)+", "+kindOf(actErr)+"\n"+state)
					state, actErr, callErr = inOrder(t, act, call)
					possible = append(possible, kindOf(callErr)+", "+kindOf(actErr)+"\n"+state)
					for _, few := range []bool{false, true} {
						if few && (call == "rename" || act == "rename" || call == "linkBack" && act == "link" || call == "link" && act == "linkBack") { // needs a guard
							continue
						}
						schedule.Each(t, func(t *testing.T, points *schedule.Points) {
							st, other, base := begin(t, few, points.Reached)
							acted, actErr := false, error(nil)
							points.Do(func() { acted, actErr = true, docCalls[act](t.Context(), other, base) })
							callErr := docCalls[call](t.Context(), st, base)
							if !acted {
								actErr = docCalls[act](t.Context(), other, base)
							}
							have := kindOf(callErr) + ", " + kindOf(actErr) + "\n" + stateOf(t, other, "a", "b", "c")
							if !slices.Contains(possible, have) {
								t.Errorf("got\n%s\nwant as one after the other:\n%s\nor\n%s", have, possible[0], possible[1])
							}
						})
					}
				})
			}
		}
	})
}

func TestTimeBounds(t *testing.T) {
	t.Run("net T1 what lasts until a time is over at exactly that time, for everybody", func(t *testing.T) {
		for _, early := range []time.Duration{time.Second, time.Millisecond, time.Nanosecond, 0, -time.Millisecond, -time.Second} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(700 * time.Microsecond) // records have times that a timestamp cannot say
				mem := sharedMem{memlog.New(memlog.Config{})}
				st := on(t, mem, tally.Config{})
				all := func(ctx context.Context, q projector.DocumentQuery) ([]projector.DocumentListed, string, error) { // a view that is at rest
					q.Deleted = true
					return st.Documents().List(ctx, q)
				}
				defer st.Close()
				viewed := on(t, mem, tally.Config{Host: tally.Host{Lister: all, Shown: func(context.Context, string, events.Offset) error { return nil }}})
				defer viewed.Close()
				d, ctx := st.Documents(), t.Context()
				end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
				w := text("x")
				w.ExpiresAt = end
				rev := mustCreate(t, d, "doc", "x", w)
				mustCreate(t, d, "other", "y", linked("y", link("see", "x")))
				claim, err := d.Lease(ctx, "doc", "y", "ann", time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if lease, err := d.Holder(ctx, "doc", "y"); err != nil || !lease.Until.Equal(claim.Until) {
					t.Errorf("the holder is told %v, and others %v", claim.Until, lease.Until)
				}
				now, err := viewed.LogTime(ctx)
				if err != nil || !now.Equal(time.Now()) {
					t.Fatalf("the log's time is %v, %v", now, err)
				}
				time.Sleep(time.Until(end) - early)
				there := early > 0
				for name, st := range map[string]*tally.Store{"log": st, "view": viewed} {
					d := st.Documents()
					says := func(what string, have bool) {
						t.Helper()
						if have != there {
							t.Errorf("%s: %v before the end, %s says %v", name, early, what, have)
						}
					}
					_, err := d.Read(ctx, "doc", "x")
					says("Read", err == nil)
					_, err = d.ReadAt(ctx, "doc", "x", "head")
					says("ReadAt", err == nil)
					for _, q := range []projector.DocumentQuery{{}, {Kind: "doc"}, {Newest: true, Kind: "doc"}} {
						list, _, err := d.List(ctx, q)
						says(fmt.Sprintf("List of %+v", q), err == nil && slices.ContainsFunc(list, func(l projector.DocumentListed) bool { return l.Subject.ID == "x" }))
					}
					links, err := d.Links(ctx, "other", "y")
					says("Links", err == nil && !links[0].Dangling)
					lease, err := d.Holder(ctx, "doc", "y")
					says("Holder", err == nil && lease.Holder == "ann")
					says("Tx", d.Tx(ctx, func(tx *tally.Tx) error { return second(tx.Read(ctx, "doc", "x")) }) == nil)
					_, err = d.Update(ctx, "doc", "x", rev.Offset+1000, text("x"))
					says("Update", errors.Is(err, log.ErrConflict))
					_, err = d.Lease(ctx, "doc", "y", "bob", -1)
					if !invalid(err) {
						t.Error(err)
					}
				}
				if there && early < time.Second { // a refused append takes a moment
					return
				}
				_, err = viewed.Documents().Lease(ctx, "doc", "y", "bob", time.Minute)
				if errors.Is(err, log.ErrConflict) != there {
					t.Errorf("%v before the end, Lease of another one: %v", early, err)
				}
				_, err = viewed.Documents().Create(ctx, "doc", "x", text("new"))
				if errors.Is(err, tally.ErrExists) != there {
					t.Errorf("%v before the end, Create: %v", early, err)
				}
			})
		}
	})
	t.Run("net T1 who releases the lease of somebody else that is over ends nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
			defer st.Close()
			d, ctx := st.Documents(), t.Context()
			claim, err := d.Lease(ctx, "doc", "x", "ann", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if err := d.Release(ctx, "doc", "x", "bob"); err != nil {
				t.Error(err)
			}
			if _, err := claim.Renew(ctx); err != nil { // nobody else has it
				t.Errorf("the claim of the last holder: %v", err)
			}
		})
	})
}

func TestOverContexts(t *testing.T) {
	t.Run("net T4 a context that is over ends every loop of tries", func(t *testing.T) {
		for name, call := range docCalls {
			if name == "foreign" || name == "save" || name == "again" || name == "same" || name == "anew" {
				continue // they expect nothing
			}
			for _, at := range []int{1, 2, 3} {
				synctest.Test(t, func(t *testing.T) {
					mem := sharedMem{memlog.New(memlog.Config{})}
					other := on(t, mem, tally.Config{})
					ctx, cancel := context.WithCancel(t.Context())
					var base events.Offset
					tries, over := 0, false
					var ended time.Time
					st := on(t, &stepped{mem, func(call string) {
						if call != "publish" && base > 0 && tries == at && !over {
							over, ended = true, time.Now()
							cancel()
						}
						if call != "publish" || base == 0 {
							return
						}
						if over && !t.Failed() {
							t.Errorf("%s: another try after the context ended", name)
						}
						if err := docCalls["foreign"](t.Context(), other, 0); err != nil { // a record that changes nothing
							t.Error(err)
						}
						tries++
					}, false}, tally.Config{})
					if base = 1; name != "create" {
						base = 0
						mustSave(t, st.Documents(), "doc", "b", text("b"))
						base = mustSave(t, st.Documents(), "doc", "a", text("a")).Offset
					}
					if err := call(ctx, st, base); err == nil {
						t.Errorf("%s: no error", name)
					}
					if !over || time.Since(ended) > 0 {
						t.Errorf("%s: ended %v after its context, in %d tries", name, time.Since(ended), tries)
					}
					st.Close()
					other.Close()
				})
			}
		}
	})
	t.Run("net T4 a transaction that comes to nothing leaves no record", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st := on(t, mem, tally.Config{})
		d := st.Documents()
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			head := func() events.Offset {
				at, err := st.Log.Head(ctx)
				if err != nil {
					rt.Fatal(err)
				}
				return at
			}
			isThere := make(map[string]bool)
			for i := range 3 {
				id := fmt.Sprint(i)
				if isThere[id] = rapid.Bool().Draw(rt, "is there"); isThere[id] {
					second(d.Save(ctx, "t4", id, text("x")))
				} else {
					second(d.Delete(ctx, "t4", id, 0, ""))
				}
			}
			before, wrong := head(), errors.New("wrong")
			fails := rapid.Bool().Draw(rt, "fails")
			changed := make(map[string]bool)
			err := d.Tx(ctx, func(tx *tally.Tx) error {
				changed = make(map[string]bool)
				now := make(map[string]bool)
				for id, is := range isThere {
					now[id] = is
				}
				for range rapid.IntRange(0, 6).Draw(rt, "steps") {
					id := fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "document"))
					var err error
					switch rapid.IntRange(0, 4).Draw(rt, "step") {
					case 0:
						_, err = tx.Read(ctx, "t4", id)
					case 1:
						if err = tx.Create(ctx, "t4", id, text("new")); err == nil {
							now[id], changed[id] = true, true
						}
					case 2:
						if err = tx.Update(ctx, "t4", id, text("newer")); err == nil {
							changed[id] = true
						}
					default:
						if err = tx.Delete(ctx, "t4", id, ""); err == nil {
							now[id], changed[id] = false, isThere[id]
						}
					}
					if err != nil && !errors.Is(err, tally.ErrExists) && !errors.Is(err, tally.ErrNotFound) {
						return err
					}
				}
				if fails {
					return wrong
				}
				return nil
			})
			if fails != errors.Is(err, wrong) || !fails && err != nil {
				rt.Fatal(err)
			}
			want := before
			for _, is := range changed {
				if is && !fails {
					want++
				}
			}
			if have := head(); have != want {
				rt.Errorf("the log has %d records more, want %d", have-before, want-before)
			}
		})
	})
}

// atMost bounds the wait for changes that a watch must yield.
const atMost = 8 * time.Second

// watchedAt watches the changes of documents up to a last one, and lists them. It continues when it is told that it is
// too slow. A point that the watch passes is passed to points, and at "waiting" last is called once.
func watchedAt(t *testing.T, st *tally.Store, points *schedule.Points, last func()) (seen []events.Offset) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	isOver := false
	defer tally.Reach(func(point string) {
		if points.Reached(point); point == "waiting" && !isOver {
			isOver = true
			last()
		}
	})()
	for after := events.Offset(0); ; {
		for c, err := range st.Documents().Watch(ctx, projector.DocumentQuery{Kind: "doc"}, after) {
			if lag, ok := errors.AsType[*tally.LaggedError](err); ok {
				after = lag.After
				break
			}
			if err != nil {
				t.Fatalf("the watch ended after %d changes: %v", len(seen), err)
			}
			if seen = append(seen, c.Offset); c.Subject.ID == "last" {
				return seen
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("the last change did not come within %v, after %d changes", atMost, len(seen))
		}
	}
}

func TestWatchMeanwhile(t *testing.T) {
	testkit.NotUnderRace(t) // tally.Reach changes a variable of all watches
	const many = 5000       // more than wait for a watcher
	t.Run("net T3 a watch that is overtaken between any two steps reads on, and repeats nothing", func(t *testing.T) {
		schedule.Each(t, func(t *testing.T, points *schedule.Points) {
			mem := sharedMem{memlog.New(memlog.Config{})}
			st, other := on(t, mem, tally.Config{}), on(t, mem, tally.Config{})
			defer st.Close()
			defer other.Close()
			var want []events.Offset
			write := func(id string) { want = append(want, mustSave(t, other.Documents(), "doc", id, text("x")).Offset) }
			for range 3 {
				write("x")
			}
			points.Do(func() {
				pending := make([]*tally.Pending, many)
				doc := events.Document("default", "doc", "y")
				for i := range pending {
					e := events.Event{Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("y")}
					pending[i] = other.Log.AppendAsync(t.Context(), doc, log.Any, other.Stamp(e))
				}
				for _, p := range pending {
					ack, err := p.Wait(t.Context())
					if err != nil {
						t.Error(err)
					}
					want = append(want, ack.Last)
				}
				if !tally.Offered(st, want[len(want)-1], atMost) {
					t.Error("the changes were not offered to the watch in time")
				}
			})
			have := watchedAt(t, st, points, func() { write("last") })
			if !slices.Equal(have, want) {
				t.Errorf("%d changes were seen, want %d, each once and in order", len(have), len(want))
			}
		})
	})
	t.Run("net T3 a watch repeats nothing that its caller has seen before the reader of the store came there", func(t *testing.T) {
		st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
		d := st.Documents()
		seen := mustSave(t, d, "doc", "x", text("x")).Offset + 1 // another process has shown the next change already
		ctx, cancel := context.WithTimeout(t.Context(), atMost)
		defer cancel()
		isOver := false
		defer tally.Reach(func(point string) {
			if point == "waiting" && !isOver {
				isOver = true
				mustSave(t, d, "doc", "x", text("seen"))
				mustSave(t, d, "doc", "end", text("x"))
			}
		})()
		if have, err := seenBy(ctx, d, projector.DocumentQuery{Kind: "doc"}, seen); len(have) != 1 {
			t.Errorf("the watch yielded %q and %v, want only the change behind the one that was seen", have, err)
		}
	})
	t.Run("net T3 a watch tells that a document that was deleted is purged", func(t *testing.T) {
		st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
		d, ctx := st.Documents(), t.Context()
		for _, id := range []string{"a", "b"} {
			mustSave(t, d, "doc", id, text("x"))
		}
		err := errors.Join(second(d.Delete(ctx, "doc", "a", 0, "done")), d.Purge(ctx, "doc", "a"), d.Purge(ctx, "doc", "b"))
		if err != nil {
			t.Fatal(err)
		}
		mustSave(t, d, "doc", "end", text("x"))
		have, err := seenBy(ctx, d, projector.DocumentQuery{Kind: "doc"}, 0)
		if want := []string{"a", "b", "a!done", "a!purged", "b!purged", "end"}; err != nil || !slices.Equal(have, want) {
			t.Errorf("got %q, %v, want %q", have, err, want)
		}
	})
}

// documentSteps append records to the document "a": revisions, and records that are not. A deletion of a missing
// document is void.
var documentSteps = map[string]events.Event{
	"write":   {Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("x")},
	"delete":  {Type: events.TypeDocumentDeleted, Data: []byte(`{"reason":"done"}`)},
	"foreign": {Type: "com.example.x"},
}

// readOf returns what Read says about a document whose newest readable revision is a write.
func readOf(steps []string, damaged []int) (isKnown bool, says string) {
	says = "done"
	for n := len(steps); n > 0; n-- {
		switch isLost := slices.Contains(damaged, n); {
		case isLost:
			says = "damaged"
		case steps[n-1] == "write":
			return true, says
		case steps[n-1] == "delete":
			return false, ""
		}
	}
	return false, ""
}

func TestDamagedDocument(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	calls := map[string]func(ctx context.Context, d *tally.Documents, base events.Offset) error{
		"Read": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return second(d.Read(ctx, "doc", "a"))
		},
		"Update": func(ctx context.Context, d *tally.Documents, base events.Offset) error {
			return second(d.Update(ctx, "doc", "a", base, text("new")))
		},
		"Create": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return second(d.Create(ctx, "doc", "a", text("new")))
		},
		"Save": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return second(d.Save(ctx, "doc", "a", text("new")))
		},
		"Delete": func(ctx context.Context, d *tally.Documents, base events.Offset) error {
			return second(d.Delete(ctx, "doc", "a", base, ""))
		},
		"Tx.Read": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return d.Tx(ctx, func(tx *tally.Tx) error { return second(tx.Read(ctx, "doc", "a")) })
		},
		"Tx.Update": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return d.Tx(ctx, func(tx *tally.Tx) error { return tx.Update(ctx, "doc", "a", text("new")) })
		},
		"Tx.Create": func(ctx context.Context, d *tally.Documents, _ events.Offset) error {
			return d.Tx(ctx, func(tx *tally.Tx) error { return tx.Create(ctx, "doc", "a", text("new")) })
		},
	}
	// after are the outcomes of calls, by that of Read.
	after := map[string]map[string]string{
		"done":      {"Read": "done", "Update": "done", "Create": "exists", "Save": "done", "Delete": "done", "Tx.Read": "done", "Tx.Update": "done", "Tx.Create": "exists"},
		"not found": {"Read": "not found", "Update": "not found", "Create": "done", "Save": "done", "Delete": "not found", "Tx.Read": "not found", "Tx.Update": "not found", "Tx.Create": "done"},
		"damaged":   {"Read": "damaged", "Update": "damaged", "Create": "damaged", "Save": "done", "Delete": "damaged", "Tx.Read": "damaged", "Tx.Update": "damaged", "Tx.Create": "damaged"},
	}
	t.Run("net T2 calls of a damaged document agree, also if its base was remembered", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			var names []string
			for name := range documentSteps {
				names = append(names, name)
			}
			slices.Sort(names)
			steps := rapid.SliceOfN(rapid.SampledFrom(append(names, "write", "write")), 1, 8).Draw(rt, "steps")
			damaged := rapid.SliceOfNDistinct(rapid.IntRange(1, len(steps)), 0, 3, rapid.ID[int]).Draw(rt, "damaged")
			remembered := rapid.IntRange(0, len(steps)).Draw(rt, "remembered") // the number of steps before a Read
			// play returns a store with the document, and the revision that a Read finds.
			play := func(isFast bool) (st *tally.Store, end func(), base events.Offset, read error) {
				mem := sharedMem{memlog.New(memlog.Config{})}
				st, other := on(t, mem, tally.Config{}), on(t, mem, tally.Config{})
				for n, step := range append(slices.Clone(steps), "") {
					if n == remembered && isFast {
						second(st.Documents().Read(ctx, "doc", "a"))
					}
					if step == "" {
						break
					}
					if _, err := other.Append(ctx, events.Document("default", "doc", "a"), log.At(events.Offset(n)), documentSteps[step]); err != nil {
						rt.Fatalf("%s: %v", step, err)
					}
				}
				for _, at := range damaged {
					mem.Damage(events.Offset(at))
				}
				doc, err := st.Documents().Read(ctx, "doc", "a")
				base = events.Offset(max(1, 1+slices.Index(steps, "write")))
				for n, step := range steps {
					if step == "write" {
						base = events.Offset(n + 1)
					}
				}
				if err == nil {
					base = doc.Offset
				}
				return st, func() { st.Close(); other.Close() }, base, err
			}
			for name, call := range calls {
				if name == "Create" && slices.Contains(damaged, len(steps)) {
					continue // the log waits long for a record that it expects
				}
				for _, isFast := range []bool{false, true} {
					st, end, base, read := play(isFast)
					if isKnown, want := readOf(steps, damaged); isKnown && kindOf(read) != want {
						rt.Errorf("Read says %s, want %s", kindOf(read), want)
					}
					have, want := kindOf(call(ctx, st.Documents(), base)), after[kindOf(read)][name]
					if have != want {
						rt.Errorf("%s (remembered: %v): %s, want %s, for Read says %s", name, isFast, have, want, kindOf(read))
					}
					end()
				}
			}
		})
	})
	t.Run("net T2 an update of a revision that was lost since it was read is refused", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		st := on(t, mem, tally.Config{})
		base := mustSave(t, st.Documents(), "doc", "x", text("x")).Offset
		mem.Damage(base)
		st.Log.Lose([]log.Hole{{Offset: base, Subject: events.Document("default", "doc", "x").NATS()}}) // as an examination finds it
		if err := second(st.Documents().Update(t.Context(), "doc", "x", base, text("y"))); !events.IsDamage(err) {
			t.Errorf("got %v, want the damage", err)
		}
	})
}

// A parent cannot be guarded by the append itself on some servers.
func TestTxOnFewGuards(t *testing.T) {
	t.Run("net T3 a transaction on a server with few guards sees that a parent changed", func(t *testing.T) {
		mem := sharedMem{memlog.New(memlog.Config{})}
		other, isReady := on(t, mem, tally.Config{}), false
		st := on(t, &stepped{mem, func(call string) {
			if call == "publish" && isReady {
				isReady = false
				mustSave(t, other.Documents(), "doc", "a", refOf("b"))
			}
		}, true}, tally.Config{})
		mustSave(t, other.Documents(), "doc", "a", text("a"))
		mustSave(t, other.Documents(), "doc", "b", text("b"))
		isReady = true
		err := st.Documents().Tx(t.Context(), func(tx *tally.Tx) error { return tx.Save(t.Context(), "doc", "b", refOf("a")) })
		if !invalid(err) || isReady {
			t.Errorf("got %v, want that the parents would form a circle", err)
		}
	})
}

func TestLeaseMeanwhile(t *testing.T) {
	testkit.NotUnderRace(t) // one goroutine calls
	t.Run("net T3 a lease that changes hands at any step of a rename is as if before or behind it", func(t *testing.T) {
		schedule.Each(t, func(t *testing.T, points *schedule.Points) {
			mem := sharedMem{memlog.New(memlog.Config{})}
			st, other := on(t, &stepped{mem, points.Reached, false}, tally.Config{}), on(t, mem, tally.Config{})
			ctx, d := t.Context(), other.Documents()
			mustSave(t, d, "doc", "a", text("a"))
			if _, err := d.Lease(ctx, "doc", "a", "ann", time.Hour); err != nil {
				t.Fatal(err)
			}
			points.Do(func() {
				if err := d.Release(ctx, "doc", "a", "ann"); err != nil {
					t.Error(err)
				}
				if _, err := d.Lease(ctx, "doc", "a", "bob", time.Hour); err != nil {
					t.Error(err)
				}
			})
			if _, err := st.Documents().Rename(ctx, "doc", "a", 0, "b"); err != nil {
				t.Error(err)
			}
			a, errA := d.Holder(ctx, "doc", "a")
			b, errB := d.Holder(ctx, "doc", "b")
			possible := [][2]string{{"", "ann"}}
			if points.Acted() {
				possible = [][2]string{{"", "bob"}, {"bob", "ann"}} // bob was before the rename, or behind it
			}
			if err := errors.Join(errA, errB); err != nil || !slices.Contains(possible, [2]string{a.Holder, b.Holder}) {
				t.Errorf("the leases are of %q and %q, %v, want one of %q", a.Holder, b.Holder, err, possible)
			}
		})
	})
}

func TestSameWrite(t *testing.T) {
	t.Run("net T2 a write with the id of another one is refused if anything in it differs", func(t *testing.T) {
		st := on(t, sharedMem{memlog.New(memlog.Config{})}, tally.Config{})
		d, ctx := st.Documents(), t.Context()
		first := text("x")
		first.ID = "id"
		rev := mustSave(t, d, "doc", "x", first)
		if again := mustSave(t, d, "doc", "x", first); again.Offset != rev.Offset {
			t.Errorf("the same write made the revisions %v and %v", rev.Offset, again.Offset)
		}
		for what, change := range map[string]func(*tally.Write){
			"data":       func(w *tally.Write) { w.Data = []byte("y") },
			"type":       func(w *tally.Write) { w.ContentType = "text/html" },
			"title":      func(w *tally.Write) { w.Title = "y" },
			"attributes": func(w *tally.Write) { w.Attributes = map[string]string{"a": "y"} },
			"links":      func(w *tally.Write) { w.Links = []events.Link{link("see", "y")} },
			"end":        func(w *tally.Write) { w.ExpiresAt = time.Now().Add(time.Hour) },
		} {
			w := first
			if change(&w); !invalid(second(d.Save(ctx, "doc", "x", w))) {
				t.Errorf("a write with other %s: not refused", what)
			}
		}
	})
}
