package tally_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
)

// mustBalance returns the sum of the accounts, read one by one.
func mustBalance(t *testing.T, d *tally.Documents, accounts int) (total int) {
	t.Helper()
	for i := range accounts {
		doc, err := d.Read(t.Context(), "account", strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(doc.Data))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

// A transaction is all or nothing, its reads are still true when it writes, and a conflict names the document. The sum
// of amounts that many transactions move stays the same.
func transactions(t *testing.T, st *tally.Store) {
	d, ctx := st.Documents(), t.Context()
	const accounts, writers, rounds = 5, 4, 15
	for i := range accounts {
		mustCreate(t, d, "account", strconv.Itoa(i), text("100"))
	}
	seed := testkit.Seed(t)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for range rounds {
				from, to := random.IntN(accounts), random.IntN(accounts)
				if from == to {
					continue
				}
				err := d.Tx(ctx, func(tx *tally.Tx) error {
					return transfer(t, tx, strconv.Itoa(from), strconv.Itoa(to), 1+random.IntN(30))
				})
				if conflict, is := errors.AsType[*tally.DocumentConflictError](err); err != nil && (!is || conflict.Subject.Kind != "account") {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total := mustBalance(t, d, accounts); total != accounts*100 {
		t.Errorf("the accounts hold %d, want %d", total, accounts*100)
	}

	wrong := errors.New("wrong")
	err := d.Tx(ctx, func(tx *tally.Tx) error {
		if err := tx.Create(ctx, "doc", "t/half", text("half")); err != nil {
			return err
		}
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Error(err)
	}
	mustHold(t, d, "doc", "t/half", "")

	// A transaction reads its own writes. A document that it creates and deletes is not written.
	err = d.Tx(ctx, func(tx *tally.Tx) error {
		if _, err := tx.Read(ctx, "doc", "t/new"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("read before the create: got %v, want ErrNotFound", err)
		}
		if err := errors.Join(tx.Create(ctx, "doc", "t/new", text("new")), tx.Create(ctx, "doc", "t/brief", text("x")), tx.Delete(ctx, "doc", "t/brief", "")); err != nil {
			return err
		}
		if err := tx.Create(ctx, "doc", "t/new", text("new")); !errors.Is(err, tally.ErrExists) {
			t.Errorf("created twice: got %v, want ErrExists", err)
		}
		if err := tx.Update(ctx, "doc", "t/brief", text("x")); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("update of a deleted document: got %v, want ErrNotFound", err)
		}
		doc, err := tx.Read(ctx, "doc", "t/new")
		if err != nil || string(doc.Data) != "new" || doc.Offset != 0 {
			t.Errorf("read of a written document: got %+v, %v, want new at offset 0", doc, err)
		}
		return tx.Update(ctx, "doc", "t/new", text("newer"))
	})
	if err != nil && !errors.Is(err, log.ErrGuard) { // the document that it created and deleted is only a guard
		t.Fatal(err)
	}
	if err == nil {
		mustHold(t, d, "doc", "t/new", "newer")
		if n := len(mustHistory(t, d, "doc", "t/new")); n != 1 {
			t.Errorf("one transaction made %d revisions, want 1", n)
		}
	}

	err = d.Tx(ctx, func(tx *tally.Tx) error {
		for i := range 101 {
			if err := tx.Save(ctx, "many", strconv.Itoa(i), text("x")); err != nil {
				return err
			}
		}
		return nil
	})
	if size, ok := errors.AsType[*log.SizeError](err); !ok || size.Max != 100 || !errors.Is(err, log.ErrTooLarge) {
		t.Errorf("101 documents: got %v, want a *SizeError", err)
	}
	mustHold(t, d, "many", "0", "")
	err = d.Tx(ctx, func(tx *tally.Tx) error {
		for i := range 100 {
			if err := tx.Save(ctx, "many", strconv.Itoa(i), text("x")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("100 documents: %v", err)
	}
	mustHold(t, d, "many", "99", "x")
}

// transfer moves an amount, if the balance is sufficient.
func transfer(t *testing.T, tx *tally.Tx, from, to string, amount int) error {
	hold := make(map[string]int)
	for _, id := range []string{from, to} {
		doc, err := tx.Read(t.Context(), "account", id)
		if err != nil {
			return err
		}
		if hold[id], err = strconv.Atoi(string(doc.Data)); err != nil {
			return err
		}
	}
	if hold[from] < amount {
		return nil
	}
	return errors.Join(
		tx.Update(t.Context(), "account", from, text(strconv.Itoa(hold[from]-amount))),
		tx.Update(t.Context(), "account", to, text(strconv.Itoa(hold[to]+amount))))
}

// If each of two transactions writes a document that the other only reads, one is first, and the other runs again, so
// that neither decides on outdated documents.
func TestTxReadsAreGuards(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	d, ctx := st.Documents(), t.Context()
	for i := range 50 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		mustCreate(t, d, "doctor", a, text("on call"))
		mustCreate(t, d, "doctor", b, text("on call"))
		var wg sync.WaitGroup
		for _, pair := range [][2]string{{a, b}, {b, a}} { // each doctor leaves if the other is on call
			wg.Go(func() {
				err := d.Tx(ctx, func(tx *tally.Tx) error {
					other, err := tx.Read(ctx, "doctor", pair[1])
					if err != nil || string(other.Data) != "on call" {
						return err
					}
					return tx.Update(ctx, "doctor", pair[0], text("away"))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		one, err := d.Read(ctx, "doctor", a)
		two, err2 := d.Read(ctx, "doctor", b)
		if errors.Join(err, err2) != nil || string(one.Data) == "away" && string(two.Data) == "away" {
			t.Fatalf("round %d: both transactions decided on outdated documents: %v, %v", i, err, err2)
		}
	}
}

// The function reads the documents as of one time. If one changes meanwhile, it runs again, also if it only reads or
// returns an error.
func TestTxReadsOneTime(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	d, ctx := st.Documents(), t.Context()
	set := func(s string) {
		err := d.Tx(ctx, func(tx *tally.Tx) error {
			return errors.Join(tx.Save(ctx, "doc", "a", text(s)), tx.Save(ctx, "doc", "b", text(s)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, fails := range []bool{false, true} {
		set("1")
		calls := 0
		differ := errors.New("they differ")
		err := d.Tx(ctx, func(tx *tally.Tx) error {
			a, err := tx.Read(ctx, "doc", "a")
			if calls++; calls == 1 {
				set("2")
			}
			b, err2 := tx.Read(ctx, "doc", "b")
			if errors.Join(err, err2) != nil {
				return errors.Join(err, err2)
			}
			if fails && string(a.Data) != string(b.Data) {
				return differ
			}
			return nil
		})
		if err != nil || calls != 2 {
			t.Errorf("fails %v: got %v after %d calls, want success after 2", fails, err, calls)
		}
	}
	calls := 0
	err := d.Tx(ctx, func(tx *tally.Tx) error {
		calls++
		a, err := tx.Read(ctx, "doc", "a")
		if err != nil {
			return err
		}
		mustSave(t, d, "doc", "a", text(fmt.Sprint("always first ", calls)))
		return tx.Update(ctx, "doc", "a", text(string(a.Data)+"!"))
	})
	conflict, ok := errors.AsType[*tally.DocumentConflictError](err)
	if !ok || conflict.Subject.ID != "a" || conflict.SHA256 != sum(fmt.Append(nil, "always first ", calls)) || calls != 31 {
		t.Errorf("got %v after %d calls, want a *DocumentConflictError of a after 31", err, calls)
	}
}

// A rename is atomic and keeps history, links and the lease. Of several renames to one name, one succeeds.
func renames(t *testing.T, st *tally.Store) {
	d, ctx := st.Documents(), t.Context()
	w := linked("1", link("see", "elsewhere"))
	w.Title, w.Owner, w.Attributes, w.ContentType = "a title", "me", map[string]string{"a": "b"}, "text/markdown"
	first := mustCreate(t, d, "doc", "r/old", w)
	w.Data = []byte("2")
	second := mustSave(t, d, "doc", "r/old", w)
	if _, err := d.Lease(ctx, "doc", "r/old", "agent", time.Hour); err != nil {
		t.Fatal(err)
	}
	mustConflict(t, "stale", func() error { _, err := d.Rename(ctx, "doc", "r/old", first.Offset, "r/new"); return err }, second.Offset, sum([]byte("2")))
	mustCreate(t, d, "doc", "r/taken", text("x"))
	if _, err := d.Rename(ctx, "doc", "r/old", second.Offset, "r/taken"); !errors.Is(err, tally.ErrExists) {
		t.Errorf("rename to a name in use: got %v, want ErrExists", err)
	}
	rev, err := d.Rename(ctx, "doc", "r/old", second.Offset, "r/new")
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, d, "doc", "r/old", "")
	doc, err := d.Read(ctx, "doc", "r/new")
	if err != nil || string(doc.Data) != "2" || doc.Offset != rev.Offset || doc.Meta.Title != "a title" || doc.Meta.Owner != "me" || doc.Meta.Attributes["a"] != "b" || doc.ContentType != "text/markdown" {
		t.Errorf("renamed document: got %+v, %v, want content and metadata of the old one", doc, err)
	}
	if lease, err := d.Holder(ctx, "doc", "r/new"); err != nil || lease.Holder != "agent" {
		t.Errorf("lease of the new name: got %+v, %v, want agent", lease, err)
	}
	if lease, err := d.Holder(ctx, "doc", "r/old"); err != nil || lease.Holder != "" {
		t.Errorf("lease of the old name: got %+v, %v, want none", lease, err)
	}
	mustCreate(t, d, "doc", "r/old", text("another document"))
	if _, err := d.Rename(ctx, "doc", "r/new", 0, "r/newer"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Rename(ctx, "doc", "r/newer", 0, "r/new"); err != nil {
		t.Fatal(err)
	}
	var line string
	for _, c := range mustHistory(t, d, "doc", "r/new") {
		if !c.Deleted {
			line += c.Subject.ID + " "
		}
	}
	if want := "r/new r/newer r/new r/old r/old "; line != want {
		t.Errorf("history %s, want %s", line, want)
	}
	for position, want := range map[string]string{first.Offset.String(): "1", "#2": "2", "#3": "2", "head": "2"} {
		if doc, err := d.ReadAt(ctx, "doc", "r/new", position); err != nil || string(doc.Data) != want {
			t.Errorf("at %s: got %v, %v, want %s", position, doc, err, want)
		}
	}
	if n := len(mustHistory(t, d, "doc", "r/old")); n != 4 { // two revisions, the deletion, and the other document
		t.Errorf("the history of the old name has %d revisions, want 4", n)
	}

	const names = 6
	errs := make([]error, names)
	for i := range names {
		mustCreate(t, d, "doc", fmt.Sprint("r/one of ", i), text(fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() { _, errs[i] = d.Rename(ctx, "doc", fmt.Sprint("r/one of ", i), 0, "r/the one") })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
			mustHold(t, d, "doc", "r/the one", fmt.Sprint(i))
			mustHold(t, d, "doc", fmt.Sprint("r/one of ", i), "")
		case errors.Is(err, tally.ErrExists):
			mustHold(t, d, "doc", fmt.Sprint("r/one of ", i), fmt.Sprint(i))
		default:
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d renames to one name succeeded, want 1", won)
	}
}

// A link with the relation renamed-from alone does not add the history of another document.
func TestRenamedFromIsNotBelieved(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	d := st.Documents()
	mustCreate(t, d, "doc", "private", text("secret"))
	mustCreate(t, d, "doc", "mine", linked("x", events.Link{Rel: "renamed-from", To: "document/doc/private"}))
	if list := mustHistory(t, d, "doc", "mine"); len(list) != 1 {
		t.Errorf("got history %+v, want 1 revision", list)
	}
}

// A transaction's append to another subject is stored together with its documents, or not at all.
func TestTxAppendsElsewhere(t *testing.T) {
	st, ctx := storetest.Memory(t, tally.Config{}), t.Context()
	s := st.Session("ledger")
	first, err := s.AppendTurns(ctx, events.MainThread, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	write := func(at events.Offset) error {
		return st.Documents().Tx(ctx, func(tx *tally.Tx) error {
			runs++
			e, err := events.New(st.Source(), s.Subject(), &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw("2")}}})
			if err != nil {
				return err
			}
			tx.Append(log.Part{Subject: s.Subject(), Expect: log.At(at), Events: []events.Event{e}})
			return tx.Save(ctx, "doc", "a", tally.Write{Data: []byte(at.String())})
		})
	}
	if err := write(first.Last + 7); !errors.Is(err, log.ErrConflict) || runs < 2 {
		t.Errorf("got %v after %d runs, want ErrConflict after several", err, runs)
	}
	if _, err := st.Documents().Read(ctx, "doc", "a"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("read of a document that was not committed: got %v, want ErrNotFound", err)
	}
	if err := write(first.Last); err != nil {
		t.Fatal(err)
	}
	now, err := s.Load(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := st.Documents().Read(ctx, "doc", "a"); err != nil || string(doc.Data) != first.Last.String() || len(now.Threads.Turns("main")) != 2 {
		t.Errorf("read: %v; the session has %d turns, want 2", err, len(now.Threads.Turns("main")))
	}
}
