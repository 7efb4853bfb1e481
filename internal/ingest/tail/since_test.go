package tail

import (
	"os"
	"testing"
	"time"
)

// Files without a change since a time are skipped until they change, and then read from the beginning. Known files are
// followed at any age and not reported as gone. This holds with and without watches.
func TestSince(t *testing.T) {
	for name, watch := range map[string]func(*Options){"watched": watching, "polled": func(*Options) {}} {
		t.Run(name, func(t *testing.T) {
			isLate := false
			r := newRig(t, func(o *Options) {
				watch(o)
				if isLate {
					o.Since = time.Now().Add(-time.Hour)
				}
			})
			old := func(rel string) {
				t.Helper()
				at := time.Now().Add(-2 * time.Hour)
				must(t, os.Chtimes(r.path(rel), at, at))
			}
			r.write("known.jsonl", "1\n")
			r.await("a file that is there", r.has("known", "1\n"))
			r.close()
			isLate = true
			old("known.jsonl")
			r.write("old.jsonl", "1\n")
			old("old.jsonl")
			r.write("new.jsonl", "1\n")
			r.await("a new file", r.has("new", "1\n"))
			r.now = r.now.Add(5 * time.Second)
			r.append("known.jsonl", "2\n")
			r.await("a file that was known", r.has("known", "1\n2\n"))
			if r.docs["old"] != nil || r.docs["known"].gone || r.tail.Status().Gone > 0 {
				t.Errorf("%+v, %+v", r.docs["old"], r.docs["known"])
			}
			r.run() // earlier changes cause no listing
			r.append("old.jsonl", "2\n")
			r.now = r.now.Add(2 * time.Minute)
			r.await("an old file that changed", r.has("old", "1\n2\n"))
		})
	}
}
