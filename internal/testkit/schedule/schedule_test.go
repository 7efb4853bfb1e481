package schedule_test

import (
	"slices"
	"testing"

	"github.com/tallylog/tally/internal/testkit/schedule"
)

// An act at each pass of each point happens once, between the two steps.
func TestEach(t *testing.T) {
	var runs []string
	schedule.Each(t, func(t *testing.T, points *schedule.Points) {
		text := ""
		points.Reached("too early")
		points.Do(func() {
			points.Reached("inside") // a point of the act itself
			text += "!"
		})
		for _, step := range []string{"a", "b"} {
			text += step
			points.Reached("after a step")
		}
		points.Reached("end")
		runs = append(runs, text)
	})
	if want := []string{"ab", "a!b", "ab!", "ab!"}; !slices.Equal(runs, want) {
		t.Errorf("got %q, want %q", runs, want)
	}
}
