package ailoop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/ailoop"
)

// talk returns a snapshot of texts, user and assistant in turn, without pins.
func talk(texts ...string) ailoop.Snapshot {
	var s ailoop.Snapshot
	for i, text := range texts {
		m := ailoop.UserMessage(text)
		if i%2 == 1 {
			m = ailoop.AssistantMessage(text)
		}
		s = s.Append(m)
	}
	return s
}

func mustSave(t testing.TB, st ailoop.HistoryStore, s ailoop.Snapshot) {
	t.Helper()
	if err := st.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// mustLoad loads an existing history.
func mustLoad(t testing.TB, st ailoop.HistoryStore) ailoop.Snapshot {
	t.Helper()
	s, found, err := st.Load(t.Context())
	if err != nil || !found {
		t.Fatalf("load: found %v, %v", found, err)
	}
	return s
}

func wantSnapshot(t testing.TB, got, want ailoop.Snapshot) {
	t.Helper()
	if !got.Equal(want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("got %s\nwant %s", g, w)
	}
}

// historyStores returns the three implementations, new and empty.
func historyStores(t *testing.T, st *tally.Store, id string) map[string]ailoop.HistoryStore {
	return map[string]ailoop.HistoryStore{
		"log":    ailoop.Of(st, id),
		"memory": new(ailoop.InMemory),
		"file":   ailoop.NewFile(t.TempDir() + "/" + "chat.json"),
	}
}

// Every store passes these tests, on every backend.
func TestHistoryStores(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		n := 0
		each := func(t *testing.T, test func(t *testing.T, h ailoop.HistoryStore)) {
			n++
			for name, h := range historyStores(t, st, fmt.Sprintf("each-%d", n)) {
				t.Run(name, func(t *testing.T) { test(t, h) })
			}
		}
		t.Run("H-01 load before any save gives none", func(t *testing.T) {
			each(t, func(t *testing.T, h ailoop.HistoryStore) {
				if s, found, err := h.Load(t.Context()); found || err != nil || s.Len() != 0 {
					t.Errorf("%v, %v, %v", s, found, err)
				}
			})
		})
		t.Run("H-02 save then load gives the same", func(t *testing.T) {
			each(t, func(t *testing.T, h ailoop.HistoryStore) {
				want := talk("one", "two", "three <&> \u2028 \"four\"").Pin(1, true)
				mustSave(t, h, want)
				got := mustLoad(t, h)
				wantSnapshot(t, got, want)
				if got.Message(1).Text() != "two" || !got.IsPinned(1) || got.IsPinned(0) || got.Version() != 1 {
					t.Errorf("got %v", got)
				}
			})
		})
		t.Run("H-03 a second save replaces the first", func(t *testing.T) {
			each(t, func(t *testing.T, h ailoop.HistoryStore) {
				mustSave(t, h, talk("a", "b", "c"))
				mustSave(t, h, talk("x"))
				wantSnapshot(t, mustLoad(t, h), talk("x"))
				mustSave(t, h, ailoop.Snapshot{})
				wantSnapshot(t, mustLoad(t, h), ailoop.Snapshot{})
			})
		})
		t.Run("H-07 every kind of block", func(t *testing.T) {
			each(t, func(t *testing.T, h ailoop.HistoryStore) {
				want := everyBlock(t)
				mustSave(t, h, want)
				got := mustLoad(t, h)
				wantSnapshot(t, got, want)
				for i := range got.Len() {
					if a, b := got.Message(i).Blocks(), want.Message(i).Blocks(); !reflect.DeepEqual(a, b) {
						t.Errorf("message %d: %+v, want %+v", i, a, b)
					}
				}
			})
		})
		t.Run("H-14 any type can be a store", func(t *testing.T) {
			full := &fullError{17}
			for _, h := range []ailoop.HistoryStore{&limited{st: ailoop.Of(st, "limited"), err: full}, &limited{st: new(ailoop.InMemory), err: full}} {
				err := remember(t.Context(), h, ailoop.UserMessage("hi"))
				if have, ok := errors.AsType[*fullError](err); !ok || have != full {
					t.Errorf("got the error %v", err)
				}
			}
		})
		t.Run("H-17 concurrent use", func(t *testing.T) {
			each(t, raceStore)
		})
		t.Run("H-18 what is saved or loaded cannot be changed", func(t *testing.T) {
			each(t, func(t *testing.T, h ailoop.HistoryStore) {
				messages, pinned := []ailoop.Message{ailoop.UserMessage("a")}, []bool{false}
				s, err := ailoop.NewSnapshot(messages, pinned)
				if err != nil {
					t.Fatal(err)
				}
				mustSave(t, h, s)
				messages[0], pinned[0] = ailoop.UserMessage("b"), true
				got := mustLoad(t, h)
				got.Messages()[0], got.Pinned()[0] = ailoop.UserMessage("c"), true
				copy(got.Message(0).Raw(), "xxxxxxxxxx")
				_ = got.Pin(0, true)
				_ = got.Append(ailoop.UserMessage("d"))
				wantSnapshot(t, mustLoad(t, h), talk("a"))
			})
		})
	})
}

