package evals_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/stores/evals"
)

func TestConversationFile(t *testing.T) {
	t.Run("T-12 one object per line", testEncode)
	t.Run("T-13 what a decoder makes of lines", testDecode)
	t.Run("T-14 timestamps", testTimestamps)
}

func testEncode(t *testing.T) {
	loose, err := evals.ParseStep([]byte("{ \"stepIndex\": 0.0,\n \"input\": {\"role\":\"user\"}, \"output\": [], \"conversationId\": \"before\", \"x\": \"<&>\u2028\" }"))
	if err != nil {
		t.Fatal(err)
	}
	d := &evals.Data{ID: "c/1", Metadata: []byte(`{"a": 1}`), Steps: []evals.Step{loose, stepOf(1, "b")}}
	text := need(evals.Encode(d))
	want := "{\"stepIndex\":0.0,\"input\":{\"role\":\"user\"},\"output\":[],\"conversationId\":\"c/1\",\"x\":\"<&>\u2028\",\"conversationMetadata\":{\"a\":1}}\n" +
		strings.TrimSuffix(string(stepOf(1, "b").Raw()), "}") + `,"conversationId":"c/1"}`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if text := need(evals.Encode(&evals.Data{ID: "c"})); len(text) != 0 {
		t.Errorf("the file of no steps is %q", text)
	}
	if _, err := evals.Encode(&evals.Data{ID: "c", Steps: make([]evals.Step, 1)}); !isInvalid(err) {
		t.Errorf("encode an invalid step: %v", err)
	}
}

func testDecode(t *testing.T) {
	good := string(stepOf(0, "a").Raw())
	d := need(evals.Decode([]byte("\n  \r\n" + good + "\r\n\n{\"stepIndex\":1}\n[1]\n" + good + "\n\n")))
	if d.ID != evals.UnknownID || len(d.Steps) != 2 || len(d.Warnings) != 2 || d.Warnings[0].Line != 5 || d.Warnings[1].Line != 6 {
		t.Errorf("got %+v", d)
	}
	_, err := evals.Decode([]byte(good + "\n\n\n{oops\n" + good))
	if e, ok := errors.AsType[*evals.LineError](err); !ok || e.Line != 4 || e.Filled != 2 {
		t.Errorf("decode invalid JSON: %v", err)
	}
	for _, empty := range []string{"", "\n", " \r\n\t\n"} {
		if _, err := evals.Decode([]byte(empty)); !errors.Is(err, evals.ErrEmpty) {
			t.Errorf("%q: got the error %v", empty, err)
		}
	}
	// Id and metadata are those of the first line, even if it is not a step.
	first := `{"conversationId":"c1","conversationMetadata":{"k":1}}`
	second := strings.TrimSuffix(good, "}") + `,"conversationId":"c2","conversationMetadata":{"k":2}}`
	d = need(evals.Decode([]byte(first + "\n" + second)))
	if d.ID != "c1" || string(d.Metadata) != `{"k":1}` || len(d.Steps) != 1 {
		t.Errorf("got %+v", d)
	}
}

func testTimestamps(t *testing.T) {
	line := func(timestamp string) string {
		return `{"stepIndex":0,"input":{},"output":[],"timestamp":` + timestamp + `}`
	}
	for timestamp, want := range map[string]string{
		`"2026-01-23T13:35:42+01:00"`: "2026-01-23T12:35:42.000Z",
		`"2026-01-23T12:35:42.1Z"`:    "2026-01-23T12:35:42.100Z",
		`"2026-01-23"`:                "2026-01-23T00:00:00.000Z",
		`1769171838912`:               "", // dropped
		`null`:                        "",
	} {
		d := need(evals.Decode([]byte(line(timestamp))))
		if len(d.Steps) != 1 || string(d.Steps[0].Field("timestamp")) != timestamp {
			t.Fatalf("%s: got %+v", timestamp, d)
		}
		at, ok := d.Steps[0].Timestamp()
		if got := at.UTC().Format("2006-01-02T15:04:05.000Z07:00"); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, %v", timestamp, got, ok)
		}
		if (len(d.Warnings) == 1) != (want == "") {
			t.Errorf("%s: warnings %v", timestamp, d.Warnings)
		}
	}
	for _, bad := range []string{`"yesterday"`, `""`, `"2026-13-01T00:00:00Z"`} {
		d := need(evals.Decode([]byte(line(bad) + "\n" + string(stepOf(1, "b").Raw()))))
		if len(d.Steps) != 1 || len(d.Warnings) != 1 {
			t.Errorf("%s: got %+v", bad, d)
		}
	}
}

func TestStepSetters(t *testing.T) {
	s := need(evals.ParseStep([]byte(`{ "stepIndex":1, "zeta":1.50,"input":{"role":"user"} ,"output":[]}`)))
	for _, err := range []error{
		s.SetStepIndex(7), s.SetInput([]byte(`{"role":"tool"}`)), s.SetOutput([]byte(`{"a":1}`), []byte(`{"b":2}`)), s.SetID("m-1"),
		s.SetTimestamp(time.UnixMilli(1769171838912)), s.SetMetadata([]byte(`{"k":"v"}`)), s.Set("extra", []byte(`[1]`)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := `{ "stepIndex":7, "zeta":1.50,"input":{"role":"tool"} ,"output":[{"a":1},{"b":2}],"id":"m-1","timestamp":"2026-01-23T12:37:18.912Z","metadata":{"k":"v"},"extra":[1]}`
	if string(s.Raw()) != want || s.StepIndex() != 7 || s.ID() != "m-1" || len(s.Output()) != 2 || string(s.Metadata()) != `{"k":"v"}` {
		t.Errorf("got %s", s.Raw())
	}
	for _, err := range []error{s.SetID(""), s.SetTimestamp(time.Time{}), s.SetMetadata(nil), s.Set("extra", nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := `{ "stepIndex":7, "zeta":1.50,"input":{"role":"tool"} ,"output":[{"a":1},{"b":2}]}`; string(s.Raw()) != want {
		t.Errorf("got %s", s.Raw())
	}
	var zero evals.Step
	if err := zero.Set("stepIndex", []byte("1")); !isInvalid(err) || !zero.IsZero() {
		t.Errorf("set an incomplete step: %v", err)
	}
}

// A file that is decoded and encoded again is the same, except for blank lines, white space between tokens, and turns
// that are not steps.
func TestConversationFileLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &evals.Data{ID: rapid.StringMatching(`[a-zé/"]{1,6}`).Draw(t, "id")}
		if rapid.Bool().Draw(t, "metadata") {
			d.Metadata = []byte(`{"m":1.0}`)
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
			s := stepOf(i, rapid.String().Draw(t, "text"))
			if rapid.Bool().Draw(t, "extra") {
				if err := s.Set(rapid.StringMatching(`[x-z"é]{1,3}`).Draw(t, "name"), []byte(`[1e21,"\ud83d"]`)); err != nil {
					t.Fatal(err)
				}
			}
			d.Steps = append(d.Steps, s)
		}
		text, err := evals.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := evals.Decode(text)
		if err != nil || back.ID != d.ID || string(back.Metadata) != string(d.Metadata) || len(back.Steps) != len(d.Steps) || back.Warnings != nil {
			t.Fatalf("got %+v, error %v", back, err)
		}
		if again, err := evals.Encode(back); err != nil || string(again) != string(text) {
			t.Fatalf("%v\n%s\n%s", err, text, again)
		}
	})
}
