package tally_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
)

func mustBlob(t *testing.T, st *tally.Store, content []byte) (sum string) {
	t.Helper()
	ref, err := st.PutBlob(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	sum, ok := events.ParseBlobRef(ref)
	if !ok {
		t.Fatalf("PutBlob returned %q, want a reference to a blob", ref)
	}
	got, err := st.Blob(t.Context(), sum)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("blob has %d bytes, %v, want %d", len(got), err, len(content))
	}
	return sum
}

// Equal content is stored once, whatever its size. After a purge it is stored again.
func TestPutBlob(t *testing.T) {
	testkit.NotUnderRace(t)
	st := storetest.Memory(t, tally.Config{})
	head := func() events.Offset {
		t.Helper()
		at, err := st.Log.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for size, parts := range map[int]events.Offset{0: 1, 1: 1, events.MaxBlobPart: 1, events.MaxBlobPart + 1: 2, 9 << 20: 3} {
		content := bytes.Repeat([]byte{byte(size), 0xff}, size/2+1)[:size]
		before := head()
		sum := mustBlob(t, st, content)
		if n := head() - before; n != parts {
			t.Errorf("%d bytes were stored in %d records, want %d", size, n, parts)
		}
		before = head()
		if mustBlob(t, st, content) != sum || head() != before {
			t.Errorf("equal content of %d bytes was stored again", size)
		}
		doc := events.Document("", events.KindBlob, sum)
		for range 2 {
			e, err := events.New("urn:test", doc, &events.DocumentDeleted{Reason: events.ReasonPurged})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Append(t.Context(), doc, log.At(head()), e); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Blob(t.Context(), sum); err == nil {
				t.Error("a purged blob can be read")
			}
			mustBlob(t, st, content)
		}
	}
}

// A turn that exceeds an event's data is kept by reference and read byte for byte. If data exceed MaxValue, or an event
// is invalid, the whole append is refused and no blob is written.
func TestLargeTurns(t *testing.T) {
	testkit.NotUnderRace(t)
	st := storetest.Memory(t, tally.Config{MaxValue: 10 << 20})
	s := st.Session("s")
	large := "日é" + strings.Repeat("x", 9<<20)
	mustTurns(t, s, "small")
	mustTurns(t, s, large)
	mustTurns(t, s, "small too")
	mustBe(t, s, "", "small", large, "small too")
	mustBe(t, s, "#2", "small", large)
	m, err := s.PlanRewind(t.Context(), "#1", "")
	if err != nil {
		t.Fatal(err)
	}
	if leaves := mustRead(t, m.Leaves); len(leaves) != 2 || len(leaves[0].Raw) != len(large)+2 {
		t.Fatalf("%d turns leave, want 2, the first of them large", len(leaves))
	}
	head, err := st.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AppendTurns(t.Context(), "main", json.RawMessage(`"`+strings.Repeat("x", 10<<20)+`"`))
	if !invalid(err) {
		t.Errorf("turn beyond MaxValue: got %v, want an *InvalidError", err)
	}
	// A large valid event with an invalid one: nothing is written, no blob either.
	good := mustEvent(t, s, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: json.RawMessage(`"` + strings.Repeat("y", 9<<20) + `"`)}}})
	bad := mustEvent(t, s, cost)
	bad.Data = []byte(`{"model":7}`)
	if _, err := st.Append(t.Context(), s.Subject(), log.Any, good, bad); !invalid(err) {
		t.Errorf("with an invalid event: got %v, want an *InvalidError", err)
	}
	bad.Data = append([]byte(`{"model":7}`), bytes.Repeat([]byte(" "), 9<<20)...)
	if _, err := st.Append(t.Context(), s.Subject(), log.Any, good, bad); !invalid(err) {
		t.Errorf("with a large invalid event: got %v, want an *InvalidError", err)
	}
	if now, err := st.Log.Head(t.Context()); err != nil || now != head {
		t.Errorf("refused appends wrote %d records, %v", now-head, err)
	}
	// The same event again is known by its identity.
	good.ID = "good"
	first := mustAppend(t, st, s, log.Any, good)
	if again := mustAppend(t, st, s, log.Any, good); again.First != first.First || !again.Duplicate {
		t.Errorf("append: got %+v, repeated %+v, want a duplicate", first, again)
	}
}
