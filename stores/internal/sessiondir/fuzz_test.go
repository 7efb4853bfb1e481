package sessiondir_test

import (
	"bytes"
	"testing"

	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// A JSON file is written again from its value and its format. If ReadJSON reports it as exact, it has the same bytes,
// else the same value.
func FuzzSpelling(f *testing.F) {
	for _, seed := range []string{"{}", "{ }\n", "\ufeff[1]\r\n", " {}", "{}\n\n", "{}\t\r\n", `{"a":{"a":1}}`, "\ufeff", "[[[]]]", "1", `"{}"`, "{}\r"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := sessiondir.ReadJSON(data, 1)
		if err != nil {
			return
		}
		spelled := sessiondir.SpellJSON(v.Raw, v.Format)
		if bytes.Equal(spelled, data) != v.Exact {
			t.Errorf("%q is written as %q, exact: %v", data, spelled, v.Exact)
		}
		again, err := sessiondir.ReadJSON(spelled, 1)
		if err != nil || !again.Exact || again.Format != v.Format || !bytes.Equal(again.Raw, v.Raw) {
			t.Errorf("%q is written as %q, which is read as %+v, error %v", data, spelled, again, err)
		}
		var written bytes.Buffer
		if err := sessiondir.WriteJSON(&written, v.Raw, v.Format); err != nil || !bytes.Equal(written.Bytes(), spelled) {
			t.Errorf("Write and Spell differ: %q and %q", written.Bytes(), spelled)
		}
	})
}

// read is the result of a reader of lines.
type read struct {
	turns [][]byte
	seen  []sessiondir.TurnLine
}

func readLines(t *testing.T, each func(func(sessiondir.TurnLine) error) error) (r read, spelled []byte) {
	t.Helper()
	var b bytes.Buffer
	out := sessiondir.LinesWriter{W: &b}
	err := each(func(l sessiondir.TurnLine) error {
		l.Spells(&out.Format)
		if l.Raw != nil {
			r.turns = append(r.turns, bytes.Clone(l.Raw))
		}
		r.seen = append(r.seen, sessiondir.TurnLine{Line: l.Line, End: l.End, BOM: l.BOM, Err: l.Err})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range r.turns {
		if err := out.Turn(turn, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.End(); err != nil {
		t.Fatal(err)
	}
	return r, b.Bytes()
}

// A file of lines yields the same turns from memory and from a reader. The written form of its turns also yields
// these turns.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{"", "\n", "{}\n{}", "{}\r\n{}\r\n", "\ufeff{\"a\":1}\n\n[2]\n", "{}\r{}\n", "{\r}", " {} \n{\n", "null\n1", "\ufeff", "\r\n\r\n", "{\"long\":\"01234567890123456789\"}\n{}\n"} {
		f.Add([]byte(seed))
	}
	const limit = 24
	f.Fuzz(func(t *testing.T, data []byte) {
		inMemory, spelled := readLines(t, func(take func(sessiondir.TurnLine) error) error { return sessiondir.EachLineOf(data, limit, take) })
		fromFile, other := readLines(t, func(take func(sessiondir.TurnLine) error) error {
			return sessiondir.EachLine(bytes.NewReader(data), limit, take)
		})
		if len(inMemory.seen) != len(fromFile.seen) || !bytes.Equal(spelled, other) {
			t.Fatalf("%q: got %d lines from memory and %d from a reader; written as %q and %q", data, len(inMemory.seen), len(fromFile.seen), spelled, other)
		}
		for i, a := range inMemory.seen {
			if b := fromFile.seen[i]; a.Line != b.Line || a.End != b.End || a.BOM != b.BOM || (a.Err == nil) != (b.Err == nil) {
				t.Errorf("line %d of %q: %+v from memory, %+v from a reader", i+1, data, a, b)
			}
		}
		again, twice := readLines(t, func(take func(sessiondir.TurnLine) error) error { return sessiondir.EachLineOf(spelled, limit+5, take) })
		if len(again.turns) != len(inMemory.turns) || !bytes.Equal(twice, spelled) {
			t.Fatalf("%q is written as %q, and that as %q", data, spelled, twice)
		}
		for i := range again.turns {
			if !rawjson.Equal(again.turns[i], inMemory.turns[i]) { // a line end inside is not written
				t.Errorf("turn %d of %q is %q", i+1, data, again.turns[i])
			}
		}
	})
}
