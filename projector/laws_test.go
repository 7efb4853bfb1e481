package projector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

func sessionIDs(log testkit.Records) []string {
	var ids []string
	for _, rec := range log {
		if !slices.Contains(ids, rec.Subject.ID) {
			ids = append(ids, rec.Subject.ID)
		}
	}
	return ids
}

func drawSession(t *rapid.T, log testkit.Records) events.Subject {
	return events.Session("", rapid.SampledFrom(sessionIDs(log)).Draw(t, "subject"))
}

func drawRecord(t *rapid.T, log testkit.Records) events.Record {
	return rapid.SampledFrom(log).Draw(t, "record")
}

func mustLoad(t *rapid.T, l *projector.Loader, sub events.Subject, at events.Offset) *projector.Session {
	t.Helper()
	s, err := l.Session(t.Context(), sub, at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The live list, the stale and rejected records and the threads agree with the model at every position.
func TestSessionFollowsTheDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		rec := drawRecord(t, log)
		got := mustLoad(t, &projector.Loader{Source: log}, rec.Subject, rec.Offset)
		want := modelOf(log, rec.Subject.ID, rec.Offset)
		if diff := cmp.Diff(want.threads(want.head()), modelView(got.Threads), cmp.AllowUnexported(modelTurn{})); diff != "" {
			t.Errorf("threads (-want +got):\n%s", diff)
		}
		live := make(map[events.Offset]bool)
		for _, k := range want.head() {
			live[want.history[k-1].Offset] = true
		}
		for _, r := range want.history {
			if got.History.IsLive(r.Offset) != live[r.Offset] {
				t.Errorf("record %v: live is %v, want %v", r.Offset, got.History.IsLive(r.Offset), live[r.Offset])
			}
		}
		if diff := cmp.Diff(want.stale, got.History.Stale()); diff != "" {
			t.Errorf("stale (-want +got):\n%s", diff)
		}
		for at := range want.rejected {
			if at > want.ownFirst() && !slices.ContainsFunc(got.Ledger.Rejected, func(v projector.Rejected) bool { return v.Offset == at }) {
				t.Errorf("rejected record %v is not listed", at)
			}
		}
	})
}

func (m *modelSession) ownFirst() events.Offset {
	if m.inherited == 0 {
		return 0
	}
	return m.history[m.inherited-1].Offset
}

// A load with any snapshots equals a load without, even if heads and chunks are altered in between.
func TestSnapshotsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		store := &rotting{}
		records, fan := rapid.IntRange(1, 5).Draw(t, "records of a chunk"), rapid.IntRange(2, 3).Draw(t, "chunks of an index")
		size := rapid.Int64Range(1, 500).Draw(t, "bytes of a chunk")
		loader := func() *projector.Loader { // each loader has a cache of its own
			return (&projector.Loader{Source: log, Snapshots: store}).SetChunks(records, fan).SetChunkBytes(size)
		}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			rec := drawRecord(t, log)
			if _, err := loader().Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 2).Draw(t, "spoil") == 0 {
				spoilPart(t, store)
			}
			rec = drawRecord(t, log)
			mustEqualLoads(t, log, loader(), rec)
		}
	})
}

// Verify reports nothing for sound snapshots, in any order of creation, and reports every alteration. Rebuild repairs
// it.
func TestVerifyFindsWhatIsSpoilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		store := &rotting{}
		records, size := rapid.IntRange(1, 5).Draw(t, "records of a chunk"), rapid.Int64Range(1, 500).Draw(t, "bytes of a chunk")
		loader := func() *projector.Loader {
			return (&projector.Loader{Source: log, Snapshots: store}).SetChunks(records, 2).SetChunkBytes(size)
		}
		verify := func() []projector.Finding {
			v, err := loader().Verify(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return v.Findings
		}
		for range rapid.IntRange(1, 4).Draw(t, "snapshots") {
			rec := drawRecord(t, log)
			if _, err := loader().Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
				t.Fatal(err)
			}
		}
		if list := verify(); len(list) > 0 {
			t.Fatalf("verify of sound snapshots: got %v, want nothing", list)
		}
		if m, what := spoilPart(t, store); what != "" && (what != "removed" || m.Fold != projector.SessionFold) {
			if list := verify(); len(list) == 0 {
				t.Fatalf("%s at %v is %s, but verify found nothing", m.Fold, m.Offset, what)
			}
		}
		if _, err := loader().Rebuild(t.Context(), projector.Policy{Records: 1}, nil); err != nil {
			t.Fatal(err)
		}
		if list := verify(); len(list) > 0 {
			t.Fatalf("verify after a rebuild: got %v, want nothing", list)
		}
		mustEqualLoads(t, log, loader(), drawRecord(t, log))
	})
}

