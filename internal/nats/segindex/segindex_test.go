package segindex

import (
	"errors"
	"fmt"
	"github.com/tallylog/tally/internal/testkit"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

var segment = Segment{Name: "TALLY_3", Made: 1_700_000_000_000_000_000, First: 1001, Last: 901_000}

// build writes the index of n records in s subjects, and returns the expected answers.
func build(t testing.TB, n, s int) (path string, want map[string]Entry) {
	b := NewBuilder()
	want = make(map[string]Entry)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range n {
		name, at := fmt.Sprintf("subject-%d", random.IntN(s)), segment.First+uint64(i)
		b.Add(name, fmt.Sprintf("id-%d", i), at)
		e, seen := want[name]
		if !seen {
			e.First = at
		}
		e.Last, e.Count = at, e.Count+1
		want[name] = e
	}
	path = filepath.Join(t.TempDir(), "TALLY_3.index")
	if err := b.Write(path, segment); err != nil {
		t.Fatal(err)
	}
	return path, want
}

func mustOpen(t testing.TB, path string) *Index {
	x, err := Open(path, segment)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// Find returns the entry of each subject in the index, and no other subject.
func TestFindKnowsEverySubject(t *testing.T) {
	for _, size := range [][2]int{{0, 1}, {1, 1}, {500, 3}, {perPage, perPage}, {50_000, 20_000}} {
		path, want := build(t, size[0], size[1])
		x := mustOpen(t, path)
		for name, e := range want {
			if have, ok, err := x.Find(name); have != e || !ok || err != nil {
				t.Fatalf("%v: %s: %v, %v, %v, want %v", size, name, have, ok, err, e)
			}
		}
		for i := range 1000 {
			if _, ok, err := x.Find(fmt.Sprintf("absent-%d", i)); ok || err != nil {
				t.Fatalf("%v: absent-%d: %v, %v", size, i, ok, err)
			}
		}
	}
}

// MayHold is true for each id in the index, and for few others.
func TestMayHoldForgetsNoID(t *testing.T) {
	const n = 50_000
	path, _ := build(t, n, 100)
	x := mustOpen(t, path)
	for i := range n {
		if may, err := x.MayHold(fmt.Sprintf("id-%d", i)); !may || err != nil {
			t.Fatalf("id-%d: %v, %v", i, may, err)
		}
	}
	passed := 0
	for i := range n {
		if may, _ := x.MayHold(fmt.Sprintf("absent-%d", i)); may {
			passed++
		}
	}
	if passed > n/30 {
		t.Errorf("MayHold is true for %d of %d absent ids", passed, n)
	}
}

// Whichever bit is flipped, the answers of the index are right, or it returns ErrDamaged.
func TestDamageIsNoticed(t *testing.T) {
	testkit.NotUnderRace(t)
	path, want := build(t, 2_000, 700)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 7))
	for range testkit.Times(300) {
		bad := append([]byte(nil), sound...)
		at := random.IntN(len(bad))
		bad[at] ^= 1 << random.IntN(8)
		checkHonest(t, bad, want)
	}
	checkHonest(t, sound[:len(sound)-pageSize], want)
	checkHonest(t, sound[:100], want)
	checkHonest(t, nil, want)
}

func checkHonest(t *testing.T, file []byte, want map[string]Entry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := Open(path, segment)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		return
	}
	defer x.Close()
	noticed := false
	for name, e := range want {
		have, ok, err := x.Find(name)
		noticed = noticed || errors.Is(err, ErrDamaged)
		if err == nil && (!ok || have != e) {
			t.Fatalf("%s: %v, %v, want %v", name, have, ok, e)
		}
	}
	for i := range 2_000 {
		may, err := x.MayHold(fmt.Sprintf("id-%d", i))
		noticed = noticed || errors.Is(err, ErrDamaged)
		if err == nil && !may {
			t.Fatalf("MayHold(id-%d) is false, want true", i)
		}
	}
	if !noticed {
		t.Fatal("no flipped bit was reported")
	}
}

func TestAnotherSegmentsIndexIsRefused(t *testing.T) {
	path, _ := build(t, 10, 2)
	for _, other := range []Segment{
		{"TALLY_4", segment.Made, segment.First, segment.Last},
		{segment.Name, segment.Made + 1, segment.First, segment.Last},
		{segment.Name, segment.Made, segment.First, segment.Last + 1},
	} {
		if _, err := Open(path, other); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v: got the error %v", other, err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	path, _ := build(b, 500_000, 400_000)
	x := mustOpen(b, path)
	for i := 0; b.Loop(); i++ {
		if _, _, err := x.Find(fmt.Sprintf("subject-%d", i)); err != nil {
			b.Fatal(err)
		}
	}
}
