package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// A hoard is a store with a word of its own in each place where content is.
type hoard struct {
	t       *testing.T
	rnd     *rand.Rand
	st      *tally.Store
	dir     string // of the store, closed
	at      place  // of the next words
	count   map[string]int
	words   map[string][]place
	records []events.Record
	turns   map[string]map[string][]string // of each session, by thread
}

// A place has words. A word goes when each of its places goes.
type place struct {
	sub    events.Subject
	record int    // of the subject, from 0
	thread string // of a turn
	turn   int    // of the thread, from 1; 0: no turn
}

// hoardMark is the middle of each word. The letters around it are random, so that an index that shares the beginnings of
// words between neighbours has it in full.
const hoardMark, hoardSide = "qzxjvq", 6

func (h *hoard) word() string {
	side := func() string {
		b := make([]byte, hoardSide)
		for i := range b {
			b[i] = 'a' + byte(h.rnd.IntN(26))
		}
		return string(b)
	}
	w := side() + hoardMark + side()
	h.words[w] = append(h.words[w], h.at)
	return w
}

// again adds the present place to those of a word.
func (h *hoard) again(w string) { h.words[w] = append(h.words[w], h.at) }

func (h *hoard) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// append appends an event to a subject, with words.
func (h *hoard) append(sub events.Subject, payload func() events.Payload) log.Ack {
	h.t.Helper()
	h.at = place{sub: sub, record: h.count[sub.String()]}
	e, err := events.New("urn:test", sub, payload())
	h.must(err)
	return h.event(log.Any, e.WithExtension("acmenote", h.word()))
}

func (h *hoard) event(expect log.Expect, e events.Event) log.Ack {
	h.t.Helper()
	h.count[e.Subject.String()]++
	ack, err := h.st.Log.AppendBuffered(h.t.Context(), e.Subject, expect, e)
	h.must(err)
	return ack
}

// entry returns the next turn of a thread, with words.
func (h *hoard) entry(thread string) events.Entry {
	at := h.at
	defer func() { h.at = at }()
	h.at.thread = thread
	key := h.at.sub.String() + "#" + thread
	h.count[key]++
	h.at.turn = h.count[key]
	return events.Entry{Thread: thread, Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":%q}`, h.word())), ID: h.word(), Meta: events.Raw(`{"a":"` + h.word() + `"}`)}
}

func (h *hoard) turned(sub events.Subject, threads ...string) log.Ack {
	h.t.Helper()
	return h.append(sub, func() events.Payload {
		p := &events.TurnAppended{ThreadMeta: map[string]events.Raw{threads[0]: events.Raw(`"` + h.word() + `"`)}}
		for _, name := range threads {
			p.Entries = append(p.Entries, h.entry(name))
		}
		return p
	})
}

func (h *hoard) created(sub events.Subject, change func(*events.SessionCreated)) {
	h.t.Helper()
	h.append(sub, func() events.Payload {
		p := &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-03-01T12:00:00Z", Title: h.word(), CWD: h.word(), Project: h.word(),
			Raw: events.Raw(`"` + h.word() + `"`), Settings: events.Raw(`{"a":"` + h.word() + `"}`)}
		if change != nil {
			change(p)
		}
		return p
	})
}

// written writes a revision of a document.
func (h *hoard) written(doc events.Subject, base events.Offset) events.Offset {
	h.t.Helper()
	h.at = place{sub: doc, record: h.count[doc.String()]}
	h.count[doc.String()]++
	w := tally.Write{Data: []byte(h.word()), Title: h.word(), Attributes: map[string]string{"a": h.word()}, Links: []events.Link{{Rel: "x", To: "document/doc/" + h.word()}}, Owner: h.word()}
	var rev projector.Revision
	var err error
	if base == 0 {
		rev, err = h.st.Documents().Create(h.t.Context(), doc.Kind, doc.ID, w)
	} else {
		rev, err = h.st.Documents().Update(h.t.Context(), doc.Kind, doc.ID, base, w)
	}
	h.must(err)
	return rev.Offset
}