// mustEqualLoads loads a session at a record with and without the loader's snapshots.
func mustEqualLoads(t *rapid.T, log testkit.Records, helped *projector.Loader, rec events.Record) {
	t.Helper()
	want, got := mustLoad(t, &projector.Loader{Source: log}, rec.Subject, rec.Offset), mustLoad(t, helped, rec.Subject, rec.Offset)
	if a, b := mustEncode(t, want), mustEncode(t, got); !bytes.Equal(a, b) {
		t.Fatalf("%s at %v with snapshots:\n%s\nwithout:\n%s", rec.Subject, rec.Offset, b, a)
	}
}

// rotting is a store whose content can be altered, as on a disk.
type rotting struct {
	snapshot.Mem
	altered map[string][]byte // by name
}

func nameOf(m snapshot.Meta) string {
	return fmt.Sprintf("%s.%s.%012d", m.Subject.NATS(), m.Fold, m.Offset)
}

func (r *rotting) Get(ctx context.Context, m snapshot.Meta) (snapshot.Snapshot, error) {
	s, err := r.Mem.Get(ctx, m)
	if data, ok := r.altered[nameOf(m)]; ok && err == nil {
		s.Data = data
	}
	return s, err
}

// Since implements snapshot.Eraser: writes after it are calls of Put, too.
func (r *rotting) Since() snapshot.Store { return r }

func (r *rotting) Put(ctx context.Context, s snapshot.Snapshot) error {
	delete(r.altered, nameOf(s.Meta))
	return r.Mem.Put(ctx, s)
}

// spoilPart removes, cuts or alters a stored part. The altered part may have a valid hash, like a leftover of a former
// log: then only the head shows that it is another chunk. spoil describes the change, "" if it made none.
func spoilPart(t *rapid.T, st *rotting) (m snapshot.Meta, what string) {
	var list []snapshot.Meta
	for m := range st.All(t.Context()) {
		list = append(list, m)
	}
	if len(list) == 0 {
		return m, ""
	}
	slices.SortFunc(list, func(a, b snapshot.Meta) int { return strings.Compare(nameOf(a), nameOf(b)) })
	m = rapid.SampledFrom(list).Draw(t, "spoilt")
	snap, err := st.Get(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	data := slices.Clone(snap.Data)
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		if err := st.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return m, "removed"
	case 1:
		data = data[:len(data)/2]
	case 2:
		if len(data) > 0 {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "byte")] ^= 1
		}
	}
	if m.Fold != projector.SessionFold && rapid.Bool().Draw(t, "right hash") {
		snap.Data = data
		if err := st.Put(t.Context(), snap); err != nil {
			t.Fatal(err)
		}
		return m, "another one"
	}
	if st.altered == nil {
		st.altered = make(map[string][]byte)
	}
	st.altered[nameOf(m)] = data
	return m, "altered"
}

