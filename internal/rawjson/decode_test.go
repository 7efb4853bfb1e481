package rawjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestUnmarshalRefuses(t *testing.T) {
	type entry struct {
		Turn string `json:"turn"`
		N    int8   `json:"n"`
	}
	type target struct {
		Entries []entry          `json:"entries"`
		M       map[string]entry `json:"m"`
		MI      map[int]int      `json:"mi"`
		A       [2]int           `json:"a"`
		S       *entry           `json:"s"`
		B       bool             `json:"b"`
		Bytes   []byte           `json:"bytes"`
		U       uint64           `json:"u"`
		I       int64            `json:"i"`
		F       float64          `json:"f"`
		At      point            `json:"at"`
		Meta    Members          `json:"meta"`
		Loud    shout            `json:"loud"`
	}
	for _, c := range []struct{ in, want string }{
		{`null`, "want an object, have null"},
		{`[]`, "want an object, have an array"},
		{`{"entries":null}`, "entries: want an array, have null"},
		{`{"entries":[{},{},{},{"turn":1}]}`, "entries[3].turn: want a string, have a number"},
		{`{"entries":[null]}`, "entries[0]: want an object, have null"},
		{`{"entries":[{"turn":null}]}`, "entries[0].turn: want a string, have null"},
		{`{"entries":[{"turn":"\ud800"}]}`, "entries[0].turn: lone surrogate in a string"},
		{`{"entries":[{"turn":"a","t\u0075rn":"b"}]}`, "entries[0].turn: duplicate name"},
		{`{"entries":[{"x":1,"x":1}]}`, "entries[0].x: duplicate name"},
		{`{"entries":[{"\udfff":1}]}`, `entries[0]: name "\udfff" has a lone surrogate`},
		{`{"entries":[],"entries":[]}`, "entries: duplicate name"},
		{`{"m":null}`, "m: want an object, have null"},
		{`{"m":{"a.b":{"n":128}}}`, `m["a.b"].n: 128 is out of range for int8`},
		{`{"m":{"a":{},"\u0061":{}}}`, `m["a"]: duplicate name`},
		{`{"mi":{"01":1}}`, `mi["01"]: want a decimal int as name`},
		{`{"mi":{"-0":1}}`, `mi["-0"]: want a decimal int as name`},
		{`{"mi":{"9223372036854775808":1}}`, `mi["9223372036854775808"]: want a decimal int as name`},
		{`{"mi":{"1":"x"}}`, `mi["1"]: want an integer, have a string`},
		{`{"a":[1]}`, "a: want 2 elements, have 1"},
		{`{"a":[1,2,3]}`, "a: want 2 elements, have more"},
		{`{"a":[1,2.0]}`, "a[1]: want an integer, have 2.0"},
		{`{"s":{"n":1e2}}`, "s.n: want an integer, have 1e2"},
		{`{"s":{"n":-129}}`, "s.n: -129 is out of range for int8"},
		{`{"b":null}`, "b: want a boolean, have null"},
		{`{"b":"true"}`, "b: want a boolean, have a string"},
		{`{"bytes":"AP8"}`, "bytes: want base64"},
		{`{"bytes":"AB=="}`, "bytes: want base64"},
		{`{"bytes":"AP\n8B"}`, "bytes: want base64"},
		{`{"bytes":[1]}`, "bytes: want a string, have an array"},
		{`{"u":-1}`, "u: -1 is out of range for uint64"},
		{`{"u":18446744073709551616}`, "u: 18446744073709551616 is out of range for uint64"},
		{`{"u":99999999999999999999}`, "u: 99999999999999999999 is out of range for uint64"},
		{`{"u":1` + strings.Repeat("0", 50) + `}`, "u: 1" + strings.Repeat("0", 39) + "... is out of range for uint64"},
		{`{"i":9223372036854775808}`, "i: 9223372036854775808 is out of range for int64"},
		{`{"i":-9223372036854775809}`, "i: -9223372036854775809 is out of range for int64"},
		{`{"f":1e999}`, "f: 1e999 is out of range for float64"},
		{`{"f":"1"}`, "f: want a number, have a string"},
		{`{"at":[1]}`, "at: want 2 elements, have 1"},
		{`{"at":[1,"x"]}`, "at[1]: want an integer, have a string"},
		{`{"at":[-1,0]}`, "at: negative"},
		{`{"meta":{"a":1,"a":2}}`, "meta.a: duplicate name"},
		{`{"meta":null}`, "meta: want an object, have null"},
		{`{"loud":1}`, "loud: want a string, have a number"},
	} {
		err := Unmarshal([]byte(c.in), new(target))
		mustField(t, err, c.want)
	}
	if err := Unmarshal([]byte(`{"at":[-1,0]}`), new(target)); !errors.Is(err, errNegative) {
		t.Errorf("%v does not wrap its cause", err)
	}
	for _, c := range []struct{ in, want string }{
		{``, "offset 0: unexpected end"},
		{"\xef\xbb\xbf{}", "offset 0: byte order mark"},
		{`{"entries":[{"turn":"\x"}]}`, "offset 21: invalid escape"},
		{`{"entries":[{"turn":1}],}`, "offset 24: want a name"}, // a syntax error comes first
		{`{"a":[1,2],"a":[01]}`, "offset 17: want ',' or ']'"},
		{`{"entries":[{"turn":"a",}]}`, "offset 24: want a name"},
		{`{"entries":[{"x":[1}]}`, "offset 19: want ',' or ']'"},
		{`{"b":tru}`, "offset 5: want a value"},
		{`{"s":nullx}`, "offset 9: want ',' or '}'"},
		{`{"u":-}`, "offset 5: invalid number"},
		{`{"f":1.}`, "offset 5: invalid number"},
		{`{"m":{"a":}}`, "offset 10: want a value"},
		{`{"at":[1,?]}`, "offset 9: want a value"},
		{`{} {}`, "offset 3: more after the value"},
	} {
		mustSyntax(t, Unmarshal([]byte(c.in), new(target)), c.want)
	}
}

