package redact

import (
	"sort"
)

// A view is a text after unescaping, with the origin of each byte.
type view struct {
	text   []byte
	turns  []turn
	parent *view // the text before the last unescaping; nil: the original text
	level  int   // number of unescapings
}

// A turn is a position from which the text and its parent's text continue equally. Before it, size bytes of the parent
// were replaced by as bytes of the text.
type turn struct{ text, parent, as, size int }

func plainView(text []byte) view { return view{text: text} }

// begin returns where a byte of the text starts in the original. The end of the text maps to the end of the original.
func (v *view) begin(i int) int {
	for ; v.parent != nil; v = v.parent {
		n := sort.Search(len(v.turns), func(n int) bool { return v.turns[n].text > i }) - 1
		i += v.turns[n].parent - v.turns[n].text
	}
	return i
}

// end returns where the bytes of the text before i end in the original.
func (v *view) end(i int) int {
	for ; v.parent != nil; v = v.parent {
		n := sort.Search(len(v.turns), func(n int) bool { return v.turns[n].text >= i })
		if n < len(v.turns) && v.turns[n].text == i {
			if i = v.turns[n].parent; v.turns[n].as == 0 {
				i -= v.turns[n].size
			}
		} else {
			i += v.turns[n-1].parent - v.turns[n-1].text
		}
	}
	return i
}

// breaks returns the positions where text of the parent was removed.
func (v *view) breaks() (list []int) {
	for _, t := range v.turns {
		if n := len(list); t.as == 0 && t.size > 0 && (n == 0 || list[n-1] != t.text) {
			list = append(list, t.text)
		}
	}
	return list
}

// cuts reports whether a replacement starts inside a span of the parent's text. behind is the end of the replacement
// that contains the start of the span, or -1.
func (v *view) cuts(s span) (inside bool, behind int) {
	n := sort.Search(len(v.turns), func(n int) bool { return v.turns[n].parent > s.from })
	if behind = -1; n == len(v.turns) {
		return false, behind
	}
	at := v.turns[n].parent - v.turns[n].size
	if at >= s.from {
		return at < s.to, behind
	}
	for behind = v.turns[n].parent; n+1 < len(v.turns) && v.turns[n+1].parent-v.turns[n+1].size == behind; n++ {
		behind = v.turns[n+1].parent
	}
	return false, behind
}

// A rewriter derives the text of a view from its parent's text.
type rewriter struct {
	out  view
	done int // number of bytes of the parent's text that are written
}

func rewrite(v view) rewriter { return rewriter{out: view{parent: &v, level: v.level}} }

// put replaces the parent's bytes from i to end.
func (w *rewriter) put(i, end int, as []byte) {
	if w.out.text == nil {
		w.out.text, w.out.turns = make([]byte, 0, len(w.out.parent.text)), []turn{{}}
	}
	w.out.text = append(w.out.text, w.out.parent.text[w.done:i]...)
	w.out.text = append(w.out.text, as...)
	w.done = end
	w.out.turns = append(w.out.turns, turn{len(w.out.text), end, len(as), end - i})
}

// view returns the text, if it differs from its parent's.
func (w *rewriter) view() (v view, other bool) {
	if w.out.text == nil {
		return view{}, false
	}
	w.out.text = append(w.out.text, w.out.parent.text[w.done:]...)
	return w.out, true
}
