package flow

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// MaxName bounds the name of a state, in bytes.
const MaxName = 256

// maxTemplateID leaves room for the rest of a subject's id.
const maxTemplateID = events.MaxIDLen

// Parse parses a template. An error is an *events.InvalidError: Field is "data" and the JSON pointer of the fault, and
// Reason begins with its line. Parse takes time in proportion to the template's size.
func Parse(data []byte) (*Template, error) {
	t, err := parse(data)
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return nil, located(data, err)
	}
	return t, nil
}

// A fault is an error at a position of a template.
type fault struct {
	at     string // JSON pointer
	reason string
}

func (f *fault) Error() string { return f.at + ": " + f.reason }

func wrong(at, format string, args ...any) error { return &fault{at, fmt.Sprintf(format, args...)} }

// located adds the line to a fault.
func located(data []byte, err error) error {
	var syntax *rawjson.SyntaxError
	if errors.As(err, &syntax) {
		return &events.InvalidError{Field: "data", Reason: fmt.Sprintf("line %d: %s", lineOf(data, int(syntax.Offset)), syntax.Reason)}
	}
	var f *fault
	if !errors.As(err, &f) {
		return &events.InvalidError{Field: "data", Reason: err.Error()}
	}
	at := f.at
	from, _, err := rawjson.Locate(data, at)
	for err != nil && at != "" { // a missing value has the position of its parent
		at = at[:strings.LastIndexByte(at, '/')]
		from, _, err = rawjson.Locate(data, at)
	}
	return &events.InvalidError{Field: "data" + printable(at), Reason: fmt.Sprintf("line %d: %s", lineOf(data, from), f.reason)}
}

func lineOf(data []byte, at int) int { return 1 + bytes.Count(data[:min(at, len(data))], []byte("\n")) }

