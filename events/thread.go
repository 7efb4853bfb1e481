package events

import (
	"fmt"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// MainThread is the default thread of turns.
const MainThread = "main"

// LogThread is the thread of a transcript with the agent's log lines beside the conversation.
const LogThread = "log"

// AgentSource is the prefix of the source of events that are lines of an agent's files. The agent's name follows.
const AgentSource = "urn:tally:agent:"

// DerivedSource is the prefix of the sources of events that follow from lines of an agent's files.
const DerivedSource = "urn:tally:derived:"

// IsAgentLine reports whether an event is a line of an agent's file.
func IsAgentLine(e Event) bool { return strings.HasPrefix(e.Source, AgentSource) }

// AllThreads stands for every thread in a truncation; no thread has this name.
const AllThreads = "*"

// TurnAppended appends turns, to several threads if necessary, so that one call of a user is one event.
type TurnAppended struct {
	Entries    []Entry                 `json:"entries,omitempty"` // empty only beside ThreadMeta
	ThreadMeta map[string]Raw          `json:"threadMeta,omitempty"`
	Pins       map[string]map[int]bool `json:"pins,omitempty"` // of turns, by index from 0, after the entries were appended
	Formats    map[string]FileFormat   `json:"formats,omitempty"`
	Unknown    Fields                  `json:",unknown"`
}

// Entry is one turn of one thread: the producer's JSON byte for byte, or bytes
// that are not JSON.
type Entry struct {
	Thread    string    `json:"thread"`
	Turn      Raw       `json:"turn,omitempty"`
	Bytes     []byte    `json:"bytes,omitzero"`
	ID        string    `json:"id,omitempty"`
	Timestamp Timestamp `json:"timestamp,omitempty"`
	Run       *RunRef   `json:"run,omitempty"`
	Meta      Raw       `json:"meta,omitempty"`
	Pinned    bool      `json:"pinned,omitempty"`
	Unknown   Fields    `json:",unknown"`
}

func (p *TurnAppended) EventType() string { return TypeTurnAppended }

// Validate implements Payload.
func (p *TurnAppended) Validate() error { return p.validate(validRaw) }

func (p *TurnAppended) validate(raw rawCheck) error {
	if len(p.Entries) == 0 && len(p.ThreadMeta) == 0 {
		return wrong("entries", "nothing to append")
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.check("", raw) != nil { // the path is built only for an error: this runs for every turn that is read
			return e.check(fmt.Sprintf("entries[%d]", i), raw)
		}
	}
	for _, name := range sortedKeys(p.ThreadMeta) {
		if err := first(checkThread("threadMeta", name), raw(fmt.Sprintf("threadMeta[%q]", name), p.ThreadMeta[name])); err != nil {
			return err
		}
	}
	pins := 0
	for _, name := range sortedKeys(p.Pins) {
		path := fmt.Sprintf("pins[%q]", name)
		if err := first(checkThread(path, name), checkPins(path, p.Pins[name])); err != nil {
			return err
		}
		pins += len(p.Pins[name])
	}
	return first(checkReferences("pins", pins), checkFormats(p.Formats))
}

func (e *Entry) check(path string, raw rawCheck) error {
	return first(checkThread(path+".thread", e.Thread), checkTurn(path, e.Turn, e.Bytes, raw), e.Timestamp.check(path+".timestamp"),
		e.Run.checkOptional(path+".run"), raw(path+".meta", e.Meta))
}

// ThreadReplaced replaces the content of threads. A thread replaced by nothing exists and is empty.
type ThreadReplaced struct {
	Threads  map[string]Replacement `json:"threads"`
	Others   string                 `json:"others"` // keep or drop
	Reason   string                 `json:"reason"` // save, compact, import, clear, source (the source's file was replaced), or another
	Strategy string                 `json:"strategy,omitempty"`
	Before   int64                  `json:"before,omitempty"` // size before and after, in the strategy's own unit
	After    int64                  `json:"after,omitempty"`
	Formats  map[string]FileFormat  `json:"formats,omitempty"`
	Unknown  Fields                 `json:",unknown"`
}

// Replacement is the new content of one thread.
type Replacement struct {
	Items []Item `json:"items"` // empty: the thread exists and is empty
	Meta  Raw    `json:"meta,omitempty"`
}

// Item is a new turn, or a stretch of turns of the thread before the replacement, which keep their offset, pins and
// bytes.
type Item struct {
	Keep      *[2]int   `json:"keep,omitempty"` // turns from Keep[0] to before Keep[1], by index from 0; no two items keep the same turn
	Turn      Raw       `json:"turn,omitempty"`
	Bytes     []byte    `json:"bytes,omitzero"`
	ID        string    `json:"id,omitempty"`
	Timestamp Timestamp `json:"timestamp,omitempty"`
	Run       *RunRef   `json:"run,omitempty"`
	Meta      Raw       `json:"meta,omitempty"`
	Pinned    bool      `json:"pinned,omitempty"`
	Unknown   Fields    `json:",unknown"`
}

// AppendRawJSON writes no items as [], which is how they are read.
func (r Replacement) AppendRawJSON(dst []byte) ([]byte, error) {
	type plain Replacement
	if r.Items == nil {
		r.Items = []Item{}
	}
	return rawjson.Append(dst, plain(r))
}

func (p *ThreadReplaced) EventType() string { return TypeThreadReplaced }

// Validate implements Payload.
func (p *ThreadReplaced) Validate() error { return p.validate(validRaw) }

func (p *ThreadReplaced) validate(raw rawCheck) error {
	if p.Threads == nil {
		return wrong("threads", "missing")
	}
	keeps := 0
	for _, name := range sortedKeys(p.Threads) {
		r := p.Threads[name]
		path := fmt.Sprintf("threads[%q]", name)
		if err := first(checkThread("threads", name), raw(path+".meta", r.Meta)); err != nil {
			return err
		}
		for i := range r.Items {
			if err := r.Items[i].check(fmt.Sprintf("%s.items[%d]", path, i), raw); err != nil {
				return err
			}
			if r.Items[i].Keep != nil {
				keeps++
			}
		}
		if err := checkKeeps(path, r.Items); err != nil {
			return err
		}
	}
	return first(checkReferences("threads", keeps), oneOf("others", p.Others, "keep", "drop"), required("reason", p.Reason), checkFormats(p.Formats))
}

func (it *Item) check(path string, raw rawCheck) error {
	if err := first(it.Timestamp.check(path+".timestamp"), it.Run.checkOptional(path+".run"), raw(path+".meta", it.Meta)); err != nil {
		return err
	}
	if it.Keep == nil {
		return checkTurn(path, it.Turn, it.Bytes, raw)
	}
	if it.Turn != nil || it.Bytes != nil {
		return wrong(path, "both keep and a turn")
	}
	if it.Keep[0] < 0 || it.Keep[1] < it.Keep[0] {
		return wrong(path+".keep", "[%d, %d] is no stretch of turns", it.Keep[0], it.Keep[1])
	}
	return checkTurns(path+".keep", it.Keep[1])
}

// ThreadTruncated shortens threads, and never lengthens one. A thread cut to 0 does not exist any more; {"*": 0} clears
// all.
type ThreadTruncated struct {
	Lengths map[string]int `json:"lengths"`
	Reason  string         `json:"reason"`
	Unknown Fields         `json:",unknown"`
}

func (p *ThreadTruncated) EventType() string { return TypeThreadTruncated }

// Validate implements Payload.
func (p *ThreadTruncated) Validate() error {
	if len(p.Lengths) == 0 {
		return wrong("lengths", "nothing to truncate")
	}
	for _, name := range sortedKeys(p.Lengths) {
		n := p.Lengths[name]
		path := fmt.Sprintf("lengths[%q]", name)
		if name == AllThreads {
			if n != 0 || len(p.Lengths) != 1 {
				return wrong(path, "* stands alone and only with 0")
			}
			continue
		}
		if err := first(checkThread("lengths", name), notNegative(path, int64(n)), checkTurns(path, n)); err != nil {
			return err
		}
	}
	return required("reason", p.Reason)
}

// ThreadPinned pins and unpins turns of one thread.
type ThreadPinned struct {
	Thread  string       `json:"thread"`
	Pins    map[int]bool `json:"pins"` // by index from 0
	Unknown Fields       `json:",unknown"`
}

func (p *ThreadPinned) EventType() string { return TypeThreadPinned }

// Validate implements Payload.
func (p *ThreadPinned) Validate() error {
	if err := checkThread("thread", p.Thread); err != nil {
		return err
	}
	if len(p.Pins) == 0 {
		return wrong("pins", "nothing to pin")
	}
	return checkPins("pins", p.Pins)
}

func checkThread(path, name string) error {
	switch {
	case name == "":
		return wrong(path, "a thread has no name")
	case name == AllThreads:
		return wrong(path, "* is no name of a thread")
	case len(name) > MaxIDLen:
		return wrong(path, "a thread's name has %d bytes, at most %d are allowed", len(name), MaxIDLen)
	}
	return nil
}

func checkTurn(path string, turn Raw, bytes []byte, raw rawCheck) error {
	switch {
	case len(turn) == 0 && bytes == nil:
		return wrong(path+".turn", "missing")
	case len(turn) > 0 && bytes != nil:
		return wrong(path, "both turn and bytes")
	case len(turn) > 0:
		return raw(path+".turn", turn)
	}
	return nil
}

func checkPins(path string, pins map[int]bool) error {
	lowest, highest := 0, 0
	for i := range pins {
		lowest, highest = min(lowest, i), max(highest, i)
	}
	if lowest < 0 {
		return wrong(fmt.Sprintf(`%s["%d"]`, path, lowest), "the index is negative")
	}
	return first(checkReferences(path, len(pins)), checkTurns(path, highest))
}
