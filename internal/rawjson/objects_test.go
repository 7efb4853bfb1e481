package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tallylog/tally/internal/rawjson"
)

func TestObjects(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		rest string
	}{
		{``, 0, ``},
		{` {"a":1} `, 1, ``},
		{`{"a":"}{"}{"b":[{}]}`, 2, ``},
		{"{}\t{\"a\":\"\\\"}\"}{\"torn\":", 2, `{"torn":`},
		{`{"a":1}]`, 1, `]`},
		{`{]}{}`, 0, `{]}{}`},
		{`{"a":1,"a":2}{}`, 0, `{"a":1,"a":2}{}`},
		{`[{}]`, 0, `[{}]`},
		{"\x00{}", 0, "\x00{}"},
	} {
		list, rest := rawjson.Objects([]byte(c.in))
		if len(list) != c.n || string(rest) != c.rest {
			t.Errorf("%q: got %d objects and the rest %q, want %d and %q", c.in, len(list), rest, c.n, c.rest)
		}
	}
}

// Objects reads each stream of objects that encoding/json reads.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"a":"}"} {"b":{}}{`))
	f.Add([]byte(`{"a":[{"}":"\\"}]}x`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, rest := rawjson.Objects(b)
		d := json.NewDecoder(bytes.NewReader(b))
		for i := range list {
			var v map[string]json.RawMessage
			if err := d.Decode(&v); err != nil || len(v) != len(list[i]) {
				t.Fatalf("%q: object %d has %d members, want %d (%v)", b, i, len(list[i]), len(v), err)
			}
		}
		if len(rest) > 0 && !bytes.HasSuffix(rawjson.Trim(b), rest) {
			t.Fatalf("%q: the rest is %q", b, rest)
		}
	})
}
