package events

import (
	"cmp"
	"log/slog"
	"strings"
	"unicode/utf8"
)

const (
	// DefaultNamespace is the namespace of subjects without an explicit one.
	DefaultNamespace = "default"
	// PersonalNamespace has a person's own settings. Only stores that others cannot reach have it; see PersonalError.
	PersonalNamespace = "_personal"
	// KindSession is the kind of every session's subject. Documents have other kinds.
	KindSession = "session"
	// Partitions is the number of virtual partitions, fixed for ever: it is part
	// of every subject's name.
	Partitions = 64
	// MaxIDLen bounds an id in bytes, before escapes.
	MaxIDLen = 512

	subjectPrefix  = "tally.v1."
	sessionPrefix  = "session/"
	documentPrefix = "document/"
)

// SubjectFilter is the NATS subject that matches every event of every subject.
const SubjectFilter = "tally.v1.*.*.*.*"

// Subject names one ordered history in the log: a session or a document. Subjects
// are comparable; the zero Subject names nothing.
type Subject struct {
	Namespace string // 1 to 64 of [A-Za-z0-9_-]
	Kind      string // KindSession, or the kind of a document
	ID        string // any bytes, 1 to MaxIDLen of them
}

// Session names the session id in namespace ns ("" is DefaultNamespace).
func Session(ns, id string) Subject {
	return Subject{Namespace: cmp.Or(ns, DefaultNamespace), Kind: KindSession, ID: id}
}

// Document names the document id of a kind in namespace ns ("" is DefaultNamespace).
func Document(ns, kind, id string) Subject {
	return Subject{Namespace: cmp.Or(ns, DefaultNamespace), Kind: kind, ID: id}
}

// IsSession reports whether s names a session.
func (s Subject) IsSession() bool { return s.Kind == KindSession }

// Validate returns an *InvalidError if s cannot name a subject.
func (s Subject) Validate() error {
	if err := ValidateNamespace(s.Namespace); err != nil {
		return err
	}
	if !isToken(s.Kind) {
		return invalid("subject", "kind %q: want 1 to 64 of [A-Za-z0-9_-]", s.Kind)
	}
	switch {
	case s.ID == "":
		return invalid("subject", "the id is empty")
	case len(s.ID) > MaxIDLen:
		return invalid("subject", "the id has %d bytes, at most %d are allowed", len(s.ID), MaxIDLen)
	}
	return nil
}

// LogValue returns the subject's name for process logs, without personal ids.
func (s Subject) LogValue() slog.Value {
	if s.Namespace == PersonalNamespace {
		return slog.StringValue(PersonalNamespace)
	}
	return slog.StringValue(s.Name())
}

// ValidateNamespace returns an *InvalidError unless ns is 1 to 64 of [A-Za-z0-9_-].
func ValidateNamespace(ns string) error {
	if !isToken(ns) {
		return invalid("namespace", "%q: want 1 to 64 of [A-Za-z0-9_-]", ns)
	}
	return nil
}

// NATS returns the literal NATS subject: tally.v1.<partition>.<namespace>.<kind>.<id>.
func (s Subject) NATS() string {
	id := EscapeID(s.ID)
	p := partition(s.Namespace, s.Kind, id)
	b := make([]byte, 0, len(subjectPrefix)+len("00...")+len(s.Namespace)+len(s.Kind)+len(id))
	b = append(b, subjectPrefix...)
	b = append(b, lowerHex[p>>4], lowerHex[p&15], '.')
	b = append(append(b, s.Namespace...), '.')
	b = append(append(b, s.Kind...), '.')
	return string(append(b, id...))
}

// Partition returns the virtual partition of the subject: 32-bit FNV-1a over <namespace>.<kind>.<escaped id>, modulo
// Partitions.
func (s Subject) Partition() int {
	return int(partition(s.Namespace, s.Kind, EscapeID(s.ID)))
}

func partition(ns, kind, escapedID string) uint32 {
	h := uint32(2166136261)
	h = fnv1a(fnv1a(h, ns), ".")
	h = fnv1a(fnv1a(h, kind), ".")
	return fnv1a(h, escapedID) % Partitions
}

