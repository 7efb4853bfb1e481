package codex

import (
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/tallylog/tally/internal/rawjson"
)

// Rollout is a thread for Codex to continue: the lines of another one, up to the chosen position, in one file without
// references.
type Rollout struct {
	Thread string    // the new thread, a UUID of version 7
	From   string    // the thread of the lines, a UUID
	Began  time.Time // beginning of the new thread
	Lines  [][]byte  // in effect, in order, of all files of the thread and of those it continues
}

// Name returns the path of the file in Codex' home, for the machine's time zone.
func (r Rollout) Name(zone *time.Location) string { return nameFor(r.Thread, r.Began.In(zone)) }

func nameFor(thread string, at time.Time) string {
	return path.Join(current, at.Format("2006/01/02"), "rollout-"+at.Format(stamp)+"-"+thread+".jsonl")
}

// Reference is a thread for Codex to continue: one line that refers to the end of its history in a file that Codex
// has. Codex itself forks a thread in this way.
type Reference struct {
	Thread string    // the new thread, a UUID of version 7
	From   string    // the thread that it continues, a UUID
	Began  time.Time // beginning of the new thread
	First  []byte    // the first line of the file
	Stem   string    // of the file
	Last   []byte    // the last line that is part of the history
	End    int64     // end of that line in the file, its line end included
}

// Name returns the path of the file in Codex' home, for the machine's time zone.
func (r Reference) Name(zone *time.Location) string { return nameFor(r.Thread, r.Began.In(zone)) }

// IsReferable reports whether a file with this first line can be referred to: its version numbers the lines.
func IsReferable(first []byte) bool {
	list := entriesOf(first)
	return len(list) == 1 && list[0].kind == metaLine && list[0].payload.Text("history_mode") == "paginated"
}

// Base returns the stem of the file that a file with this first line continues, "" for none.
func Base(first []byte) string {
	for _, e := range entriesOf(first) {
		if base, ok := baseOf(e.payload); ok {
			return base.Stem
		}
	}
	return ""
}

// IsToldAgain reports whether a line is a prompt for the model and next repeats it for the screen. A history has to
// end after both.
func IsToldAgain(line, next []byte) bool {
	told, again := entriesOf(line), entriesOf(next)
	if len(told) == 0 || len(again) != 1 {
		return false
	}
	e, n := told[len(told)-1], again[0]
	isPrompt := e.kind == itemLine && e.event == "message" && e.payload.Text("role") == "user"
	isItem := n.event == "item_completed" && n.payload.Object("item").Text("type") == "UserMessage"
	return isPrompt && n.kind == eventLine && (n.event == "user_message" || isItem)
}

// Append appends the file to dst.
func (r Reference) Append(dst []byte) ([]byte, error) {
	last := entriesOf(r.Last)
	switch {
	case !isUUID(r.Thread) || !isUUID(r.From) || !isUUID(r.Stem) || r.Thread == r.From:
		return dst, fmt.Errorf("a reference of thread %q to %q in file %q: want UUIDs, and two threads", r.Thread, r.From, r.Stem)
	case !IsReferable(r.First) || len(last) == 0 || last[len(last)-1].ordinal < 0 || r.End <= 0:
		return dst, fmt.Errorf("file %s of thread %s cannot be referred to at byte %d: its lines have no numbers", r.Stem, r.From, r.End)
	}
	number := last[len(last)-1].ordinal
	w := &writer{r: Rollout{Thread: r.Thread, From: r.From, Began: r.Began}, out: dst, number: number + 1}
	raw, err := w.meta(entriesOf(r.First)[0])
	if err != nil {
		return dst, err
	}
	m, err := rawjson.Object(raw)
	if err != nil {
		return dst, err
	}
	next := strconv.AppendInt(nil, number+1, 10)
	base := fmt.Appendf(nil, `{"thread_id":%q,"end_ordinal_exclusive":%s,"end_byte_offset":%d}`, r.Stem, next, r.End)
	payload := value(m, "payload")
	for _, pair := range []rawjson.Member{{Name: "forked_from_ordinal_exclusive", Value: next}, {Name: "history_base", Value: base}} {
		if payload, err = rawjson.SetMember(payload, pair.Name, pair.Value); err != nil {
			return dst, err
		}
	}
	if raw, err = rawjson.SetMember(raw, "payload", payload); err != nil {
		return dst, err
	}
	if err := w.line(raw); err != nil {
		return dst, err
	}
	return w.out, nil
}

