package events_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
)

// The tests in this file compare the code with docs/wire.md.

// section returns the text of wire.md between a heading and the next one.
func section(t *testing.T, heading string) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("wire.md has no %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	return text
}

// table returns the rows of a section's table, cells without their back quotes.
func table(t *testing.T, heading string, columns, atLeast int) [][]string {
	t.Helper()
	var rows [][]string
	for line := range strings.SplitSeq(section(t, heading), "\n") {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		if len(cells) != columns {
			t.Fatalf("%s: %d cells in %s", heading, len(cells), line)
		}
		for i, c := range cells {
			if strings.Count(c, "`") == 2 && strings.HasPrefix(c, "`") && strings.HasSuffix(c, "`") {
				cells[i] = strings.Trim(c, "`")
			}
		}
		rows = append(rows, cells)
	}
	if len(rows) == 0 || len(rows)-1 < atLeast {
		t.Fatalf("%s: got %d rows, want at least %d", heading, len(rows)-1, atLeast)
	}
	return rows[1:] // without the head
}

// code returns the code blocks of a section.
func code(t *testing.T, heading string) []string {
	t.Helper()
	var blocks []string
	for i, part := range strings.Split(section(t, heading), "```") {
		if i%2 == 1 {
			_, body, _ := strings.Cut(part, "\n")
			blocks = append(blocks, strings.TrimSuffix(body, "\n"))
		}
	}
	return blocks
}

// repeated reads a cell such as "x" * 512.
func repeated(cell string) (text string, n int) {
	text, times, ok := strings.Cut(cell, " * ")
	if !ok {
		return cell, 1
	}
	n, _ = strconv.Atoi(times)
	return strings.Trim(text, "`"), n
}

func TestWireSubjects(t *testing.T) {
	for _, row := range table(t, "### Vectors: subjects", 5, 10) {
		quoted, n := repeated(row[2])
		id, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", row[2], err)
		}
		escaped, m := repeated(row[3])
		s := events.Subject{Namespace: row[0], Kind: row[1], ID: strings.Repeat(id, n)}
		want := "tally.v1." + row[4] + "." + row[0] + "." + row[1] + "." + strings.Repeat(escaped, m)
		if got := s.NATS(); got != want {
			t.Errorf("subject of id %s: got %s, want %s", row[2], got, want)
		}
		if got, err := events.ParseNATS(want); err != nil || got != s {
			t.Errorf("ParseNATS(%s) = %v, %v", want, got, err)
		}
	}
}

func TestWireBounds(t *testing.T) {
	want := []int{1, events.MaxTurns, events.MaxReferences, events.MaxPointers, events.MaxListed, events.MaxValue, events.MaxAgain, events.MaxAgainTimes}
	rows := table(t, "### Bounds of references", 2, len(want))
	for i, row := range rows {
		if n, err := strconv.Atoi(strings.ReplaceAll(row[1], ",", "")); err != nil || n != want[i] {
			t.Errorf("%s: wire.md has %s, the code %d", row[0], row[1], want[i])
		}
	}
}

func TestWireMsgIDs(t *testing.T) {
	for _, row := range table(t, "### Vectors: Nats-Msg-Id", 4, 5) {
		sub, err := events.ParseNATS(row[0])
		if err != nil {
			t.Fatal(err)
		}
		e := events.Event{Subject: sub, Source: row[1], ID: row[2]}
		if got := e.MsgID(); got != row[3] {
			t.Errorf("MsgID of %v: got %s, want %s", row[:3], got, row[3])
		}
	}
}

func TestWirePercent(t *testing.T) {
	for _, row := range table(t, "### Vectors: percent-encoding", 2, 8) {
		var value string
		if err := json.Unmarshal([]byte(row[0]), &value); err != nil {
			t.Fatalf("%s: %v", row[0], err)
		}
		header, data := events.EncodeBinary(turn().WithExtension("x", value))
		if got := header["ce-x"][0]; got != row[1] {
			t.Errorf("%s is encoded as %s, want %s", row[0], got, row[1])
		}
		if e, err := events.DecodeMessage(turn().Subject.NATS(), header, data); err != nil || e.Extensions["x"] != value {
			t.Errorf("%s is decoded as %q, %v", row[1], e.Extensions["x"], err)
		}
	}
}

// wireExample reads the example message.
func wireExample(t *testing.T) (subject string, header map[string][]string, payload []byte) {
	blocks := code(t, "### Example")
	if len(blocks) != 2 {
		t.Fatalf("the example has %d code blocks, want 2", len(blocks))
	}
	header = map[string][]string{}
	for line := range strings.SplitSeq(blocks[0], "\n") {
		name, value, _ := strings.Cut(line, ": ")
		header[name] = []string{value}
	}
	for line := range strings.SplitSeq(section(t, "### Example"), "\n") {
		if s, ok := strings.CutPrefix(line, "    "); ok {
			subject = s
		}
	}
	return subject, header, []byte(blocks[1])
}

