package rawjson

import "testing"

type keeping struct {
	N    int      `json:"n,omitempty" rawjson:"kept"`
	L    []int    `json:"l,omitzero" rawjson:"kept"`
	P    *keeping `json:"p,omitempty" rawjson:"kept"`
	Rest Members  `json:",unknown"`
}

// Members that a field cannot represent are kept and written again.
func TestKept(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{}`, `{"n":0}`: `{"n":0}`, `{"n":-0}`: `{"n":-0}`, `{"l":[]}`: `{"l":[]}`, `{"p":null}`: `{"p":null}`,
		`{"x":1,"n":0,"y":2,"p":{"n":0,"z":{}}}`: `{"n":0,"p":{"n":0,"z":{}},"x":1,"y":2}`,
	} {
		var v keeping
		if err := Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		if out, err := Marshal(v); string(out) != want || err != nil {
			t.Errorf("%s became %s, %v; want %s", in, out, err, want)
		}
	}
	v := keeping{Rest: Members{{"n", []byte("0")}, {"l", []byte("7")}}}
	if v.N = 5; true {
		if out, err := Marshal(v); string(out) != `{"n":5,"l":7}` || err != nil {
			t.Errorf("got %s, error %v", out, err)
		}
	}
	for in, v := range map[string]any{`{"n":0,"n":1}`: new(keeping), `{"x":1,"x":2}`: new(keeping)} {
		if err := Unmarshal([]byte(in), v); err == nil {
			t.Errorf("%s was accepted", in)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a field of type int with the tag kept did not panic")
			}
		}()
		Marshal(struct {
			A int `json:"a,omitempty" rawjson:"kept"`
		}{})
	}()
}