// Unmarshal replaces fields that the input has, keeps the others, and does not write into old slices.
func TestUnmarshalStartsAnew(t *testing.T) {
	five := 5
	x := all{
		S: "kept", P: &five, L: []string{"old", "old"}, M: map[string]int{"old": 1}, LS: []inner{{Base: "old", Over: 9}}, PS: &inner{Over: 4},
		Rest: Members{{"old", nil}},
	}
	old := x.LS
	if err := Unmarshal([]byte(` {"l":["new"],"m":{},"ls":[{"over":1},{}],"p":null,"raw": null ,"ps":{}} `), &x); err != nil {
		t.Fatal(err)
	}
	want := all{S: "kept", L: []string{"new"}, M: map[string]int{}, LS: []inner{{Over: 1}, {}}, PS: &inner{}, Raw: json.RawMessage("null")}
	if diff := cmp.Diff(want, x, compareAll); diff != "" {
		t.Error(diff)
	}
	if old[0].Base != "old" {
		t.Error("Unmarshal wrote into the old slice")
	}
}

func TestUnmarshalMinusZero(t *testing.T) {
	i := 1
	if err := Unmarshal([]byte("-0"), &i); err != nil || i != 0 {
		t.Errorf("got %d, error %v", i, err)
	}
	mustField(t, Unmarshal([]byte("-0"), new(uint)), "-0 is out of range for uint")
}

func TestManyFields(t *testing.T) {
	x := map[string]int{}
	var wide struct{ Rest Members } // more unknown names than fit a nameSet's list
	for i := range 100 {
		x[fmt.Sprint("k", i)] = i
	}
	b, err := Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if err := Unmarshal(b, &wide); err != nil {
		t.Error(err)
	}
	mustField(t, Unmarshal(append(b[:len(b)-1], `,"k9":0}`...), &wide), "k9: duplicate name")
}

type tree struct {
	Kids []tree `json:"kids,omitempty"`
}

// wrapped parses itself by a call of Unmarshal, which must not allow endless depth.
type wrapped struct{ kids []wrapped }

