package ingest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// field returns a field of a session, or "".
func (r *rig) field(session, name string) string {
	r.t.Helper()
	raw, _ := r.session(session).Ledger.Fields.Get(name)
	return string(raw)
}

// prompts returns lines of a session of Claude Code.
func prompts(from, n int) string {
	var b strings.Builder
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, `{"parentUuid":null,"type":"user","uuid":"u%d","timestamp":"2026-01-02T03:04:%02d.000Z","message":{"role":"user","content":"Go on"}}`+"\n", i, i%60)
	}
	return b.String()
}

// The session follows its file: archived, gone, back again. Each change is recorded once.
func TestStatus(t *testing.T) {
	r := newRig(t, t.TempDir(), ofCodex)
	name := "sessions/2026/01/02/" + rolloutName(threadID)
	line := `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"` + threadID + `","cwd":"/pier"}}` + "\n"
	r.write(name, line)
	r.run()
	session := "codex/" + threadID
	move := func(from, to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.dir, to)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(r.dir, from), filepath.Join(r.dir, to)); err != nil {
			t.Fatal(err)
		}
		r.run()
		r.run()
	}
	away := "archived_sessions/" + rolloutName(threadID)
	move(name, away)
	if got := r.field(session, "status"); got != `"archived"` {
		t.Errorf("the status in the archive is %s", got)
	}
	move(away, name)
	if got := r.field(session, "status"); got != `"open"` {
		t.Errorf("the status after the return from the archive is %s", got)
	}
	content, aside := "", filepath.Join(filepath.Dir(r.dir), "aside")
	if b, err := os.ReadFile(filepath.Join(r.dir, name)); err == nil {
		content = string(b)
	}
	if err := os.Rename(filepath.Join(r.dir, name), aside); err != nil {
		t.Fatal(err)
	}
	r.run()
	r.run()
	if got := r.field(session, "sourceGone"); got != "true" {
		t.Errorf("the field gone without the file is %q", got)
	}
	if r.given()[name] != content {
		t.Errorf("a removed file is not restored")
	}
	if err := os.Rename(aside, filepath.Join(r.dir, name)); err != nil {
		t.Fatal(err)
	}
	r.grow(name, line)
	r.run()
	if got := r.field(session, "sourceGone"); got == "true" {
		t.Errorf("the field gone is set, but the file exists")
	}
	updates := 0
	for _, rec := range r.records() {
		if p, err := events.DecodeAs[events.SessionUpdated](rec.Event); err == nil && p.Reason == reasonSource {
			updates++
		}
	}
	if updates != 4 {
		t.Errorf("got %d updates, want four: archived, open, gone, back", updates)
	}
	if r.given()[name] != line+line {
		t.Errorf("the restored file is %q", r.given()[name])
	}
}

// Secrets are not in the log, nor in events derived from lines. A file that is read again is compared by position.
func TestRedaction(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	secret := "correct-horse-battery"
	redactor, err := redact.New(redact.Options{Values: map[string]string{"PASSWORD": secret}})
	if err != nil {
		t.Fatal(err)
	}
	r.redactor = redactor
	content := prompts(0, 2) + `{"type":"custom-title","customTitle":"Of ` + secret + `","uuid":"t"}` + "\n" + prompts(2, 1)
	r.write("-p/s.jsonl", content)
	r.run()
	n := len(r.records())
	for _, rec := range r.records() {
		if strings.Contains(string(rec.Data), secret) {
			t.Errorf("record %s contains the secret: %s", rec.Offset, rec.Data)
		}
	}
	r.lose()
	r.run()
	r.lose()
	r.redactor = nil
	r.run()
	r.state = "" // each line is compared
	r.run()
	r.redactor = redactor
	r.run()
	if m := len(r.records()); m != n {
		t.Errorf("a second reading added %d events", m-n)
	}
	if got, want := r.given()["-p/s.jsonl"], strings.ReplaceAll(content, secret, "[redacted:PASSWORD]"); got != want {
		t.Errorf("the restored file is\n%s\nwant\n%s", got, want)
	}
	l := r.open()
	defer l.Close()
	list, err := Files(context.Background(), l, ofClaude, events.Session("", "claude/-p/s"))
	if err != nil || len(list) != 1 || list[0].Redacted != 1 || list[0].Size != int64(len(content)) {
		t.Errorf("%+v, %v: want one file with one redacted line", list, err)
	}
}

