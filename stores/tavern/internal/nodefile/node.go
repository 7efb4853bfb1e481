package nodefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tallylog/tally/stores/tavern/internal/frontmatter"
)

// Node is the contents of an agent's file.
type Node struct {
	ID         string // a UUID, in the file's spelling
	Name       string
	State      string
	CreatedAt  string // "": not set
	UpdatedAt  string
	Assignment string // lines end in \n
	Servitor   bool   // it is a servitor's file

	Commitments []Commitment
}

// Commitment is a promise of an agent, with the command that shows whether it is kept.
type Commitment struct {
	ID          string
	Description string // one line
	Assertion   string // one line, which may be empty
	Status      string
	Failure     string // why it failed; lines end in \n
}

// Statuses of commitments.
const (
	Pending   = "pending"
	Verifying = "verifying"
	Passed    = "passed"
	Failed    = "failed"
)

// idle is the state of an agent whose file has none.
const idle = "idle"

// signs are the statuses as in the file, in the order in which the original tries them.
var signs = []struct{ status, sign string }{{Pending, "⏳"}, {Verifying, "🔄"}, {Passed, "✅"}, {Failed, "❌"}}

func signOf(status string) (string, bool) {
	i := slices.IndexFunc(signs, func(s struct{ status, sign string }) bool { return s.status == status })
	if i < 0 {
		return "", false
	}
	return signs[i].sign, true
}

// An Error reports what an agent's file lacks, or what cannot be written into it.
type Error struct {
	Field  string // id, title, state, assignment, commitment ...
	Reason string
}

func (e *Error) Error() string { return "agent node: " + e.Field + ": " + e.Reason }

// keys are the names of keys in a file.
type keys struct{ name, created, updated string }

var (
	nodeKeys     = keys{"title", "createdAt", "updatedAt"}
	servitorKeys = keys{"name", "created_at", "updated_at"}
)

// Parse parses an agent's file. If the id is not a UUID, or the title or state is missing, the error is an *Error with
// that field.
func Parse(text []byte) (Node, error) {
	f, err := read(text)
	return f.node, err
}

// read parses an agent's file with the positions of its parts.
func read(text []byte) (file, error) {
	f := file{text: text, view: frontmatter.Read(text)}
	if err := f.readKeys(); err != nil {
		return f, err
	}
	f.readBody()
	return f, nil
}

func (f *file) readKeys() error {
	n := &f.node
	id, ok := f.view.Get("id")
	if !ok {
		return &Error{"id", "missing"}
	}
	if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
		return &Error{"id", "not a UUID"}
	}
	n.ID = id
	_, titled := f.view.Get(nodeKeys.name)
	_, named := f.view.Get(servitorKeys.name)
	switch {
	case titled:
		f.keys = nodeKeys
	case named:
		f.keys, n.Servitor = servitorKeys, true
	default:
		return &Error{nodeKeys.name, "missing"}
	}
	n.Name, n.CreatedAt, n.UpdatedAt = f.get(f.keys.name), f.get(f.keys.created), f.get(f.keys.updated)
	if n.State, ok = f.view.Get("state"); !ok && !n.Servitor {
		return &Error{"state", "missing"}
	} else if !ok {
		n.State = idle
	}
	if n.Servitor {
		n.Assignment = f.get("assignment")
	}
	return nil
}

// get returns the value of a key, or "".
func (f *file) get(key string) string {
	field, _ := f.view.Field(key)
	if f.node.Servitor {
		return unescape(field.Raw)
	}
	return field.Value
}

// unescape decodes a value in the later version's spelling.
func unescape(raw string) string {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return raw
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(raw[1 : len(raw)-1])
}

// escape is the inverse of unescape.
func escape(value string) string {
	if value == strings.TrimSpace(value) && value != "" && !strings.ContainsAny(value, ":{}[]|>&*!#%@`'\",?\\\n") {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value) + `"`
}

// derive assigns ids to commitments that have no written id, or that of an earlier one.
func (f *file) derive() {
	agent := uuid.MustParse(f.node.ID) // readKeys has checked it
	taken := make(map[string]bool)
	for i := range f.items {
		if id := f.items[i].written; id != "" && !taken[id] {
			f.node.Commitments[i].ID, taken[id] = id, true
		}
	}
	seen := make(map[string]int)
	for i := range f.node.Commitments {
		c := &f.node.Commitments[i]
		if c.ID != "" {
			continue
		}
		said := fmt.Sprintf("%d:%s,%s", len(c.Description), c.Description, c.Assertion)
		for n := seen[said]; ; n++ {
			if c.ID = uuid.NewSHA1(agent, fmt.Appendf(nil, "%s,%d", said, n)).String(); !taken[c.ID] {
				seen[said], taken[c.ID] = n+1, true
				break
			}
		}
	}
}
