package taverndir

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/frontmatter"
)

// A turn of an inbox or a queue is a file. If a message is a text and its other fields are texts too, the file is that
// text behind front matter:
//
//	---
//	at: "2026-08-22T10:00:00Z"
//	from: user
//	id: m1
//	thread: build
//	to: kettle
//	type: question
//	---
//
//	Does it boil?
//
// Any other turn is a JSON object with the turn's members.

// boxes are the kinds of sessions whose turns are files.
var boxes = []struct {
	kind   string
	dir    string
	sub    string // below the session's folder
	thread string
	head   string // file with the session's fields
}{
	{events.KindInbox, "inbox", "", "inbox", "inbox.json"},
	{events.KindQueue, "queues", "items", events.MainThread, "queue.json"},
}

// digits is the width of the number of a turn in a file's name, from 1.
const digits = 12

// spelled are keys of a message whose names in a file differ.
var spelled = [][2]string{{"replyTo", "reply_to"}}

// turnFile returns the name and the content of the file of the n-th turn, from 1. h is the item's history.
func turnFile(t projector.Turn, n int, letter bool, h itemHistory) (name string, content []byte, err error) {
	id := t.ID
	if id == "" {
		id = "turn"
	}
	name = fmt.Sprintf("%0*d-%s", digits, n, flat(id))
	if letter {
		if content, ok := letterOf(t); ok {
			return name + mdSuffix, content, nil
		}
	}
	e := events.Entry{Turn: t.Raw, Bytes: t.Bytes, ID: t.ID, Timestamp: t.Timestamp, Run: t.Run, Meta: t.Meta}
	content, err = entryFile(e, h).content()
	return name + jsonSuffix, content, err
}

// entryJSON is a turn in a file. Bytes that are UTF-8 are in the member text. Files of older versions have them in
// base64 too, in the member bytes.
type entryJSON struct {
	ID        string           `json:"id,omitempty"`
	Timestamp events.Timestamp `json:"timestamp,omitempty"`
	Run       *events.RunRef   `json:"run,omitempty"`
	Meta      events.Raw       `json:"meta,omitempty"`
	Turn      events.Raw       `json:"turn,omitempty"`
	Text      *string          `json:"text,omitempty"`
	Bytes     []byte           `json:"bytes,omitzero"`
	State     string           `json:"state,omitempty"`
	Attempts  int              `json:"attempts,omitempty"`
	Steps     []step           `json:"history,omitempty"`
}

func entryFile(e events.Entry, h itemHistory) entryJSON {
	f := entryJSON{ID: e.ID, Timestamp: e.Timestamp, Run: e.Run, Meta: e.Meta, Turn: e.Turn, State: h.State, Attempts: h.Attempts, Steps: h.Steps}
	if e.Bytes != nil && utf8.Valid(e.Bytes) {
		text := string(e.Bytes)
		f.Text = &text
	} else {
		f.Bytes = e.Bytes
	}
	return f
}

func (f entryJSON) content() ([]byte, error) {
	content, err := rawjson.Marshal(f)
	return append(content, '\n'), err
}

// entry returns the turn and the history in a file, and whether this or an older version would write the file the same.
func (f entryJSON) entry(content []byte) (e events.Entry, h itemHistory, own bool) {
	e = events.Entry{ID: f.ID, Timestamp: f.Timestamp, Run: f.Run, Meta: f.Meta, Turn: f.Turn, Bytes: f.Bytes}
	if f.Text != nil && f.Bytes == nil {
		e.Bytes = []byte(*f.Text)
	}
	h = refold(f.Steps)
	now := entryFile(e, h)
	for _, as := range []entryJSON{now, now.inBase64(e.Bytes)} {
		if text, err := as.content(); err == nil && bytes.Equal(text, content) {
			return e, h, true
		}
	}
	return e, h, false
}

func (f entryJSON) inBase64(content []byte) entryJSON {
	f.Text, f.Bytes = nil, content
	return f
}

