package nodefile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/tallylog/tally/stores/tavern/internal/frontmatter"
)

// New returns the file of a node, as the original writes it, with the ids of the commitments. If a value could not be
// read back, the error is an *Error.
func New(n Node) ([]byte, error) {
	d := frontmatter.Document{Title: n.Name, Titled: true, Fields: map[string]string{"id": n.ID, "state": n.State}}
	if n.CreatedAt != "" {
		d.Fields[nodeKeys.created] = n.CreatedAt
	}
	if n.UpdatedAt != "" {
		d.Fields[nodeKeys.updated] = n.UpdatedAt
	}
	if text := clean(n.Assignment); text != "" {
		d.Body = assignmentHeader + "\n\n" + text + "\n"
	}
	text, err := frontmatter.Render(d)
	if err != nil {
		return nil, asError(err)
	}
	return Edit(text, n)
}

// splices are replacements of ranges of a text. The ranges do not overlap.
type splices []splice

type splice struct {
	span
	with string
}

func (s *splices) add(at span, with string) { *s = append(*s, splice{at, with}) }

// apply makes the replacements. Those at one offset are written in the order in which they were added.
func (s splices) apply(text []byte) []byte {
	if len(s) == 0 {
		return text
	}
	slices.SortStableFunc(s, func(a, b splice) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, c := range s {
		out = append(append(out, text[at:c.from]...), c.with...)
		at = c.to
	}
	return append(out, text[at:]...)
}

// editKeys changes the front matter.
func editKeys(text []byte, want Node) ([]byte, error) {
	f, err := read(text)
	if err != nil {
		return nil, err
	}
	have := f.node
	if have.ID != want.ID || have.Servitor != want.Servitor {
		return nil, &Error{"id", fmt.Sprintf("the file belongs to %s", have.ID)}
	}
	for _, c := range []struct{ key, have, want string }{
		{f.keys.name, have.Name, want.Name}, {"state", have.State, want.State},
		{f.keys.created, have.CreatedAt, want.CreatedAt}, {f.keys.updated, have.UpdatedAt, want.UpdatedAt},
	} {
		if c.have == c.want {
			continue
		}
		if text, err = setKey(text, c.key, c.want, want.Servitor); err != nil {
			return nil, err
		}
	}
	if want.Servitor && have.Assignment != want.Assignment {
		return setKey(text, "assignment", want.Assignment, true)
	}
	return text, nil
}

func setKey(text []byte, key, value string, servitor bool) (out []byte, err error) {
	if v := frontmatter.Read(text); servitor {
		out, err = v.SetRaw(key, escape(value))
	} else {
		out, err = v.Set(key, value)
	}
	return out, asError(err)
}

// asError returns an error about a key as an *Error about a field.
func asError(err error) error {
	if e, ok := err.(*frontmatter.Error); ok {
		return &Error{e.Key, e.Reason}
	}
	return err
}

// editAssignment changes the text of the assignment.
func (f *file) editAssignment(want string) ([]byte, error) {
	if f.node.Servitor || f.node.Assignment == want {
		return f.text, nil
	}
	for said := range strings.SplitSeq(want, "\n") {
		if strings.HasPrefix(said, "## ") {
			return nil, &Error{"assignment", fmt.Sprintf("the line %q would begin another section", said)}
		}
	}
	eol := f.view.EOL()
	text := strings.ReplaceAll(want, "\n", eol)
	s := splices{}
	switch at := f.assignment.body; {
	case !f.assignment.there:
		said := f.gap(f.first) + assignmentHeader + eol + eol + text + eol
		if f.first < len(f.text) {
			said += eol
		}
		s.add(span{f.first, f.first}, said)
	case at.from == at.to:
		s.add(at, f.newline(at.from)+eol+text+eol)
	default:
		s.add(at, text)
	}
	return s.apply(f.text), nil
}

// gap returns the text between a section and the text before it.
func (f *file) gap(at int) string {
	if at == 0 || at == f.view.Body() && !f.view.Has() {
		return ""
	}
	return f.newline(at) + f.view.EOL()
}

// newline returns a line break if the line before an offset has none.
func (f *file) newline(at int) string {
	if at == 0 || f.text[at-1] == '\n' {
		return ""
	}
	return f.view.EOL()
}

// editCommitments changes the commitments to the wanted ones: some of the present ones, in their order, and new ones.
func (f *file) editCommitments(want []Commitment) ([]byte, error) {
	s, there := splices{}, make(map[string]bool)
	byID := make(map[string]Commitment, len(want))
	for _, c := range want {
		byID[c.ID] = c
	}
	for i, have := range f.node.Commitments {
		c, wanted := byID[have.ID]
		there[have.ID] = true
		if !wanted {
			for _, own := range f.items[i].lines {
				s.add(own, "")
			}
			continue
		}
		if err := f.editItem(&s, f.items[i], have, c); err != nil {
			return nil, err
		}
	}
	left := slices.DeleteFunc(slices.Clone(want), func(c Commitment) bool { return there[c.ID] })
	if len(left) == 0 {
		return s.apply(f.text), nil
	}
	var text strings.Builder
	for _, c := range left {
		said, err := f.spell(c)
		if err != nil {
			return nil, err
		}
		text.WriteString(said)
	}
	at, before := f.insertionPoint()
	s.add(span{at, at}, before+text.String())
	return s.apply(f.text), nil
}

// insertionPoint returns the offset for new commitments, and the text before them.
func (f *file) insertionPoint() (at int, before string) {
	eol := f.view.EOL()
	if !f.section.there {
		at = len(f.text)
		return at, f.gap(at) + commitmentsHeader + eol + eol
	}
	for _, it := range f.items {
		if it.end > f.section.head {
			at = it.end
		}
	}
	if at > 0 {
		return at, f.newline(at)
	}
	at = f.section.head
	for l := range lines(f.text, f.section.head) {
		if l.to >= f.section.body.to {
			if f.section.body.from < f.section.body.to {
				at = l.next
			}
			break
		}
	}
	return at, f.newline(at) + eol
}

// editItem replaces the parts of a commitment that differ.
func (f *file) editItem(s *splices, it item, have, want Commitment) error {
	if err := check(want); err != nil {
		return err
	}
	if sign, _ := signOf(want.Status); have.Status != want.Status {
		if it.status.from == it.status.to {
			sign += " "
		}
		s.add(it.status, sign)
	}
	if have.Description != want.Description {
		s.add(it.text, want.Description)
	}
	if have.Assertion != want.Assertion {
		s.add(it.assertion, want.Assertion)
	}
	if have.Failure == want.Failure {
		return nil
	}
	said := f.failure(want.Failure)
	for i, at := range it.failed {
		if i == len(it.failed)-1 {
			s.add(at, said)
		} else {
			s.add(at, "")
		}
	}
	if len(it.failed) == 0 {
		s.add(span{it.bound, it.bound}, f.newline(it.bound)+said)
	}
	return nil
}

// spell returns the lines of a new commitment, without its id.
func (f *file) spell(c Commitment) (string, error) {
	if err := check(c); err != nil {
		return "", err
	}
	sign, _ := signOf(c.Status)
	eol := f.view.EOL()
	text := "- " + sign + " " + bold + c.Description + bold + eol + "  " + assertionMark + " `" + c.Assertion + "`" + eol
	return text + f.failure(c.Failure), nil
}

func idLine(id string) string { return "  " + idMark + " " + id }

// failure returns the lines with the cause of a failed commitment.
func (f *file) failure(text string) string {
	if text == "" {
		return ""
	}
	eol := f.view.EOL()
	first, more, several := strings.Cut(text, "\n")
	said := "  " + failedMark + " " + first + eol
	if !several {
		return said
	}
	for l := range strings.SplitSeq(more, "\n") {
		if l != "" {
			l = " " + l
		}
		said += moreMark + l + eol
	}
	return said
}

// check refuses a commitment that cannot be written.
func check(c Commitment) error {
	_, known := signOf(c.Status)
	switch {
	case !known:
		return &Error{"commitment", fmt.Sprintf("%q is not a status", c.Status)}
	case strings.ContainsAny(c.Description+c.Assertion+c.ID, "\n\r"):
		return &Error{"commitment", "id, description and assertion are one line each"}
	case c.Description == "" || strings.Contains(c.Description, bold):
		return &Error{"commitment", "a description is not empty, and has no ** in it"}
	case c.ID == "" || strings.TrimSpace(c.ID) != c.ID:
		return &Error{"commitment", fmt.Sprintf("%q is not an id", c.ID)}
	}
	return nil
}

// writeIDs writes the ids that do not follow from the file.
func (f *file) writeIDs(want []Commitment) []byte {
	s := splices{}
	for i, c := range f.node.Commitments {
		if i >= len(want) || c.ID == want[i].ID {
			continue
		}
		it := f.items[i]
		s.add(span{it.end, it.end}, f.newline(it.end)+idLine(want[i].ID)+f.view.EOL())
	}
	return s.apply(f.text)
}

// clean returns a text as the file stores it: without surrounding white space and white space at line ends, with lines
// that end in \n.
func clean(text string) string {
	text = strings.TrimSpace(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text))
	if !strings.Contains(text, "\n") {
		return text
	}
	list := strings.Split(text, "\n")
	for i := range list {
		list[i] = strings.TrimRightFunc(list[i], unicode.IsSpace)
	}
	return strings.Join(list, "\n")
}

// same reports whether two nodes are equal.
func same(a, b Node) bool {
	if len(a.Commitments)+len(b.Commitments) == 0 {
		a.Commitments, b.Commitments = nil, nil
	}
	return reflect.DeepEqual(a, b)
}
