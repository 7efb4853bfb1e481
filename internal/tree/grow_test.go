package tree

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/storagetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals"
	"github.com/tallylog/tally/stores/tavern"
)

// counted is a growing layout that counts full renderings of an entry.
type counted struct {
	layouts.Grower
	made *int
}

func (l counted) EntryFiles(ctx context.Context, src layouts.Source, root layouts.Root, sub events.Subject, at string) iter.Seq2[layouts.File, error] {
	*l.made++
	return l.Grower.EntryFiles(ctx, src, root, sub, at)
}

// An appended line is the only thing rendered, read or written.
func TestGrowth(t *testing.T) {
	ctx := t.Context()
	begin := func(t *testing.T, l land) (*world, func() string) {
		w, made := newWorld(t, l, rand.New(rand.NewPCG(1, 1)), false), new(int)
		growth = func(*Tree, events.Subject, events.Offset, []wantedFile) {} // it renders all files
		var calls []string
		storage := storagetest.NewFaultyWhole(w.storage, func(c storagetest.Call) storagetest.Fault {
			if c.Op != "stat" {
				calls = append(calls, c.Op+" "+c.Path)
			}
			return storagetest.None
		})
		c := Config{Name: "law", Layout: counted{l.layout().(layouts.Grower), made}, Root: l.root(), Storage: storage, Target: w.st, Head: w.st.Log.Durable}
		w.tree = newTree(c, w.manifest)
		w.runner = &projector.Runner{Log: w.st.Log, View: w.tree}
		return w, func() string {
			*made, calls = 0, nil
			must(t, w.runner.CatchUp(ctx, nil))
			if got, want := w.files(), w.wanted(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the files are\n%v, the log has\n%v", lines(got), lines(want))
			}
			if *made == 0 {
				return strings.Join(calls, ", ")
			}
			return "made"
		}
	}
	t.Run("conversation", func(t *testing.T) {
		w, shown := begin(t, evalsLand{})
		step := func() {
			need(evals.Of(w.st, "a").Append(ctx, need(evals.NewStep(1, events.Raw(`{"role":"user"}`)))))
		}
		const appended = "append conversations/a/conversation.jsonl"
		for i, want := range []string{"made", appended, appended} {
			if step(); shown() != want {
				t.Errorf("step %d: %s", i, want)
			}
		}
		step()
		step()
		if got := shown(); got != appended {
			t.Errorf("two steps: %s", got)
		}
		need(evals.Of(w.st, "a").Run(evals.TrajectoryRun, "r").Save(ctx, []byte(`{"completed":true}`)))
		if got := shown(); got != "made" {
			t.Errorf("a run: %s", got)
		}
		if step(); shown() != appended {
			t.Error("a step after a run was not appended")
		}
		sub := events.Session(w.st.Namespace(), "a")
		p := &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`{}`)}}, Formats: map[string]events.FileFormat{"conversation.jsonl": {Mode: 0o600}}}
		need(w.st.Append(ctx, sub, log.Any, need(events.New("urn:api", sub, p))))
		if got := shown(); got != "made" {
			t.Errorf("with another mode: %s", got)
		}
		if e := need(w.storage.Stat(ctx, "conversations/a/conversation.jsonl")); layouts.ModeOf(e.Mode) != 0o600 {
			t.Errorf("the mode of the file is %v", e.Mode)
		}
		if step(); shown() != appended {
			t.Error("a step after a format was not appended")
		}
	})
	t.Run("D-53 inbox and queue", func(t *testing.T) {
		w, shown := begin(t, tavernLand{})
		for i, want := range []string{"made", "swap", "swap"} {
			need(tavern.InboxOf(w.st, tavern.User).Send(ctx, tavern.Message{ID: fmt.Sprint("m", i), From: "user", Type: "note", Thread: "t", Body: tavern.Text("x")}))
			need(tavern.QueueOf(w.st, "build").Enqueue(ctx, tavern.Item{ID: fmt.Sprint("i", i), Body: []byte("x")}))
			got := shown()
			if want == "swap" {
				// Each file is read once after its swap: a user may have written a text of the same size.
				message, item := fmt.Sprintf("inbox/user/%012d-m%d.md", i+1, i), fmt.Sprintf("queues/build/items/%012d-i%d.json", i+1, i)
				want = fmt.Sprintf("swap %s, read %s, swap %s, read %s", message, message, item, item)
			}
			if before, _, _ := strings.Cut(got, ", sync"); before != want {
				t.Errorf("message %d: %s, want %s", i, got, want)
			}
		}
	})
}