func fnv1a(h uint32, s string) uint32 {
	for i := 0; i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// ParseNATS parses a NATS subject as the method NATS writes it. For any other spelling, a wrong partition included, the
// error is an *InvalidError.
func ParseNATS(subject string) (Subject, error) {
	rest, ok := strings.CutPrefix(subject, subjectPrefix)
	part, rest, ok1 := strings.Cut(rest, ".")
	ns, rest, ok2 := strings.Cut(rest, ".")
	kind, escaped, ok3 := strings.Cut(rest, ".")
	if !ok || !ok1 || !ok2 || !ok3 || strings.Contains(escaped, ".") {
		return Subject{}, invalid("subject", "%q: want tally.v1.<partition>.<namespace>.<kind>.<id>", subject)
	}
	id, err := UnescapeID(escaped)
	if err != nil {
		return Subject{}, err
	}
	s := Subject{Namespace: ns, Kind: kind, ID: id}
	if err := s.Validate(); err != nil {
		return Subject{}, err
	}
	if p := partition(ns, kind, escaped); len(part) != 2 || part[0] != lowerHex[p>>4] || part[1] != lowerHex[p&15] {
		return Subject{}, invalid("subject", "%q: the canonical form is %q", subject, s.NATS())
	}
	return s, nil
}

// String returns the CloudEvents subject: session/<id> or document/<kind>/<id>,
// with the same escapes as in NATS. The namespace is not part of it.
func (s Subject) String() string {
	switch {
	case s == Subject{}:
		return ""
	case s.IsSession():
		return sessionPrefix + EscapeID(s.ID)
	}
	return documentPrefix + s.Kind + "/" + EscapeID(s.ID)
}

// Name returns a name of the subject for error texts: "session codex/019f", "document doc/notes.md". An id that is not
// UTF-8 is escaped.
func (s Subject) Name() string {
	id := s.ID
	if !utf8.ValidString(id) {
		id = EscapeID(id)
	}
	switch {
	case s == Subject{}:
		return ""
	case s.IsSession():
		return KindSession + " " + id
	}
	return "document " + s.Kind + "/" + id
}

// ParseSubject parses a CloudEvents subject in namespace ns. It accepts bytes of the id that should be escaped and are
// not.
func ParseSubject(ns, text string) (Subject, error) {
	var s Subject
	switch {
	case strings.HasPrefix(text, sessionPrefix):
		s = Session(ns, unescapeLenient(text[len(sessionPrefix):]))
	case strings.HasPrefix(text, documentPrefix):
		kind, id, ok := strings.Cut(text[len(documentPrefix):], "/")
		if !ok {
			return s, invalid("subject", "%q: want document/<kind>/<id>", text)
		}
		if kind == KindSession {
			return s, invalid("subject", "%q: no document has the kind session", text)
		}
		s = Document(ns, kind, unescapeLenient(id))
	default:
		return s, invalid("subject", "%q: want session/<id> or document/<kind>/<id>", text)
	}
	return s, s.Validate()
}

const (
	upperHex = "0123456789ABCDEF"
	lowerHex = "0123456789abcdef"
)

// EscapeID returns an id with [A-Za-z0-9_-] unchanged and every other byte as =XX.
func EscapeID(id string) string {
	unsafe := 0
	for i := 0; i < len(id); i++ {
		if !isSafe(id[i]) {
			unsafe++
		}
	}
	if unsafe == 0 {
		return id
	}
	b := make([]byte, 0, len(id)+2*unsafe)
	for i := 0; i < len(id); i++ {
		if c := id[i]; isSafe(c) {
			b = append(b, c)
		} else {
			b = append(b, '=', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}

// UnescapeID undoes EscapeID. If EscapeID does not write such a text, the error is an *InvalidError.
func UnescapeID(escaped string) (string, error) {
	for i := 0; i < len(escaped); i++ {
		if isSafe(escaped[i]) {
			continue
		}
		if c, ok := escapedByte(escaped[i:]); !ok || isSafe(c) {
			return "", invalid("subject", "id %q: the escaped form is %q", escaped, EscapeID(unescapeLenient(escaped)))
		}
		i += 2
	}
	return unescapeLenient(escaped), nil
}

// escapedByte returns the byte of the escape at the start of s, and false if s does not start with one.
func escapedByte(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '=' {
		return 0, false
	}
	hi, lo := strings.IndexByte(upperHex, s[1]), strings.IndexByte(upperHex, s[2])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

func unescapeLenient(s string) string {
	if !strings.Contains(s, "=") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if c, ok := escapedByte(s[i:]); ok {
			b = append(b, c)
			i += 2
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}

func isSafe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

func isToken(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isSafe(s[i]) {
			return false
		}
	}
	return true
}
