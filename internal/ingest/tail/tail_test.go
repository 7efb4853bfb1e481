package tail

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Appended lines are delivered once, in any pieces.
func TestGrown(t *testing.T) {
	r := newRig(t, nil)
	r.write("a/one.jsonl", "1\n2\n")
	r.run()
	r.mustHave("one", "1\n2\n")
	r.append("a/one.jsonl", "3")
	r.run()
	r.mustHave("one", "1\n2\n")
	r.append("a/one.jsonl", "3\r\n4\n")
	r.run()
	r.mustHave("one", "1\n2\n33\r\n4\n")
	if n := r.docs["one"].lines; n != 4 {
		t.Errorf("got %d lines, want 4", n)
	}
	r.close()
	r.run()
	if n := r.docs["one"].lines; n != 4 {
		t.Errorf("got %d lines after a restart", n)
	}
	r.mustBe()
}

// After each way to replace content, the tailer delivers the new content.
func TestRewritten(t *testing.T) {
	const size = 20_000
	old := text("a", size)
	head := "{\"x\"" + old[4:]
	middle := old[:size/2] + strings.Replace(old[size/2:], "a", "b", 1)
	last := strings.LastIndex(old, "a")
	end := old[:last] + "b" + old[last+1:]
	for name, tt := range map[string]struct {
		want   string // the event
		change func(r *rig)
		after  string
	}{
		"truncated": {"rewritten a.jsonl", func(r *rig) { must(t, os.Truncate(r.path("a.jsonl"), 0)) }, ""},
		"shorter": {"rewritten a.jsonl", func(r *rig) { must(t, os.Truncate(r.path("a.jsonl"), 10_000)) },
			old[:strings.LastIndex(old[:10_000], "\n")+1]},
		"head, same size":           {"rewritten a.jsonl", func(r *rig) { r.write("a.jsonl", head) }, head},
		"end, same size":            {"rewritten a.jsonl", func(r *rig) { r.write("a.jsonl", end) }, end},
		"middle, same size":         {"rewritten a.jsonl", func(r *rig) { r.write("a.jsonl", middle) }, middle},
		"head, grown":               {"rewritten a.jsonl", func(r *rig) { r.write("a.jsonl", head+"more\n") }, head + "more\n"},
		"end, grown":                {"rewritten a.jsonl", func(r *rig) { r.write("a.jsonl", end+"more\n") }, end + "more\n"},
		"middle, replaced":          {"rewritten a.jsonl", func(r *rig) { r.replace("a.jsonl", middle) }, middle},
		"middle, replaced, grown":   {"rewritten a.jsonl", func(r *rig) { r.replace("a.jsonl", middle+"more\n") }, middle + "more\n"},
		"same, replaced":            {"", func(r *rig) { r.replace("a.jsonl", old) }, old},
		"same, replaced, grown":     {"", func(r *rig) { r.replace("a.jsonl", old+"more\n") }, old + "more\n"},
		"touched":                   {"", func(r *rig) { r.write("a.jsonl", old) }, old},
		"time in the future":        {"", func(r *rig) { must(t, os.Chtimes(r.path("a.jsonl"), time.Time{}, time.Now().Add(1000*time.Hour))) }, old},
		"deleted and made the same": {"", func(r *rig) { must(t, os.Remove(r.path("a.jsonl"))); r.write("a.jsonl", old) }, old},
		"deleted and created again": {"rewritten a.jsonl", func(r *rig) { must(t, os.Remove(r.path("a.jsonl"))); r.write("a.jsonl", middle) }, middle},
	} {
		for _, how := range []string{"running", "closed", "killed"} {
			t.Run(name+", "+how, func(t *testing.T) {
				r := newRig(t, nil)
				r.write("a.jsonl", old)
				r.run()
				r.mustHave("a", old)
				lines := r.docs["a"].lines
				switch how {
				case "closed":
					r.close()
				case "killed":
					r.kill()
				}
				time.Sleep(5 * time.Millisecond) // so that the file's time differs
				tt.change(r)
				r.run()
				r.mustHave("a", tt.after)
				if tt.want == "" {
					r.mustBe()
					if more := r.docs["a"].lines - lines; more > 1 {
						t.Errorf("%d lines were delivered again", more)
					}
				} else {
					r.mustBe(tt.want)
				}
				r.append("a.jsonl", "end\n")
				r.run()
				if !strings.HasSuffix(string(r.docs["a"].content), "end\n") {
					t.Error("the file is not followed any more")
				}
			})
		}
	}
}

