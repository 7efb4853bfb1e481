package tail

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// inGroups makes the files of a folder a group, in the order of their names.
func inGroups(o *Options) {
	o.Order = func(_, rel string) (string, string) {
		folder, name, _ := strings.Cut(rel, "/")
		return folder, name
	}
}

// order lists the files of the next batches.
func (r *rig) order() (list []string) {
	r.t.Helper()
	r.open()
	for n := 0; n < 10_000; n++ {
		b, isIdle := r.tail.step()
		if b != nil {
			if list = append(list, b.Kind.String()+" "+b.File.Rel); len(list) > 1 && list[len(list)-1] == list[len(list)-2] {
				list = list[:len(list)-1]
			}
			r.take(b)
		}
		if isIdle {
			return list
		}
	}
	r.t.Fatal("deliveries do not end")
	return nil
}

func (r *rig) mustDeliver(want ...string) {
	r.t.Helper()
	for i := range want {
		want[i] = "lines " + want[i]
	}
	if got := r.order(); !slices.Equal(got, want) {
		r.t.Errorf("the order of deliveries is %q, want %q", got, want)
	}
}

// Files of a group are read in order, regardless of their age and of kicks, including files without an event. Started
// files do not wait.
func TestOrder(t *testing.T) {
	r := newRig(t, inGroups)
	r.write("a/1", text("1", 200_000))
	r.write("a/2", text("2", 10))
	r.write("a/3", text("3", 10))
	must(t, os.Chtimes(r.path("a/1"), r.now.Add(-time.Hour), r.now.Add(-time.Hour)))
	must(t, os.Chtimes(r.path("a/2"), r.now.Add(-time.Hour), r.now.Add(-time.Hour)))
	r.open()
	r.tail.Kick(r.path("a/2"))
	r.tail.Kick(r.path("a/3"))
	r.mustDeliver("a/1", "a/2", "a/3")

	r.append("a/3", text("3", 10))
	r.write("a/5", text("5", 10))
	r.write("b/4", text("4", 10))
	r.tail.Kick(r.path("a/5"))
	r.mustDeliver("a/3", "a/5")
	r.now = r.now.Add(10 * time.Second)
	r.mustDeliver("b/4")

	r.append("a/1", text("1", 10)) // without an event
	r.write("a/6", text("6", 10))
	r.tail.Kick(r.path("a/6"))
	r.mustDeliver("a/1", "a/6")
}

// Later files wait for the end of a file without a line feed as long as it may still be completed.
func TestOrderOfTheTorn(t *testing.T) {
	r := newRig(t, inGroups)
	r.write("a/1", `{"whole":1}`)
	r.write("a/2", text("2", 10))
	r.mustDeliver()
	r.now = r.now.Add(31 * time.Second)
	r.mustDeliver("a/1", "a/2")

	r.write("b/1", `{"torn`)
	r.write("b/2", text("2", 10))
	r.now = r.now.Add(6 * time.Second)
	r.mustDeliver()
	r.now = r.now.Add(31 * time.Second)
	r.mustDeliver("b/2")
}

// No file waits for a file that is unreadable, missing, or skipped.
func TestOrderOfTheUnreadable(t *testing.T) {
	r := newRig(t, func(o *Options) { inGroups(o); o.Once = true })
	r.write("a/1", "")
	must(t, os.Truncate(r.path("a/1"), 1<<40)) // much larger than its size on disk
	r.write("a/2", text("2", 10))
	if got, want := r.order(), []string{"unreadable a/1", "lines a/2"}; !slices.Equal(got, want) {
		t.Errorf("the order of deliveries is %q, want %q", got, want)
	}

	r = newRig(t, inGroups)
	r.write("a/1", text("1", 100_000))
	r.write("a/2", text("2", 10))
	r.hold = true
	r.mustDeliver("a/1")
	r.tail.Skip(r.held[0].File)
	r.mustDeliver("a/2")

	r = newRig(t, inGroups)
	r.write("a/1", text("1", 100_000))
	r.write("a/2", text("2", 10))
	r.hold = true
	r.mustDeliver("a/1")
	must(t, os.Remove(r.path("a/1")))
	r.now = r.now.Add(time.Minute)
	r.mustDeliver("a/2")
}

// The caller's note of a file is stored, and returned when the file is missing.
func TestNote(t *testing.T) {
	r := newRig(t, nil)
	r.write("a", text("a", 10))
	r.hold = true
	r.drain()
	r.held[0].Note = "of somebody"
	r.ack()
	r.now = r.now.Add(time.Minute)
	r.drain()
	r.close()
	must(t, os.Remove(r.path("a")))
	r.run()
	if n := len(r.held); n != 1 || r.held[0].Kind != Gone || r.held[0].Note != "of somebody" {
		t.Errorf("got %d batches: %+v", n, r.held)
	}
}

// If the caller says so, a file under another name is new, and the former one is gone.
func TestFollows(t *testing.T) {
	asked := ""
	r := newRig(t, func(o *Options) {
		o.Follows = func(from, to File, head func() []byte) bool {
			asked = string(head())
			return from.Rel[0] == to.Rel[0]
		}
	})
	content := text("a", 1000)
	r.write("a1", content)
	r.drain()
	r.rename("a1", "a2")
	r.run()
	r.mustBe("moved a1 to a2")
	if first, _, _ := strings.Cut(content, "\n"); asked != first+"\n" {
		t.Errorf("the head of the file is %q", asked)
	}
	r.rename("a2", "b2")
	r.run()
	r.mustBe("gone a2")
	r.mustHave("b2", content)
}
