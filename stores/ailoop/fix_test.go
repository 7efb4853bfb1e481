package ailoop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/ailoop"
)

// histories is the common interface of the original and tally for the points in which tally is better: stores of
// conversations, the bytes written by a save, and earlier snapshots.
type histories interface {
	open(id string) ailoop.HistoryStore // opens it again, as another program does
	written(ctx context.Context) (int, error)
	earlier(ctx context.Context, id string, n int) (ailoop.Snapshot, error) // the n-th saved snapshot
}

// logHistories implements histories by tally.
type logHistories struct {
	st     *tally.Store
	prefix string // of ids, so that tests do not share histories
}

func (l *logHistories) open(id string) ailoop.HistoryStore { return ailoop.Of(l.st, l.prefix+id) }

func (l *logHistories) written(ctx context.Context) (int, error) {
	n := 0
	for rec, err := range l.st.Log.Read(ctx, events.Range{Namespace: l.st.Namespace()}) {
		if err != nil {
			return 0, err
		}
		if strings.HasPrefix(rec.Subject.ID, "history/"+l.prefix) {
			n += len(rec.Data)
		}
	}
	return n, nil
}

func (l *logHistories) earlier(ctx context.Context, id string, n int) (ailoop.Snapshot, error) {
	h := ailoop.Of(l.st, l.prefix+id)
	revisions, err := h.Revisions(ctx)
	if err != nil || n >= len(revisions) {
		return ailoop.Snapshot{}, fmt.Errorf("%d revisions, %v", len(revisions), err)
	}
	s, _, err := h.LoadAt(ctx, revisions[n].Offset.String())
	return s, err
}

// originalHistories behaves as the original: every save overwrites the one stored snapshot, whichever program made
// it.
type originalHistories struct {
	memory ailoop.InMemory
	bytes  int
}

func (o *originalHistories) open(string) ailoop.HistoryStore { return originalStore{o} }

func (o *originalHistories) written(context.Context) (int, error) { return o.bytes, nil }

func (o *originalHistories) earlier(context.Context, string, int) (ailoop.Snapshot, error) {
	s, _, err := o.memory.Load(context.Background())
	return s, err
}

type originalStore struct{ *originalHistories }

func (o originalStore) Save(ctx context.Context, s ailoop.Snapshot) error {
	data, err := s.MarshalJSON()
	o.bytes += len(data)
	return errors.Join(err, o.memory.Save(ctx, s))
}

func (o originalStore) Load(ctx context.Context) (ailoop.Snapshot, bool, error) {
	return o.memory.Load(ctx)
}

// historyFixes has the checks in which tally has to be better than the original.
var historyFixes = map[string]func(context.Context, histories) error{
	"H-09 a snapshot that extends stores only what is new": extendingIsCheap,
	"H-10 pins are a small change":                         pinningIsCheap,
	"H-11 earlier snapshots are readable":                  earlierIsReadable,
	"H-12 the second of two writers gets a conflict":       secondWriterConflicts,
	"H-13 many conversations in one store":                 conversationsAreIsolated,
}

// The checks detect a difference: the original's behaviour passes none of them.
func TestHistoryOriginalIsWorse(t *testing.T) {
	for id, check := range historyFixes {
		t.Run(id, func(t *testing.T) {
			err := check(t.Context(), new(originalHistories))
			if err == nil {
				t.Fatal("the check passes for the original's behaviour")
			}
			t.Log(err)
		})
	}
}

// longTalk returns a snapshot of n messages of about a hundred bytes.
func longTalk(n int) ailoop.Snapshot {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("message %d %s", i, strings.Repeat("x", 80))
	}
	return talk(texts...)
}

// saveCost returns how many bytes a save wrote.
func saveCost(ctx context.Context, hs histories, st ailoop.HistoryStore, s ailoop.Snapshot) (int, error) {
	before, err := hs.written(ctx)
	if err != nil {
		return 0, err
	}
	if err := st.Save(ctx, s); err != nil {
		return 0, err
	}
	after, err := hs.written(ctx)
	return after - before, err
}

