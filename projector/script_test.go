package projector_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

var update = flag.Bool("update", false, "write what the scripts in testdata give")

// TestScripts runs testdata/*.txtar. Section "given" holds records, @offset [session] event, of session "s" by default.
// Section "when" holds commands: undo, redo and rewind POSITION append to the log, at POSITION only reads. A session
// may precede the command, as in "child: undo". Section "then" is the appended event or the answer, and "state" is the
// session after each command.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Files) < 2 || a.Files[0].Name != "given" || a.Files[1].Name != "when" {
		t.Fatal("want -- given -- and -- when --")
	}
	var sc script
	for line := range strings.Lines(string(a.Files[0].Data)) {
		sc.given(t, strings.TrimSpace(line))
	}
	var then, state string
	for line := range strings.Lines(string(a.Files[1].Data)) {
		did, left := sc.when(t, strings.TrimSpace(line))
		left = strings.ReplaceAll(strings.TrimSuffix("\n"+left, "\n"), "\n", "\n  ")
		then, state = then+did, state+"after "+strings.TrimSpace(line)+left+"\n"
	}
	got := &txtar.Archive{Comment: a.Comment, Files: append(a.Files[:2:2],
		txtar.File{Name: "then", Data: []byte(then)}, txtar.File{Name: "state", Data: []byte(state)})}
	if *update {
		if err := os.WriteFile(file, txtar.Format(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(txtar.Format(a)), string(txtar.Format(got))); diff != "" && !*update {
		t.Errorf("-want +got:\n%s", diff)
	}
}

type script struct{ records testkit.Records }

// given adds one record: @offset [session] {"type":..., "data":...}.
func (sc *script) given(t *testing.T, line string) {
	t.Helper()
	head, body, _ := strings.Cut(line, "{")
	offset, session, _ := strings.Cut(strings.TrimSpace(head), " ")
	at, err := events.ParseOffset(offset)
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		Type string
		Seen events.Offset
		Data json.RawMessage
	}
	if err := json.Unmarshal([]byte("{"+body), &e); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	ev := events.Event{ID: "event-" + offset[1:], Source: "urn:test", Type: "tally." + e.Type + ".v1", Subject: subjectOf(session), ContentType: events.ContentTypeJSON, Data: e.Data}
	if e.Seen != 0 {
		ev = ev.WithExtension(events.ExtBasis, e.Seen.Padded())
	}
	sc.records = append(sc.records, events.Record{Event: ev, Offset: at})
}

func subjectOf(session string) events.Subject {
	if session == "" {
		session = "s"
	}
	return events.Session("", session)
}

// when runs one command.
func (sc *script) when(t *testing.T, line string) (then, state string) {
	t.Helper()
	session, command, ok := strings.Cut(line, ": ")
	if !ok {
		session, command = "", line
	}
	sub := subjectOf(session)
	l := &projector.Loader{Source: sc.records}
	s, err := l.Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	verb, arg, _ := strings.Cut(command, " ")
	o, err := l.Outline(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	var at events.Offset
	if verb == "rewind" || verb == "at" {
		at, err = resolve(t.Context(), l, s, arg)
	}
	var move *events.SessionRewound
	switch {
	case err != nil:
	case verb == "rewind":
		move, err = o.Rewind(t.Context(), at, "")
	case verb == "undo":
		move, err = o.Undo(t.Context())
	case verb == "redo":
		move, err = o.Redo(t.Context())
	case verb != "at":
		t.Fatalf("unknown line %q", line)
	}
	switch {
	case err != nil:
		return command + ": " + err.Error() + "\n", describe(s)
	case move == nil && at < s.History.First():
		past, err := o.Back(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		early := projector.NewSession(sub)
		early.Threads = threadsOf(t, past)
		return fmt.Sprintf("%s: %v, inherited\n", command, at), describe(early)
	case move == nil:
		if s, err = l.Session(t.Context(), sub, at); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s: %v\n", command, at), describe(s)
	}
	e, err := events.New("urn:test", sub, move)
	if err != nil {
		t.Fatal(err)
	}
	e.ID = fmt.Sprintf("own-%d", len(sc.records))
	rec := events.Record{Event: e, Offset: sc.records[len(sc.records)-1].Offset + 1}
	sc.records = append(sc.records, rec)
	if s, err = (&projector.Loader{Source: sc.records}).Session(t.Context(), sub, 0); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v %s %s\n", rec.Offset, strings.TrimSuffix(strings.TrimPrefix(e.Type, "tally."), ".v1"), e.Data), describe(s)
}

func resolve(ctx context.Context, l *projector.Loader, s *projector.Session, text string) (events.Offset, error) {
	p, err := projector.ParsePosition(text)
	if err != nil {
		return 0, err
	}
	return l.Resolve(ctx, s, p)
}

// describe prints a session: * marks a pinned turn.
func describe(s *projector.Session) string {
	var b strings.Builder
	for _, name := range s.Threads.Names() {
		fmt.Fprintf(&b, "%s:", name)
		for _, turn := range s.Threads.Turns(name) {
			fmt.Fprintf(&b, " %s%v", turn.Raw, turn.Offset)
			if turn.Pinned {
				b.WriteByte('*')
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "live: %v\n", s.History.Live(s.Offset()))
	if stale := s.History.Stale(); len(stale) > 0 {
		fmt.Fprintf(&b, "late: %v\n", stale)
	}
	for _, v := range s.Ledger.Rejected {
		fmt.Fprintf(&b, "void: %v %s\n", v.Offset, v.Reason)
	}
	for _, f := range s.Ledger.Fields {
		fmt.Fprintf(&b, "field: %s %s\n", f.Name, f.Value)
	}
	for _, e := range s.Ledger.Stack {
		fmt.Fprintf(&b, "stack: %s at %v\n", e.ID, e.At)
	}
	for _, r := range s.Ledger.Runs {
		fmt.Fprintf(&b, "run: %s withdrawn %v\n", r.Ref(), s.Withdrawn(r.At))
	}
	if spent := s.Ledger.Spent(); spent.Events > 0 {
		fmt.Fprintf(&b, "cost: %s, on this branch %s\n", spent.USD, s.OnBranch().USD)
	}
	return b.String()
}
