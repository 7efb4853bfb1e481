package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func TestExitCode(t *testing.T) {
	damage := &events.DamageError{Offset: 7}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{syscall.EPIPE, 0},
		{&os.PathError{Op: "write", Path: "stdout", Err: syscall.EPIPE}, 0},
		{errors.New("any"), 1},
		{context.Canceled, 1},
		{log.ErrAborted, 1},
		{&log.PartialError{}, 1},
		{Usagef("wrong %d", 1), 2},
		{&config.Error{File: "tally.toml"}, 2},
		{&events.InvalidError{Field: "id"}, 2},
		{&log.SizeError{What: "data"}, 2},
		{&CodeError{Code: Partial, Err: damage}, 3},
		{Silent(Partial), 3},
		{&events.TreeError{Tree: "files", Err: log.ErrUnavailable}, 3},
		{projector.ErrNotFound, 4},
		{&projector.PositionError{}, 4},
		{log.ErrNotFound, 4},
		{damage, 5},
		{&log.ConflictError{}, 6},
		{log.ErrConflict, 6},
		{log.ErrUnknown, 7},
		{log.ErrUnavailable, 7},
		{fmt.Errorf("%w: %w", log.ErrUnavailable, log.ErrNewer), 8}, // newer counts first: the owner of such a store cannot be reached either
		{log.ErrFull, 7},
		{&log.QuotaError{}, 7},
		{projector.ErrNoLimits, 2},
		{&events.PersonalError{}, 2},
		{sealed.ErrNoKey, 2},
		{&sealed.FileError{}, 2},
		{&sealed.UnknownKeyError{}, 3},
		{sealed.ErrSealBroken, 5},
		{context.DeadlineExceeded, 7},
		{&log.ConfigError{}, 8},
		{signalError{os.Interrupt}, 130},
		{signalError{syscall.SIGTERM}, 143},
		{signalError{syscall.SIGHUP}, 129},
	} {
		for _, err := range []error{c.err, wrapped(c.err)} {
			if got := ExitCode(err); got != c.want {
				t.Errorf("%v: exit code %d, want %d", err, got, c.want)
			}
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("outside: %w", err), nil)
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{Silent(Partial), ""},
		{syscall.EPIPE, ""},
		{errors.New("wrong"), "tally: wrong\n"},
		{&CodeError{Code: 2, Err: errors.New("wrong"), Hint: "Do it."}, "tally: wrong\n  Do it.\n"},
		{fmt.Errorf("move: %w", log.ErrConflict), "tally: move: conflict\n  Something was appended meanwhile; look again and repeat the command.\n"},
		{log.ErrUnknown, "tally: outcome unknown\n  It may have been stored. Repeating the command with the same ids is safe.\n"},
		{log.ErrFull, "tally: store full\n  Free some space. Acknowledged events are safe, and reads work.\n"},
	} {
		var b strings.Builder
		if code := Report(&b, "tally", c.err); b.String() != c.want || code != ExitCode(c.err) {
			t.Errorf("%v: %q with code %d, want %q", c.err, b.String(), code, c.want)
		}
	}
}

type item struct {
	ID  string          `json:"id"`
	Raw json.RawMessage `json:"raw"`
}

func TestWriteJSON(t *testing.T) {
	v := item{"<é>", json.RawMessage(`{"b": 1.0,  "a":[]}`)}
	for f, want := range map[Format]string{
		JSONL: `{"id":"<é>","raw":{"b":1.0,"a":[]}}` + "\n",
		JSON:  "{\n  \"id\": \"<é>\",\n  \"raw\": {\n    \"b\": 1.0,\n    \"a\": []\n  }\n}\n",
	} {
		var b strings.Builder
		if err := WriteJSON(&b, f, v); err != nil || b.String() != want {
			t.Errorf("%s: got %q, %v", f, b.String(), err)
		}
	}
	if err := WriteJSON(io.Discard, JSON, item{Raw: json.RawMessage("{")}); err == nil {
		t.Error("a value that is not JSON: got no error")
	}
	if err := WriteJSON(full{}, JSON, v); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: got %v", err)
	}
}

