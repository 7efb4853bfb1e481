package log

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
)

// FuzzAppendRequest checks that the owner refuses any request with a code that clients know, or accepts it. The events
// of an accepted request are valid, within the limits, and decoded as the same events. Encoding the request again
// changes nothing.
func FuzzAppendRequest(f *testing.F) {
	taken, refused := appendRequests()
	for _, seed := range append(taken, refused...) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, p, err := arrive(data)
		if err != nil {
			mustRefuse(t, err)
			return
		}
		if len(a.producer) > maxProducer || (a.producer == "") != (a.number == 0) {
			t.Fatalf("a request with producer %q and number %d is accepted", a.producer, a.number)
		}
		mustBeStorable(t, p)
		sent, err := encodeAppend(p)
		if err != nil {
			t.Fatalf("encode an accepted request: %v", err)
		}
		_, q, err := arrive(sent)
		if err != nil {
			t.Fatalf("decode the encoded request %s: %v", sent, err)
		}
		if diff := cmp.Diff(p.events, q.events); diff != "" || p.sub != q.sub || p.expect != q.expect || p.buffered != q.buffered || p.guarded != q.guarded {
			t.Fatalf("request %+v is %+v once encoded and decoded\n%s", p, q, diff)
		}
	})
}

// Invalid requests are refused, valid ones are not.
func TestAppendRequests(t *testing.T) {
	taken, refused := appendRequests()
	for _, data := range taken {
		if _, _, err := arrive([]byte(data)); err != nil {
			t.Errorf("%.200s: got error %v, want it accepted", data, err)
		}
	}
	for _, data := range refused {
		if _, _, err := arrive([]byte(data)); err == nil {
			t.Errorf("%.200s: got no error", data)
		}
	}
}

// arrive decodes and prepares a request, as the owner does before it stores it.
func arrive(data []byte) (a arrival, p *appending, err error) {
	if a, err = decodeAppend(data); err != nil {
		return a, nil, err
	}
	l := &Log{config: Config{NewID: func() string { return "fresh" }}.withDefaults()}
	if p, err = l.prepare(a.sub, a.expect, a.events); err != nil {
		return a, nil, err
	}
	p.buffered = a.buffered
	return a, p, nil
}

// mustRefuse fails unless the error names the invalid part of the request to the client.
func mustRefuse(t *testing.T, err error) {
	t.Helper()
	w := FailureOf(err)
	if w.Code != wireInvalid && w.Code != wireTooLarge || w.Code == wireInvalid && w.Field == "" {
		t.Fatalf("refused with code %s, want invalid with a field, or tooLarge: %v", w.Code, err)
	}
	if text := headerText(w.Message); strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		t.Fatalf("the header of the error has control characters or bytes beyond ASCII: %q", text)
	}
	mustMarshal(appendReply{Error: w})
}

// mustBeStorable fails if a prepared append breaks a rule that the owner relies on.
func mustBeStorable(t *testing.T, p *appending) {
	t.Helper()
	err := p.sub.Validate()
	if n := len(p.msgs); err != nil || n == 0 || n > events.MaxAppend || n != len(p.events) {
		t.Fatalf("append to %v has %d messages for %d events: %v", p.sub, len(p.msgs), len(p.events), err)
	}
	ids := make(map[string]bool)
	for i, m := range p.msgs {
		e := p.events[i]
		if err := e.Validate(); err != nil || e.Subject != p.sub {
			t.Fatalf("event of subject %v in an append to %v: %v", e.Subject, p.sub, err)
		}
		if m.ID == "" || ids[m.ID] || len(m.Data) > events.MaxData || m.headerSize() > events.MaxHeaders {
			t.Fatalf("message %d of %d: id %q, %d bytes of data, %d of header: over a limit, or the id is empty or repeated", i, len(p.msgs), m.ID, len(m.Data), m.headerSize())
		}
		ids[m.ID] = true
		rec, err := decode(Message{Subject: p.name, Data: m.Data, wire: fmt.Sprintf("NATS/1.0\r\n%s\r\n", m.Header)})
		if err != nil || !sameEvent(rec.Event, e) || rec.MsgID() != m.ID || !sameExtensions(rec.Event, e) {
			t.Fatalf("event %+v is decoded as %+v: %v", e, rec.Event, errors.Unwrap(err))
		}
	}
}

func sameExtensions(a, b events.Event) bool { return cmp.Equal(a.Extensions, b.Extensions) }

// appendRequests returns valid requests, and invalid ones with one fault each.
func appendRequests() (taken, refused []string) {
	event := func(more string) string {
		return `{"specversion":"1.0","id":"1","source":"urn:x","type":"com.example.t"` + more + `}`
	}
	request := func(more string) string { return `{"subject":"session/s"` + more + `}` }
	of := func(list ...string) string { return `,"events":[` + strings.Join(list, ",") + `]` }
	taken = []string{
		request(of(event(`,"data":{"a":[1, 2.0]},"actor":"ada"`))),
		request(`,"namespace":"n","buffered":true,"expect":{"at":7}` + of(event(""), strings.Replace(event(""), `"1"`, `"2"`, 1))),
		request(`,"expect":{"since":3,"types":["b","a","a"]}` + of(event(`,"subject":"session/s","data_base64":"AAE=","datacontenttype":"image/png"`))),
		request(`,"expect":{"since":3,"types":["b\na",""]}` + of(event(""))),
		request(`,"producer":"p","number":18446744073709551615` + of(event(`,"time":"2026-01-02T03:04:05.6+02:00"`))),
		request(of(strings.Replace(event(`,"data":{"to":1}`), "com.example.t", events.TypeSessionRewound, 1))),
	}
	refused = []string{
		request(`,"producer":"` + strings.Repeat("p", maxProducer+1) + `","number":1` + of(event(""))),
		request(`,"producer":"p"` + of(event(""))),
		request(`,"number":1` + of(event(""))),
		request(`,"expect":{"at":1,"since":1}` + of(event(""))),
		request(`,"expect":{"types":["a"]}` + of(event(""))),
		request(`,"events":[]`),
		request(of(event(""), event(""))),
		request(of(event(`,"subject":"session/other"`))),
		request(of(event(`,"actor":"a\r\nNats-Rollup: all"`))),
		request(of(event(`,"actor":"` + strings.Repeat("a", events.MaxHeaders) + `"`))),
		request(of(strings.Replace(event(`,"data":{"to":"x"}`), "com.example.t", events.TypeSessionRewound, 1))),
		request(of(`{"specversion":"1.0","id":"","source":"urn:x","type":"t"}`)),
		`{"subject":"session/","events":[` + event("") + `]}`,
		`{"subject":"document/k/` + strings.Repeat("i", 600) + `","events":[` + event("") + `]}`,
		`{"subject":"document/note/n","namespace":"*","events":[` + event("") + `]}`,
		`{"subject":"session/s","subject":"session/t"}`, `{}`, `null`, ``, `{"subject":"session/s","events":[null]}`,
	}
	return taken, refused
}