func TestWireExample(t *testing.T) {
	subject, header, payload := wireExample(t)
	e, err := events.DecodeMessage(subject, header, payload)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	if e.MsgID() != header["Nats-Msg-Id"][0] {
		t.Errorf("MsgID is %s, not the one in wire.md", e.MsgID())
	}
	want := maps.Clone(header)
	delete(want, "Nats-Msg-Id")
	got, data := events.EncodeBinary(e)
	if diff := cmp.Diff(want, got); diff != "" || string(data) != string(payload) {
		t.Errorf("(-wire.md +EncodeBinary):\n%s", diff)
	}
	blocks := code(t, "## JSON form")
	if len(blocks) != 1 || string(mustJSON(e)) != blocks[0] {
		t.Errorf("AppendJSON gives\n%s\nwire.md has\n%s", mustJSON(e), blocks)
	}
}

func TestWireTypes(t *testing.T) {
	rows := table(t, "## Types", 5, 17)
	types := events.Types()
	if len(rows) != len(types) {
		t.Fatalf("wire.md has %d types, want %d", len(rows), len(types))
	}
	for i, row := range rows {
		guard, rewind, kind := "any", "ledger", events.KindSession
		if events.GuardOf(types[i]) == events.GuardSince {
			guard = "since"
		}
		if events.IsThread(types[i]) {
			rewind = "thread"
		}
		if row[1] == "document" {
			rewind, kind = "", "recipe"
		}
		if row[0] != types[i] || row[2] != guard || strings.TrimSpace(row[3]) != rewind {
			t.Errorf("row %d is %v, the code has %s, %s, %s", i, row, types[i], guard, rewind)
		}
		e := events.Event{ID: "1", Source: "urn:x", Type: types[i], Subject: events.Subject{Namespace: "n", Kind: kind, ID: "x"}, DataSchema: events.DataSchema(types[i])}
		for _, x := range mustReadExamples(t) {
			if x.typ == types[i] && x.field == "" {
				e.Data = []byte(x.data)
			}
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s as an event of a %s: %v", types[i], row[1], err)
		}
	}
}

// The example of a redo record has valid events in the form that AppendJSON writes.
func TestWireRedoRecord(t *testing.T) {
	blocks := code(t, "## Redo records")
	if len(blocks) != 1 {
		t.Fatalf("the section has %d code blocks, want 1", len(blocks))
	}
	var unit struct {
		Events []struct {
			Subject string
			Event   json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(blocks[0]), &unit); err != nil || len(unit.Events) != 2 {
		t.Fatalf("redo record: %v, %d events, want 2", err, len(unit.Events))
	}
	for _, u := range unit.Events {
		sub, err := events.ParseNATS(u.Subject)
		if err != nil {
			t.Fatal(err)
		}
		e, err := events.ParseJSON(sub.Namespace, u.Event)
		if err != nil || e.Subject != sub || e.Validate() != nil {
			t.Errorf("ParseJSON(%s): %v, Validate: %v", u.Event, err, e.Validate())
		}
		if string(mustJSON(e)) != string(u.Event) {
			t.Errorf("AppendJSON gives\n%s\nwire.md has\n%s", mustJSON(e), u.Event)
		}
	}
	if slices.Contains(events.Types(), events.TypeUnitAppended) || events.IsKnown(events.TypeUnitAppended) {
		t.Error("the type of redo records is in the vocabulary")
	}
}

// Fill resolves the example of lists as wire.md describes.
func TestWireLists(t *testing.T) {
	_, text, ok := strings.Cut(section(t, "## Types"), "which turns it is: `")
	example, _, ok2 := strings.Cut(text, "`")
	if !ok || !ok2 {
		t.Fatal("wire.md has no example of lists")
	}
	p, err := events.Decode(events.TypeRunStarted, []byte(`{"run":{"kind":"k","id":"r"},"raw":{"messages":[]},"lists":`+example+`}`))
	if err != nil {
		t.Fatal(err)
	}
	s := p.(*events.RunStarted)
	got, err := s.Lists.Fill(s.Raw, events.MaxValue, func(p events.Piece) (list []events.Raw, err error) {
		for i := p.From; i < p.To; i++ {
			list = append(list, events.Raw(strconv.Quote(p.Thread+" "+strconv.Itoa(i))))
		}
		return list, nil
	})
	if want := `{"messages":["main 0","main 1","run/7 0"]}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestWireLimits(t *testing.T) {
	limits := section(t, "## Messages")
	for text, have := range map[string]int{"at most 8 MiB": events.MaxData / 8, "together 32 KiB": events.MaxHeaders * 32, "1,000 events": events.MaxAppend} {
		want := map[string]int{"at most 8 MiB": 1 << 20, "together 32 KiB": 1 << 20, "1,000 events": 1000}[text]
		if !strings.Contains(limits, text) || have != want {
			t.Errorf("wire.md and the code differ in %q", text)
		}
	}
	if !strings.Contains(section(t, "## Large values"), "4,194,304 bytes") || events.MaxBlobPart != 4194304 {
		t.Error("wire.md and the code differ in the size of a blob's part")
	}
}
