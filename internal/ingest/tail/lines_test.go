package tail

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// Lines do not depend on the chunks of the content, together equal the content, and do not exceed the bound.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("a\r\n\n \nb\x00\n\xff"), 3, 2)
	f.Add([]byte("long line\n\n\n\n\n\n\n\r\n"), 1, 4)
	f.Fuzz(func(t *testing.T, content []byte, chunk, bound int) {
		bound, chunk = 1+(bound&0xff), 1+(chunk&0xff)
		whole := &pieces{max: bound, buf: content}
		whole.cut(len(content) + 1)
		var all []byte
		for _, l := range whole.lines() {
			if l.Offset != int64(len(all)+len(l.Before)) || len(l.Bytes) > bound || l.Cut && len(l.Bytes) != bound ||
				bytes.IndexByte(l.Bytes, '\n') >= 0 || !blank(l.Before) || l.Len() == 0 {
				t.Fatalf("%+v of %q", l, content)
			}
			all = slices.Concat(all, l.Before, l.Bytes, []byte(l.End))
		}
		if !bytes.HasPrefix(content, all) {
			t.Fatalf("%q has lines %q", content, all)
		}
		var list []Line
		for from := 0; ; { // in the way of a reader: a chunk at a time, from behind the last line
			p := &pieces{at: int64(from), max: bound}
			for at := from; at < len(content) && len(p.list) == 0; {
				next := min(len(content), at+chunk)
				p.buf = append(p.buf, content[at:next]...)
				at = next
				p.cut(2)
			}
			if len(p.list) == 0 {
				break
			}
			from += p.list[len(p.list)-1].to
			list = append(list, p.lines()...)
		}
		if !slices.EqualFunc(whole.lines(), list, func(a, b Line) bool {
			return a.Offset == b.Offset && a.Cut == b.Cut && a.End == b.End && bytes.Equal(a.Bytes, b.Bytes) && bytes.Equal(a.Before, b.Before)
		}) {
			t.Fatalf("%q in pieces of %d:\n%+v\n%+v", content, chunk, whole.lines(), list)
		}
	})
}

// Arbitrary bytes are kept.
func TestBytes(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	r := newRig(t, nil)
	size := 64 << 20
	if !testkit.Full() {
		size = 4 << 20
	}
	long := strings.Repeat("x", size-1) + "}"
	for name, content := range map[string]string{
		"glued": "{}{}\n", "nul": "\x00\x00\n\x00", "utf8": "\xff\xfe\n", "crlf": "1\r\n2\r\r\n", "empty": "\n\n\n", "blank": " \n\t\r\n1\n \n",
		"long": "1\n" + long + "\n2\n", "longer": long + long + "\n", "end": "1\n{}", "none": "",
	} {
		r.write(name+".jsonl", content)
	}
	r.run()
	for name := range r.docs {
		want, err := os.ReadFile(r.path(name + ".jsonl"))
		must(t, err)
		if name == "nul" {
			want = want[:3] // the rest is incomplete
		}
		r.mustHave(name, string(want))
	}
	if len(r.docs) != 9 {
		t.Errorf("got %d files", len(r.docs))
	}
}

// Content without a line feed waits, is passed to Whole, and later content follows it.
func TestTorn(t *testing.T) {
	r := newRig(t, nil)
	r.open()
	r.write("a.jsonl", "1\n{}")
	r.write("b.jsonl", "1\n{")
	r.drain()
	r.now = r.now.Add(29 * time.Second)
	r.drain()
	r.mustHave("a", "1\n")
	r.now = r.now.Add(2 * time.Second)
	r.drain()
	r.mustHave("a", "1\n{}")
	r.run()
	r.mustHave("b", "1\n")
	r.append("a.jsonl", "\n2\n")
	r.append("b.jsonl", "}\n")
	r.run()
	r.mustHave("a", "1\n{}\n2\n")
	r.mustHave("b", "1\n{}\n")
	r.mustBe()
}

// Deliveries stay within the bounds, and continue after acknowledgements.
func TestBackpressure(t *testing.T) {
	testkit.NotUnderRace(t) // the test has no concurrency
	r := newRig(t, nil)
	r.hold = true
	many, big := strings.Repeat("1\n", 2000), strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 10)
	r.write("many.jsonl", many)
	files := 26
	if !testkit.Full() {
		files = 22 // of three lines each, so many exceed totalBytes
	}
	for n := range files {
		r.write(string(rune('a'+n))+".jsonl", big)
	}
	r.drain()
	total := 0
	for name, d := range r.docs {
		total += len(d.content)
		if d.lines > fileLines || len(d.content) > fileBytes {
			t.Errorf("%s: got %d lines, %d bytes", name, d.lines, len(d.content))
		}
	}
	if total > totalBytes || total < totalBytes-fileBytes {
		t.Errorf("%d bytes are unacknowledged", total)
	}
	if s := r.tail.Status(); s.Lag != int64(files*len(big)+len(many)) {
		t.Errorf("the lag is %d", s.Lag)
	}
	r.hold = false
	r.ack()
	r.run()
	r.mustHave("many", many)
	for name, d := range r.docs {
		if name != "many" && string(d.content) != big {
			t.Errorf("%s has %d bytes", name, len(d.content))
		}
	}
	if s := r.tail.Status(); s.Lag != 0 {
		t.Errorf("the lag is %d", s.Lag)
	}
}
