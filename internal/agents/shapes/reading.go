package shapes

import (
	"encoding/json"
	"strings"
)

// A Reading is a turn while it is read.
type Reading struct {
	Turn  Turn
	left  []leftover
	depth int // nesting of parts in parts
	calls map[Part]bool
}

// A leftover is an object that was read and may have untaken members.
type leftover struct {
	at   int // number of parts before it
	role string
	o    *Object
}

// Nest reads the parts of a part, unless they are nested too deep.
func (r *Reading) Nest(read func()) {
	if r.depth < maxDepth {
		r.depth++
		read()
		r.depth--
	}
}

// maxDepth limits the nesting of parts. No maker nests them, and each level is read again for the levels below it.
const maxDepth = 4

func (r *Reading) Add(p Part) { r.Turn.Parts = append(r.Turn.Parts, p) }

// Call adds a call, unless an equal one exists, apart from white space in its arguments: some makers write each call
// twice.
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

// By sets the maker of the turn. The first maker counts.
func (r *Reading) By(maker string) {
	if r.Turn.Shape == "" {
		r.Turn.Shape = maker
	}
}

// Leave records that an object was read.
func (r *Reading) Leave(role string, o *Object) {
	r.left = append(r.left, leftover{len(r.Turn.Parts), role, o})
}

// Keep adds a value as a part of an unknown kind.
func (r *Reading) Keep(role string, raw []byte) {
	r.Add(Part{Kind: Other, Role: role, Text: Compact(raw)})
}

// Finish returns the turn. The untaken members of an object follow its parts.
func (r *Reading) Finish() Turn {
	t := r.Turn
	t.Parts = nil
	var h heard // computed only if members are left
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

// heard returns the texts of the parts.
func (r *Reading) heard() heard {
	h := make(heard)
	h[r.Turn.Model], h[r.Turn.Response] = true, true
	for _, p := range r.Turn.Parts {
		h.hear(p.Text)
		h[p.Name], h[p.ID], h[p.Media] = true, true, true
	}
	return h
}

// Result adds the result of a tool. Text in its blocks becomes the text of the result; its images and files follow as
// parts.
func (r *Reading) Result(p Part, raw json.RawMessage) {
	p.Kind = Result
	raw = r.unwrap(&p, raw)
	list, ok := listOf(raw)
	if !ok || !areBlocks(list) || r.depth == maxDepth {
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

// unwrap removes the description of a result's kind, as in {type, value}.
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