func (w *wrapped) ParseRawJSON(raw []byte) error { return Unmarshal(raw, &w.kids) }

// Input above the maximum depth is refused wherever it occurs, without a stack overflow.
func TestDeepInput(t *testing.T) {
	for name, c := range map[string]struct {
		in string
		v  any
	}{
		"typed":      {strings.Repeat(`{"kids":[`, 20000), new(tree)},
		"raw":        {strings.Repeat("[", 20000), new(json.RawMessage)},
		"members":    {strings.Repeat(`{"a":`, 20000), new(Members)},
		"wrong type": {strings.Repeat("[", 20000), new(string)},
		"parser":     {strings.Repeat("[", 20000), new(wrapped)},
		"unknown":    {`{"x":` + strings.Repeat("[", 20000), new(tree)},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := errors.AsType[*SyntaxError](Unmarshal([]byte(c.in), c.v))
			if !ok || e.Reason != tooDeep {
				t.Errorf("got the error %v", e)
			}
		})
	}
	in := strings.Repeat(`{"kids":[`, MaxDepth/2) + strings.Repeat(`]}`, MaxDepth/2)
	var x tree
	if err := Unmarshal([]byte(in), &x); err != nil {
		t.Fatal(err)
	}
	if err := Unmarshal([]byte(`{"kids":[`+in+`]}`), &x); err == nil {
		t.Error("input above the maximum depth was accepted")
	}
	if err := Unmarshal([]byte(nested(MaxDepth)), new(wrapped)); err != nil {
		t.Error(err)
	}
}

func TestCodecsAreMadeConcurrently(t *testing.T) {
	type node struct {
		A    int              `json:"a"`
		Next *node            `json:"next,omitempty"`
		Kids map[string]*node `json:"kids,omitempty"`
	}
	done := make(chan error)
	for range 8 {
		go func() {
			var n node
			done <- Unmarshal([]byte(`{"a":1,"next":{"a":2},"kids":{"x":{"a":3,"kids":{}}}}`), &n)
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTimeIsNotLostInSilence(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Marshal of a time succeeded, want an error")
		}
	}()
	Marshal(struct{ At time.Time }{})
}

func genAll(depth int) *rapid.Generator[all] {
	raw := func(t *rapid.T) json.RawMessage {
		return json.RawMessage(strings.Trim(genJSON(2).Draw(t, "raw"), " \t\r\n"))
	}
	name := rapid.String()
	return rapid.Custom(func(t *rapid.T) all {
		var x all
		x.Base, x.S, x.Deep = name.Draw(t, "base"), name.Draw(t, "s"), name.Draw(t, "deep")
		x.C, x.Over = colour(name.Draw(t, "c")), name.Draw(t, "over")
		x.B, x.I, x.I8 = rapid.Bool().Draw(t, "b"), rapid.Int().Draw(t, "i"), level(rapid.Int8().Draw(t, "i8"))
		x.I64, x.U64, x.U8 = rapid.Int64().Draw(t, "i64"), rapid.Uint64().Draw(t, "u64"), rapid.Uint8().Draw(t, "u8")
		x.F = rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "f")
		x.F32 = rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32).Draw(t, "f32")
		x.Raw, x.Bytes = raw(t), rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		x.P = rapid.Ptr(rapid.Int(), true).Draw(t, "p")
		x.L = rapid.SliceOf(name).Draw(t, "l")
		x.LR = rapid.SliceOfN(rapid.Custom(raw), 0, 3).Draw(t, "lr")
		x.A = [2]int{rapid.Int().Draw(t, "a0"), rapid.Int().Draw(t, "a1")}
		x.M = rapid.MapOf(name, rapid.Int()).Draw(t, "m")
		x.MI = rapid.MapOf(rapid.Int(), name).Draw(t, "mi")
		x.MR = rapid.MapOfN(name, rapid.Custom(raw), 0, 3).Draw(t, "mr")
		x.At = point{rapid.IntRange(0, 9).Draw(t, "x"), rapid.Int().Draw(t, "y")}
		for n, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]?[A-Z"é]{1,3}`), 0, 20, rapid.ID[string]).Draw(t, "names") {
			if m := (Member{name, raw(t)}); n%2 == 0 {
				x.Meta = append(x.Meta, m)
			} else if name != "NoTag" {
				x.Rest = append(x.Rest, m)
			}
		}
		if depth > 0 {
			x.Kids = rapid.SliceOfN(genAll(depth-1), 0, 2).Draw(t, "kids")
		}
		return x
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := genAll(1).Draw(t, "x")
		b, err := Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(b); err != nil {
			t.Fatalf("Check(%q): %v", b, err)
		}
		var back, again all
		if err := Unmarshal(b, &back); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if diff := cmp.Diff(x, back, compareAll, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s\n%s", b, diff)
		}
		indented := AppendIndent([]byte("\n"), b, "\t")
		if err := Unmarshal(indented, &again); err != nil {
			t.Fatalf("%q: %v", indented, err)
		}
		if out, err := Marshal(again); err != nil || !Equal(out, b) {
			t.Fatalf("Unmarshal and Marshal of %q: got %q, error %v", indented, out, err)
		}
	})
}