// named returns a document of a kind, or a blob, with a word whose places the caller adds.
func (h *hoard) named(kind string) (ref events.DocRef, word string) {
	h.t.Helper()
	h.at = place{}
	word = h.word()
	h.words[word] = nil
	if kind == events.KindBlob {
		blob, err := h.st.PutBlob(h.t.Context(), []byte(strings.Repeat(word+" ", 50)))
		h.must(err)
		sum, _ := events.ParseBlobRef(blob)
		return events.DocRef("document/blob/" + sum), word
	}
	id := "id" + fmt.Sprint(len(h.words))
	_, err := h.st.Documents().Create(h.t.Context(), kind, id, tally.Write{Data: []byte(word)})
	h.must(err)
	return events.RefOf(events.Document("", kind, id), 0), word
}

// wireExamples returns type and data of the events that docs/wire.md erases. SECRET is wherever content is.
func wireExamples(t *testing.T) (list [][2]string) {
	t.Helper()
	text, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "### Vectors: erased events")
	rows, _, _ = strings.Cut(rows, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9.]+)` \\| `(.*?)` \\|").FindAllStringSubmatch(rows, -1) {
		list = append(list, [2]string{m[1], m[2]})
	}
	if len(list) < 18 {
		t.Fatalf("wire.md has %d examples", len(list))
	}
	return list
}

// examples appends the events of wire.md, but those of documents, each with words.
func (h *hoard) examples(sub events.Subject) {
	h.t.Helper()
	for i, x := range wireExamples(h.t) {
		if strings.HasPrefix(x[0], "tally.document.") {
			continue
		}
		h.at = place{sub: sub, record: h.count[sub.String()]}
		data := strings.ReplaceAll(x[1], `"service_tier":"SECRET"`, `"service_tier":"batch"`) // a term of the price stays
		for strings.Contains(data, "SECRET") {
			data = strings.Replace(data, "SECRET", h.word(), 1)
		}
		e := events.Event{ID: fmt.Sprint("example ", i), Source: "urn:test", Type: x[0], Subject: sub, Data: []byte(data)}
		last, err := h.st.Log.Last(h.t.Context(), sub)
		h.must(err)
		h.event(log.At(last.Offset), e.WithExtension(events.ExtActor, h.word()).WithExtension(events.ExtBasis, last.Offset.Padded()))
	}
}

// hoardOptions opens a store of small segments whose snapshots are frequent.
func hoardOptions(t *testing.T, dir string) embedded.Options {
	t.Helper()
	conf := t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "tally.toml"), []byte("[store]\nsegment = \"16KiB\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return embedded.Options{ConfigDir: conf, Store: dir, Own: true, Policy: projector.Policy{Records: 5}}
}

// newHoard returns a store that was closed.
func newHoard(t *testing.T) *hoard {
	t.Helper()
	h := &hoard{t: t, rnd: testkit.Random(t), dir: filepath.Join(t.TempDir(), "store"), count: make(map[string]int), words: make(map[string][]place)}
	st, err := embedded.Open(t.Context(), hoardOptions(t, h.dir))
	h.must(err)
	h.st = st
	ctx := t.Context()
	session := func(id string) events.Subject { return events.Session("", id) }
	s, o := session("s"), session("o")
	h.created(session("old"), nil)
	h.turned(session("old"), "main")
	mine, w1 := h.named(events.KindFile)
	both, w2 := h.named(events.KindFile)
	sealed, w3 := h.named("sealed")
	blob, w4 := h.named(events.KindBlob)
	shared, w5 := h.named(events.KindBlob)
	h.created(s, func(p *events.SessionCreated) {
		p.Formats = map[string]events.FileFormat{"a": {Doc: mine}, "b": {Doc: both}}
		h.again(w1)
		h.again(w2)
	})
	title := func() string { // of s: its forks have it
		rec, err := h.st.Log.Last(ctx, s)
		h.must(err)
		return titleIn(rec)
	}()
	h.created(o, func(p *events.SessionCreated) {
		p.Formats = map[string]events.FileFormat{"b": {Doc: both}}
		h.again(w2)
	})
	for i := range 12 {
		h.turned(s, "main", "side", "main")
		if i%4 == 0 {
			h.turned(o, "main")
		}
	}
	h.append(s, func() events.Payload {
		h.again(w4)
		h.again(w5)
		return &events.CheckpointSaved{ID: "c", Kind: "rewind", At: 1, Prompt: h.word(), Files: []events.SavedFile{{Path: h.word(), Blob: blob}, {Path: h.word(), Blob: shared}}}
	})
	h.append(o, func() events.Payload {
		h.again(w5)
		return &events.CheckpointSaved{ID: "c", Kind: "rewind", At: 1, Prompt: h.word(), Files: []events.SavedFile{{Path: h.word(), Blob: shared}}}
	})
	h.append(s, func() events.Payload {
		h.again(w3)
		return &events.RunCreated{Run: events.RunRef{Kind: "k", ID: "r"}, Input: events.Raw(`"` + h.word() + `"`), Secrets: sealed}
	})
	h.created(session("child"), func(p *events.SessionCreated) { p.Parent = &events.Lineage{Session: "s"} })
	h.turned(session("child"), "main")
	h.created(session("grandchild"), func(p *events.SessionCreated) { p.Parent = &events.Lineage{Session: "child"} })
	var parts []log.Part
	for _, sub := range []events.Subject{s, o} {
		h.at = place{sub: sub, record: h.count[sub.String()]}
		h.count[sub.String()]++
		e, err := events.New("urn:test", sub, &events.TurnAppended{Entries: []events.Entry{h.entry("main")}})
		h.must(err)
		parts = append(parts, log.Part{Subject: sub, Events: []events.Event{e}})
	}
	_, err = h.st.AppendAll(ctx, parts...)
	h.must(err)
	_, _, err = h.st.Session("s").Fork(ctx, "head", "fork")
	h.must(err)
	h.count[session("fork").String()]++
	if !strings.Contains(title, hoardMark) {
		t.Fatalf("the title is %q", title)
	}
	h.turned(session("fork"), "main")
	h.created(session("odd"), nil)
	h.examples(session("odd"))
	doc := events.Document("", "doc", "a")
	for base := range events.Offset(3) {
		if base > 0 {
			rec, err := h.st.Log.Last(ctx, doc)
			h.must(err)
			base = rec.Offset
		}
		h.written(doc, base)
	}
	moved := events.Document("", "doc", "early")
	at := h.written(moved, 0)
	h.at = place{sub: moved}
	_, err = h.st.Documents().Rename(ctx, "doc", "early", at, "late")
	h.must(err)
	for w, places := range h.words { // a renamed document has the content of before
		if slices.Contains(places, place{sub: moved}) {
			h.words[w] = append(h.words[w], place{sub: events.Document("", "doc", "late")})
		}
	}
	trial, err := h.st.In("trial")
	h.must(err)
	h.created(events.Session("trial", "t"), nil)
	h.turned(events.Session("trial", "t"), "main")
	h.st = trial
	h.written(events.Document("trial", "doc", "t"), 0)
	h.st = st
	head, err := h.st.Log.Head(ctx)
	h.must(err)
	for _, r := range h.st.Runners() {
		h.must(h.st.Wait(ctx, r.View.Name(), head))
	}
	h.records, h.turns = h.read(st), h.turnsOf(st)
	h.must(st.Close())
	if found := h.found(h.dir); len(found) != len(h.words) || len(found) < 200 {
		t.Fatalf("the store has %d of %d words", len(found), len(h.words))
	}
	return h
}

func titleIn(rec events.Record) string {
	p, _ := events.Decode(rec.Type, rec.Data)
	if c, ok := p.(*events.SessionCreated); ok {
		return c.Title
	}
	return ""
}

func (h *hoard) read(st *tally.Store) (list []events.Record) {
	h.t.Helper()
	for rec, err := range st.Log.Read(h.t.Context(), events.Range{}) {
		h.must(err)
		list = append(list, rec)
	}
	return list
}

// turnsOf returns the turns in effect of all sessions.
func (h *hoard) turnsOf(st *tally.Store) map[string]map[string][]string {
	h.t.Helper()
	all := make(map[string]map[string][]string)
	for _, rec := range h.read(st) {
		name := rec.Subject.String() + rec.Subject.Namespace
		if !rec.Subject.IsSession() || all[name] != nil {
			continue
		}
		in, err := st.In(rec.Subject.Namespace)
		h.must(err)
		s, err := in.Session(rec.Subject.ID).Load(h.t.Context(), "")
		h.must(err)
		all[name] = make(map[string][]string)
		for thread := range s.Threads {
			for _, turn := range s.Threads.Turns(thread) {
				all[name][thread] = append(all[name][thread], string(turn.Raw)+string(turn.Bytes))
			}
		}
	}
	return all
}

// found returns the words in the files of a folder, and how often the server's blocks have each.
func (h *hoard) found(dir string) map[string]int {
	h.t.Helper()
	found := make(map[string]int)
	h.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := 0
		if strings.HasSuffix(path, ".blk") {
			n = 1
		}
		for at := 0; ; at += len(hoardMark) {
			i := bytes.Index(text[at:], []byte(hoardMark))
			if i < 0 {
				return nil
			}
			at += i
			if from, upto := at-hoardSide, at+len(hoardMark)+hoardSide; from >= 0 && upto <= len(text) {
				if w := strings.ToLower(string(text[from:upto])); h.words[w] != nil {
					found[w] += n
					continue
				}
			}
			for w := range h.words { // a part of a word
				if rest := w[hoardSide:]; at+len(rest) <= len(text) && string(text[at:at+len(rest)]) == rest {
					found[w] += n
				}
			}
		}
	}))
	return found
}

// A hoardScope is a selection, and the places that it names.
type hoardScope struct {
	forget tally.Forget
	goes   func(p place) bool
}

func (s hoardScope) String() string {
	f := s.forget
	switch {
	case f.Document != "":
		return "document " + f.Document
	case f.Record > 0:
		return fmt.Sprint("record ", uint64(f.Record))
	case !f.Before.IsZero():
		return "before"
	case f.Session == "":
		return "namespace " + f.Namespace
	}
	return strings.TrimSpace(fmt.Sprint("session ", f.Session, " ", f.Thread, " ", f.Turn, " ", f.Children))
}

// scopes returns a random selection of each kind.
func (h *hoard) scopes() []hoardScope {
	session := func(ids ...string) func(place) bool {
		return func(p place) bool {
			return p.sub.Namespace == "default" && p.sub.IsSession() && slices.Contains(ids, p.sub.ID)
		}
	}
	pick := func(ids ...string) string { return ids[h.rnd.IntN(len(ids))] }
	one := pick("s", "o", "odd", "fork", "child")
	turn := h.rnd.IntN(25) + 1
	var times []events.Record // that bound the age of sessions
	for _, rec := range h.records {
		if rec.Subject.IsSession() && rec.Subject.Namespace == "default" {
			times = append(times, rec)
		}
	}
	at := times[h.rnd.IntN(len(times))]
	last := make(map[events.Subject]time.Time)
	for _, rec := range h.records {
		last[rec.Subject] = rec.Recorded
	}
	nth := make(map[events.Subject]int)
	var single events.Record
	number, chosen := 0, 1+h.rnd.IntN(len(times))
	for _, rec := range h.records {
		if rec.Subject.IsSession() && rec.Subject.Namespace == "default" {
			if chosen--; chosen == 0 {
				single, number = rec, nth[rec.Subject]
			}
		}
		nth[rec.Subject]++
	}
	return []hoardScope{
		{tally.Forget{Session: one}, session(one)},
		{tally.Forget{Session: "s", Children: true}, session("s", "child", "grandchild")},
		{tally.Forget{Session: "s", Turn: turn}, func(p place) bool { return session("s")(p) && p.thread == "main" && p.turn == turn }},
		{tally.Forget{Session: "s", Thread: "side"}, func(p place) bool { return session("s")(p) && p.thread == "side" }},
		{tally.Forget{Record: single.Offset}, func(p place) bool { return p.sub == single.Subject && p.record == number }},
		{tally.Forget{Document: "doc/a"}, func(p place) bool { return p.sub == events.Document("", "doc", "a") }},
		{tally.Forget{Document: "doc/late"}, func(p place) bool { return p.sub.ID == "early" || p.sub.ID == "late" }},
		{tally.Forget{Before: at.Recorded}, func(p place) bool {
			return p.sub.IsSession() && p.sub.Namespace == "default" && last[p.sub].Before(at.Recorded)
		}},
		{tally.Forget{Namespace: "trial"}, func(p place) bool { return p.sub.Namespace == "trial" }},
	}
}

// gone returns the words that an erasure of a scope removes.
func (h *hoard) gone(s hoardScope) map[string]bool {
	gone := make(map[string]bool)
	for w, places := range h.words {
		if !slices.ContainsFunc(places, func(p place) bool { return !s.goes(p) }) {
			gone[w] = true
		}
	}
	return gone
}

// check compares a store with the one of before: the words of gone are nowhere, and everything else is as it was.
func (h *hoard) check(st *tally.Store, gone map[string]bool) {
	h.t.Helper()
	if dir := st.ViewsDir(); erasure.Pending(dir) {
		h.t.Error("the plan is still in the store")
	}
	records := h.read(st)
	receipts := 0
	for i, rec := range records {
		if i >= len(h.records) {
			if rec.Subject.Kind == erasure.KindReceipt {
				receipts++
			}
			continue
		}
		was := h.records[i]
		if rec.Offset != was.Offset || rec.Subject != was.Subject || rec.ID != was.ID || rec.Type != was.Type || !rec.Recorded.Equal(was.Recorded) || !rec.Time.Equal(was.Time) {
			h.t.Errorf("the record is %+v, was %+v", rec, was)
		}
		if loses := slices.ContainsFunc(hoardWordsOf(was), func(w string) bool { return gone[w] }); !loses && !rec.Equal(was.Event) && rec.Erased() == "" {
			h.t.Errorf("%v of %s has changed, and loses no word: %s", was.Offset, was.Subject.Name(), rec.Data)
		}
	}
	if len(records) < len(h.records) {
		h.t.Fatalf("the store has %d records, had %d", len(records), len(h.records))
	}
	if want := min(len(gone), 1); receipts != want {
		h.t.Errorf("there are %d receipts, want %d", receipts, want)
	}
	for name, threads := range h.turnsOf(st) {
		for thread, was := range h.turns[name] {
			have := threads[thread]
			if len(have) != len(was) {
				h.t.Errorf("%s %s has %d turns, had %d", name, thread, len(have), len(was))
				continue
			}
			for i := range was {
				if loses := slices.ContainsFunc(hoardWords(was[i]), func(w string) bool { return gone[w] }); !loses && have[i] != was[i] && have[i] != "{}" && have[i] != "0" {
					h.t.Errorf("turn %d of %s %s is %s, was %s", i, name, thread, have[i], was[i])
				}
			}
		}
	}
	v, err := st.Loader().Verify(h.t.Context(), nil)
	if err != nil || len(v.Findings) > 0 || (v.Erased > 0) != (len(gone) > 0) {
		h.t.Errorf("verify: %v %+v", err, v)
	}
	head, err := st.Log.Head(h.t.Context())
	h.must(err)
	for _, r := range st.Runners() {
		h.must(st.Wait(h.t.Context(), r.View.Name(), head))
	}
	findings, err := catalog.Verify(h.t.Context(), st.Log, st.ViewsDir(), catalog.Views(render.Opening, render.Said), nil)
	if err != nil || len(findings) > 0 {
		h.t.Errorf("the views: %v %+v", err, findings)
	}
}

// checkFiles looks for words in the files of a folder.
func (h *hoard) checkFiles(dir string, gone map[string]bool) {
	h.t.Helper()
	found := h.found(dir)
	for w, places := range h.words {
		if _, has := found[w]; gone[w] && has {
			h.t.Errorf("a word of %v is still in %v", places, h.filesWith(dir, w))
		}
		if !gone[w] && found[w] == 0 {
			h.t.Errorf("a word of %v is gone", places)
		}
	}
}

func (h *hoard) filesWith(dir, word string) (list []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if text, _ := os.ReadFile(path); bytes.Contains(bytes.ToLower(text), []byte(word[hoardSide:])) {
				list = append(list, path)
			}
		}
		return nil
	})
	return list
}

// hoardWords returns the words of a text.
func hoardWords(text string) (list []string) {
	for at := 0; ; {
		i := strings.Index(text[at:], hoardMark)
		if i < 0 {
			return list
		}
		if at += i + len(hoardMark); at >= hoardSide+len(hoardMark) && at+hoardSide <= len(text) {
			list = append(list, text[at-len(hoardMark)-hoardSide:at+hoardSide])
		}
	}
}

func hoardWordsOf(rec events.Record) []string {
	list := hoardWords(string(rec.Data))
	for value := range maps.Values(rec.Extensions) {
		list = append(list, hoardWords(value)...)
	}
	return list
}

// mustOpen opens a copy of the store, which another owner left.
func (h *hoard) mustOpen(dir string) *tally.Store {
	h.t.Helper()
	if err := os.Remove(filepath.Join(dir, "owner.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	st, err := embedded.Open(h.t.Context(), hoardOptions(h.t, dir))
	h.must(err)
	return st
}
