package record

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// hooksIn returns a JSON file with hooks as Claude Code and others have them: {"hooks": {EVENT: [{"hooks":
// [HANDLER...]}...]...}}. In the handler $ stands for the command.
func hooksIn(path, agent, handler string, events ...string) settings {
	return settings{
		path: path,
		add: func(text []byte, program string) ([]byte, string, error) {
			command := rawjson.AppendString(nil, shellWord(program)+" hook "+agent)
			to, err := addHooks(text, []byte(strings.Replace(handler, "$", string(command), 1)), events)
			return to, "", err
		},
		cut: cutHooks,
	}
}

// ours matches a command that calls tally hook.
var ours = regexp.MustCompile(`(^|[/\\'"])tally(\.exe)?['"]? hook( |$)`)

// addHooks adds a handler to the events without a handler of tally. All other bytes stay.
func addHooks(text, handler []byte, events []string) ([]byte, error) {
	if len(rawjson.Trim(text)) == 0 {
		text = []byte("{}\n")
	}
	if err := rawjson.Check(text); err != nil {
		return nil, placed(text, err)
	}
	e := newEditor(text)
	root := e.root()
	if !e.is(root, '{') {
		return nil, errors.New("is not a JSON object")
	}
	if _, ok := e.child(root, "hooks"); !ok {
		e.insert(root, 1, "hooks", []byte("{}"))
	}
	for _, event := range events {
		hooks, _ := e.child(e.root(), "hooks")
		if !e.is(hooks, '{') {
			return nil, errors.New("\"hooks\" is not an object")
		}
		list, ok := e.child(hooks, event)
		switch {
		case !ok:
			e.insert(hooks, 2, event, fmt.Appendf(nil, `[{"hooks":[%s]}]`, handler))
		case !e.is(list, '['):
			return nil, fmt.Errorf("the hooks of %s are not a list", event)
		case !e.hasOurs(list):
			e.insert(list, 3, "", fmt.Appendf(nil, `{"hooks":[%s]}`, handler))
		}
	}
	return e.text, rawjson.Check(e.text)
}

// cutHooks removes tally's handlers, and lists and objects that are empty afterwards.
func cutHooks(text []byte) ([]byte, error) {
	if len(rawjson.Trim(text)) == 0 {
		return text, nil
	}
	if err := rawjson.Check(text); err != nil {
		return nil, placed(text, err)
	}
	e := newEditor(text)
	for e.cutOne() {
	}
	return e.text, rawjson.Check(e.text)
}

// cutOne removes one handler, and reports whether it found one.
func (e *editor) cutOne() bool {
	hooks, _ := e.child(e.root(), "hooks")
	for _, event := range e.children(hooks) {
		for _, group := range e.children(event) {
			handlers, _ := e.child(group, "hooks")
			for _, h := range e.children(handlers) {
				if !e.isOurs(h) {
					continue
				}
				e.cut(e.root(), hooks, event, group, handlers, h)
				return true
			}
		}
	}
	return false
}

// hasOurs reports whether a list of groups has a handler of tally.
func (e *editor) hasOurs(list node) bool {
	for _, group := range e.children(list) {
		handlers, _ := e.child(group, "hooks")
		for _, h := range e.children(handlers) {
			if e.isOurs(h) {
				return true
			}
		}
	}
	return false
}

func (e *editor) isOurs(handler node) bool {
	m, err := rawjson.Object(e.text[handler.value:handler.end])
	return err == nil && ours.MatchString(m.Text("command"))
}

// An editor changes parts of a JSON text and keeps all other bytes.
type editor struct {
	text   []byte
	indent string
	eol    string
}

// node is a value, with its name if it is a member: the bytes from start up to end.
type node struct{ start, value, end int }

func newEditor(text []byte) *editor {
	e := &editor{text: bytes.Clone(text), indent: "  ", eol: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		e.eol = "\r\n"
	}
	if m := firstIndent.FindSubmatch(text); m != nil {
		e.indent = string(m[1])
	}
	return e
}

var firstIndent = regexp.MustCompile(`^\s*\{[ \t]*\r?\n([ \t]+)"`)

func (e *editor) root() node {
	from := len(e.text) - len(bytes.TrimLeft(e.text, " \t\r\n"))
	return node{from, from, len(bytes.TrimRight(e.text, " \t\r\n"))}
}