func mustEncode(t *rapid.T, s *projector.Session) []byte {
	t.Helper()
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rewinding appends one move to the log.
func rewinding(t *rapid.T, log testkit.Records, sub events.Subject, p *events.SessionRewound, err error) testkit.Records {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	at := log[len(log)-1].Offset + 1
	e.ID = fmt.Sprintf("move-%d", at)
	return append(slices.Clip(log), events.Record{Event: e, Offset: at})
}

// After rewind(T) the threads equal those at T. n undos restore the states in reverse order, and n redos restore the
// rewinds.
func TestRewindUndoRedo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		sub := drawSession(t, log)
		if !events.CanRewind(mustLoad(t, &projector.Loader{Source: log}, sub, 0).Ledger.Kind) {
			t.Skip("it is of a kind that is not rewound")
		}
		hash := func() string {
			return mustLoad(t, &projector.Loader{Source: log}, sub, 0).Threads.Hash()
		}
		head := func() *projector.Outline {
			o, err := (&projector.Loader{Source: log}).Outline(t.Context(), sub, 0)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		states := []string{hash()}
		n := rapid.IntRange(1, 4).Draw(t, "rewinds")
		for range n {
			s := head()
			to := events.Offset(rapid.Uint64Range(uint64(s.First()), uint64(s.Offset())).Draw(t, "to"))
			want := mustLoad(t, &projector.Loader{Source: log}, sub, to).Threads.Hash()
			p, err := s.Rewind(t.Context(), to, "")
			log = rewinding(t, log, sub, p, err)
			if got := hash(); got != want {
				t.Fatalf("the threads after a rewind to %v differ from those at that offset", to)
			}
			states = append(states, want)
		}
		for i := n - 1; i >= 0; i-- {
			p, err := head().Undo(t.Context())
			log = rewinding(t, log, sub, p, err)
			if hash() != states[i] {
				t.Fatalf("undo %d did not restore the threads", n-i)
			}
		}
		for i := 1; i <= n; i++ {
			p, err := head().Redo(t.Context())
			log = rewinding(t, log, sub, p, err)
			if hash() != states[i] {
				t.Fatalf("redo %d did not restore the threads", i)
			}
		}
		// A rewind in between prevents redo, but not undo.
		p, err := head().Undo(t.Context())
		log = rewinding(t, log, sub, p, err)
		before := hash()
		p, err = head().Rewind(t.Context(), head().First(), "")
		log = rewinding(t, log, sub, p, err)
		if _, err := head().Redo(t.Context()); !errors.Is(err, projector.ErrNothingToRedo) {
			t.Fatalf("redo after another rewind: got %v, want ErrNothingToRedo", err)
		}
		p, err = head().Undo(t.Context())
		log = rewinding(t, log, sub, p, err)
		if hash() != before {
			t.Fatal("undo of a rewind after an undo did not restore the threads")
		}
	})
}

// The threads of a fork equal its parent's at the fork point, regardless of the parent's later records.
func TestForkEqualsParent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		rec := drawRecord(t, log)
		want := mustLoad(t, &projector.Loader{Source: log}, rec.Subject, rec.Offset)
		fork := events.Session("", "the fork")
		e, err := events.New("urn:test", fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z",
			Fork: &events.Fork{Session: rec.Subject.ID, Offset: rec.Offset}})
		if err != nil {
			t.Fatal(err)
		}
		e.ID = "fork"
		log = append(slices.Clip(log), events.Record{Event: e, Offset: log[len(log)-1].Offset + 1})
		got := mustLoad(t, &projector.Loader{Source: log}, fork, 0)
		if diff := cmp.Diff(modelView(want.Threads), modelView(got.Threads), cmp.AllowUnexported(modelTurn{})); diff != "" {
			t.Fatalf("threads (-parent +fork):\n%s", diff)
		}
		if len(got.Ledger.Runs)+len(got.Ledger.Costs)+len(got.Ledger.Stack) > 0 {
			t.Fatal("the fork has runs, costs or a stack of its parent")
		}
	})
}

// N pushes can be rewound N times, in reverse order.
func TestRewindStack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		sub := drawSession(t, log)
		if !events.CanRewind(mustLoad(t, &projector.Loader{Source: log}, sub, 0).Ledger.Kind) {
			t.Skip("it is of a kind that is not rewound")
		}
		load := func() *projector.Session { return mustLoad(t, &projector.Loader{Source: log}, sub, 0) }
		add := func(p events.Payload) {
			e, err := events.New("urn:test", sub, p)
			if err != nil {
				t.Fatal(err)
			}
			at := log[len(log)-1].Offset + 1
			e.ID = fmt.Sprintf("own-%d", at)
			log = append(slices.Clip(log), events.Record{Event: e, Offset: at})
		}
		add(&events.CheckpointCleared{Kind: events.CheckpointRewind, Reason: "clear"})
		n := rapid.IntRange(1, 4).Draw(t, "pushes")
		var before []string
		for i := range n {
			at := load().Offset()
			before = append(before, load().Threads.Hash())
			add(&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`1`)}}})
			add(&events.CheckpointSaved{ID: fmt.Sprintf("push-%d", i), Kind: events.CheckpointRewind, At: at})
		}
		for i := n - 1; i >= 0; i-- {
			s := load()
			if len(s.Ledger.Stack) != i+1 {
				t.Fatalf("the stack has %d entries, want %d", len(s.Ledger.Stack), i+1)
			}
			top := s.Ledger.Stack[i]
			add(&events.SessionRewound{To: top.At, Checkpoint: top.ID})
			if load().Threads.Hash() != before[i] {
				t.Fatalf("rewind %d did not restore the threads", n-i)
			}
		}
		stack := load().Ledger.Stack
		o, err := (&projector.Loader{Source: log}).Outline(t.Context(), sub, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := o.Undo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		add(p)
		if got := load().Ledger.Stack; len(got) != len(stack)+1 || got[len(got)-1].ID != "push-0" {
			t.Fatalf("stack after undo: got %v, want push-0 on top again", got)
		}
	})
}