// While a store refuses appends, lines wait, and none is lost or stored twice.
func TestFull(t *testing.T) {
	for _, err := range []error{log.ErrFull, log.ErrUnavailable, log.ErrUnknown} {
		r := newRig(t, t.TempDir(), ofClaude)
		r.write("-p/s.jsonl", prompts(0, 3))
		r.store.err = err
		r.run()
		if r.store.tries < 2 {
			t.Errorf("%v after %d attempts", err, r.store.tries)
		}
		r.check(t.TempDir())
	}
}

// A session that is read before the one it continues waits for it. Without that one it begins alone, and names its
// parent.
func TestForkOrder(t *testing.T) {
	const parent, child = "019b0000-0000-7000-8000-00000000000a", "019b0000-0000-7000-8000-000000000001"
	first := fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":%q,"history_mode":"paginated"}}`+"\n", parent)
	fork := fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:06.000Z","type":"session_meta","payload":{"id":%q,"forked_from_id":%q,"history_base":{"thread_id":%q,"end_byte_offset":%d}}}`+"\n",
		child, parent, parent, len(first))
	name := func(id string) string { return "sessions/rollout-2026-01-02T03-04-05-" + id + ".jsonl" }
	for _, alone := range []bool{false, true} {
		r := newRig(t, t.TempDir(), ofCodex)
		r.write(name(child), fork)
		if !alone {
			r.write(name(parent), first)
		}
		r.run()
		ledger := r.session("codex/" + child).Ledger
		switch {
		case alone && (ledger.Fork != nil || ledger.Parent == nil || ledger.Parent.Session != "codex/"+parent || len(r.problems) != 1):
			t.Errorf("without its parent the session is a fork of %v with the parent %v; problems %v", ledger.Fork, ledger.Parent, r.problems)
		case !alone && (ledger.Fork == nil || len(r.problems) > 0):
			t.Errorf("the session is not a fork; problems %v", r.problems)
		}
		if r.given()[name(child)] != fork {
			t.Errorf("the restored file is %q", r.given()[name(child)])
		}
	}
}

// A line that is too long for an event is stored in pieces, and can be restored.
func TestLongLine(t *testing.T) {
	testkit.NotUnderRace(t) // one file, read by one worker
	r := newRig(t, t.TempDir(), ofClaude)
	long := `{"type":"user","uuid":"l","message":{"role":"user","content":"` + strings.Repeat("x", maxLine+100) + `"}}` + "\n"
	content := prompts(0, 1) + long + strings.Repeat("\n", maxBlank+5) + prompts(1, 1)
	r.write("-p/s.jsonl", content)
	r.run()
	if r.given()["-p/s.jsonl"] != content {
		t.Errorf("the file is not restored")
	}
	n := len(r.records())
	r.lose()
	r.run()
	if m := len(r.records()); m != n {
		t.Errorf("a second reading added %d events", m-n)
	}
}

// If two folders have a file of the same name, one is kept and the other is reported.
func TestTwoRoots(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	second := t.TempDir()
	r.write("-p/s.jsonl", prompts(0, 2))
	if err := os.MkdirAll(filepath.Join(second, "-p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "-p", "s.jsonl"), []byte(prompts(5, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := r.open()
	defer l.Close()
	var problems []Problem
	in, err := New(Options{Log: l, Sources: []Source{{Agent: ofClaude, Root: r.dir}, {Agent: ofClaude, Root: second}}, Once: true,
		Report: func(p Problem) { problems = append(problems, p) }})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := in.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	given := r.given()["-p/s.jsonl"]
	if len(problems) != 1 || given != prompts(0, 2) && given != prompts(5, 1) {
		t.Errorf("restored %q; problems %v", given, problems)
	}
}
