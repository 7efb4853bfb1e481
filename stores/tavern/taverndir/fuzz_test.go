package taverndir_test

import (
	"testing"

	"github.com/tallylog/tally/internal/layouts"
)

// With any contents of the files of messages, items and heads, an import neither panics nor loses a byte, and a
// repeated import adds nothing.
// import adds nothing.
func FuzzBox(f *testing.F) {
	f.Add("---\nfrom: user\nid: m1\nto: kettle\ntype: t\nthread: \"b: c\"\nreply_to: m0\n---\n\nDoes it\nboil?", `{"id":"i1","meta":{"priority":3},"turn":"x"}`+"\n", `{"seen":1}`+"\n", `{"title":"B","settings":{"lease":"2m"}}`)
	f.Add("---\r\nid: \"\\\"\"\r\n---\r\n", `{"turn":1,"turn":2}`, `{"seen":-1}`, "{}")
	f.Add("\ufeff---\nid: \x00\xed\xa0\x80\n---", `{"bytes":"/w=="}`, `{"seen":18446744073709551615}`, "[")
	f.Add("no front matter", `{"id":"","meta":7,"turn":null}`, "", `{"createdAt":"9999-99-99T00:00:00Z","settings":"x"}`)
	f.Add("", `{"turn":1}`+"\n", "{}\n", `{"title":"B"}`+"\n")
	f.Add("---\nid: m1\n---\n\nx", "", `{"seen":-1}`+"\n", `{"createdAt":"soon"}`+"\n")
	f.Add("---\nid: m1\n---\n\nx", "", `{"seen":1}`+"\n", `{"title":"B","createdAt":"2026-01-01T00:00:00Z","settings":null}`+"\n")
	f.Fuzz(func(t *testing.T, letter, item, seen, queue string) {
		files := map[string]string{"inbox/kettle/000000000001-m1.md": letter, "inbox/kettle/inbox.json": seen, "queues/build/queue.json": queue, "queues/build/items/000000000001-i1.json": item,
			"inbox/kettle/000000000002-m2.json": item}
		st, dir := openStore(t), folder(t, ".tavern", files)
		imported(t, st, dir, layouts.ImportOptions{})
		wantFiles(t, st, files)
		if again := imported(t, st, dir, layouts.ImportOptions{}); again.Events != 0 {
			t.Errorf("the report of a second import is %+v", again)
		}
	})
}