// Append appends the file to dst. The first session_meta becomes that of the new thread; others are omitted. So are
// lines that are not a rollout's, and rollbacks, because they took effect already. All other lines stay as they are,
// except for their numbers: records of usage keep the old thread's id, so that they count there. The context of a
// sub-agent becomes part of the conversation.
func (r Rollout) Append(dst []byte) ([]byte, error) {
	if !isUUID(r.Thread) || !isUUID(r.From) || r.Thread == r.From {
		return dst, fmt.Errorf("a rollout of thread %q from %q: want two UUIDs", r.Thread, r.From)
	}
	w := &writer{r: r, out: dst}
	for i, line := range r.Lines {
		for _, e := range entriesOf(line) {
			if err := w.entry(e); err != nil {
				return dst, fmt.Errorf("line %d of thread %s: %w", i+1, r.From, err)
			}
		}
	}
	if !w.begun {
		return dst, fmt.Errorf("thread %s has no session_meta", r.From)
	}
	return w.out, nil
}

// writer is a rollout while it is written.
type writer struct {
	r      Rollout
	out    []byte
	begun  bool
	number int64 // of the next line
	plain  bool  // the lines have no numbers
}

func (w *writer) entry(e entry) error {
	switch {
	case e.kind == metaLine && w.begun, e.kind == eventLine && e.event == "thread_rolled_back":
		return nil
	case e.kind == metaLine:
		w.begun, w.plain = true, e.payload.Text("history_mode") != "paginated"
		raw, err := w.meta(e)
		if err != nil {
			return err
		}
		return w.line(raw)
	case !w.begun:
		return nil
	}
	return w.line(e.raw)
}

// references has the members of a session_meta that refer to other files and threads.
var references = []string{"forked_from_ordinal_exclusive", "history_base", "parent_thread_id", "subagent_history_start_ordinal", "thread_source"}

// meta returns the session_meta of the new thread.
func (w *writer) meta(e entry) (raw []byte, err error) {
	at := w.r.Began.UTC().Format("2006-01-02T15:04:05.000Z")
	raw, err = set(e.raw, "timestamp", at)
	if err != nil {
		return nil, err
	}
	m, err := rawjson.Object(raw)
	if err != nil {
		return nil, err
	}
	payload := value(m, "payload")
	for _, name := range references {
		if payload, err = rawjson.DeleteMember(payload, name); err != nil {
			return nil, err
		}
	}
	for _, pair := range [][2]string{{"id", w.r.Thread}, {"session_id", w.r.Thread}, {"timestamp", at}, {"forked_from_id", w.r.From}, {"source", "cli"}} {
		if payload, err = set(payload, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return rawjson.SetMember(raw, "payload", payload)
}

// set sets a member to a text.
func set(object []byte, name, text string) ([]byte, error) {
	return rawjson.SetMember(object, name, rawjson.AppendString(nil, text))
}

// line writes a line with its number.
func (w *writer) line(raw []byte) (err error) {
	if w.plain {
		raw, err = rawjson.DeleteMember(raw, "ordinal")
	} else {
		raw, err = rawjson.SetMember(raw, "ordinal", strconv.AppendInt(nil, w.number, 10))
	}
	if err != nil {
		return err
	}
	w.number++
	w.out = append(append(w.out, raw...), '\n')
	return nil
}
