package projector_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// A history that lets go of its stored blocks goes on as the one that does not: late
// records, rewinds and forks look back at what it let go of.
func TestShortenedHistory(t *testing.T) {
	for seed := range uint64(10) {
		want, facts := longHistory(t, seed, 5000)
		got, stored, read := projector.NewHistory(s1), [][]byte(nil), 0
		for i, f := range facts {
			got.Add(f)
			if i%97 != 0 {
				continue
			}
			for n := len(stored); n < got.Blocks(); n++ {
				stored = append(stored, got.Block(n))
			}
			got.Shorten(func(n int) ([]byte, error) { read++; return stored[n], nil })
			if got.Footprint() > 100_000 {
				t.Fatalf("seed %d: %d bytes after %d records", seed, got.Footprint(), i)
			}
		}
		for n := len(stored); n < got.Blocks(); n++ {
			stored = append(stored, got.Block(n))
		}
		wantBlocks, wantRest := inBlocks(want)
		for i, b := range wantBlocks {
			if !bytes.Equal(b, stored[i]) {
				t.Fatalf("seed %d: block %d differs", seed, i)
			}
		}
		if !bytes.Equal(wantRest, got.Rest()) {
			t.Fatalf("seed %d: the rest differs", seed)
		}
		if read == 0 {
			t.Errorf("seed %d: no record looks back far", seed)
		}
		for at := events.Offset(1); at <= want.Last(); at += 37 {
			if w, g := fmt.Sprint(want.Live(at), want.TurnsAt("t1", at), want.IsLive(at), want.At(at)), fmt.Sprint(got.Live(at), got.TurnsAt("t1", at), got.IsLive(at), got.At(at)); w != g {
				t.Fatalf("seed %d: at %v it has %s, want %s", seed, at, g, w)
			}
		}
		fork := events.Session("", "fork")
		for _, at := range []events.Offset{1, 700, want.Last() / 2, want.Last()} {
			w, g := projector.NewHistory(fork), projector.NewHistory(fork)
			w.Inherit(want, at)
			g.Inherit(got, at)
			wb, wr := inBlocks(w)
			gb, gr := inBlocks(g)
			if fmt.Sprint(wb, wr, w.Turns()) != fmt.Sprint(gb, gr, g.Turns()) {
				t.Fatalf("seed %d: the fork at %v differs", seed, at)
			}
		}
	}
}

// What cannot be read of a shortened history, or is not what was stored, is an error of
// who asks.
func TestShortenedHistoryUnread(t *testing.T) {
	gone := errors.New("gone")
	for name, read := range map[string]func(h [][]byte, n int) ([]byte, error){
		"gone":    func([][]byte, int) ([]byte, error) { return nil, gone },
		"another": func(stored [][]byte, n int) ([]byte, error) { return stored[n+1], nil },
		"cut off": func(stored [][]byte, n int) ([]byte, error) { return stored[n][:100], nil },
	} {
		h, _ := longHistory(t, 1, 3000)
		stored, _ := inBlocks(h)
		h.Shorten(func(n int) ([]byte, error) { return read(stored, n) })
		err := func() (err error) {
			defer projector.CatchUnread(&err)
			h.At(300)
			return nil
		}()
		if err == nil || name == "gone" && !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
