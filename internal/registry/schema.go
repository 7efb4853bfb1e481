package registry

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// schemaURL names a schema while it is compiled. Nothing is read there.
const schemaURL = "urn:tally:registered"

// refuse is a loader of schemas that loads nothing.
type refuse struct{}

func (refuse) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s: a schema may refer only to parts of itself", url)
}

// schema is a compiled JSON Schema, and the number of its rules.
type schema struct {
	*jsonschema.Schema
	rules int
}

// compile compiles a JSON Schema. An error is an *events.InvalidError.
func compile(text []byte) (*schema, error) {
	if err := rawjson.Check(text); err != nil {
		return nil, invalid("schema", "%v", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, invalid("schema", "%v", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(refuse{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, invalid("schema", "%v", err)
	}
	compiled, err := c.Compile(schemaURL)
	if bad, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		err = bad.Err
	}
	if err != nil {
		return nil, refusal("schema", err)
	}
	n, err := rules(compiled, make(map[*jsonschema.Schema]int))
	return &schema{compiled, n}, err
}

// Bounds of a check. It takes time in proportion to the rules, counted where they are used, and to the bytes of the data,
// and memory in proportion to the values.
const (
	maxRules  = 4096    // of a schema
	maxValues = 1 << 18 // of the data, members' names included
	maxWork   = 1 << 26 // rules times bytes
)

// inside is the number of rules of a schema that is being counted.
const inside = -1

// rules returns the number of rules of a schema if each reference were replaced by the schema that it names. Without
// this bound, references to references would cost time that is exponential in the bytes of the schema, and references to
// a schema around them, in the depth of the data.
func rules(s *jsonschema.Schema, counted map[*jsonschema.Schema]int) (n int, err error) {
	switch n, ok := counted[s]; {
	case n == inside:
		return 0, invalid("schema", "%s refers to itself, and a schema must not be recursive", s.Location[len(schemaURL):])
	case ok:
		return n, nil
	case s.RecursiveRef != nil || s.DynamicRef != nil:
		return 0, invalid("schema", "%s has a dynamic reference: want $ref", s.Location[len(schemaURL):])
	}
	counted[s] = inside
	n = 1
	for _, part := range parts(s) {
		m, err := rules(part, counted)
		if n += m; err == nil && n > maxRules {
			err = invalid("schema", "has more than %d rules, counting what it refers to", maxRules)
		}
		if err != nil {
			return 0, err
		}
	}
	counted[s] = n
	return n, nil
}

// parts lists the schemas of which a schema consists.
func parts(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	list = slices.Concat(list, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems)
	list = slices.AppendSeq(list, maps.Values(s.Properties))
	list = slices.AppendSeq(list, maps.Values(s.PatternProperties))
	list = slices.AppendSeq(list, maps.Values(s.DependentSchemas))
	of := []any{s.AdditionalProperties, s.Items, s.AdditionalItems}
	for _, v := range slices.AppendSeq(of, maps.Values(s.Dependencies)) {
		switch v := v.(type) {
		case *jsonschema.Schema:
			list = append(list, v)
		case []*jsonschema.Schema:
			list = append(list, v...)
		}
	}
	return slices.DeleteFunc(list, func(s *jsonschema.Schema) bool { return s == nil })
}

// conforms returns an *events.InvalidError for the first place at which data are not as a schema says.
func conforms(s *schema, data []byte) error {
	if err := rawjson.Check(data); err != nil {
		return invalid("data", "%v", err)
	}
	switch n := values(data); {
	case len(data) > maxWork/s.rules:
		return invalid("data", "has %d bytes: a schema of %d rules checks at most %d", len(data), s.rules, maxWork/s.rules)
	case n > maxValues:
		return invalid("data", "has %d values: a schema checks at most %d", n, maxValues)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err == nil {
		err = s.Validate(value)
	}
	return refusal("data", err)
}

// values returns the number of values in JSON, members' names included.
func values(data []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// refusal returns an error of the validator as an *events.InvalidError of the first place in a field.
func refusal(field string, err error) error {
	if bad, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		at, reason := first(bad)
		return invalid(field+at, "%s", reason)
	}
	if err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// first returns the first place of an error, as a JSON pointer, and the reason. Of several reasons at one place, it
// returns the first by its text: the validator visits members in any order.
func first(err *jsonschema.ValidationError) (at, reason string) {
	if len(err.Causes) == 0 {
		escape := strings.NewReplacer("~", "~0", "/", "~1")
		for _, token := range err.InstanceLocation {
			at += "/" + escape.Replace(token)
		}
		return at, err.BasicOutput().Error.String()
	}
	type place struct{ at, reason string }
	var places []place
	for _, cause := range err.Causes {
		at, reason := first(cause)
		places = append(places, place{at, reason})
	}
	p := slices.MinFunc(places, func(a, b place) int {
		return strings.Compare(a.at+"\x00"+a.reason, b.at+"\x00"+b.reason)
	})
	return p.at, p.reason
}

// check returns an error for data of an event that are not as its registered type says.
func (k *known) check(e events.Event) error {
	if e.ContentType != "" && !events.IsJSON(e.ContentType) {
		return invalid("datacontenttype", "%q: the schema of %s wants JSON", e.ContentType, e.Type)
	}
	k.once.Do(func() { k.schema, k.bad = compile(k.Schema) })
	if k.bad != nil {
		return invalid("type", "the registered schema of %s cannot be used: %v", e.Type, k.bad)
	}
	return conforms(k.schema, e.Data)
}
