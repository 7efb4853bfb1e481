package rawjson_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/rawjson"
)

func TestSetMember(t *testing.T) {
	for _, c := range []struct{ object, name, value, want string }{
		{`{}`, "a", `1`, `{"a":1}`},
		{` { } `, "a", `1`, ` {"a":1 } `},
		{`{"a": 1.0 , "b":[1,{"a":2}]}`, "a", `"x"`, `{"a": "x" , "b":[1,{"a":2}]}`},
		{`{"a":1,"b": {"c":"}"} }`, "b", `null`, `{"a":1,"b": null }`},
		{`{"a":1}`, "b", `[ 2 ]`, `{"a":1,"b":[ 2 ]}`},
		{`{"a":{"b":1}}`, "b", `2`, `{"a":{"b":1},"b":2}`},
		{`{"\u0061":1}`, "a", `2`, `{"\u0061":2}`},
	} {
		got, err := rawjson.SetMember([]byte(c.object), c.name, []byte(c.value))
		if err != nil || string(got) != c.want {
			t.Errorf("set %s in %s: %s, %v, want %s", c.name, c.object, got, err, c.want)
		}
	}
	for _, bad := range []struct{ object, value string }{{`[]`, `1`}, {`{"a":1,"a":2}`, `1`}, {`{}`, `{`}, {`{`, `1`}} {
		if got, err := rawjson.SetMember([]byte(bad.object), "a", []byte(bad.value)); err == nil {
			t.Errorf("set %s in %s: got %s, want an error", bad.value, bad.object, got)
		}
	}
}

func TestDeleteMember(t *testing.T) {
	for _, c := range []struct{ object, name, want string }{
		{`{"a":1}`, "a", `{}`},
		{`{ "a":1 , "b":"," , "c":3 }`, "a", `{ "b":"," , "c":3 }`},
		{`{ "a":1 , "b":"," , "c":3 }`, "b", `{ "a":1 , "c":3 }`},
		{`{ "a":1 , "b":"," , "c":3 }`, "c", `{ "a":1 , "b":"," }`},
		{`{"a":1}`, "x", `{"a":1}`},
	} {
		got, err := rawjson.DeleteMember([]byte(c.object), c.name)
		if err != nil || string(got) != c.want {
			t.Errorf("delete %s in %s: %s, %v, want %s", c.name, c.object, got, err, c.want)
		}
	}
}

// A set member reads back, a deleted one is gone, and the others are unchanged.
func TestEditLaw(t *testing.T) {
	values := []string{`1`, `"x,}"`, `[ 1 , {"a":[]} ]`, `{"b":"\"}"}`, `null`, ` 2.50 `, `-1e-7`}
	rapid.Check(t, func(t *rapid.T) {
		object := []byte(rapid.SampledFrom([]string{`{}`, ` { } `, `{"a":1}`, "{\n  \"a\": [1],\n  \"b\": {}\n}"}).Draw(t, "object"))
		for range rapid.IntRange(1, 8).Draw(t, "edits") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "é\"\n"}).Draw(t, "name")
			before, err := rawjson.Object(object)
			if err != nil {
				t.Fatalf("%s: %v", object, err)
			}
			value := rapid.SampledFrom(values).Draw(t, "value")
			remove := rapid.Bool().Draw(t, "remove")
			if remove {
				object, err = rawjson.DeleteMember(object, name)
			} else {
				object, err = rawjson.SetMember(object, name, []byte(value))
			}
			if err != nil {
				t.Fatal(err)
			}
			after, err := rawjson.Object(object)
			if err != nil {
				t.Fatalf("%s: %v", object, err)
			}
			got, there := after.Get(name)
			if there == remove || there && string(got) != string(rawjson.Trim([]byte(value))) {
				t.Fatalf("%s: the member %s is %s", object, name, got)
			}
			for _, m := range before {
				if have, _ := after.Get(m.Name); m.Name != name && string(have) != string(m.Value) {
					t.Fatalf("%s: the member %s changed from %s", object, m.Name, m.Value)
				}
			}
		}
	})
}
