package prices

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Error reports an invalid line of a table.
type Error struct {
	Line   int    // from 1
	Field  string // "" if the line is invalid JSON
	Reason string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Field, e.Reason)
}

// entry is a row of a file of prices.
type entry struct {
	Models []string `json:"models"`
	Price
	Unknown rawjson.Members `json:",unknown"`
}

// Parse reads a table: {"prices": [{"models": ["name", "name-*"], "from": "2026-03-01", "upTo": 200000, "speed":
// "fast", "input": "1.25", "output": "10", "cacheRead": "0.125", "cacheWrite": "1.25", "cacheWrite1h": "2",
// "webSearch": "10", "regions": {"us": "1.1"}, "tiers": {"batch": "0.5"}, "source": "where", "checked":
// "2026-03-02"}]}.
//
// Prices are USD for a million tokens, or for a thousand searches. Regions and tiers are factors. Models, input and
// output are required. An entry without a source gets the given one. Unknown members are errors. All errors are *Error.
func Parse(data []byte, source string) (Table, error) {
	members, err := rawjson.Object(data)
	if err != nil {
		return Table{}, errorAt(data, 0, err)
	}
	list, ok := members.Get("prices")
	if !ok || len(members) != 1 {
		return Table{}, &Error{1, "", `want {"prices": [...]} and nothing beside it`}
	}
	at := bytes.Index(data, list)
	entries, err := rawjson.Array(list)
	if err != nil {
		return Table{}, &Error{lineOf(data, at), "prices", err.Error()}
	}
	var layer []edition
	for _, raw := range entries {
		at += bytes.Index(data[at:], raw)
		e, err := readEntry(raw, source)
		if err != nil {
			return Table{}, errorAt(data, at+offsetIn(raw, err), err)
		}
		layer = append(layer, e)
		at += len(raw)
	}
	return Table{[][]edition{layer}}, nil
}

// readEntry reads an entry. Its error is a *rawjson.FieldError.
func readEntry(raw []byte, source string) (edition, error) {
	e := entry{Price: Price{Source: source}}
	if err := rawjson.Unmarshal(raw, &e); err != nil {
		return edition{}, err
	}
	if err := e.check(); err != nil {
		return edition{}, err
	}
	if e.Speed == "standard" {
		e.Speed = ""
	}
	return edition{e.Models, e.Price}, nil
}

func (e *entry) check() error {
	if len(e.Unknown) > 0 {
		return &rawjson.FieldError{Path: e.Unknown[0].Name, Reason: "there is no such member"}
	}
	if len(e.Models) == 0 {
		return &rawjson.FieldError{Path: "models", Reason: "missing: want names of models"}
	}
	for _, name := range e.Models {
		if name == "" {
			return &rawjson.FieldError{Path: "models", Reason: "a name is empty"}
		}
	}
	if e.UpTo < 0 {
		return &rawjson.FieldError{Path: "upTo", Reason: fmt.Sprintf("%d is negative", e.UpTo)}
	}
	for _, day := range []struct{ name, text string }{{"from", e.From}, {"checked", e.Checked}} {
		if _, err := time.Parse(time.DateOnly, day.text); day.text != "" && err != nil {
			return &rawjson.FieldError{Path: day.name, Reason: fmt.Sprintf("%q is not a day such as 2026-03-01", day.text)}
		}
	}
	return e.checkPrices()
}

func (e *entry) checkPrices() error {
	for _, p := range []struct {
		name     string
		price    events.Amount
		required bool
	}{{"input", e.Input, true}, {"output", e.Output, true}, {"cacheRead", e.CacheRead, false}, {"cacheWrite", e.CacheWrite, false},
		{"cacheWrite1h", e.CacheWrite1h, false}, {"webSearch", e.WebSearch, false}} {
		if p.price == "" && !p.required {
			continue
		}
		if p.price == "" {
			return &rawjson.FieldError{Path: p.name, Reason: "missing"}
		}
		if err := checkAmount(p.name, p.price); err != nil {
			return err
		}
	}
	if err := checkFactors("regions", e.Regions); err != nil {
		return err
	}
	return checkFactors("tiers", e.Tiers)
}

// checkFactors checks a list of factors by name.
func checkFactors(member string, factors map[string]events.Amount) error {
	for _, name := range slices.Sorted(maps.Keys(factors)) {
		if err := checkAmount(member, factors[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkAmount(member string, a events.Amount) error {
	if _, ok := a.Rat(); !ok || a[0] == '-' {
		return &rawjson.FieldError{Path: member, Reason: fmt.Sprintf("%q is not an amount such as 0.5", string(a))}
	}
	return nil
}

// offsetIn returns the offset within an entry of the member that an error names, or 0.
func offsetIn(raw []byte, err error) int {
	f, ok := errors.AsType[*rawjson.FieldError](err)
	if !ok || f.Path == "" {
		return 0
	}
	name, _, _ := strings.Cut(f.Path, "[")
	return max(0, bytes.Index(raw, rawjson.AppendString(nil, name)))
}

// errorAt converts an error about the text at an offset of the data to an *Error.
func errorAt(data []byte, at int, err error) error {
	if s, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		return &Error{lineOf(data, at+int(s.Offset)), "", s.Reason}
	}
	f, ok := errors.AsType[*rawjson.FieldError](err)
	if !ok {
		return &Error{lineOf(data, at), "", err.Error()}
	}
	reason := f.Reason
	if strings.HasSuffix(reason, "want a string, have a number") {
		reason += `; write it as a text, such as "0.5"`
	}
	return &Error{lineOf(data, at), f.Path, reason}
}

// lineOf returns the number of the line in which a byte is.
func lineOf(data []byte, at int) int { return 1 + bytes.Count(data[:min(at, len(data))], []byte("\n")) }
