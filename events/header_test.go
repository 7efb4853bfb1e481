package events_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
)

// wireHeader returns a header in the text form of NATS.
func wireHeader(header map[string][]string) string {
	var lines []string
	for name, values := range header {
		for _, v := range values {
			lines = append(lines, name+": "+v+"\r\n")
		}
	}
	slices.Sort(lines)
	return "NATS/1.0\r\n" + strings.Join(lines, "") + "\r\n"
}

func TestDecodeWire(t *testing.T) {
	sub, header, data := message()
	header["Nats-Msg-Id"] = []string{turn().MsgID()}
	want, err := events.DecodeMessage(sub, header, data)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := events.DecodeWire(sub, wireHeader(header), data)
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("ok %v (-want +got):\n%s", ok, diff)
	}
}

// DecodeWire refuses all headers that DecodeMessage refuses or that EncodeBinary does not write.
func TestDecodeWireLeaves(t *testing.T) {
	for name, change := range map[string]func(header map[string][]string){
		"a name in another case":        func(h map[string][]string) { h["CE-actor"] = []string{"ada"} },
		"an attribute in another case":  func(h map[string][]string) { h["ce-Actor"] = []string{"ada"} },
		"two values":                    func(h map[string][]string) { h["ce-id"] = []string{"a", "b"} },
		"two content types":             func(h map[string][]string) { h["content-type"] = []string{"text/plain"} },
		"a content type as attribute":   func(h map[string][]string) { h["ce-datacontenttype"] = []string{"application/json"} },
		"a structured event":            func(h map[string][]string) { h["Content-Type"] = []string{"application/cloudevents+json"} },
		"no specversion":                func(h map[string][]string) { delete(h, "ce-specversion") },
		"an invalid time":               func(h map[string][]string) { h["ce-time"] = []string{"yesterday"} },
		"the subject of another":        func(h map[string][]string) { h["ce-subject"] = []string{"session/else"} },
		"an attribute of white space":   func(h map[string][]string) { h["ce-actor"] = []string{" ada"} },
		"an attribute that is not text": func(h map[string][]string) { h["ce-actor"] = []string{"%00"} },
	} {
		sub, header, data := message()
		change(header)
		if e, ok := events.DecodeWire(sub, wireHeader(header), data); ok {
			t.Errorf("%s: got %+v, want it left to DecodeMessage", name, e)
		}
	}
}

// FuzzDecodeWire compares decoding of the header's text with decoding of the map that the NATS client makes of it.
func FuzzDecodeWire(f *testing.F) {
	sub, header, data := message()
	f.Add(sub, wireHeader(header), data)
	f.Add(sub, "NATS/1.0\r\nce-id: \r\n\r\n", data)
	f.Add(sub, "NATS/1.0 100\r\nCE-ID:1\n\n", data)
	f.Fuzz(func(t *testing.T, sub, header string, data []byte) {
		got, ok := events.DecodeWire(sub, header, data)
		if !ok {
			return
		}
		parsed, err := nats.DecodeHeadersMsg([]byte(header))
		if err != nil {
			t.Fatal(err)
		}
		want, err := events.DecodeMessage(sub, parsed, data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func BenchmarkDecodeWire(b *testing.B) {
	sub, header, data := message()
	header["Nats-Msg-Id"] = []string{turn().MsgID()}
	text := wireHeader(header)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := events.DecodeWire(sub, text, data); !ok {
			b.Fatal("not read")
		}
	}
}
