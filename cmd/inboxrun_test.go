package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A message or item for which no command can be started does not block the later ones.
func TestUnstartable(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	run := func(args ...string) (out string, code int) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute/2) // a message that blocks the command is offered eight times, for minutes
		defer stop()
		c := command(ctx, store, "tally", "inbox", "run", "ci", "--until-empty", "-o", "jsonl")
		c.Args = append(append(c.Args, "--open", "--"), args...)
		text, err := c.Output()
		if ctx.Err() != nil {
			t.Fatalf("inbox run %v did not end, it delivered:\n%s", args, text)
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		} else if ok {
			code = exit.ExitCode()
		}
		return string(text), code
	}
	run("cat")
	t.Run("B-07 bounded when sent", func(t *testing.T) {
		for _, flag := range []string{"--thread", "--type", "--from", "--expects"} {
			c := command(t.Context(), store, "tally", "inbox", "send", "ci", flag, strings.Repeat("y", 600))
			c.Stdin = strings.NewReader("hi\n")
			out, err := c.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() == 0 || !bytes.Contains(out, []byte("bytes, at most 512 are allowed")) {
				t.Errorf("%s of 600 bytes: got %v\n%s", flag, err, out)
			}
		}
		if out := output(t, nil, store, "tally", "inbox", "ls", "ci", "-o", "jsonl"); out != "" {
			t.Errorf("the message was sent: %s", out)
		}
	})
	t.Run("B-07 messages of before", func(t *testing.T) {
		fields := []string{"thread", "id", "from", "type"}
		output(t, strings.NewReader(longMessages(t, fields)), store, "tally", "append")
		output(t, strings.NewReader("the one behind\n"), store, "tally", "inbox", "send", "ci")
		out, _ := run("cat")
		type handed struct{ Outcome, Error string }
		lines := jsonLines[handed](t, strings.NewReader(out))
		if len(lines) != len(fields)+1 || lines[len(fields)].Outcome != "seen" {
			t.Fatalf("got %+v", lines)
		}
		for i, name := range []string{"TALLY_THREAD", "TALLY_MESSAGE", "TALLY_FROM", "TALLY_TYPE"} {
			if want := (handed{"dead", name + " has 200000 bytes, and a command gets at most 1536"}); lines[i] != want {
				t.Errorf("%s: got %+v", fields[i], lines[i])
			}
		}
		if told := output(t, nil, store, "tally", "inbox", "ls", "user", "-o", "jsonl"); strings.Count(told, `"malfunction":"refused"`) != 2 {
			t.Errorf("the sender of the first and the last message: got %s", told)
		}
	})
	t.Run("B-07 a command that is gone", func(t *testing.T) {
		output(t, strings.NewReader("again\n"), store, "tally", "inbox", "send", "ci")
		if out, code := run(filepath.Join(t.TempDir(), "none")); code != 127 {
			t.Errorf("got exit code %d, %s", code, out)
		}
		if out := output(t, nil, store, "tally", "inbox", "ls", "ci", "--unread", "-o", "jsonl"); strings.Count(out, "\n") != 1 {
			t.Errorf("got unread messages %s", out)
		}
	})
}

// longMessages returns messages to ci, each with another member of 200,000 bytes.
func longMessages(t *testing.T, fields []string) string {
	t.Helper()
	var b bytes.Buffer
	for i, field := range fields {
		id := fmt.Sprint("m", i)
		meta := map[string]string{"id": id, "from": "user", "to": "ci", "type": "t", "thread": "about"}
		meta[field] = strings.Repeat("x", 200_000)
		data := map[string]any{"entries": []any{map[string]any{"thread": "inbox", "turn": "hello", "id": id, "meta": meta}}}
		err := json.NewEncoder(&b).Encode(map[string]any{"specversion": "1.0", "id": id, "source": "urn:test", "type": "tally.turn.appended.v1", "subject": "session/inbox/ci", "data": data})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