// fullError is the error of another implementation.
type fullError struct{ code int }

func (e *fullError) Error() string { return fmt.Sprintf("full: %d", e.code) }

// limited is another implementation of the interface: it accepts one snapshot.
type limited struct {
	st  ailoop.HistoryStore
	err error
	n   int
}

func (l *limited) Save(ctx context.Context, s ailoop.Snapshot) error {
	if l.n++; l.n > 1 {
		return l.err
	}
	return l.st.Save(ctx, s)
}

func (l *limited) Load(ctx context.Context) (ailoop.Snapshot, bool, error) {
	return l.st.Load(ctx)
}

// remember is a program that uses only the interface.
func remember(ctx context.Context, st ailoop.HistoryStore, m ailoop.Message) error {
	for range 2 {
		s, _, err := st.Load(ctx)
		if err != nil {
			return err
		}
		if err := st.Save(ctx, s.Append(m)); err != nil {
			return fmt.Errorf("remember: %w", err)
		}
	}
	return nil
}

// raceStore saves and loads in eight goroutines. Each load returns a complete snapshot that was saved.
func raceStore(t *testing.T, h ailoop.HistoryStore) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5 {
				text := fmt.Sprintf("%d-%d", g, i)
				if err := h.Save(t.Context(), talk(text, text)); err != nil {
					t.Errorf("save: %v", err)
				}
				s, found, err := h.Load(t.Context())
				if err != nil || !found || s.Len() != 2 || s.Message(0).Text() != s.Message(1).Text() {
					t.Errorf("load: %v, %v, %v", s, found, err)
				}
			}
		})
	}
	wg.Wait()
}

