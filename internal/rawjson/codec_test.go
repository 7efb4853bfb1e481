package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type (
	level  int8
	colour string
	inner  struct {
		Base string `json:"base"`
		Over int    `json:"over,omitempty"`
	}
	Outer struct {
		Deep string `json:"deep,omitempty"`
	}
	// point has a codec of its own, with a value receiver for writing.
	point struct{ x, y int }
	// shout has a codec of its own, with pointer receivers only.
	shout string
	empt  struct{}
	hides struct{ a int } //lint:ignore U1000 that it is not written is tested
)

func (p point) AppendRawJSON(dst []byte) ([]byte, error) {
	if p.x < 0 {
		return nil, errNegative
	}
	return fmt.Appendf(dst, "[%d, %d]", p.x, p.y), nil
}

func (p *point) ParseRawJSON(raw []byte) error {
	var xy [2]int
	if err := Unmarshal(raw, &xy); err != nil {
		return err
	}
	if p.x, p.y = xy[0], xy[1]; p.x < 0 {
		return errNegative
	}
	return nil
}

var errNegative = errors.New("negative")

func (s *shout) AppendRawJSON(dst []byte) ([]byte, error) {
	return AppendString(dst, strings.ToUpper(string(*s))), nil
}

func (s *shout) ParseRawJSON(raw []byte) error {
	text, err := String(raw)
	*s = shout(strings.ToLower(text))
	return err
}

// all has every kind of field. A field that Marshal writes as null when it is nil has omitempty, because Unmarshal does
// not read null back.
type all struct {
	inner
	Outer
	S      string                     `json:"s"`
	C      colour                     `json:"c,omitempty"`
	B      bool                       `json:"b,omitempty"`
	I      int                        `json:"i"`
	I8     level                      `json:"i8,omitempty"`
	I64    int64                      `json:"i64,omitempty"`
	U      uint                       `json:"u,omitempty"`
	U8     uint8                      `json:"u8,omitempty"`
	U64    uint64                     `json:"u64,omitempty"`
	F      float64                    `json:"f,omitempty"`
	F32    float32                    `json:"f32,omitempty"`
	Raw    json.RawMessage            `json:"raw"`
	RawO   json.RawMessage            `json:"rawo,omitempty"`
	Bytes  []byte                     `json:"bytes,omitempty"`
	P      *int                       `json:"p"`
	PS     *inner                     `json:"ps,omitempty"`
	L      []string                   `json:"l,omitempty"`
	LS     []inner                    `json:"ls,omitempty"`
	LR     []json.RawMessage          `json:"lr,omitempty"`
	A      [2]int                     `json:"a"`
	M      map[string]int             `json:"m,omitempty"`
	MC     map[colour][]int           `json:"mc,omitempty"`
	MI     map[int]string             `json:"mi,omitempty"`
	MU     map[uint8]*inner           `json:"mu,omitempty"`
	MR     map[string]json.RawMessage `json:"mr,omitempty"`
	Over   string                     `json:"over,omitempty"`
	NoTag  string
	Kids   []all            `json:"kids,omitempty"`
	Meta   Members          `json:"meta,omitempty"`
	At     point            `json:"at"`
	PAt    *point           `json:"pat,omitempty"`
	Loud   shout            `json:"loud,omitempty"`
	Louds  map[string]shout `json:"louds,omitempty"`
	Hidden string           `json:"-"`
	hidden int              //lint:ignore U1000 that it is not written is tested
	Rest   Members          `json:",unknown"`
}

var compareAll = cmp.AllowUnexported(all{}, point{})

func full() all {
	seven := 7
	return all{
		inner: inner{Base: "base"}, Outer: Outer{Deep: "deep"},
		S: "a\"<é", C: "red", B: true, I: math.MinInt64, I8: -128, I64: math.MaxInt64, U: 3, U8: 255, U64: math.MaxUint64, F: -1.5e-9, F32: 1e21,
		Raw: json.RawMessage("{\"k\" : 1.0, \n\"k\":\"<\\ud800\"}"), RawO: json.RawMessage("null"), Bytes: []byte{0, 255, 1}, P: &seven, PS: &inner{Over: 2},
		L: []string{"x", ""}, LS: []inner{{}, {Base: "b"}}, LR: []json.RawMessage{json.RawMessage("[ ]"), json.RawMessage("null")}, A: [2]int{1, -1},
		M: map[string]int{"b": 1, "a": 2, "\x00": 3}, MC: map[colour][]int{"red": {}}, MI: map[int]string{10: "ten", -1: "minus", 9: "nine"},
		MU: map[uint8]*inner{255: nil, 3: {Base: "u"}}, MR: map[string]json.RawMessage{"r": json.RawMessage(`{ }`)},
		Over: "mine", NoTag: "n", Kids: []all{{Raw: json.RawMessage("1")}},
		Meta: Members{{"z", json.RawMessage("1")}, {"a", json.RawMessage("[ 2 ]")}}, At: point{1, 2}, PAt: &point{3, 4}, Loud: "hey", Louds: map[string]shout{"k": "ho"},
		Rest: Members{{"future", json.RawMessage(`{ "x":1 }`)}, {"S", json.RawMessage(`"case"`)}},
	}
}

