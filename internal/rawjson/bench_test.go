package rawjson

import (
	"encoding/json"
	"testing"
	"time"
)

type benchEntry struct {
	Thread string          `json:"thread"`
	Turn   json.RawMessage `json:"turn,omitempty"`
	Bytes  []byte          `json:"bytes,omitempty"`
}

type benchAppended struct {
	Entries []benchEntry `json:"entries"`
	Unknown Members      `json:",unknown"`
}

type benchPlain struct {
	Entries []benchEntry `json:"entries"`
}

var benchPayload = []byte(`{"entries":[{"thread":"main","turn":{"role":"assistant","content":[{"type":"text","text":"The scanner walks over the bytes once and hands out slices of what it has seen, so that nothing is copied that the caller does not ask for. \"Raw\" is raw:\nnumbers keep their spelling, names their order, strings their escapes."},{"type":"tool_use","id":"toolu_01A09q90qw90lq917835lq9","name":"read_file","input":{"path":"internal/rawjson/scan.go","offset":120,"limit":40}}],"model":"some-model-4-5","usage":{"input_tokens":2095,"output_tokens":503,"cache_read_input_tokens":18342},"stop_reason":"tool_use"}}]}`)

// against reports how many times faster ours is than theirs, in this run.
func against(b *testing.B, ours, theirs func() error) {
	b.SetBytes(int64(len(benchPayload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := ours(); err != nil {
			b.Fatal(err)
		}
	}
	mine := b.Elapsed()
	start := time.Now()
	for range b.N {
		if err := theirs(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start))/float64(mine), "x-of-encoding/json")
}

func BenchmarkUnmarshal(b *testing.B) {
	against(b,
		func() error { var x benchAppended; return Unmarshal(benchPayload, &x) },
		func() error { var x benchPlain; return json.Unmarshal(benchPayload, &x) })
}

func BenchmarkMarshal(b *testing.B) {
	var x benchPlain
	if err := Unmarshal(benchPayload, &x); err != nil {
		b.Fatal(err)
	}
	var buf []byte
	against(b,
		func() (err error) { buf, err = Append(buf[:0], &x); return err },
		func() error { _, err := json.Marshal(&x); return err })
}

func BenchmarkCheck(b *testing.B) {
	against(b,
		func() error { return Check(benchPayload) },
		func() error {
			if !json.Valid(benchPayload) {
				return &SyntaxError{}
			}
			return nil
		})
}
