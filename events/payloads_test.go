package events_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/rawjson"
)

var update = flag.Bool("update", false, "write docs/payloads.md")

// docs/payloads.md shows the schemas as tables, for readers without a JSON Schema tool.
// -update writes it.
func TestPayloadsAreDocumented(t *testing.T) {
	files, err := filepath.Glob("schema/*.json")
	if err != nil || len(files) < 17 {
		t.Fatalf("schemas: got %v, %v, want at least 17", files, err)
	}
	b, shared, plain := new(strings.Builder), make(map[string]string), make(map[string]string)
	b.WriteString(payloadsHead)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := decodeSchema(t, raw)
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n%s", s.Title, s.Description, s.table(t))
		for name, def := range s.Defs {
			d, list := decodeSchema(t, def), plain
			text := row(t, name, def)
			if len(d.Properties) > 0 {
				text, list = fmt.Sprintf("\n### %s\n\n%s\n\n%s", name, d.Description, d.table(t)), shared
			}
			if before, known := list[name]; known && before != text {
				t.Errorf("%s: definition %s differs from the one in another schema:\n%s\n%s", file, name, before, text)
			}
			list[name] = text
		}
	}
	b.WriteString("\n## Shared definitions\n\n| name | type | meaning |\n|---|---|---|\n")
	for _, list := range []map[string]string{plain, shared} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			b.WriteString(list[name])
		}
	}
	const page = "../docs/payloads.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != b.String() {
		t.Errorf("docs/payloads.md differs from the schemas (%v); to write it, run go test ./events -run Payloads -update", err)
	}
}

const payloadsHead = `# The members of payloads

The members that the data of each type of event may have. This page is generated from the JSON Schemas in ` + "`events/schema/`" + `, which also state
lengths, patterns and combinations. Members that are not listed are kept and have no effect. **Bold** members are required. [wire.md](wire.md)
describes how clients send events.
`

// schema is the part of a JSON Schema that the tables show.
type schema struct {
	Title, Description, Type, Ref string
	Properties                    json.RawMessage
	Required                      []string
	Enum                          []any
	Items, AdditionalProperties   json.RawMessage
	AnyOf                         []json.RawMessage
	Defs                          map[string]json.RawMessage
}

func decodeSchema(t *testing.T, raw []byte) schema {
	t.Helper()
	var s schema
	raw = []byte(strings.NewReplacer(`"$ref"`, `"ref"`, `"$defs"`, `"defs"`).Replace(string(raw)))
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// table lists the members, in the order of the schema.
func (s schema) table(t *testing.T) string {
	t.Helper()
	members, err := rawjson.Object(s.Properties)
	if err != nil {
		t.Fatal(err)
	}
	b := new(strings.Builder)
	b.WriteString("| member | type | meaning |\n|---|---|---|\n")
	for _, m := range members {
		name := "`" + m.Name + "`"
		if slices.Contains(s.Required, m.Name) {
			name = "**" + name + "**"
		}
		b.WriteString(row(t, name, m.Value))
	}
	return b.String()
}

// row returns a line of a table for a member of a schema.
func row(t *testing.T, name string, raw json.RawMessage) string {
	t.Helper()
	return fmt.Sprintf("| %s | %s | %s |\n", name, kindOf(t, raw), strings.ReplaceAll(decodeSchema(t, raw).Description, "|", `\|`))
}

// kindOf describes the type of a value in a few words.
func kindOf(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	switch s := decodeSchema(t, raw); {
	case s.Ref != "":
		return strings.TrimPrefix(s.Ref, "#/$defs/")
	case len(s.AnyOf) > 0:
		var parts []string
		for _, part := range s.AnyOf {
			if kind := kindOf(t, part); !slices.Contains(parts, kind) {
				parts = append(parts, kind)
			}
		}
		return strings.Join(parts, " or ")
	case len(s.Enum) > 0:
		return strings.Trim(strings.ReplaceAll(fmt.Sprintf("%q", s.Enum), " ", ", "), "[]")
	case s.Type == "array" && s.Items != nil:
		return "list of " + kindOf(t, s.Items)
	case s.Type == "object" && len(s.AdditionalProperties) > 0 && s.AdditionalProperties[0] == '{':
		return "object, of each name " + kindOf(t, s.AdditionalProperties)
	case s.Type == "":
		return "any JSON"
	default:
		return s.Type
	}
}
