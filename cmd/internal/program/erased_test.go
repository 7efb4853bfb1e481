package program_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

// Erased events come from a server that others run, because any program can publish there.
func TestErased(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, dir)
	}
	t.Chdir(dir)
	url := storetest.StartServer(t).URL
	tally := func(input string, args ...string) (out, errs string, code int) {
		var o, e bytes.Buffer
		err := cmdutil.Run(t.Context(), program.Tally, append(args, "--server", url), strings.NewReader(input), &o, &e)
		code = cli.Report(&e, "tally", err)
		return o.String(), e.String(), code
	}
	const line = `{"specversion":"1.0","id":"1","source":"urn:x","type":"tally.turn.appended.v1","subject":"session/s","data":{"entries":[{"thread":"main","turn":{"role":"user","content":"whole"}}]}}`
	if _, errs, code := tally(line, "append", "s"); code != 0 {
		t.Fatal(errs)
	}
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []events.Event{
		{ID: "2", Source: "urn:x", Type: events.TypeTurnAppended, Subject: events.Session("", "s"), Data: []byte(`{"entries":[{"thread":"main","turn":{"role":"user","content":"SECRET"}}]}`)},
		{ID: "3", Source: "urn:x", Type: events.TypeDocumentWritten, Subject: events.Document("", "doc", "a"), ContentType: "text/plain", Data: []byte("SECRET")},
	} {
		erased, err := e.Erase("r7k2p9")
		if err != nil {
			t.Fatal(err)
		}
		header, data := events.EncodeBinary(erased)
		if len(data) == 0 {
			data = []byte("      ") // as long as the content was
		}
		if _, err := js.PublishMsg(&nats.Msg{Subject: e.Subject.NATS(), Header: header, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("X-16 every reader names the erasure", func(t *testing.T) {
		for _, c := range []struct{ args, want string }{
			{"log s", "(receipt r7k2p9)"}, {"log s -o jsonl", `"state":"erased","reason":"receipt r7k2p9"`}, {"log s --all-sessions", "(receipt r7k2p9)"},
			{"show s", "erased"}, {"show s -o json", `"erased":"r7k2p9"`}, {"search whole", "whole"}, {"diff s #1 head", "erased"},
			{"doc cat doc/a", "doc/a: its content was erased, receipt r7k2p9"}, {"doc cat doc/a -o json", `"erased":"r7k2p9"`}, {"doc log doc/a", "erased: receipt r7k2p9"},
			{"export s --format markdown", "receipt r7k2p9"}, {"export s --format html", "receipt r7k2p9"}, {"export s --format tallydir -C out", "turns whose content was erased, so that they are {}: 1"},
			{"verify", "(2 erased)"}, {"verify -o json", `"erased":2`},
		} {
			args := strings.Fields(strings.Replace(c.args, "log s --all-sessions", "log --all-sessions", 1))
			out, errs, code := tally("", args...)
			if code != 0 || !strings.Contains(strings.ReplaceAll(out, `": `, `":`)+errs, c.want) || strings.Contains(out+errs, "SECRET") {
				t.Errorf("tally %s: code %d, want %q in\n%s%s", c.args, code, c.want, out, errs)
			}
		}
	})
	t.Run("X-23 a server's records cannot be changed", func(t *testing.T) {
		head, _, _ := tally("", "log", "--all-sessions")
		out, errs, code := tally("", "forget", "s", "-y")
		if code != cli.Incompatible || !strings.Contains(out, "Would forget: 1 session") || !strings.Contains(errs, "tally copy "+url+" NEW --forget") || !strings.Contains(errs, "nats stream rm TALLY_1") {
			t.Errorf("code %d: %s%s", code, out, errs)
		}
		if now, _, _ := tally("", "log", "--all-sessions"); now != head {
			t.Errorf("the log is\n%s, was\n%s", now, head)
		}
	})
	if _, errs, code := tally(strings.Replace(line, `"data":`, `"tallyerased":"r7k2p9","data":`, 1), "append", "s"); code == 0 || !strings.Contains(errs, "tallyerased") {
		t.Errorf("an erased event was appended: code %d, %s", code, errs)
	}
}