// FuzzUnmarshal compares the values that Unmarshal reads with a second reading of their marshaled form, and with the
// reading of encoding/json.
func FuzzUnmarshal(f *testing.F) {
	b, err := Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	for _, s := range []string{`{}`, `null`, `{"s":1,}`, `{"raw": {"a":1,"a":[ ]} ,"x":1}`, `{"mi":{"1":"a"},"kids":[{"at":[1,2]}]}`, "{\"s\":\"\xff\"}", `{"f":-0,"i":-0}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var x, y all
		err := Unmarshal(b, &x)
		_, syntax := errors.AsType[*SyntaxError](err)
		if syntax != (Check(b) != nil) {
			t.Fatalf("Unmarshal returns %v, but Check %v", err, Check(b))
		}
		if err != nil {
			return
		}
		if !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("Unmarshal accepted %q", b)
		}
		if x.Raw == nil {
			x.Raw = json.RawMessage("null") // as which it is written
		}
		once, err := Marshal(x)
		if err != nil {
			t.Fatalf("Marshal of the value of %q: %v", b, err)
		}
		if err := Unmarshal(once, &y); err != nil {
			t.Fatalf("Unmarshal(%q): %v", once, err)
		}
		if twice, err := Marshal(y); err != nil || string(twice) != string(once) {
			t.Fatalf("%q became %q, %v", once, twice, err)
		}
		sameAsStandard(t, b)
	})
}

// sameAsStandard reads b into a struct that encoding/json reads alike. It skips b that do not fit or have names that
// differ only in case.
func sameAsStandard(t *testing.T, b []byte) {
	type common struct {
		inner
		S     string
		I     int64
		I8    level
		U64   uint64
		F     float64
		F32   float32
		Raw   json.RawMessage
		Bytes []byte
		P     *int
		LS    []inner
		M     map[string]int
		MI    map[int]string
		MR    map[string]json.RawMessage
	}
	var want, got struct{ common }
	m, err := Object(b)
	if err != nil {
		t.Fatalf("Object(%q): %v", b, err)
	}
	var upper Members // the fields of all, under the names of common
	for _, name := range []string{"s", "i", "i8", "u64", "f", "f32", "raw", "bytes", "p", "ls", "m", "mi", "mr"} {
		if v, ok := m.Get(name); ok {
			upper = append(upper, Member{strings.ToUpper(name[:1]) + name[1:], v})
			switch name {
			case "ls", "mi", "mr":
				upper[len(upper)-1].Name = strings.ToUpper(name)
			}
			if name == "ls" && strings.Contains(string(v), "{") {
				upper = upper[:len(upper)-1] // its objects may have other names
			}
		}
	}
	text, err := Marshal(upper)
	if err != nil {
		t.Fatal(err)
	}
	if err := Unmarshal(text, &got); err != nil {
		t.Fatalf("Unmarshal(%q): %v", text, err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatalf("encoding/json refused %q: %v", text, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(want, want.common)); diff != "" {
		t.Fatalf("%s\n%s", text, diff)
	}
}
