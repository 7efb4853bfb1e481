package shape

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// maxWhole is the largest number that every language represents exactly.
const maxWhole = 1<<53 - 1

// A rule checks a value. It returns an *events.InvalidError for the first violation.
type rule func(at string, raw events.Raw) error

// member is a member of an object in the schema.
type member struct {
	name     string
	optional bool // it may be missing, but not null, as in the original
	rule     rule
}

func must(name string, r rule) member { return member{name: name, rule: r} }
func may(name string, r rule) member  { return member{name: name, optional: true, rule: r} }

func invalid(at, format string, args ...any) error {
	return &events.InvalidError{Field: at, Reason: fmt.Sprintf(format, args...)}
}

// object is an object with these members and any others.
func object(members ...member) rule {
	return func(at string, raw events.Raw) error {
		have, err := rawjson.Object(raw)
		if err != nil {
			return invalid(at, "%v", err)
		}
		for _, m := range members {
			value, ok := have.Get(m.name)
			switch {
			case ok:
				err = m.rule(at+"."+m.name, value)
			case !m.optional:
				err = invalid(at+"."+m.name, "missing")
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// list is an array whose elements satisfy a rule.
func list(of rule) rule {
	return func(at string, raw events.Raw) error {
		elems, err := rawjson.Array(raw)
		if err != nil {
			return invalid(at, "%v", err)
		}
		for i, e := range elems {
			if err := of(fmt.Sprintf("%s[%d]", at, i), e); err != nil {
				return err
			}
		}
		return nil
	}
}

// each is an object whose values satisfy a rule.
func each(of rule) rule {
	return func(at string, raw events.Raw) error {
		have, err := rawjson.Object(raw)
		if err != nil {
			return invalid(at, "%v", err)
		}
		for _, m := range have {
			if err := of(fmt.Sprintf("%s[%q]", at, m.Name), m.Value); err != nil {
				return err
			}
		}
		return nil
	}
}

// text is a JSON string, also one with half a surrogate pair, which Go cannot represent.
func text(at string, raw events.Raw) error {
	if len(raw) == 0 || raw[0] != '"' {
		return invalid(at, "want a string")
	}
	return nil
}

// id is a string that is not empty.
func id(at string, raw events.Raw) error {
	if s, err := rawjson.String(raw); err != nil {
		return invalid(at, "%v", err)
	} else if s == "" {
		return invalid(at, "empty")
	}
	return nil
}

// word is one of a set of strings.
func word(words ...string) rule {
	return func(at string, raw events.Raw) error {
		s, err := rawjson.String(raw)
		if err != nil {
			return invalid(at, "%v", err)
		}
		if !slices.Contains(words, s) {
			return invalid(at, "%.40q: want one of %s", s, strings.Join(words, ", "))
		}
		return nil
	}
}

// count is a whole number from 0 to maxWhole in any spelling, such as 1e3 or 2.0: steps, tokens and times.
func count(at string, raw events.Raw) error {
	if _, ok := Whole(raw); !ok {
		return invalid(at, "want a whole number from 0 to 2^53-1")
	}
	return nil
}

// Whole parses a number by its value, and reports whether count accepts it.
func Whole(raw events.Raw) (int64, bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, n >= 0 && n <= maxWhole
	}
	if number("", raw) != nil {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || f < 0 || f > maxWhole {
		return 0, false
	}
	return int64(f), true
}

// Plain returns an object in which whole numbers of the named members, and of objects in them, are spelled as digits.
func Plain(raw events.Raw, names ...string) (events.Raw, error) {
	m, err := rawjson.Object(raw)
	if err != nil {
		return nil, err
	}
	for _, f := range m {
		if !slices.Contains(names, f.Name) {
			continue
		}
		value := f.Value
		if inner, err := rawjson.Object(value); err == nil {
			var all []string
			for _, g := range inner {
				all = append(all, g.Name)
			}
			if value, err = Plain(value, all...); err != nil {
				return nil, err
			}
		} else if n, ok := Whole(value); ok {
			value = events.Raw(itoa(n))
		}
		if !bytes.Equal(value, f.Value) {
			if raw, err = rawjson.SetMember(raw, f.Name, value); err != nil {
				return nil, err
			}
		}
	}
	return raw, nil
}

func number(at string, raw events.Raw) error {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return invalid(at, "want a number")
	}
	return nil
}

func boolean(at string, raw events.Raw) error {
	if s := string(raw); s != "true" && s != "false" {
		return invalid(at, "want true or false")
	}
	return nil
}

func anything(string, events.Raw) error { return nil }

// wholeOf returns a checked number, or 0 if the member is missing.
func wholeOf(m rawjson.Members, name string) int64 {
	raw, _ := m.Get(name)
	n, _ := Whole(raw)
	return n
}

// parse checks a value against a rule and returns its members.
func parse(what string, raw events.Raw, r rule) (rawjson.Members, error) {
	if err := r(what, raw); err != nil {
		return nil, err
	}
	return rawjson.Object(raw)
}
