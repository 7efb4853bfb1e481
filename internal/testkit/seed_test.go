package testkit

import "testing"

// With TALLY_SEED, each test draws the same numbers again, whatever runs beside it.
func TestSeed(t *testing.T) {
	t.Setenv("TALLY_SEED", "18446744073709551615")
	draw := func(t *testing.T) (list [3]uint64) {
		for i := range list {
			list[i] = Random(t).Uint64()
		}
		return list
	}
	var first, second [3]uint64
	t.Run("first", func(t *testing.T) { first = draw(t) })
	t.Run("second", func(t *testing.T) { second = draw(t) })
	if first != second || first[0] == first[1] {
		t.Errorf("got %v and %v", first, second)
	}
	if Seed(t) != 1<<64-1 {
		t.Error("TALLY_SEED does not override the seed")
	}
	t.Setenv("TALLY_SEED", "")
	if one, other := Seed(t), Seed(t); one == other {
		t.Error("without TALLY_SEED: got one seed twice")
	}
}
