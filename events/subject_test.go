package events_test

import (
	"hash/fnv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

func TestSubjectRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySubject().Draw(t, "subject")
		nats := s.NATS()
		if got, err := events.ParseNATS(nats); err != nil || got != s {
			t.Fatalf("ParseNATS(%q) = %#v, %v", nats, got, err)
		}
		if got, err := events.ParseSubject(s.Namespace, s.String()); err != nil || got != s {
			t.Fatalf("ParseSubject(%q) = %#v, %v", s, got, err)
		}
		if strings.ContainsAny(nats, " *>\x00\r\n\t") || strings.Count(nats, ".") != 5 {
			t.Fatalf("%q is not a literal subject of six tokens", nats)
		}
		h := fnv.New32a()
		h.Write([]byte(s.Namespace + "." + s.Kind + "." + events.EscapeID(s.ID)))
		if want := int(h.Sum32() % events.Partitions); s.Partition() != want {
			t.Fatalf("Partition = %d, want %d", s.Partition(), want)
		}
	})
}

func TestEscapeIsReversible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := string(rapid.SliceOf(rapid.Byte()).Draw(t, "id"))
		if got, err := events.UnescapeID(events.EscapeID(a)); err != nil || got != a {
			t.Fatalf("UnescapeID(EscapeID(%q)) = %q, %v", a, got, err)
		}
	})
}

func TestSubjectForms(t *testing.T) {
	for _, tc := range []struct {
		sub  events.Subject
		text string
	}{
		{events.Subject{}, ""},
		{events.Session("", "s1"), "session/s1"},
		{events.Session("acme", "a/b.c=d"), "session/a=2Fb=2Ec=3Dd"},
		{events.Document("acme", "recipe", "café"), "document/recipe/caf=C3=A9"},
	} {
		if got := tc.sub.String(); got != tc.text {
			t.Errorf("String of %#v = %q, want %q", tc.sub, got, tc.text)
		}
	}
	if s := events.Session("", "x"); s.Namespace != "default" || !s.IsSession() {
		t.Errorf("Session = %#v", s)
	}
	if d := events.Document("", "recipe", "x"); d.Namespace != "default" || d.IsSession() {
		t.Errorf("Document = %#v", d)
	}
}

func TestSubjectValidate(t *testing.T) {
	long := strings.Repeat("n", 65)
	for _, s := range []events.Subject{
		{}, {Namespace: "n", Kind: "k"}, {Kind: "k", ID: "i"}, {Namespace: "n", ID: "i"},
		{Namespace: "a.b", Kind: "k", ID: "i"}, {Namespace: "n", Kind: "a/b", ID: "i"}, {Namespace: "ü", Kind: "k", ID: "i"},
		{Namespace: long, Kind: "k", ID: "i"}, {Namespace: "n", Kind: long, ID: "i"}, {Namespace: "n", Kind: "k", ID: strings.Repeat("x", 513)},
	} {
		mustBeInvalid(t, s.NATS(), s.Validate(), "")
	}
	ok := events.Subject{Namespace: long[:64], Kind: long[:64], ID: strings.Repeat("\x00", 512)}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseNATSRefuses(t *testing.T) {
	good := events.Session("acme", "a/b").NATS()
	for _, s := range []string{
		"", "tally", "tally.v1", "tally.v2." + good[9:], good + ".x", strings.TrimSuffix(good, ".a=2Fb"), "x" + good,
		"tally.v1.63.acme.session.a=2Fb", "tally.v1.3.acme.session.a=2Fb", strings.Replace(good, "=2F", "=2f", 1), strings.Replace(good, "=2F", "/", 1),
		strings.Replace(good, "a=", "=61=", 1), strings.Replace(good, "=2Fb", "=2", 1), strings.Replace(good, "acme", "*", 1), strings.Replace(good, "acme", "", 1), strings.Replace(good, "session", ">", 1),
	} {
		_, err := events.ParseNATS(s)
		mustBeInvalid(t, s, err, "")
	}
}

func TestParseSubject(t *testing.T) {
	for text, id := range map[string]string{
		"session/a/b": "a/b", "session/a=2Fb": "a/b", "session/a=2fb": "a=2fb", "session/=": "=", "session/=2": "=2", "session/é.* >": "é.* >", "session/document/x/y": "document/x/y",
	} {
		got, err := events.ParseSubject("acme", text)
		if err != nil || got != events.Session("acme", id) {
			t.Errorf("ParseSubject(%q) = %#v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "session", "session/", "Session/x", "document/recipe", "document/recipe/", "document//x", "document/session/x", "document/a.b/x", "x/y", "session/" + strings.Repeat("x", 513)} {
		_, err := events.ParseSubject("acme", text)
		mustBeInvalid(t, text, err, "subject")
	}
	_, err := events.ParseSubject("a.b", "session/x")
	mustBeInvalid(t, "namespace", err, "namespace")
}

func TestPrefixesOfFilter(t *testing.T) {
	filter, sub := strings.Split(events.SubjectFilter, "."), strings.Split(events.Session("acme", "*.>").NATS(), ".")
	if len(filter) != len(sub) || sub[0] != filter[0] || sub[1] != filter[1] {
		t.Errorf("filter %s does not match %s", filter, sub)
	}
}

// FuzzParseNATS: a parsed subject is written as exactly the same text.
func FuzzParseNATS(f *testing.F) {
	for _, s := range []string{events.Session("acme", "a/b").NATS(), events.Document("", "recipe", "\x00\xff=*>.").NATS(), "tally.v1.00.a.b.=2F", "tally.v1.*.*.*.>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := events.ParseNATS(text)
		if err != nil {
			mustBeInvalid(t, text, err, "")
			return
		}
		if s.Validate() != nil || s.NATS() != text {
			t.Fatalf("ParseNATS(%q) = %#v, which has another text", text, s)
		}
	})
}

// FuzzParseSubject: a parsed subject has one canonical text, which parses to the same subject.
func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"session/a/b", "session/a=2Fb", "document/recipe/=C3=A9", "document/session/x", "session/=3D=", "session/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := events.ParseSubject("acme", text)
		if err != nil {
			mustBeInvalid(t, text, err, "")
			return
		}
		again, err := events.ParseSubject("acme", s.String())
		if err != nil || again != s {
			t.Fatalf("ParseSubject(%q) = %#v, its text %q is parsed as %#v, %v", text, s, s, again, err)
		}
		if back, err := events.ParseNATS(s.NATS()); err != nil || back != s {
			t.Fatalf("ParseNATS(%q) = %#v, %v", s.NATS(), back, err)
		}
	})
}
