package turns

import (
	"encoding/json"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// A reading is a turn while it is read.
type reading struct {
	turn  Turn
	left  []leftover
	depth int // of parts in parts
	calls map[Part]bool
}

// A leftover is an object that was read, of which something may be left.
type leftover struct {
	at   int // how many parts stand before it
	role string
	o    *object
}

// maxDepth is how deep parts of parts are read. No maker nests them, and each floor is
// read again for those below.
const maxDepth = 4

func (r *reading) add(p Part) { r.turn.Parts = append(r.turn.Parts, p) }

// call adds a call, unless it stands there already, whatever the white space of its
// arguments: some write theirs twice.
func (r *reading) call(p Part) {
	p.Kind = Call
	key := Part{ID: p.ID, Name: p.Name, Text: p.Text}
	if raw := []byte(p.Text); IsJSON(raw) {
		key.Text = spell(raw)
	}
	if p.ID != "" && r.calls[key] {
		return
	}
	if r.calls == nil {
		r.calls = make(map[Part]bool)
	}
	r.calls[key] = true
	r.add(p)
}

// by says who made the turn; who is named first did.
func (r *reading) by(maker string) {
	if r.turn.Shape == "" {
		r.turn.Shape = maker
	}
}

// leave says that an object was read.
func (r *reading) leave(role string, o *object) {
	r.left = append(r.left, leftover{len(r.turn.Parts), role, o})
}

// keep adds a value that is a part of an unknown kind.
func (r *reading) keep(role string, raw []byte) {
	r.add(Part{Kind: Other, Role: role, Text: spell(raw)})
}

// finish returns the turn. What is left over of an object stands behind its parts.
func (r *reading) finish() Turn {
	t := r.turn
	t.Parts = nil
	var h heard // made only if something is left
	for i := range len(r.turn.Parts) + 1 {
		for ; len(r.left) > 0 && r.left[0].at == i; r.left = r.left[1:] {
			l := r.left[0]
			if l.o.rest(nil) == nil {
				continue
			}
			if h == nil {
				h = r.heard()
			}
			if rest := l.o.rest(h); rest != nil {
				t.Parts = append(t.Parts, Part{Kind: Other, Role: l.role, Text: string(rest)})
				h.hear(string(rest))
			}
		}
		if i < len(r.turn.Parts) {
			t.Parts = append(t.Parts, r.turn.Parts[i])
		}
	}
	return t
}

// heard returns what the parts say.
func (r *reading) heard() heard {
	h := make(heard)
	h[r.turn.Model], h[r.turn.Response] = true, true
	for _, p := range r.turn.Parts {
		h.hear(p.Text)
		h[p.Name], h[p.ID], h[p.Media] = true, true, true
	}
	return h
}

// result adds what a tool answered. Text in it that is in blocks is the text of the
// result, and its images and files are parts that follow.
func (r *reading) result(p Part, raw json.RawMessage) {
	p.Kind = Result
	raw = r.unwrap(&p, raw)
	list, err := rawjson.Array(raw)
	if err != nil || !areBlocks(list) || r.depth == maxDepth {
		p.Text += words(raw)
		r.add(p)
		return
	}
	start, left := len(r.turn.Parts), len(r.left)
	r.depth++
	readBlocks(r, p.Role, list)
	r.depth--
	var texts []string
	rest := []Part{{}}
	for _, q := range r.turn.Parts[start:] {
		if q.Kind == Said && q.Name == "" {
			texts = append(texts, q.Text)
		} else {
			rest = append(rest, q)
		}
	}
	p.Text += strings.Join(texts, "\n")
	rest[0] = p
	r.turn.Parts = append(r.turn.Parts[:start], rest...)
	for i := range r.left[left:] {
		r.left[left+i].at = len(r.turn.Parts)
	}
}

// unwrap takes away what says of which kind an answer is, as in {type, value}.
func (r *reading) unwrap(p *Part, raw json.RawMessage) json.RawMessage {
	o, ok := open("", raw)
	if !ok {
		return raw
	}
	kind := o.word("type")
	switch {
	case strings.HasSuffix(kind, "_error"):
		p.Error = true
	case kind == "execution-denied" && !o.has("value"):
		p.Error = true
		p.Text = strings.TrimSuffix("execution denied: "+o.text("reason"), ": ")
		r.leave(p.Role, o)
		return nil
	case kind != "" && o.has("value"):
		p.Error = p.Error || strings.HasPrefix(kind, "error-")
		value := o.take("value")
		r.leave(p.Role, o)
		return value
	}
	return raw
}