// everyBlock returns a snapshot with every kind of block.
func everyBlock(t testing.TB) ailoop.Snapshot {
	t.Helper()
	signature := "sig=="
	user, err := ailoop.NewUserMessage(
		ailoop.TextBlock{Text: "look", CacheControl: "ephemeral"},
		ailoop.ToolResultBlock{CallID: "c1", Content: ailoop.ToolResultContent{Blocks: []ailoop.ToolResultPart{{Text: "ok"}, {Image: &ailoop.MediaSource{Type: ailoop.SourceURL, URL: "https://x/y.png"}}}}},
		ailoop.ToolResultBlock{CallID: "c2", Content: ailoop.ToolResultContent{Blocks: []ailoop.ToolResultPart{{Text: "no"}}, IsError: true}, CacheControl: "ephemeral"},
		ailoop.ImageBlock{Source: ailoop.MediaSource{Type: ailoop.SourceBase64, MediaType: "image/png", Data: "AA=="}, CacheControl: "ephemeral"},
		ailoop.DocumentBlock{Source: ailoop.MediaSource{Type: ailoop.SourceFileID, ID: "f-1"}, CacheControl: "ephemeral"})
	if err != nil {
		t.Fatal(err)
	}
	assistant, err := ailoop.NewAssistantMessage(
		ailoop.ReasoningBlock{Text: "hm"}, ailoop.ReasoningBlock{Text: "aha", Signature: &signature}, ailoop.RedactedReasoningBlock{Data: "zzz"},
		ailoop.TextBlock{Text: "I call"}, ailoop.ToolCallBlock{ID: "c1", Name: "f", Args: json.RawMessage(`{"z":1.0,"a":1e21}`)}, ailoop.ToolCallBlock{ID: "c2", Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	return ailoop.Snapshot{}.Append(user, assistant, ailoop.Message{})
}

// The additional features of a history in the log, on every backend.
func TestHistoryLog(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for id, check := range historyFixes {
			t.Run(id, func(t *testing.T) {
				if err := check(t.Context(), &logHistories{st: st, prefix: id[:4]}); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run("H-03 the first save of nothing makes the thread", func(t *testing.T) {
			h := ailoop.Of(st, "empty")
			mustSave(t, h, ailoop.Snapshot{})
			s, err := h.Session().Load(t.Context(), "")
			if err != nil || s.Ledger.Kind != events.KindHistory || s.Threads[events.MainThread] == nil {
				t.Errorf("got %+v, error %v", s, err)
			}
			wantSnapshot(t, mustLoad(t, ailoop.Of(st, "empty")), ailoop.Snapshot{})
		})
		t.Run("H-09 an equal snapshot is no event", func(t *testing.T) {
			h := ailoop.Of(st, "equal")
			mustSave(t, h, talk("a", "b").Pin(0, true))
			before := historyRecords(t, st, h.Subject())
			mustSave(t, h, talk("a", "b").Pin(0, true))
			mustSave(t, ailoop.Of(st, "equal"), talk("a", "b").Pin(0, true))
			if after := historyRecords(t, st, h.Subject()); len(after) != len(before) {
				t.Errorf("got %d records, want %d as before", len(after), len(before))
			}
		})
		t.Run("H-08 members that are not of this version", func(t *testing.T) {
			want, err := ailoop.ParseSnapshot([]byte(`{"version":1,"messages":[],"pinned":[],"tokens":{"used":1.50},"x":null}`))
			if err != nil {
				t.Fatal(err)
			}
			h := ailoop.Of(st, "unknown")
			mustSave(t, h, want)
			wantSnapshot(t, mustLoad(t, ailoop.Of(st, "unknown")), want)
			mustSave(t, h, want.Append(ailoop.UserMessage("a")))
			wantSnapshot(t, mustLoad(t, ailoop.Of(st, "unknown")), want.Append(ailoop.UserMessage("a")))
			mustSave(t, h, talk("a"))
			wantSnapshot(t, mustLoad(t, ailoop.Of(st, "unknown")), talk("a"))
		})
		t.Run("H-11 compaction", func(t *testing.T) { testCompaction(t, st) })
		t.Run("H-12 rewind", func(t *testing.T) { testHistoryRewind(t, st) })
		t.Run("H-13 kinds", func(t *testing.T) {
			if _, err := st.Session("history/other").Create(t.Context(), events.SessionCreated{Kind: "panel", CreatedAt: "2026-01-01T00:00:00Z"}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ailoop.Of(st, "other").Load(t.Context()); !hasError[*tally.KindError](err) {
				t.Errorf("got the error %v", err)
			}
		})
		t.Run("H-16 a turn that is no message is named", func(t *testing.T) {
			h := ailoop.Of(st, "foreign")
			mustSave(t, h, talk("a"))
			if _, err := h.Session().AppendTurns(t.Context(), events.MainThread, json.RawMessage(`{"role":"user"}`)); err != nil {
				t.Fatal(err)
			}
			_, found, err := h.Load(t.Context())
			if wrong, ok := errors.AsType[*ailoop.MessageError](err); !ok || wrong.Index != 1 || found {
				t.Errorf("got the error %v", err)
			}
		})
	})
}

func hasError[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func historyRecords(t testing.TB, st *tally.Store, sub events.Subject) []events.Record {
	t.Helper()
	var list []events.Record
	for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: sub}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rec)
	}
	return list
}

// A compaction repeats no kept messages, and the dropped ones can still be read.
func testCompaction(t *testing.T, st *tally.Store) {
	h := ailoop.Of(st, "compacted")
	before := talk("first", "second", "third", "fourth", "fifth").Pin(2, true)
	mustSave(t, h, before)
	after := talk("[Summary of prior conversation] ...").Append(before.Messages()[2:]...).Pin(1, true)
	if err := h.Compact(t.Context(), after, ailoop.CompactionReport{Strategy: "summarize", Before: 900, After: 300}); err != nil {
		t.Fatal(err)
	}
	wantSnapshot(t, mustLoad(t, h), after)
	recs := historyRecords(t, st, h.Subject())
	p, err := events.DecodeAs[events.ThreadReplaced](recs[len(recs)-1].Event)
	if err != nil || p.Strategy != "summarize" || p.Before != 900 || p.After != 300 || p.Reason != "compact" {
		t.Fatalf("got %+v, error %v", p, err)
	}
	if items := p.Threads[events.MainThread].Items; len(items) != 2 || items[1].Keep == nil || *items[1].Keep != [2]int{2, 5} {
		t.Errorf("the items are %+v", items)
	}
	revisions, err := h.Revisions(t.Context())
	if err != nil || len(revisions) != 2 || revisions[0].Messages != 5 || revisions[1].Kind != ailoop.Compacted || revisions[1].Messages != 4 || revisions[1].Compaction.Strategy != "summarize" {
		t.Fatalf("got %+v, error %v", revisions, err)
	}
	old, found, err := h.LoadAt(t.Context(), revisions[0].Offset.String())
	if err != nil || !found {
		t.Fatal(err)
	}
	wantSnapshot(t, old, before)
	if err := h.Compact(t.Context(), after, ailoop.CompactionReport{}); !hasError[*events.InvalidError](err) {
		t.Errorf("got the error %v", err)
	}
}

// After a rewind by another handle, the next save is a conflict.
func testHistoryRewind(t *testing.T, st *tally.Store) {
	h := ailoop.Of(st, "rewound")
	mustSave(t, h, talk("a"))
	mustSave(t, h, talk("a", "b"))
	mustSave(t, h, talk("a", "b", "c"))
	move, err := h.Session().PlanRewind(t.Context(), "~1", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Session().Move(t.Context(), move); err != nil {
		t.Fatal(err)
	}
	for _, s := range []ailoop.Snapshot{talk("a", "b", "c", "d"), talk("a", "b", "c"), talk("x")} {
		if err := h.Save(t.Context(), s); !errors.Is(err, log.ErrConflict) {
			t.Errorf("got the error %v", err)
		}
	}
	wantSnapshot(t, mustLoad(t, h), talk("a", "b"))
	mustSave(t, h, talk("a", "b", "e"))
	revisions, err := h.Revisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kinds string
	for _, r := range revisions {
		kinds += fmt.Sprintf("%s %d %v; ", r.Kind, r.Messages, r.Live)
	}
	if want := "extended 1 true; extended 2 true; extended 3 false; rewound 2 false; extended 3 true; "; kinds != want {
		t.Errorf("the revisions are %s\nwant %s", kinds, want)
	}
}