func TestMarshal(t *testing.T) {
	got, err := Marshal(full())
	want := `{"base":"base","deep":"deep","s":"a\"<é","c":"red","b":true,"i":-9223372036854775808,"i8":-128,"i64":9223372036854775807,` +
		`"u":3,"u8":255,"u64":18446744073709551615,"f":-1.5e-9,"f32":1e+21,"raw":{"k" : 1.0, ` + "\n" + `"k":"<\ud800"},"rawo":null,"bytes":"AP8B","p":7,` +
		`"ps":{"base":"","over":2},"l":["x",""],"ls":[{"base":""},{"base":"b"}],"lr":[[ ],null],"a":[1,-1],"m":{"\u0000":3,"a":2,"b":1},"mc":{"red":[]},` +
		`"mi":{"-1":"minus","9":"nine","10":"ten"},"mu":{"3":{"base":"u"},"255":null},"mr":{"r":{ }},"over":"mine","NoTag":"n",` +
		`"kids":[{"base":"","s":"","i":0,"raw":1,"p":null,"a":[0,0],"NoTag":"","at":[0, 0]}],"meta":{"z":1,"a":[ 2 ]},"at":[1, 2],"pat":[3, 4],` +
		`"loud":"HEY","louds":{"k":"HO"},"future":{ "x":1 },"S":"case"}`
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Fatalf("%v\n%s", err, diff)
	}
	var back all
	if err := Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), back, compareAll); diff != "" {
		t.Error(diff)
	}
}

func TestMarshalValues(t *testing.T) {
	three, loud := 3, shout("x")
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "null"}, {(*int)(nil), "null"}, {&three, "3"}, {[]int(nil), "null"}, {[]int{}, "[]"}, {map[string]int(nil), "null"}, {map[string]int{}, "{}"},
		{[]byte(nil), "null"}, {[]byte{}, `""`}, {json.RawMessage(nil), "null"}, {json.RawMessage(" 1 "), " 1 "}, {Members(nil), "{}"}, {empt{}, "{}"},
		{[]any{1, "x", nil, point{1, 2}, &point{3, 4}, json.RawMessage("{ }")}, `[1,"x",null,[1, 2],[3, 4],{ }]`},
		{1e-7, "1e-7"}, {1e21, "1e+21"}, {1e20, "100000000000000000000"}, {math.Copysign(0, -1), "-0"}, {float32(0.1), "0.1"}, {float32(1e-7), "1e-7"},
		{loud, `"X"`}, {&loud, `"X"`}, {struct{ A shout }{loud}, `{"A":"X"}`}, {[]*point{nil}, "[null]"},
		{struct {
			A int       `json:"a,omitzero"`
			B [2]int    `json:"b,omitzero"`
			C *int      `json:",omitempty"`
			D any       `json:",omitempty"`
			E []int     `json:",omitempty"`
			F empt      `json:"f,omitempty"`
			G [0]string `json:"g,omitempty"`
		}{E: []int{}}, `{"f":{}}`},
	} {
		if got, err := Marshal(c.v); err != nil || string(got) != c.want {
			t.Errorf("Marshal(%#v) = %s, %v; want %s", c.v, got, err, c.want)
		}
	}
	if got, err := Append([]byte("x:"), 1); err != nil || string(got) != "x:1" {
		t.Errorf("Append = %s, %v", got, err)
	}
}

type broken struct{ out string }

func (b broken) AppendRawJSON(dst []byte) ([]byte, error) {
	if b.out == "" {
		return nil, nil
	}
	return append(dst, b.out...), nil
}

