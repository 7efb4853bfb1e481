package frontmatter

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// title is the key that the original stores separately.
const title = "title"

// Document is a document as the original has it in memory.
type Document struct {
	Title  string
	Titled bool              // the document has a title, which may be empty
	Fields map[string]string // front matter without the title; nil: no front matter
	Body   string            // without surrounding white space, if there is front matter
}

// Parse reads a document as the original does.
func Parse(text []byte) Document {
	v := Read(text)
	d := Document{Body: string(text)}
	if !v.Has() {
		return d
	}
	d.Body, d.Fields = string(bytes.TrimSpace(text[v.body:])), make(map[string]string)
	for _, f := range v.fields {
		d.Fields[f.Key] = f.Value
	}
	d.Title, d.Titled = d.Fields[title]
	delete(d.Fields, title)
	return d
}

// Render writes a document as the original does: keys sorted, the title among them, values with a colon or a hash in
// quotes, an empty line, the body as it is. A document without keys is its body. If a key or value could not be read
// back, the error is an *Error.
func Render(d Document) ([]byte, error) {
	fields := make(map[string]string, len(d.Fields)+1)
	maps.Copy(fields, d.Fields)
	if d.Titled {
		fields[title] = d.Title
	}
	if len(fields) == 0 {
		return []byte(d.Body), nil
	}
	var b strings.Builder
	b.WriteString(fence + "\n")
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if err := check(key, fields[key]); err != nil {
			return nil, err
		}
		b.WriteString(key + ": " + quote(fields[key]) + "\n")
	}
	b.WriteString(fence + "\n\n" + d.Body)
	return []byte(b.String()), nil
}