// is reports whether a node is an object ({) or a list ([).
func (e *editor) is(n node, open byte) bool { return n.end > n.value && e.text[n.value] == open }

// children lists the members or elements of a node.
func (e *editor) children(n node) (list []node) {
	if !e.is(n, '{') && !e.is(n, '[') {
		return nil
	}
	isObject, depth := e.is(n, '{'), 0
	c := node{start: -1}
	end := func(i int) {
		if c.start >= 0 {
			c.end = len(bytes.TrimRight(e.text[:i], " \t\r\n"))
			list = append(list, c)
		}
		c = node{start: -1}
	}
	named := false
	for i := n.value + 1; i < n.end; i++ {
		b := e.text[i]
		switch {
		case b == ' ' || b == '\t' || b == '\r' || b == '\n':
			continue
		case depth == 0 && (b == ',' || i == n.end-1):
			end(i)
			named = false
			continue
		case depth == 0 && isObject && b == ':' && !named:
			named = true
			c.value = -1
			continue
		}
		if c.start < 0 {
			c.start, c.value = i, i
		}
		if c.value < 0 {
			c.value = i
		}
		switch b {
		case '"':
			i = rawjson.StringEnd(e.text, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}
	return list
}

// child returns a member of an object.
func (e *editor) child(n node, name string) (node, bool) {
	if !e.is(n, '{') {
		return node{}, false
	}
	for _, c := range e.children(n) {
		if got, err := rawjson.String(e.text[c.start:rawjson.StringEnd(e.text, c.start)]); err == nil && got == name {
			return c, true
		}
	}
	return node{}, false
}

// insert adds a value after the last child of a node, in the same style.
func (e *editor) insert(n node, depth int, name string, value []byte) {
	inside := e.text[n.value+1 : n.end-1]
	at := n.value + 1 + len(bytes.TrimRight(inside, " \t\r\n"))
	isEmpty := len(rawjson.Trim(inside)) == 0
	isOneLine := !isEmpty && !bytes.Contains(inside, []byte("\n"))
	var item []byte
	switch {
	case isOneLine:
		item = append(item, ", "...)
	case !isEmpty:
		item = append(item, ',')
		fallthrough
	default:
		item = append(item, "\n"+strings.Repeat(e.indent, depth)...)
	}
	if name != "" {
		item = append(rawjson.AppendString(item, name), ": "...)
	}
	if isOneLine {
		item = rawjson.AppendCompact(item, value)
	} else {
		item = rawjson.AppendIndentAt(item, value, e.indent, depth)
	}
	if isEmpty {
		item = append(item, "\n"+strings.Repeat(e.indent, depth-1)...)
	}
	item = bytes.ReplaceAll(item, []byte("\n"), []byte(e.eol))
	rest := e.text[at:]
	if isEmpty {
		rest = e.text[n.end-1:]
	}
	e.text = append(append(e.text[:at:at], item...), rest...)
}

// cut removes the last of nested nodes, and the nodes around it that have no other child, except for the first.
func (e *editor) cut(path ...node) {
	last := len(path) - 1
	for last > 1 && e.isAlone(path[last-1]) {
		last--
	}
	n := path[last]
	from, to := n.start, n.end
	siblings := e.children(path[last-1])
	switch {
	case len(siblings) == 1:
		from, to = path[last-1].value+1, path[last-1].end-1
	case siblings[0].start == n.start:
		to = siblings[1].start
	default:
		from = bytes.LastIndexByte(e.text[:from], ',')
	}
	e.text = append(e.text[:from:from], e.text[to:]...)
}

// isAlone reports whether a node has one child, or is a group with a matcher and one handler.
func (e *editor) isAlone(n node) bool {
	list := e.children(n)
	if len(list) != 2 {
		return len(list) == 1
	}
	_, hasMatcher := e.child(n, "matcher")
	_, hasHooks := e.child(n, "hooks")
	return hasMatcher && hasHooks
}

// placed adds the line to an error about a JSON text.
func placed(text []byte, err error) error {
	bad, ok := errors.AsType[*rawjson.SyntaxError](err)
	if !ok {
		return err
	}
	at := min(max(int(bad.Offset), 0), len(text))
	return fmt.Errorf("line %d is not JSON: %s", 1+bytes.Count(text[:at], []byte("\n")), bad.Reason)
}
