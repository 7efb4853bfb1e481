package projector_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// longTimeline folds a timeline of several blocks, with rewinds across them.
func longTimeline(t testing.TB, seed uint64, n int) (*projector.Timeline, []projector.Fact) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	h := projector.NewTimeline(s1)
	var facts []projector.Fact
	for at := events.Offset(1); len(facts) < n; at += events.Offset(1 + r.IntN(3)) {
		var p events.Payload = &events.TurnAppended{Entries: []events.Entry{{Thread: fmt.Sprintf("t%d", r.IntN(3)), Turn: events.Raw(`1`)}}}
		if r.IntN(100) == 0 && at > 1 {
			p = &events.SessionRewound{To: 1 + events.Offset(r.Uint64N(uint64(at-1)))}
		}
		e, err := events.New("urn:test", s1, p)
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(10) == 0 { // its producer may have read records that are no longer in effect
			e = e.WithExtension(events.ExtBasis, events.Offset(1+r.Uint64N(uint64(at))).Padded())
		}
		f := projector.Decode(events.Record{Event: e, Offset: at})
		mustAdd(t, h, f)
		facts = append(facts, f)
	}
	return h, facts
}

func mustAdd(t testing.TB, h *projector.Timeline, f projector.Fact) {
	t.Helper()
	if _, err := h.Add(f); err != nil {
		t.Fatal(err)
	}
}

func liveNow(t *testing.T, h *projector.Timeline) string {
	t.Helper()
	live, err := h.Live(h.Last())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(live)
}

func inBlocks(h *projector.Timeline) (blocks [][]byte, rest []byte) {
	for n := range h.Blocks() {
		blocks = append(blocks, h.Block(n))
	}
	return blocks, h.Rest()
}

// A history that is read back from its blocks continues like the original, and written blocks never change.
func TestBlocksRoundTrip(t *testing.T) {
	for seed := range uint64(20) {
		n := int(400 + 100*seed)
		want, facts := longTimeline(t, seed, n)
		half, _ := longTimeline(t, seed, n/2)
		early, rest := inBlocks(half)
		got, err := projector.DecodeTimeline(s1, early, rest)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range facts[n/2:] {
			mustAdd(t, got, f)
		}
		wantBlocks, wantRest := inBlocks(want)
		gotBlocks, gotRest := inBlocks(got)
		for i, b := range wantBlocks {
			if !bytes.Equal(b, gotBlocks[i]) || i < len(early) && !bytes.Equal(b, early[i]) {
				t.Fatalf("seed %d: block %d differs", seed, i)
			}
		}
		if !bytes.Equal(wantRest, gotRest) {
			t.Fatalf("seed %d: the rest differs", seed)
		}
		if want.Turns() != got.Turns() || liveNow(t, want) != liveNow(t, got) {
			t.Fatalf("seed %d: %d turns in %v, want %d in %v", seed, got.Turns(), liveNow(t, got), want.Turns(), liveNow(t, want))
		}
	}
}

// Truncated or altered blocks produce an error or another history, never a panic.
func TestBlocksOfAnything(t *testing.T) {
	h, _ := longTimeline(t, 1, 700)
	blocks, rest := inBlocks(h)
	for n := range rest {
		if _, err := projector.DecodeTimeline(s1, blocks, rest[:n]); err == nil {
			t.Fatalf("a history cut to %d of %d bytes was decoded", n, len(rest))
		}
		odd := bytes.Clone(rest)
		odd[n] ^= 0x55
		projector.DecodeTimeline(s1, blocks, odd)
	}
	if _, err := projector.DecodeTimeline(s1, blocks[1:], rest); err == nil {
		t.Error("a history without its first block was decoded")
	}
}

// Any content of the catalog's file decodes to an error, or to a history that can be read and extended, and that
// survives encoding and decoding.
func FuzzDecodeTimeline(f *testing.F) {
	for seed, n := range []int{0, 1, 40, projector.BlockRecords, projector.BlockRecords + 60} {
		h, _ := longTimeline(f, uint64(seed), n)
		blocks, rest := inBlocks(h)
		f.Add(slices.Concat(blocks...), rest)
	}
	f.Fuzz(func(t *testing.T, block, rest []byte) {
		var blocks [][]byte
		if len(block) > 0 {
			blocks = append(blocks, block)
		}
		h, err := projector.DecodeTimeline(s1, blocks, rest)
		if err != nil {
			return
		}
		blocks, rest = inBlocks(h)
		for at := h.First(); at > 0 && at <= h.Last(); at += 1 + h.Last()/10 {
			if _, err := looksBack(h, at); err != nil {
				t.Fatalf("at %v: %v", at, err)
			}
		}
		back, err := projector.DecodeTimeline(s1, blocks, rest)
		if err != nil {
			t.Fatalf("decode the encoded timeline: %v", err)
		}
		if again, left := inBlocks(back); !slices.EqualFunc(again, blocks, bytes.Equal) || !bytes.Equal(left, rest) {
			t.Fatalf("encoded as %x %x, and after decoding as %x %x", blocks, rest, again, left)
		}
		next, err := events.New("urn:test", s1, &events.TurnAppended{Entries: []events.Entry{{Thread: "t1", Turn: events.Raw("1")}}})
		if err == nil && h.Last() < events.MaxOffset {
			_, err = h.Add(projector.Decode(events.Record{Event: next, Offset: h.Last() + 1}))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
