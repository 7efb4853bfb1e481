package shapes

import (
	"encoding/json"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// A reading is a turn while it is read.
type Reading struct {
	Turn  Turn
	left  []leftover
	depth int // of parts in parts
	calls map[Part]bool
}

// A leftover is an object that was read, of which something may be left.
type leftover struct {
	at   int // how many parts stand before it
	role string
	o    *Object
}

// Nest reads parts of a part, unless they lie too deep.
func (r *Reading) Nest(read func()) {
	if r.depth < maxDepth {
		r.depth++
		read()
		r.depth--
	}
}

// maxDepth is how deep parts of parts are read. No maker nests them, and each floor is
// read again for those below.
const maxDepth = 4

func (r *Reading) Add(p Part) { r.Turn.Parts = append(r.Turn.Parts, p) }

// Call adds a call, unless it stands there already, whatever the white space of its
// arguments: some write theirs twice.
func (r *Reading) Call(p Part) {
	p.Kind = Call
	key := Part{ID: p.ID, Name: p.Name, Text: p.Text}
	if raw := []byte(p.Text); IsJSON(raw) {
		key.Text = Compact(raw)
	}
	if p.ID != "" && r.calls[key] {
		return
	}
	if r.calls == nil {
		r.calls = make(map[Part]bool)
	}
	r.calls[key] = true
	r.Add(p)
}

// By says who made the turn; who is named first did.
func (r *Reading) By(maker string) {
	if r.Turn.Shape == "" {
		r.Turn.Shape = maker
	}
}

// Leave says that an object was read.
func (r *Reading) Leave(role string, o *Object) {
	r.left = append(r.left, leftover{len(r.Turn.Parts), role, o})
}

// Keep adds a value that is a part of an unknown kind.
func (r *Reading) Keep(role string, raw []byte) {
	r.Add(Part{Kind: Other, Role: role, Text: Compact(raw)})
}

// Finish returns the turn. What is left over of an object stands behind its parts.
func (r *Reading) Finish() Turn {
	t := r.Turn
	t.Parts = nil
	var h heard // made only if something is left
	for i := range len(r.Turn.Parts) + 1 {
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
		if i < len(r.Turn.Parts) {
			t.Parts = append(t.Parts, r.Turn.Parts[i])
		}
	}
	return t
}

// heard returns what the parts say.
func (r *Reading) heard() heard {
	h := make(heard)
	h[r.Turn.Model], h[r.Turn.Response] = true, true
	for _, p := range r.Turn.Parts {
		h.hear(p.Text)
		h[p.Name], h[p.ID], h[p.Media] = true, true, true
	}
	return h
}

// Result adds what a tool answered. Text in it that is in blocks is the text of the
// result, and its images and files are parts that follow.
func (r *Reading) Result(p Part, raw json.RawMessage) {
	p.Kind = Result
	raw = r.unwrap(&p, raw)
	list, err := rawjson.Array(raw)
	if err != nil || !areBlocks(list) || r.depth == maxDepth {
		p.Text += TextOf(raw)
		r.Add(p)
		return
	}
	start, left := len(r.Turn.Parts), len(r.left)
	r.depth++
	ReadBlocks(r, p.Role, list)
	r.depth--
	var texts []string
	rest := []Part{{}}
	for _, q := range r.Turn.Parts[start:] {
		if q.Kind == Said && q.Name == "" {
			texts = append(texts, q.Text)
		} else {
			rest = append(rest, q)
		}
	}
	p.Text += strings.Join(texts, "\n")
	rest[0] = p
	r.Turn.Parts = append(r.Turn.Parts[:start], rest...)
	for i := range r.left[left:] {
		r.left[left+i].at = len(r.Turn.Parts)
	}
}

// unwrap takes away what says of which kind an answer is, as in {type, value}.
func (r *Reading) unwrap(p *Part, raw json.RawMessage) json.RawMessage {
	o, ok := Open("", raw)
	if !ok {
		return raw
	}
	kind := o.Word("type")
	switch {
	case strings.HasSuffix(kind, "_error"):
		p.Error = true
	case kind == "execution-denied" && !o.Has("value"):
		p.Error = true
		p.Text = strings.TrimSuffix("execution denied: "+o.Text("reason"), ": ")
		r.Leave(p.Role, o)
		return nil
	case kind != "" && o.Has("value"):
		p.Error = p.Error || strings.HasPrefix(kind, "error-")
		value := o.Take("value")
		r.Leave(p.Role, o)
		return value
	}
	return raw
}