// StackBefore returns the stack that a load of the session at that point returns.
func TestStackBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		sub := drawSession(t, log)
		for range rapid.IntRange(0, 30).Draw(t, "more") {
			log = append(log, stackMove(t, log, sub))
		}
		s := mustLoad(t, &projector.Loader{Source: log}, sub, 0)
		for _, r := range s.Ledger.Rewinds {
			var want []projector.StackEntry
			if r.Before != 0 {
				want = mustLoad(t, &projector.Loader{Source: log}, sub, r.Before).Ledger.Stack
			}
			if got := s.Ledger.StackBefore(r); !slices.Equal(got, want) {
				t.Fatalf("the stack before the rewind at %v is %v, want %v", r.Offset, got, want)
			}
		}
	})
}

// stackMove draws an event that moves the rewind stack of a session.
func stackMove(t *rapid.T, log testkit.Records, sub events.Subject) events.Record {
	at := log[len(log)-1].Offset + 1
	id := fmt.Sprintf("c%d", rapid.IntRange(0, 6).Draw(t, "checkpoint"))
	to := events.Offset(rapid.Uint64Range(1, uint64(at)-1).Draw(t, "to"))
	var p events.Payload
	switch rapid.IntRange(0, 7).Draw(t, "move") {
	case 0, 1, 2:
		p = &events.CheckpointSaved{ID: fmt.Sprint("new", at), Kind: events.CheckpointRewind, At: to}
	case 3:
		p = &events.CheckpointSaved{ID: id, Kind: events.CheckpointRewind, At: to}
	case 4:
		p = &events.CheckpointCleared{ID: rapid.SampledFrom([]string{id, ""}).Draw(t, "clear"), Kind: events.CheckpointRewind, Reason: "clear"}
	case 5:
		p = &events.SessionRewound{To: to, Checkpoint: rapid.SampledFrom([]string{id, fmt.Sprint("new", to)}).Draw(t, "use")}
	case 6:
		p = &events.SessionRewound{To: to, Undoes: to + 1}
	default:
		p = &events.SessionRewound{To: to}
	}
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	e.ID = fmt.Sprintf("own-%d", at)
	return events.Record{Event: e, Offset: at}
}

// Unknown and rejected events do not change the threads. The cost is the sum of the events that are not superseded,
// rewound or not.
func TestUnknownVoidAndCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		for i := range log { // a record that names a basis depends on that record
			log[i].Extensions = nil
		}
		sub := drawSession(t, log)
		s := mustLoad(t, &projector.Loader{Source: log}, sub, 0)
		without := slices.DeleteFunc(slices.Clone(log), func(r events.Record) bool {
			rejected := slices.ContainsFunc(s.Ledger.Rejected, func(v projector.Rejected) bool { return v.Offset == r.Offset })
			if rejected && r.Validate() == nil && !projector.CanBeRejected(r.Event) {
				t.Fatalf("%s at %v is rejected, but CanBeRejected is false", r.Type, r.Offset)
			}
			return r.Subject == sub && (rejected || !events.IsKnown(r.Type)) && r.Offset != s.History.First()
		})
		type response struct{ id, model string }
		sum, counting := new(big.Rat), make(map[response]*big.Rat) // the effective amount of each response of a model
		highest := make(map[response]int64)
		for _, r := range log.Of(sub) {
			c, err := events.DecodeAs[events.CostAccrued](r.Event)
			if err != nil {
				continue
			}
			usd, _ := c.USD.Rat()
			if c.Response == "" {
				sum.Add(sum, usd)
			} else if r := (response{c.Response, c.Model}); c.Tokens.Output >= highest[r] {
				highest[r], counting[r] = c.Tokens.Output, usd
			}
		}
		for _, usd := range counting {
			sum.Add(sum, usd)
		}
		if got, _ := s.Ledger.Spent().USD.Rat(); got.Cmp(sum) != 0 {
			t.Fatalf("spent %v, want %v by the events", got, sum)
		}
		// If a rewind or a producer names the offset of a removed record, the last record before it counts. It is live
		// in the same list.
		clean := mustLoad(t, &projector.Loader{Source: without}, sub, 0)
		if s.Threads.Hash() != clean.Threads.Hash() {
			t.Fatal("unknown or rejected events changed the threads")
		}
	})
}
