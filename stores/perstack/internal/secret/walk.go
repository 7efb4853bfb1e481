package secret

import (
	"strconv"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// walker goes through a value that has passed rawjson.Check, in its order. Names that occur
// twice are two members.
type walker struct {
	b       []byte
	i       int
	path    []string // of where it is: names, and numbers of elements
	name    func()   // is called for each member, with its name the end of path
	literal func(r rule, from, to int)
}

// value passes a value, with what is in it.
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

// leave ends a member or an element, with the comma behind it.
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

// endOf returns the place behind a string, a number, true, false or null.
func endOf(b []byte, i int) int {
	if b[i] == '"' {
		return rawjson.StringEnd(b, i)
	}
	for i < len(b) && strings.IndexByte(",]} \t\r\n", b[i]) < 0 {
		i++
	}
	return i
}

// textOf decodes a string. One with half a surrogate pair is what stands between its quotes.
func textOf(token []byte) string {
	text, err := rawjson.String(token)
	if err != nil {
		return string(token[1 : len(token)-1])
	}
	return text
}

// pointer spells a path as a JSON pointer. A name that looks like a key is a *.
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
