package events_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// mustBeInvalid fails unless err is an *InvalidError of a field; "" is any field.
func mustBeInvalid(t testing.TB, name string, err error, field string) {
	t.Helper()
	e, ok := errors.AsType[*events.InvalidError](err)
	switch {
	case !ok:
		t.Errorf("%s: got %v, want an *InvalidError of %q", name, err, field)
	case field != "" && e.Field != field:
		t.Errorf("%s: got field %q (%v), want %q", name, e.Field, err, field)
	case e.Reason == "" || strings.HasSuffix(e.Field, "."):
		t.Errorf("%s: %#v has no reason or an incomplete field", name, e)
	}
}

func mustJSON(e events.Event) []byte {
	b, err := events.AppendJSON(nil, e)
	if err != nil {
		panic(err)
	}
	return b
}

// textRanges are the runes that may stand in an attribute, with many that are
// awkward in headers and JSON.
var textRanges = []*unicode.RangeTable{
	{R16: []unicode.Range16{{Lo: 0x20, Hi: 0x7e, Stride: 1}}},
	{R16: []unicode.Range16{{Lo: 0xa0, Hi: 0xff, Stride: 1}}},
	{R16: []unicode.Range16{{Lo: 0x2028, Hi: 0x2029, Stride: 1}, {Lo: 0xe000, Hi: 0xe001, Stride: 1}, {Lo: 0xfffd, Hi: 0xfffd, Stride: 1}}},
	{R32: []unicode.Range32{{Lo: 0x1f600, Hi: 0x1f64f, Stride: 1}}},
}

// anySubject draws valid subjects, whose ids are any bytes.
func anySubject() *rapid.Generator[events.Subject] {
	id := rapid.Map(rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 1, 24),
		rapid.SliceOfN(rapid.SampledFrom([]byte("=ABCDEF0123./*> a")), 1, 24),
		rapid.SliceOfN(rapid.Byte(), events.MaxIDLen, events.MaxIDLen),
	), func(b []byte) string { return string(b) })
	token := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)
	return rapid.Custom(func(t *rapid.T) events.Subject {
		kind := rapid.OneOf(rapid.Just(events.KindSession), token).Draw(t, "kind")
		return events.Subject{Namespace: token.Draw(t, "ns"), Kind: kind, ID: id.Draw(t, "id")}
	})
}