// printable escapes characters that terminals do not show.
func printable(pointer string) string {
	quoted := strconv.Quote(pointer)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// shown returns a name for a reason: quoted, and cut if it is long.
func shown(name string) string {
	if len(name) > MaxName {
		return strconv.Quote(strings.ToValidUTF8(name[:MaxName], "")) + "..."
	}
	return strconv.Quote(name)
}

// below returns the JSON pointer of a member.
func below(at, name string) string {
	return at + "/" + escapes.Replace(name)
}

var escapes = strings.NewReplacer("~", "~0", "/", "~1") // of JSON pointers

func parse(data []byte) (*Template, error) {
	if err := rawjson.Check(data); err != nil {
		return nil, err
	}
	t := &Template{}
	var states rawjson.Members
	fallback := State{Recovery: RuleFail}
	err := members(data, "", func(name, at string, value []byte) (err error) {
		switch name {
		case "title":
			return text(at, value, &t.Title)
		case "description":
			return text(at, value, &t.Description)
		case "initial":
			return text(at, value, &t.Initial)
		case "recovery":
			return recovery(at, value, &fallback)
		case "states":
			states, err = object(at, value)
			return err
		}
		return wrong("", "%s is no member of a workflow: want title, description, initial, recovery, states", shown(name))
	})
	if err != nil {
		return nil, err
	}
	t.States, t.index = make([]State, len(states)), make(map[string]int, len(states))
	for i, m := range states {
		if t.States[i], err = state(m.Name, m.Value, fallback); err != nil {
			return nil, err
		}
		t.index[m.Name] = i
	}
	return t, nil
}

// object parses the members of an object.
func object(at string, value []byte) (rawjson.Members, error) {
	list, err := rawjson.Object(value)
	if err != nil {
		var f *rawjson.FieldError
		if errors.As(err, &f) {
			return nil, wrong(at, "%s", reasonOf(f))
		}
		return nil, err
	}
	return list, nil
}

// reasonOf returns a reason that contains no long name.
func reasonOf(f *rawjson.FieldError) string {
	if len(f.Path) > MaxName {
		return f.Reason
	}
	return strings.TrimPrefix(f.Error(), ": ")
}

// members calls look with each member of an object.
func members(value []byte, at string, look func(name, at string, value []byte) error) error {
	list, err := object(at, value)
	if err != nil {
		return err
	}
	for _, m := range list {
		if err := look(m.Name, below(at, m.Name), m.Value); err != nil {
			return err
		}
	}
	return nil
}

func text(at string, value []byte, to *string) (err error) {
	if *to, err = rawjson.String(value); err != nil {
		return wrong(at, "want a string")
	}
	return nil
}

// state parses a state. Recovery that it does not set is as in fallback.
func state(name string, value []byte, fallback State) (State, error) {
	s := State{Name: name, Recovery: fallback.Recovery, RecoverTo: fallback.RecoverTo, Attempts: fallback.Attempts}
	if s.RecoverTo == name { // the state in which all others recover
		s.Recovery, s.RecoverTo = RuleFail, ""
	}
	at := below("/states", name)
	if name == "" || len(name) > MaxName {
		return s, wrong("/states", "the name of a state has 1 to %d bytes, not %d", MaxName, len(name))
	}
	said := ""
	err := members(value, at, func(member, at string, value []byte) error {
		switch member {
		case "title":
			return text(at, value, &s.Title)
		case "description":
			return text(at, value, &s.Description)
		case "end":
			if s.End = string(value) == "true"; !s.End {
				return wrong(at, "want true, or no member of that name")
			}
			return nil
		}
		said = member
		switch member {
		case "to":
			return names(at, value, &s.To)
		case "flow":
			if err := text(at, value, &s.Flow); err != nil {
				return err
			}
			if n := len(s.Flow); n == 0 || n > maxTemplateID {
				return wrong(at, "the id of a workflow has 1 to %d bytes, not %d", maxTemplateID, n)
			}
			return nil
		case "recovery":
			return recovery(at, value, &s)
		}
		return wrong(below("/states", name), "%s is no member of a state: want title, description, end, to, flow, recovery", shown(member))
	})
	switch {
	case err != nil:
		return s, err
	case s.End && said != "":
		return s, wrong(below(at, said), "an end has no %q: it leads nowhere", said)
	case s.End:
		s.Recovery, s.RecoverTo, s.Attempts = "", "", 0
	case len(s.To) == 0:
		return s, wrong(at, "no way out: want \"to\", or \"end\": true")
	}
	return s, nil
}

func names(at string, value []byte, to *[]string) error {
	list, err := rawjson.Array(value)
	if err != nil {
		return wrong(at, "want a list of states")
	}
	*to = make([]string, len(list))
	for i, v := range list {
		if (*to)[i], err = rawjson.String(v); err != nil {
			return wrong(below(at, strconv.Itoa(i)), "want a string")
		}
	}
	return nil
}

const wantRecovery = `want "restart", "fail", {"restart": 5} or {"state": "name"}`

// recovery parses a rule of recovery.
func recovery(at string, value []byte, s *State) error {
	s.Recovery, s.RecoverTo, s.Attempts = "", "", 0
	if word, err := rawjson.String(value); err == nil {
		switch word {
		case RuleRestart:
			s.Attempts = DefaultAttempts
		case RuleFail:
		default:
			return wrong(at, "%s", wantRecovery)
		}
		s.Recovery = word
		return nil
	}
	list, err := object(at, value)
	if err != nil || len(list) != 1 {
		return wrong(at, "%s", wantRecovery)
	}
	s.Recovery = list[0].Name
	switch at := below(at, s.Recovery); s.Recovery {
	case RuleState:
		return text(at, list[0].Value, &s.RecoverTo)
	case RuleRestart:
		n, err := strconv.Atoi(string(list[0].Value))
		if err != nil || n < 1 || n > 1_000_000 {
			return wrong(at, "want how often the step is tried, 1 to 1000000")
		}
		s.Attempts = n
		return nil
	}
	return wrong(at, "%s", wantRecovery)
}

// recoveryPointer returns the pointer of a state's recovery: its own, or the template's.
func (t *Template) recoveryPointer(s *State) string {
	return below(below("/states", s.Name), "recovery")
}

// check refuses templates that cannot work.
func (t *Template) check() error {
	switch {
	case len(t.States) == 0:
		return wrong("", "no states")
	case t.Initial == "":
		return wrong("", "no initial state")
	case t.State(t.Initial) == nil:
		return wrong("/initial", "there is no state %s", shown(t.Initial))
	case !slices.ContainsFunc(t.States, func(s State) bool { return s.End }):
		return wrong("/states", "no state is an end: no flow of this workflow would ever be over")
	}
	g, err := t.graph()
	if err != nil {
		return err
	}
	return g.check()
}