func TestMarshalRefuses(t *testing.T) {
	type entry struct {
		Turn json.RawMessage `json:"turn,omitempty"`
		ID   string          `json:"id,omitempty"`
	}
	type payload struct {
		Entries []entry `json:"entries"`
	}
	type loop struct{ Next *loop }
	cycle := &loop{}
	cycle.Next = cycle
	deep := json.RawMessage(nested(MaxDepth - 2))
	for _, c := range []struct {
		v    any
		want string
	}{
		{payload{[]entry{{}, {Turn: json.RawMessage(`{"a":\x}`)}}}, "entries[1].turn: offset 5: want a value"},
		{json.RawMessage{}, "offset 0: unexpected end"},
		{map[string]json.RawMessage{"gpt-5.1": json.RawMessage("}")}, `["gpt-5.1"]: offset 0: want a value`},
		{payload{[]entry{{Turn: deep}}}, "entries[0].turn: offset 997: nested deeper than 1000"},
		{Members{{"a", nil}, {"a", nil}}, "a: duplicate name"},
		{struct{ M Members }{Members{{"a", json.RawMessage("x")}}}, "M.a: offset 0: want a value"},
		{struct {
			A int     `json:"a"`
			R Members `json:",unknown"`
		}{1, Members{{"a", nil}}}, "a: duplicate name"},
		{[]float64{math.NaN()}, "[0]: NaN is no JSON number"},
		{math.Inf(-1), "-Inf is no JSON number"},
		{map[string]int{"\xff": 1}, `name "\xff" is not UTF-8`},
		{"a\xff", `"a\xff" is not UTF-8`},
		{"\xed\xa0\x80", `"\xed\xa0\x80" is not UTF-8`}, // a surrogate
		{payload{[]entry{{}, {ID: "\xc3("}}}, `entries[1].id: "\xc3(" is not UTF-8`},
		{map[string]string{"k": "\xff"}, `["k"]: "\xff" is not UTF-8`},
		{map[int]point{3: {-1, 0}}, `["3"]: negative`},
	} {
		got, err := Append([]byte("kept"), c.v)
		mustField(t, err, c.want)
		if string(got) != "kept" {
			t.Errorf("Append changed dst to %q", got)
		}
	}
	_, err := Marshal([]broken{{"nul"}, {"[["}})
	mustField(t, err, "[0]: AppendRawJSON of rawjson.broken: offset 0: want a value")
	_, err = Marshal([]broken{{"1"}, {""}})
	mustField(t, err, "[1]: AppendRawJSON of rawjson.broken lost what was before")
	if _, err := Marshal(cycle); err == nil || !strings.HasSuffix(err.Error(), tooDeep) {
		t.Errorf("cycle: %.100v", err)
	}
	if _, err := Marshal([]point{{-1, 0}}); !errors.Is(err, errNegative) {
		t.Errorf("%v does not wrap its cause", err)
	}
	if _, err := Marshal(payload{[]entry{{Turn: deep[1 : len(deep)-1]}}}); err != nil {
		t.Errorf("Marshal at the maximum depth: %v", err)
	}
}

// A type that has no codec panics with the name of the package.
func TestMistakesPanic(t *testing.T) {
	field := reflect.StructField{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"a"`}
	twin := field
	twin.Name = "B"
	clash := reflect.Zero(reflect.StructOf([]reflect.StructField{field, twin})).Interface()
	for name, f := range map[string]func(){
		"chan":            func() { Marshal(make(chan int)) },
		"field":           func() { Marshal(struct{ F func() }{}) },
		"bool keys":       func() { Marshal(map[bool]int{}) },
		"pointer pointer": func() { p := new(int); Marshal(&p) },
		"only hidden":     func() { Marshal(struct{ a int }{}) },
		"embedded hidden": func() {
			Marshal(struct {
				hides
				A int
			}{})
		},
		"embedded pointer": func() { Marshal(struct{ *Outer }{}) },
		"two names":        func() { Marshal(clash) },
		"option": func() {
			Marshal(struct {
				A int `json:",string"`
			}{})
		},
		"unknown": func() {
			Marshal(struct {
				A []Member `json:",unknown"`
			}{})
		},
		"not a pointer":  func() { Unmarshal([]byte("1"), 1) },
		"nil":            func() { Unmarshal([]byte("1"), nil) },
		"nil pointer":    func() { Unmarshal([]byte("1"), (*int)(nil)) },
		"into interface": func() { Unmarshal([]byte("1"), new(any)) },
		"into appender":  func() { Unmarshal([]byte("1"), new(broken)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "rawjson: ") {
					t.Errorf("the panic is %v", s)
				}
			}()
			f()
		})
	}
}

func TestRawIsVerbatim(t *testing.T) {
	in := []byte("{\"v\" :\n { \"<\" : 1.000, \"<\":\"\\u003c\" }\t}")
	var x struct {
		V json.RawMessage `json:"v"`
	}
	if err := Unmarshal(in, &x); err != nil {
		t.Fatal(err)
	}
	if want := `{ "<" : 1.000, "<":"\u003c" }`; string(x.V) != want || cap(x.V) != len(x.V) {
		t.Errorf("got the raw value %s with capacity %d", x.V, cap(x.V))
	}
	if &x.V[0] != &in[bytes.IndexByte(in[1:], '{')+1] {
		t.Error("raw does not alias the input")
	}
	out, err := Marshal(x)
	if err != nil || string(out) != `{"v":`+string(x.V)+`}` {
		t.Errorf("got %s, error %v", out, err)
	}
}