// letterOf returns a message as a text behind front matter, or false if that would lose a field.
func letterOf(t projector.Turn) ([]byte, bool) {
	body, err := rawjson.String(t.Raw)
	if err != nil || t.Run != nil || len(t.Bytes) > 0 {
		return nil, false
	}
	members, err := rawjson.Object(t.Meta)
	if len(t.Meta) > 0 && err != nil {
		return nil, false
	}
	d := frontmatter.Document{Fields: make(map[string]string), Body: body}
	for _, m := range members {
		if d.Fields[fileKey(m.Name)], err = rawjson.String(m.Value); err != nil {
			return nil, false
		}
	}
	if t.Timestamp != "" {
		d.Fields["at"] = string(t.Timestamp)
	}
	content, err := frontmatter.Render(d)
	if err != nil {
		return nil, false
	}
	back, err := readLetter(content)
	same := err == nil && bytes.Equal(back.Turn, t.Raw) && bytes.Equal(back.Meta, t.Meta) && back.ID == t.ID && back.Timestamp == t.Timestamp
	return content, same
}

func fileKey(name string) string {
	for _, s := range spelled {
		if s[0] == name {
			return s[1]
		}
	}
	return name
}

// order is the order of members in a message's meta, as senders write them. Other members follow in the file's order.
var order = []string{"id", "from", "to", "type", "thread", "replyTo", "correlation", "expects", "deadline", "class", "amends", "malfunction"}

// readLetter reads a message that is a text behind front matter.
func readLetter(content []byte) (e events.Entry, err error) {
	v := frontmatter.Read(content)
	body, ok := bytes.CutPrefix(content[v.Body():], []byte("\n"))
	if !v.Has() || !ok {
		return e, fmt.Errorf("has no front matter followed by an empty line")
	}
	if e.Turn, err = rawjson.Marshal(string(body)); err != nil {
		return e, err
	}
	var meta rawjson.Members
	add := func(name, value string) error {
		raw, err := rawjson.Marshal(value)
		meta = append(meta, rawjson.Member{Name: name, Value: raw})
		return err
	}
	for _, name := range order {
		if value, ok := v.Get(fileKey(name)); ok {
			if err := add(name, value); err != nil {
				return e, err
			}
		}
	}
	for _, f := range v.Fields() {
		switch {
		case f.Key == "at":
			e.Timestamp = events.Timestamp(f.Value)
			continue
		case isOrdered(f.Key):
			continue
		}
		if err := add(f.Key, f.Value); err != nil {
			return e, err
		}
	}
	e.ID, _ = v.Get("id")
	if len(meta) > 0 {
		e.Meta, err = rawjson.Marshal(meta)
	}
	return e, err
}

func isOrdered(key string) bool {
	for _, name := range order {
		if fileKey(name) == key {
			return true
		}
	}
	return false
}

// readTurn reads the file of the n-th turn of a box, and returns also the name that an export would use. own is false
// if an export would write another file.
func readTurn(box int, name string, n int, content []byte) (e events.Entry, h itemHistory, want string, own bool) {
	var err error
	if strings.HasSuffix(name, mdSuffix) {
		e, err = readLetter(content)
	} else {
		var f entryJSON
		if err = rawjson.Unmarshal(content, &f); err == nil {
			e, h, own = f.entry(content)
		}
		if !own {
			return e, h, "", false
		}
	}
	if err != nil {
		return e, h, "", false
	}
	e.Thread = boxes[box].thread
	want, text, err := turnFile(turnOf(e), n, box == 0, h)
	own = own && strings.HasSuffix(want, jsonSuffix) || bytes.Equal(text, content)
	p := &events.TurnAppended{Entries: []events.Entry{e}}
	return e, h, want, err == nil && own && p.Validate() == nil
}

// numberOf returns the number at the beginning of a turn's file name, or 0.
func numberOf(name string) int {
	if len(name) <= digits || name[digits] != '-' {
		return 0
	}
	n, err := strconv.Atoi(name[:digits])
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// boxAt returns the box of a file, the id of its session, and the file's name below that.
func boxAt(name string) (box int, id, below string, ok bool) {
	for i, b := range boxes {
		rest, in := strings.CutPrefix(name, b.dir+"/")
		dir, below, deep := strings.Cut(rest, "/")
		if !in || !deep || dir == "" {
			continue
		}
		if below == b.head {
			return i, idOf(dir, ""), below, true
		}
		if b.sub != "" {
			if below, in = strings.CutPrefix(below, b.sub+"/"); !in {
				return 0, "", "", false
			}
		}
		return i, idOf(dir, ""), below, !strings.Contains(below, "/")
	}
	return 0, "", "", false
}
