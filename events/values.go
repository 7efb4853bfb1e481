package events

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Timestamp is an RFC 3339 time in its producer's spelling; "" is unknown.
type Timestamp string

// TimestampOf returns a time with millisecond precision in UTC. For a time before the year 0 or after 9999, it returns
// "".
func TimestampOf(t time.Time) Timestamp {
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return ""
	}
	return Timestamp(t.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// Time returns the time, and false if it is missing or invalid.
func (t Timestamp) Time() (time.Time, bool) {
	at, err := parseTime(string(t))
	return at, err == nil
}

func (t Timestamp) check(path string) error {
	if _, ok := t.Time(); t != "" && !ok {
		return wrong(path, "%q is not an RFC 3339 time", string(t))
	}
	return nil
}

// DocRef names a document: document/<kind>/<id>, with @<offset> behind it for one revision. Absent means that there was
// no file.
type DocRef string

// Absent means that there was no file.
const Absent DocRef = "absent"

// RefOf returns the reference of a document, or of one revision of it if at is not 0.
func RefOf(doc Subject, at Offset) DocRef {
	if at == 0 {
		return DocRef(doc.String())
	}
	return DocRef(doc.String() + at.String())
}

// Parse returns the document and the revision (0: the newest) in namespace ns.
func (r DocRef) Parse(ns string) (Subject, Offset, error) {
	name, revision, has := strings.Cut(string(r), "@")
	doc, err := ParseSubject(ns, name)
	if err == nil && doc.IsSession() {
		err = invalid("subject", "%q names no document", string(r))
	}
	if err != nil || !has {
		return doc, 0, err
	}
	at, err := ParseOffset(revision)
	if err != nil || at == 0 || revision[0] == '@' {
		return doc, 0, invalid("offset", "%q names no revision", string(r))
	}
	return doc, at, nil
}

func (r DocRef) check(path string, absentToo bool) error {
	if r == "" || absentToo && r == Absent {
		return nil
	}
	if _, _, err := r.Parse(""); err != nil {
		return wrong(path, "%q is not a document such as document/blob/<sha256>", string(r))
	}
	return nil
}

// Amount is an exact decimal number such as "0.0125". It is never a binary float.
type Amount string

// Rat returns the exact value, and false if the text is not a plain decimal.
func (a Amount) Rat() (*big.Rat, bool) {
	s := strings.TrimPrefix(string(a), "-")
	whole, frac, dot := strings.Cut(s, ".")
	if !digits(whole) || dot && !digits(frac) || len(s) > 64 {
		return nil, false
	}
	return new(big.Rat).SetString(string(a))
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// AmountOf returns a sum of exact decimals with as many digits as it needs.
func AmountOf(r *big.Rat) Amount {
	decimals, ok := r.FloatPrec()
	if !ok {
		panic(fmt.Sprintf("events: %v is no finite decimal", r))
	}
	return Amount(r.FloatString(decimals))
}

// Tokens counts tokens in disjoint classes, except Reasoning, which Output includes. Input excludes tokens that were
// read from or written to a cache.
type Tokens struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`
	CacheRead  int64 `json:"cacheRead"`
	CacheWrite int64 `json:"cacheWrite"`
}

// maxTokens keeps sums of very many events inside an int64 and each figure exact
// in every language.
const maxTokens = 1 << 53

// Add returns the sum of two counts.
func (t Tokens) Add(u Tokens) Tokens {
	return Tokens{t.Input + u.Input, t.Output + u.Output, t.Reasoning + u.Reasoning, t.CacheRead + u.CacheRead, t.CacheWrite + u.CacheWrite}
}

// Less returns the count minus another one.
func (t Tokens) Less(u Tokens) Tokens {
	return Tokens{t.Input - u.Input, t.Output - u.Output, t.Reasoning - u.Reasoning, t.CacheRead - u.CacheRead, t.CacheWrite - u.CacheWrite}
}

// Total returns the sum of the disjoint classes.
func (t Tokens) Total() int64 { return t.Input + t.Output + t.CacheRead + t.CacheWrite }

func (t *Tokens) check(path string) error {
	if t == nil {
		return nil
	}
	for _, c := range []struct {
		name string
		n    int64
	}{{"input", t.Input}, {"output", t.Output}, {"reasoning", t.Reasoning}, {"cacheRead", t.CacheRead}, {"cacheWrite", t.CacheWrite}} {
		if c.n < 0 || c.n > maxTokens {
			return wrong(path+"."+c.name, "%d is not a count of tokens", c.n)
		}
	}
	if t.Reasoning > t.Output {
		return wrong(path+".reasoning", "%d exceeds output %d, which includes it", t.Reasoning, t.Output)
	}
	return nil
}

// RunRef is the identity of a run inside its session. The kind is part of it.
type RunRef struct {
	Kind string `json:"kind"` // turn, tally, trajectory, panel, expert, item, workflow, changeset, or another
	ID   string `json:"id"`
}

func (r RunRef) String() string { return r.Kind + "/" + r.ID }

func (r RunRef) check(path string) error {
	return first(required(path+".kind", r.Kind), required(path+".id", r.ID))
}

func (r *RunRef) checkOptional(path string) error {
	if r == nil {
		return nil
	}
	return r.check(path)
}

// FileFormat describes how a file of a foreign layout is formatted around the raw values in the events, or that it is
// kept whole.
type FileFormat struct {
	// Indent is the white space of one level, if the file is rendered from raw values; "": the raw bytes are unchanged.
	Indent       string `json:"indent,omitempty"`
	Separator    string `json:"separator,omitempty"`    // between the lines of a line-based file; "": \n
	FinalNewline bool   `json:"finalNewline,omitempty"` // the separator (or \n) also follows the last line
	BOM          bool   `json:"bom,omitempty"`
	Compact      bool   `json:"compact,omitempty"` // turns in a line-based file have no white space, whatever their raw bytes have
	Mode         int64  `json:"mode,omitempty"`    // permission bits; 0: 0644
	Derived      bool   `json:"derived,omitempty"` // the file follows from other parts of the state
	Gone         bool   `json:"gone,omitempty"`    // the file does not exist, or no longer

	// Doc names the document that holds the whole file. Of is the SHA-256 (hex) of the file that the state rendered
	// when it was kept: the document is used while the state still renders the same. "": always.
	Doc DocRef `json:"doc,omitempty"`
	Of  string `json:"of,omitempty"`
}

func checkFormats(formats map[string]FileFormat) error {
	for _, name := range sortedKeys(formats) {
		f := formats[name]
		path := fmt.Sprintf("formats[%q]", name)
		if name == "" {
			return wrong("formats", "a file without a name")
		}
		if err := first(f.Doc.check(path+".doc", false), notNegative(path+".mode", f.Mode)); err != nil {
			return err
		}
	}
	return nil
}
