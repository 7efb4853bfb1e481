package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tallylog/tally/events"
)

// An example is a line of testdata/payloads.txt.
type example struct {
	line  int
	typ   string
	field string // that Decode names; "" if the data are valid
	only  bool   // refused by Decode alone
	data  string
}

func (x example) String() string {
	return fmt.Sprintf("payloads.txt:%d: %s %s", x.line, x.typ, x.data)
}

func mustReadExamples(t testing.TB) []example {
	t.Helper()
	text, err := os.ReadFile("testdata/payloads.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	typ := ""
	for n, line := range strings.Split(string(text), "\n") {
		verdict, data, ok := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
		case !ok:
			typ = line
		default:
			field, only := strings.CutSuffix(verdict, "!")
			if field == "ok" {
				field = ""
			}
			all = append(all, example{n + 1, typ, field, only, data})
		}
	}
	return all
}

// decode reads data as Append does, tallydoc included.
func decode(typ, data string) (events.Payload, error) {
	if typ == events.ExtDoc {
		_, err := events.ParseDocMeta(data)
		return nil, err
	}
	return events.Decode(typ, []byte(data))
}

func TestDecodeExamples(t *testing.T) {
	fields := map[string]int{}
	for _, x := range mustReadExamples(t) {
		p, err := decode(x.typ, x.data)
		fields[x.typ]++
		if p != nil && p.EventType() != x.typ {
			t.Errorf("%v: read as %s", x, p.EventType())
		}
		if x.field == "" && err != nil {
			t.Errorf("%v: %v", x, err)
		}
		if x.field != "" {
			mustBeInvalid(t, x.String(), err, x.field)
		}
	}
	for _, typ := range schemaTypes() {
		if fields[typ] == 0 {
			t.Errorf("no examples of %s", typ)
		}
	}
}

// What Decode accepts, Encode writes, and the same again is read from that.
func TestEncodeExamples(t *testing.T) {
	for _, x := range mustReadExamples(t) {
		p, err := decode(x.typ, x.data)
		if err != nil || p == nil {
			continue
		}
		data, err := events.Encode(p)
		if err != nil {
			t.Errorf("%v: %v", x, err)
			continue
		}
		again, err := events.Decode(x.typ, data)
		if err != nil {
			t.Errorf("%v: written as %s: %v", x, data, err)
			continue
		}
		second, err := events.Encode(again)
		if err != nil || !bytes.Equal(data, second) {
			t.Errorf("%v: written as %s, then as %s, %v", x, data, second, err)
		}
	}
}

// schemaTypes lists the types with a schema.
func schemaTypes() []string {
	types := []string{events.ExtDoc}
	for _, typ := range events.Types() {
		if typ != events.TypeDocumentWritten {
			types = append(types, typ)
		}
	}
	return types
}

func mustSchema(t testing.TB, typ string) any {
	t.Helper()
	text, ok := events.Schema(typ)
	if !ok {
		t.Fatalf("no schema of %s", typ)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	return doc
}

func TestSchemasAgreeWithDecode(t *testing.T) {
	compiled := map[string]*jsonschema.Schema{}
	c := jsonschema.NewCompiler()
	for _, typ := range schemaTypes() {
		id := events.DataSchema(typ)
		if typ == events.ExtDoc {
			id = "urn:tally:schema:tallydoc.v1"
		}
		doc := mustSchema(t, typ)
		if got := doc.(map[string]any)["$id"]; got != id {
			t.Errorf("%s: $id is %v, want %s", typ, got, id)
		}
		if err := c.AddResource(id, doc); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(id)
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		compiled[typ] = s
	}
	for _, x := range mustReadExamples(t) {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(x.data))
		if err != nil {
			continue // a number beyond every range: Decode keeps it, this reader cannot
		}
		err = compiled[x.typ].Validate(value)
		if accepted := x.field == "" || x.only; accepted != (err == nil) {
			t.Errorf("%v: the schema says %v", x, err)
		}
	}
}

func TestSchemaOfOthers(t *testing.T) {
	for _, typ := range []string{events.TypeDocumentWritten, "", "org.example.x", "tally.session.created.v2", "../schema"} {
		if text, ok := events.Schema(typ); ok || text != nil {
			t.Errorf("Schema(%q) = %q", typ, text)
		}
	}
}

// The structs and the schemas have the same fields, all the way down, and every
// property is described.
func TestSchemasAgreeWithStructs(t *testing.T) {
	for _, typ := range schemaTypes() {
		var goType reflect.Type
		if typ == events.ExtDoc {
			goType = reflect.TypeFor[events.DocMeta]()
		} else {
			goType = reflect.TypeOf(newPayload(t, typ)).Elem()
		}
		root := mustSchema(t, typ).(map[string]any)
		compareFields(t, typ, goType, root, root, map[reflect.Type]bool{})
	}
}

// newPayload returns an empty payload of a type, by reading a valid example.
func newPayload(t testing.TB, typ string) events.Payload {
	for _, x := range mustReadExamples(t) {
		if x.typ == typ && x.field == "" {
			p, err := events.Decode(typ, []byte(x.data))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatalf("no valid example of %s", typ)
	return nil
}

func compareFields(t *testing.T, path string, goType reflect.Type, schema any, root map[string]any, seen map[reflect.Type]bool) {
	goType = elemStruct(goType)
	if goType == nil || seen[goType] {
		return
	}
	seen[goType] = true
	object := objectSchema(schema, root)
	if object == nil {
		t.Errorf("%s: no object in the schema", path)
		return
	}
	properties := object["properties"].(map[string]any)
	var names []string
	for i := range goType.NumField() {
		f := goType.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue // Unknown
		}
		names = append(names, name)
		if p, ok := properties[name]; ok {
			compareFields(t, path+"."+name, f.Type, p, root, seen)
		}
	}
	slices.Sort(names)
	if have := slices.Sorted(maps.Keys(properties)); !slices.Equal(names, have) {
		t.Errorf("%s: %v has %v, the schema has %v", path, goType, names, have)
	}
	for name, p := range properties {
		if m := p.(map[string]any); m["description"] == nil && m["$ref"] == nil && m["allOf"] == nil {
			t.Errorf("%s.%s has no description", path, name)
		}
	}
}

// elemStruct returns the struct at the bottom of pointers, slices and maps.
func elemStruct(t reflect.Type) reflect.Type {
	for {
		switch {
		case t == reflect.TypeFor[events.Fields]() || t == reflect.TypeFor[json.RawMessage]():
			return nil
		case t.Kind() == reflect.Struct:
			return t
		case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Array:
			t = t.Elem()
		default:
			return nil
		}
	}
}

// objectSchema finds the object with properties below references, alternatives
// with null, items and values of a map.
func objectSchema(schema any, root map[string]any) map[string]any {
	m, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if _, ok := m["properties"].(map[string]any); ok {
		return m
	}
	if target, ok := m["$ref"].(string); ok {
		return objectSchema(root["$defs"].(map[string]any)[strings.TrimPrefix(target, "#/$defs/")], root)
	}
	for _, below := range []string{"items", "additionalProperties"} {
		if found := objectSchema(m[below], root); found != nil {
			return found
		}
	}
	for _, below := range []string{"anyOf", "allOf"} {
		list, _ := m[below].([]any)
		for _, s := range list {
			if found := objectSchema(s, root); found != nil {
				return found
			}
		}
	}
	return nil
}