// full is a writer without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestList(t *testing.T) {
	for n, want := range map[int]map[Format]string{
		0: {JSON: "[]\n", JSONL: ""},
		1: {JSON: "[\n  {\n    \"id\": \"0\",\n    \"raw\": \"a\\n\"\n  }\n]\n", JSONL: "{\"id\":\"0\",\"raw\":\"a\\n\"}\n"},
		2: {JSON: "[\n  {\n    \"id\": \"0\",\n    \"raw\": \"a\\n\"\n  },\n  {\n    \"id\": \"1\",\n    \"raw\": \"a\\n\"\n  }\n]\n", JSONL: "{\"id\":\"0\",\"raw\":\"a\\n\"}\n{\"id\":\"1\",\"raw\":\"a\\n\"}\n"},
	} {
		for f, want := range want {
			var b strings.Builder
			list := NewList(&b, f)
			for i := range n {
				if err := list.Add(item{fmt.Sprint(i), json.RawMessage(`"a\n"`)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := list.Close(); err != nil || b.String() != want {
				t.Errorf("%d as %s: got %q, %v", n, f, b.String(), err)
			}
		}
	}
	list := NewList(full{}, JSON)
	if err := list.Add(item{Raw: json.RawMessage("1")}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: got %v", err)
	}
	if err := NewList(full{}, JSON).Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: got %v", err)
	}
}

func TestFlags(t *testing.T) {
	var f Format
	var m ProgressMode
	for _, c := range []struct {
		flag interface{ Set(string) error }
		text string
		ok   bool
	}{
		{f.Flag(), "text", true}, {f.Flag(), "json", true}, {f.Flag(), "jsonl", true}, {f.Flag(), "yaml", false}, {f.Flag(), "", false},
		{m.Flag(), "auto", true}, {m.Flag(), "tty", true}, {m.Flag(), "plain", true}, {m.Flag(), "json", true}, {m.Flag(), "none", true}, {m.Flag(), "loud", false},
	} {
		if err := c.flag.Set(c.text); (err == nil) != c.ok {
			t.Errorf("%q: got %v", c.text, err)
		}
	}
	if f != JSONL || m != ProgressNone {
		t.Errorf("a wrong value changed %q, %q", f, m)
	}
}

func TestNoTerminal(t *testing.T) {
	t.Setenv("COLUMNS", "")
	if IsTerminal(&bytes.Buffer{}) || Width(&bytes.Buffer{}) != NoWidth {
		t.Error("a buffer: got a terminal")
	}
}

// progress is a Progress on a clock that the test moves.
func progress(mode ProgressMode) (p *Progress, b *bytes.Buffer, pass func(time.Duration)) {
	b = &bytes.Buffer{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p = NewProgress(b, mode, "importing")
	p.now, p.begun = func() time.Time { return now }, now
	return p, b, func(d time.Duration) { now = now.Add(d) }
}

// Nothing is printed in the first second, then a line every ten seconds or ten percent.
func TestProgressPlain(t *testing.T) {
	p, b, pass := progress(ProgressAuto) // a buffer is not a terminal
	must := func(want string) {
		t.Helper()
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		b.Reset()
	}
	p.At(1, 100, "a")
	pass(999 * time.Millisecond)
	p.At(50, 100, "b")
	must("")
	pass(time.Millisecond)
	p.At(51, 100, "c")
	must("importing: 51%, c\n")
	p.At(60, 100, "d")
	pass(9 * time.Second)
	p.At(60, 100, "e")
	must("")
	p.At(61, 100, "f")
	must("importing: 61%, f\n")
	pass(10 * time.Second)
	p.At(62, 100, "g")
	must("importing: 62%, g\n")
	p.Done(100, "h")
	must("")
}

func TestProgressWithoutTotal(t *testing.T) {
	p, b, pass := progress(ProgressPlain)
	for range 25 {
		pass(time.Second)
		p.At(1, 0, "x")
	}
	if got := b.String(); got != strings.Repeat("importing: x\n", 3) {
		t.Errorf("%q", got)
	}
}

func TestProgressJSON(t *testing.T) {
	p, b, pass := progress(ProgressJSON)
	p.At(1, 2, "too early")
	pass(time.Second)
	p.At(1, 2, "a\nb")
	p.Done(2, "all")
	want := `{"kind":"status","what":"importing","done":1,"total":2,"detail":"a\nb"}` + "\n" + `{"kind":"summary","what":"importing","done":2,"total":2,"detail":"all"}` + "\n"
	if b.String() != want {
		t.Errorf("%s, want %s", b, want)
	}
}

func TestProgressNoneAndTTY(t *testing.T) {
	p, b, pass := progress(ProgressNone)
	pass(time.Hour)
	p.At(1, 2, "x")
	p.Done(2, "x")
	if b.Len() > 0 {
		t.Errorf("got %q", b)
	}
	for _, total := range []int64{10, 0} {
		p, b, pass = progress(ProgressTTY)
		p.At(1, total, "x")
		if b.Len() > 0 {
			t.Errorf("got %q", b)
		}
		pass(time.Second)
		p.At(2, total, "half way")
		if !strings.Contains(b.String(), "half way") {
			t.Errorf("got %q", b)
		}
		p.Done(10, "x")
	}
}