func extendingIsCheap(ctx context.Context, hs histories) error {
	st, s := hs.open("c"), longTalk(200)
	if err := st.Save(ctx, s); err != nil {
		return err
	}
	added := ailoop.UserMessage(strings.Repeat("new ", 250))
	s = s.Append(added)
	n, err := saveCost(ctx, hs, st, s)
	if size := len(added.Raw()); err == nil && n > size*12/10 {
		err = fmt.Errorf("a save of a message of %d bytes wrote %d bytes", size, n)
	}
	if err != nil {
		return err
	}
	replaced := longTalk(100).Append(ailoop.UserMessage("instead")) // any other change is a replacement without the kept messages
	if n, err = saveCost(ctx, hs, st, replaced); err == nil && n > 500 {
		err = fmt.Errorf("a replacement by a hundred kept messages and one new message wrote %d bytes", n)
	}
	got, _, loadErr := hs.open("c").Load(ctx)
	if err == nil && !got.Equal(replaced) {
		err = errors.New("it does not load as it was saved")
	}
	return errors.Join(err, loadErr)
}

func pinningIsCheap(ctx context.Context, hs histories) error {
	st, s := hs.open("c"), longTalk(100)
	if err := st.Save(ctx, s); err != nil {
		return err
	}
	s = s.Pin(3, true).Pin(99, true)
	n, err := saveCost(ctx, hs, st, s)
	if err == nil && n > 100 {
		err = fmt.Errorf("two pins wrote %d bytes", n)
	}
	if err != nil {
		return err
	}
	s = s.Pin(3, false).Append(ailoop.UserMessage("and one more")).Pin(100, true)
	if err := st.Save(ctx, s); err != nil {
		return err
	}
	got, _, err := hs.open("c").Load(ctx)
	if err == nil && !got.Equal(s) {
		err = errors.New("it does not load as it was saved")
	}
	return err
}

func earlierIsReadable(ctx context.Context, hs histories) error {
	st := hs.open("c")
	saved := []ailoop.Snapshot{talk("a"), talk("a", "b", "c"), talk("a", "b", "c").Pin(1, true), talk("[Summary of prior conversation] a", "c"), {}}
	for _, s := range saved {
		if err := st.Save(ctx, s); err != nil {
			return err
		}
	}
	for i, want := range saved {
		got, err := hs.earlier(ctx, "c", i)
		if err != nil {
			return err
		}
		if !got.Equal(want) {
			return fmt.Errorf("snapshot %d changed: got %d messages, want %d", i, got.Len(), want.Len())
		}
	}
	return nil
}

func secondWriterConflicts(ctx context.Context, hs histories) error {
	a, b := hs.open("c"), hs.open("c")
	if err := a.Save(ctx, talk("a")); err != nil {
		return err
	}
	if err := b.Save(ctx, talk("somebody else's")); !errors.Is(err, log.ErrConflict) {
		return fmt.Errorf("a save without a load replaced the history: %v", err)
	}
	if _, _, err := b.Load(ctx); err != nil {
		return err
	}
	if err := a.Save(ctx, talk("a", "by a")); err != nil {
		return err
	}
	for _, stale := range []ailoop.Snapshot{talk("a", "by b"), talk("a", "by a"), talk("a"), talk("b"), talk("a").Pin(0, true)} {
		if err := b.Save(ctx, stale); !errors.Is(err, log.ErrConflict) {
			return fmt.Errorf("a save after another writer's save: %v", err)
		}
	}
	s, _, err := b.Load(ctx)
	if err != nil || !s.Equal(talk("a", "by a")) {
		return fmt.Errorf("messages are lost: %v", err)
	}
	return b.Save(ctx, s.Append(ailoop.UserMessage("by b")))
}

func conversationsAreIsolated(ctx context.Context, hs histories) error {
	ids := []string{"a", "b", "a/b", "../a", "a:b", "A", " "}
	for _, id := range ids {
		if err := hs.open(id).Save(ctx, talk("in "+id)); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if s, found, err := hs.open(id).Load(ctx); err != nil || !found || !s.Equal(talk("in "+id)) {
			return fmt.Errorf("%q: got %v, error %v", id, found, err)
		}
	}
	return nil
}
