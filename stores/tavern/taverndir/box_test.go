package taverndir_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// said appends a turn as senders and enqueuers do.
func said(t testing.TB, st *tally.Store, session, thread, id, meta, turn string) {
	t.Helper()
	e := events.Entry{Thread: thread, ID: id, Turn: events.Raw(turn)}
	if meta != "" {
		e.Meta = events.Raw(meta)
	}
	need(st.Session(session).Append(t.Context(), log.Any, &events.TurnAppended{Entries: []events.Entry{e}}))
}

// Messages, items and heads are written to files, and an import into another store has the same turns.
func TestBoxes(t *testing.T) {
	ctx, st := t.Context(), openStore(t)
	said(t, st, "inbox/kettle", "inbox", "m1", `{"id":"m1","from":"user","to":"kettle","type":"question","thread":"b: c","replyTo":"m0","mine":"x"}`, `"Does it\nboil?"`)
	said(t, st, "inbox/kettle", "inbox", "a/b", `{"id":"a/b","bubble":["p"]}`, `{"z":1.0, "a":[]}`)
	said(t, st, "inbox/kettle", "inbox", "", "", `"plain"`)
	need(st.Session("queue/build").Create(ctx, events.SessionCreated{Kind: events.KindQueue, CreatedAt: "2026-08-22T10:00:00Z", Title: "Build", Settings: events.Raw(`{"lease":"2m"}`)}))
	said(t, st, "queue/build", "main", "i1", `{"priority":3}`, `"x"`)
	at := need(st.Session("inbox/kettle").Load(ctx, "")).Threads["inbox"].Turns[1].Offset
	need(st.Session("inbox/kettle").Append(ctx, log.Since(at, events.TypeSessionUpdated), &events.SessionUpdated{Set: events.Fields{{Name: "cursors", Value: fmt.Appendf(nil, `{"inbox":%d}`, at)}}}))

	want := map[string]string{
		"inbox/kettle/000000000001-m1.md":         "---\nfrom: user\nid: m1\nmine: x\nreply_to: m0\nthread: \"b: c\"\nto: kettle\ntype: question\n---\n\nDoes it\nboil?",
		"inbox/kettle/000000000002-a=2Fb.json":    `{"id":"a/b","meta":{"id":"a/b","bubble":["p"]},"turn":{"z":1.0, "a":[]}}` + "\n",
		"inbox/kettle/000000000003-turn.json":     `{"turn":"plain"}` + "\n",
		"inbox/kettle/inbox.json":                 `{"seen":2}` + "\n",
		"queues/build/queue.json":                 `{"title":"Build","createdAt":"2026-08-22T10:00:00Z","settings":{"lease":"2m"}}` + "\n",
		"queues/build/items/000000000001-i1.json": `{"id":"i1","meta":{"priority":3},"turn":"x"}` + "\n",
	}
	wantFiles(t, st, want)
	again, dir := openStore(t), folder(t, ".tavern", want)
	if r := imported(t, again, dir, layouts.ImportOptions{}); r.Added != 2 || len(r.Problems)+len(r.Notes) != 0 {
		t.Errorf("the report is %+v", r)
	}
	wantFiles(t, again, want)
	if s := need(again.Session("inbox/kettle").Load(ctx, "")); string(s.Threads["inbox"].Turns[0].Meta) != `{"id":"m1","from":"user","to":"kettle","type":"question","thread":"b: c","replyTo":"m0","mine":"x"}` {
		t.Errorf("the meta is %s", s.Threads["inbox"].Turns[0].Meta)
	}
	if r := imported(t, again, dir, layouts.ImportOptions{}); r.Events != 0 || r.Unchanged != 2 {
		t.Errorf("the report of a second import is %+v", r)
	}

	// An additional file in the folder becomes a turn in the store. A different file at a turn's position is refused. A
	// file that the layout would not write is kept and reported.
	more := map[string]string{"queues/build/items/000000000002-i2.json": `{"id":"i2","turn":"y"}` + "\n"}
	write(t, dir, more)
	write(t, dir, map[string]string{"inbox/kettle/hello.md": "---\nto: kettle\n---\nhi"})
	if r := imported(t, again, dir, layouts.ImportOptions{}); r.Events != 2 || len(r.Notes) != 1 {
		t.Errorf("the report with an additional file is %+v", r)
	}
	write(t, dir, map[string]string{"queues/build/items/000000000001-i1.json": `{"id":"i1","turn":"z"}` + "\n"})
	if r := imported(t, again, dir, layouts.ImportOptions{}); r.Events != 0 || len(r.Refused) != 1 || !strings.Contains(r.Problems[0].Reason, "turn 1") {
		t.Errorf("the report with a different file is %+v", r)
	}
}

// A head that the layout would not write is kept as it is, and sets nothing: an export writes it once.
func TestForeignHead(t *testing.T) {
	files := map[string]string{
		"inbox/kettle/000000000001-turn.json": `{"turn":"plain"}` + "\n",
		"inbox/kettle/inbox.json":             `{ "seen": 1, "title": "Mine" }` + "\n",
	}
	st := openStore(t)
	if r := imported(t, st, folder(t, ".tavern", files), layouts.ImportOptions{}); len(r.Notes) != 1 {
		t.Errorf("the report is %+v", r)
	}
	wantFiles(t, st, files)
	if s := need(st.Session("inbox/kettle").Load(t.Context(), "")); s.Ledger.Text("title") != "" || len(s.Threads["inbox"].Turns) != 1 {
		t.Errorf("got %+v", s.Ledger)
	}
	if _, set := need(st.Session("inbox/kettle").Load(t.Context(), "")).Ledger.Fields.Get("cursors"); set {
		t.Error("the foreign head moved the cursor")
	}
}