// A position follows its file: to another folder and back, by rename and by copy, into a compressed form and out of it.
func TestMoved(t *testing.T) {
	old := text("a", 20_000)
	for name, tt := range map[string]struct {
		change func(r *rig)
		events []string
		path   string
	}{
		"archived":       {func(r *rig) { r.rename("s/a.jsonl", "archive/a.jsonl") }, []string{"moved s/a.jsonl to archive/a.jsonl"}, "archive/a.jsonl"},
		"another name":   {func(r *rig) { r.rename("s/a.jsonl", "s/b.jsonl") }, []string{"moved s/a.jsonl to s/b.jsonl"}, "s/b.jsonl"},
		"folder renamed": {func(r *rig) { r.rename("s", "u") }, []string{"moved s/a.jsonl to u/a.jsonl"}, "u/a.jsonl"},
		"copied": {func(r *rig) { r.write("archive/a.jsonl", old); must(t, os.Remove(r.path("s/a.jsonl"))) },
			[]string{"moved s/a.jsonl to archive/a.jsonl"}, "archive/a.jsonl"},
		"packed": {func(r *rig) { r.write("s/a.jsonl.zst", pack(old)); must(t, os.Remove(r.path("s/a.jsonl"))) },
			[]string{"moved s/a.jsonl to s/a.jsonl.zst"}, ""},
		"packed elsewhere": {func(r *rig) { r.write("z/a.jsonl.zst", pack(old)); must(t, os.Remove(r.path("s/a.jsonl"))) },
			[]string{"moved s/a.jsonl to z/a.jsonl.zst"}, ""},
		"hard link": {func(r *rig) { must(t, os.Link(r.path("s/a.jsonl"), r.path("s/c.jsonl"))) }, nil, "s/a.jsonl"},
		"hard link stays": {func(r *rig) {
			must(t, os.Link(r.path("s/a.jsonl"), r.path("s/c.jsonl")))
			r.run()
			must(t, os.Remove(r.path("s/a.jsonl")))
		}, []string{"moved s/a.jsonl to s/c.jsonl"}, "s/c.jsonl"},
		"there and back": {func(r *rig) {
			r.rename("s/a.jsonl", "archive/a.jsonl")
			r.run()
			r.rename("archive/a.jsonl", "s/a.jsonl")
		}, []string{"moved archive/a.jsonl to s/a.jsonl", "moved s/a.jsonl to archive/a.jsonl"}, "s/a.jsonl"},
		"gone and back": {func(r *rig) {
			must(t, os.Rename(r.path("s/a.jsonl"), r.dir+"/../kept"))
			r.run()
			must(t, os.Rename(r.dir+"/../kept", r.path("s/a.jsonl")))
		}, []string{"gone s/a.jsonl", "moved s/a.jsonl to s/a.jsonl"}, "s/a.jsonl"},
		"packed and unpacked": {func(r *rig) {
			r.write("s/a.jsonl.zst", pack(old))
			r.run()
			must(t, os.Remove(r.path("s/a.jsonl")))
			r.run()
			r.write("s/a.jsonl", old[:9000])
			r.run()
			r.write("s/a.jsonl", old)
			must(t, os.Remove(r.path("s/a.jsonl.zst")))
		}, []string{"moved s/a.jsonl to s/a.jsonl.zst", "moved s/a.jsonl.zst to s/a.jsonl"}, "s/a.jsonl"},
	} {
		for _, how := range []string{"running", "closed", "killed"} {
			t.Run(name+", "+how, func(t *testing.T) {
				r := newRig(t, nil)
				r.write("s/a.jsonl", old)
				r.run()
				lines := r.docs["a"].lines
				switch how {
				case "closed":
					r.close()
				case "killed":
					r.kill()
				}
				tt.change(r)
				r.run()
				r.mustBe(tt.events...)
				want := old
				if tt.path != "" {
					r.append(tt.path, "end\n")
					r.run()
					want += "end\n"
				}
				if len(r.docs) != 1 {
					t.Errorf("got %d files, want one", len(r.docs))
				}
				for stem, d := range r.docs {
					r.mustHave(stem, want)
					if d.lines > lines+1 {
						t.Errorf("%d lines were delivered again", d.lines-lines)
					}
				}
			})
		}
	}
}
