package admin

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const (
	oldKey = "old:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
	newKey = "new:f0e1d2c3b4a5968778695a4b3c2d1e0f00112233445566778899aabbccddeeff\n"
)

func ring(t *testing.T, keys string) *sealed.Ring {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	err := os.WriteFile(path, []byte(keys), 0o600)
	r, err2 := sealed.ReadFile(path)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return r
}

// mustSeal writes a sealed document.
func mustSeal(t *testing.T, st *tally.Store, r *sealed.Ring, id, clear string) {
	t.Helper()
	content, err := r.SealDocument(events.Document(st.Namespace(), sealed.Kind, id), []byte(clear))
	if err == nil {
		_, err = st.Documents().Save(t.Context(), sealed.Kind, id, tally.Write{Data: content, ID: id + r.Newest() + clear})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mustOpen checks the clear content of a document, and the key that sealed it.
func mustOpen(t *testing.T, st *tally.Store, r *sealed.Ring, id, key, clear string) {
	t.Helper()
	doc, err := st.Documents().Read(t.Context(), sealed.Kind, id)
	if err != nil {
		t.Fatal(err)
	}
	box, err := sealed.ParseBox(doc.Data)
	plain, err2 := r.OpenDocument(doc.Subject, doc.Data)
	if err := errors.Join(err, err2); err != nil || box.KeyID != key || string(plain) != clear {
		t.Errorf("%s: got %q by %q, %v; want %q by %q", id, plain, box.KeyID, err, clear, key)
	}
}

func rotate(t *testing.T, st *tally.Store, r *sealed.Ring, before func(secretRead)) (*rotation, error) {
	rot := &rotation{Key: r.Newest(), ring: r}
	return rot, eachSecret(t.Context(), st, func(doc secretRead) error {
		before(doc)
		return rot.add(t.Context(), doc)
	})
}

// Concurrent writes during a rotation are not lost: new content, a deletion, and the result of another rotation.
func TestRotateMeanwhile(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	first, both := ring(t, oldKey), ring(t, oldKey+newKey)
	for _, id := range []string{"changed", "deleted", "rotated", "still"} {
		mustSeal(t, st, first, id, "of "+id)
	}
	rot, err := rotate(t, st, both, func(doc secretRead) {
		switch id := doc.sub.ID; id {
		case "changed":
			mustSeal(t, st, first, id, "other")
		case "deleted":
			if _, err := st.Documents().Delete(t.Context(), sealed.Kind, id, 0, ""); err != nil {
				t.Fatal(err)
			}
		case "rotated":
			mustSeal(t, st, both, id, "of rotated")
		}
	})
	if err != nil || rot.Documents != 3 || rot.Sealed != 2 || rot.Already != 1 || len(rot.Closed) != 0 {
		t.Fatalf("got %+v, %v", rot, err)
	}
	mustOpen(t, st, both, "changed", "new", "other")
	mustOpen(t, st, both, "rotated", "new", "of rotated")
	mustOpen(t, st, both, "still", "new", "of still")
	if _, err := st.Documents().Read(t.Context(), sealed.Kind, "deleted"); !errors.Is(err, events.ErrNotFound) {
		t.Errorf("a deleted document: got %v", err)
	}
}

// After an interrupted rotation all documents open, and the next rotation continues.
func TestRotateCutShort(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	first, both := ring(t, oldKey), ring(t, oldKey+newKey)
	for i := range 6 {
		mustSeal(t, st, first, strconv.Itoa(i), "clear")
	}
	over, n := errors.New("over"), 0
	cut := &rotation{Key: "new", ring: both}
	if err := eachSecret(t.Context(), st, func(doc secretRead) error {
		if n++; n > 4 {
			return over
		}
		return cut.add(t.Context(), doc)
	}); !errors.Is(err, over) {
		t.Fatal(err)
	}
	check, err := checkSecrets(t.Context(), st, both)
	if err != nil || check.Open != 6 || check.Keys[0].Documents != 2 || check.Keys[1].Documents != 4 {
		t.Fatalf("got %+v, %v", check, err)
	}
	for _, want := range []int{2, 0} {
		if rot, err := rotate(t, st, both, func(secretRead) {}); err != nil || rot.Sealed != want || rot.Already != 6-want {
			t.Fatalf("got %+v, %v", rot, err)
		}
	}
}

// If the acknowledgement is lost, the write is sent again, and the document is sealed once.
func TestRotateFaults(t *testing.T) {
	first, both := ring(t, oldKey), ring(t, oldKey+newKey)
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		for i := range 3 {
			mustSeal(t, st, first, strconv.Itoa(i), "clear")
		}
		call("rotate", 3, func() error {
			_, err := rotate(t, st, both, func(secretRead) {})
			return err
		})
		for i := range 3 {
			mustOpen(t, st, both, strconv.Itoa(i), "new", "clear")
		}
	})
}
