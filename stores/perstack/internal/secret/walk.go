package secret

import (
	"strconv"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// walker walks through a value that has passed rawjson.Check, in order. A repeated name is another member.
type walker struct {
	b       []byte
	i       int
	path    []string // of the present position: names, and numbers of elements
	name    func()   // called for each member, whose name is the end of path
	literal func(r rule, from, to int)
}

// value walks through a value.
func (w *walker) value(r rule) {
	w.space()
	switch w.b[w.i] {
	case '{':
		w.object(r)
	case '[':
		w.array(r)
	default:
		from := w.i
		w.i = endOf(w.b, from)
		w.literal(r, from, w.i)
	}
	w.space()
}

func (w *walker) object(r rule) {
	w.i++
	for w.space(); w.b[w.i] != '}'; {
		from := w.i
		w.i = endOf(w.b, from)
		w.path = append(w.path, textOf(w.b[from:w.i]))
		w.name()
		w.space()
		w.i++ // the colon
		w.value(below(r, w.path, w.path[len(w.path)-1]))
		w.leave()
	}
	w.i++
}

func (w *walker) array(r rule) {
	w.i++
	w.space()
	for n := 0; w.b[w.i] != ']'; n++ {
		w.path = append(w.path, strconv.Itoa(n))
		w.value(within(r, w.path, n))
		w.leave()
	}
	w.i++
}

// leave ends a member or an element, with the comma after it.
func (w *walker) leave() {
	w.path = w.path[:len(w.path)-1]
	if w.b[w.i] == ',' {
		w.i++
		w.space()
	}
}

func (w *walker) space() {
	for w.i < len(w.b) && strings.IndexByte(" \t\r\n", w.b[w.i]) >= 0 {
		w.i++
	}
}

// endOf returns the offset after a string, a number, true, false or null.
func endOf(b []byte, i int) int {
	if b[i] == '"' {
		return rawjson.StringEnd(b, i)
	}
	for i < len(b) && strings.IndexByte(",]} \t\r\n", b[i]) < 0 {
		i++
	}
	return i
}

// textOf decodes a string. If it has half a surrogate pair, textOf returns the bytes between its quotes.
func textOf(token []byte) string {
	text, err := rawjson.String(token)
	if err != nil {
		return string(token[1 : len(token)-1])
	}
	return text
}

// pointer returns a path as a JSON pointer. A name that looks like a key becomes a *.
func pointer(path []string) string {
	var b strings.Builder
	for _, name := range path {
		if looksLikeKey(name) {
			name = "*"
		}
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}