// The file of any message has all of it, in another store too.
func TestLetterLaw(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := func(label string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "\n", "\r", ":", "#", `"`, " ", "---", "é", "\u2028", "\x00", "\ufeff"}), 0, 4).Draw(rt, label), "")
		}
		quoted := func(s string) string { return string(need(json.Marshal(s))) }
		st := openStore(t)
		for i := range rapid.IntRange(1, 3).Draw(rt, "messages") {
			meta, turn := "", quoted(text("body"))
			if rapid.Bool().Draw(rt, "meta") {
				var members []string
				for _, name := range rapid.Permutation([]string{"id", "from", "to", "at", "replyTo", "reply_to", "odd", "title"}).Draw(rt, "members")[:3] {
					members = append(members, quoted(name)+":"+quoted(text(name)))
				}
				meta = "{" + strings.Join(members, ",") + "}"
			}
			if rapid.IntRange(0, 3).Draw(rt, "json") == 0 {
				turn = `{"b": 1e5 , "a":"\u0041"}`
			}
			said(t, st, "inbox/x", "inbox", fmt.Sprint(rapid.SampledFrom([]string{"", "m", "../m"}).Draw(rt, "id"), i), meta, turn)
		}
		files, r := layouttest.Exported(t, st, taverndir.Layout{})
		again := openStore(t)
		back := imported(t, again, folder(t, ".tavern", files), layouts.ImportOptions{})
		if len(r.Problems)+len(back.Problems)+len(back.Notes) > 0 {
			rt.Fatalf("%+v %+v of %q", r, back, files)
		}
		a, b := need(st.Session("inbox/x").Load(t.Context(), "")).Threads["inbox"].Turns, need(again.Session("inbox/x").Load(t.Context(), "")).Threads["inbox"].Turns
		for i := range a {
			if i >= len(b) || string(a[i].Raw) != string(b[i].Raw) || string(a[i].Meta) != string(b[i].Meta) || a[i].ID != b[i].ID {
				rt.Fatalf("%+v and %+v of %q", a[i], b, files)
			}
		}
	})
}

// An item that is text is text in its file, and any other item is in base64. Both are restored unchanged, and so is the
// text in a file of an older version.
func TestTextOfItems(t *testing.T) {
	t.Run("B-47 an item that is text is text in its file", func(t *testing.T) {
		bodies := []string{"", "make all\n", "no end", " spaced ", "\r\n", "é\u2028\ufeff\x00\x7f", `"\`, "<&>", `{"half":`, `{"json":1}`, "\xff", "ok\xc3", "\xed\xa0\x80"}
		st, again := openStore(t), openStore(t)
		q, old := tavern.QueueOf(st, "q"), make(map[string]string)
		for n, body := range bodies {
			id := fmt.Sprint("i", n)
			need(q.Enqueue(t.Context(), tavern.Item{ID: id, Body: []byte(body)}))
			if !json.Valid([]byte(body)) {
				old[fmt.Sprintf("queues/q/items/%012d-%s.json", len(old)+1, id)] = fmt.Sprintf(`{"id":%q,"meta":{"id":%q},"bytes":%s}`+"\n", id, id, need(json.Marshal([]byte(body))))
			}
		}
		files, _ := layouttest.Exported(t, st, taverndir.Layout{})
		imported(t, again, folder(t, ".tavern", files), layouts.ImportOptions{})
		for n, body := range bodies {
			var said struct{ Text, Bytes *string }
			name := fmt.Sprintf("queues/q/items/%012d-i%d.json", n+1, n)
			if err := json.Unmarshal([]byte(files[name]), &said); err != nil {
				t.Fatal(err)
			}
			if isText := utf8.ValidString(body) && !json.Valid([]byte(body)); isText != (said.Text != nil) || isText && *said.Text != body || isText && said.Bytes != nil {
				t.Errorf("the file of the body %q is %s", body, files[name])
			}
			if i := need(tavern.QueueOf(again, "q").Get(t.Context(), fmt.Sprint("i", n))); string(i.Body) != body {
				t.Errorf("the body %q was imported as %q", body, i.Body)
			}
		}
		if want := `{"id":"i1","meta":{"id":"i1"},"text":"make all\n"}` + "\n"; files["queues/q/items/000000000002-i1.json"] != want {
			t.Errorf("got %s, want %s", files["queues/q/items/000000000002-i1.json"], want)
		}
		before := openStore(t)
		if r := imported(t, before, folder(t, ".tavern", old), layouts.ImportOptions{}); len(r.Problems)+len(r.Notes) > 0 {
			t.Errorf("the report is %+v", r)
		}
		for n, body := range bodies {
			if json.Valid([]byte(body)) {
				continue
			}
			if i := need(tavern.QueueOf(before, "q").Get(t.Context(), fmt.Sprint("i", n))); string(i.Body) != body {
				t.Errorf("the body %q of an older file was imported as %q", body, i.Body)
			}
		}
		if r := imported(t, before, folder(t, ".tavern", old), layouts.ImportOptions{}); r.Events != 0 {
			t.Errorf("the report of a second import is %+v", r)
		}
	})
}
