package projector_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// The model follows the definitions literally and shares no code with the product. It copies lists of records, and
// folds threads from the first turn every time.

type modelTurn struct {
	offset events.Offset
	raw    string
	pinned bool
}

type modelThreads map[string][]modelTurn

type modelSession struct {
	history   []events.Record // inherited ones first
	inherited int
	live      [][]int // live[k]: the list in effect after the k-th record, by number from 1; live[0] is empty
	stale     []events.Offset
	rejected  map[events.Offset]bool
	created   bool // by an effective session.created
	kind      string
}

// modelOf computes a session from the whole log as of an offset (0: all).
func modelOf(log testkit.Records, id string, at events.Offset) *modelSession {
	m := &modelSession{live: [][]int{{}}, rejected: make(map[events.Offset]bool), kind: "conversation"}
	if strings.HasPrefix(id, "inbox/") {
		m.kind = "inbox"
	}
	rewinds := make(map[events.Offset]bool)
	for _, rec := range log.Of(events.Session("", id)) {
		if at != 0 && rec.Offset > at {
			if parent := m.parent(log, rec); parent != nil { // before its own first record, a fork consists of inherited records
				m.inherit(parent)
				k := m.last(at, len(m.history))
				m.history, m.live = m.history[:k], m.live[:k+1]
				m.inherited = k
			}
			break
		}
		p, err := events.Decode(rec.Type, rec.Data)
		first := len(m.history) == 0
		if parent := m.parent(log, rec); parent != nil {
			m.inherit(parent)
		}
		m.history = append(m.history, rec)
		k := len(m.history)
		before := m.live[k-1]
		if err != nil || m.impossible(rec, p, first) {
			m.skip(rec)
			continue
		}
		if r, ok := p.(*events.SessionRewound); ok {
			j := m.last(r.To, k-1)
			if m.kind == "inbox" || m.kind == "queue" || r.To >= rec.Offset || k == 1 || r.To < m.history[0].Offset || r.Undoes != 0 && !rewinds[r.Undoes] {
				m.skip(rec)
				continue
			}
			rewinds[rec.Offset] = true
			m.live = append(m.live, slices.Clone(m.live[j]))
			continue
		}
		if !m.threads(before).have(p) {
			m.skip(rec)
			continue
		}
		if basis, ok := rec.Basis(); ok && m.hasLost(m.live[m.last(basis, k-1)], before) {
			m.stale = append(m.stale, rec.Offset)
			m.live = append(m.live, before)
			continue
		}
		if threads := m.threads(before); !threads.apply(rec) {
			m.skip(rec)
			continue
		}
		m.live = append(m.live, append(slices.Clone(before), k))
	}
	return m
}

// parent returns the inherited state, if the session's first record is a possible fork of a session that began before
// it.
func (m *modelSession) parent(log testkit.Records, rec events.Record) *modelSession {
	c, err := events.DecodeAs[events.SessionCreated](rec.Event)
	if err != nil || len(m.history) > 0 || c.Fork == nil || c.Fork.Offset >= rec.Offset {
		return nil
	}
	if own := log.Of(events.Session("", c.Fork.Session)); len(own) == 0 || own[0].Offset >= rec.Offset {
		return nil
	}
	return modelOf(log, c.Fork.Session, c.Fork.Offset)
}

// impossible reports whether the ledger rejects a record.
func (m *modelSession) impossible(rec events.Record, p events.Payload, first bool) bool {
	switch p := p.(type) {
	case *events.SessionCreated:
		if m.created || p.Fork != nil && (!first || p.Fork.Offset >= rec.Offset) {
			return true
		}
		m.created, m.kind = true, p.Kind
	case *events.CheckpointSaved:
		return p.At >= rec.Offset
	}
	return false
}

// have reports whether the threads contain the turns that an event lists.
func (t modelThreads) have(p events.Payload) bool {
	var lists events.Lists
	switch p := p.(type) {
	case *events.RunStarted:
		lists = p.Lists
	case *events.RunProgressed:
		lists = p.Lists
	case *events.CheckpointSaved:
		lists = p.Lists
	}
	for _, pieces := range lists {
		for _, piece := range pieces {
			if piece.To > len(t[piece.Thread]) {
				return false
			}
		}
	}
	return true
}

func (m *modelSession) inherit(parent *modelSession) {
	for _, k := range parent.live[len(parent.live)-1] {
		m.history = append(m.history, parent.history[k-1])
		m.live = append(m.live, append(slices.Clone(m.live[len(m.live)-1]), len(m.history)))
	}
	m.inherited = len(m.history)
}

// skip records a rejected record.
func (m *modelSession) skip(rec events.Record) {
	m.rejected[rec.Offset] = true
	m.live = append(m.live, m.live[len(m.live)-1])
}

// last returns the number of the last record at or below an offset among the first k.
func (m *modelSession) last(at events.Offset, k int) int {
	for k > 0 && m.history[k-1].Offset > at {
		k--
	}
	return k
}

// hasLost reports whether a list has lost a record that a rewind takes out of effect: a record of a thread, or of a type
// that tally does not know.
func (m *modelSession) hasLost(seen, now []int) bool {
	return slices.ContainsFunc(seen, func(k int) bool {
		typ := m.history[k-1].Type
		return !slices.Contains(now, k) && (strings.HasPrefix(typ, "tally.thread.") || typ == "tally.turn.appended.v1" || !strings.HasPrefix(typ, "tally."))
	})
}

func (m *modelSession) head() []int { return m.live[len(m.live)-1] }

func (m *modelSession) threads(live []int) modelThreads {
	t := make(modelThreads)
	for _, k := range live {
		if !t.apply(m.history[k-1]) {
			panic(fmt.Sprintf("model: void record %v in the list", m.history[k-1].Offset))
		}
	}
	return t
}

// apply folds one record and reports whether it is possible. If it is not, nothing changes.
func (t modelThreads) apply(rec events.Record) bool {
	after := make(modelThreads)
	for name, turns := range t {
		after[name] = slices.Clone(turns)
	}
	p, _ := events.Decode(rec.Type, rec.Data)
	ok := true
	switch p := p.(type) {
	case *events.TurnAppended:
		for _, e := range p.Entries {
			after[e.Thread] = append(after[e.Thread], modelTurn{rec.Offset, string(e.Turn), e.Pinned})
		}
		for name := range p.ThreadMeta {
			after[name] = append([]modelTurn{}, after[name]...)
		}
		for name, pins := range p.Pins {
			ok = after.pin(name, pins) && ok
		}
	case *events.ThreadReplaced:
		if p.Others == "drop" {
			clear(after)
		}
		for name, r := range p.Threads {
			turns := []modelTurn{}
			for _, it := range r.Items {
				switch {
				case it.Keep == nil:
					turns = append(turns, modelTurn{rec.Offset, string(it.Turn), it.Pinned})
				case it.Keep[1] > len(t[name]):
					ok = false
				default:
					turns = append(turns, t[name][it.Keep[0]:it.Keep[1]]...)
				}
			}
			after[name] = turns
		}
	case *events.ThreadTruncated:
		for name, n := range p.Lengths {
			switch {
			case name == "*":
				clear(after)
			case n > len(t[name]):
				ok = false
			case n == 0:
				delete(after, name)
			default:
				after[name] = after[name][:n]
			}
		}
	case *events.ThreadPinned:
		ok = after.pin(p.Thread, p.Pins)
	}
	if ok {
		clear(t)
		maps.Copy(t, after)
	}
	return ok
}

func (t modelThreads) pin(name string, pins map[int]bool) bool {
	for i, on := range pins {
		if i >= len(t[name]) {
			return false
		}
		t[name][i].pinned = on
	}
	return true
}

// modelView converts the product's threads to the model's form.
func modelView(threads projector.Threads) modelThreads {
	t := make(modelThreads)
	for name, th := range threads {
		t[name] = []modelTurn{}
		for _, turn := range th.Turns {
			t[name] = append(t[name], modelTurn{turn.Offset, string(turn.Raw), turn.Pinned})
		}
	}
	return t
}

// positions of a session; 0: none

// counted returns the thread that a position counts in, or "" for all.
func (m *modelSession) counted(thread string) (string, bool) {
	threads := m.threads(m.head())
	if thread != "" {
		return thread, true
	}
	if _, ok := threads["main"]; ok {
		return "main", true
	}
	for name := range threads {
		return name, len(threads) == 1
	}
	return "", false
}

func (m *modelSession) turn(thread string, n int) events.Offset {
	name, one := m.counted(thread)
	turns := m.threads(m.head())[name]
	if !one || n > len(turns) {
		return 0
	}
	return turns[n-1].offset
}

// without removes the last turns one by one, then returns the last record in effect before all of them.
func (m *modelSession) without(thread string, n int) events.Offset {
	if n == 0 {
		return m.history[len(m.history)-1].Offset
	}
	threads := m.threads(m.head())
	if name, one := m.counted(thread); one {
		threads = modelThreads{name: threads[name]}
	}
	first := events.MaxOffset
	for range n {
		last, at := "", events.Offset(0)
		for _, name := range slices.Sorted(maps.Keys(threads)) {
			turns := threads[name]
			if len(turns) > 0 && turns[len(turns)-1].offset > at {
				last, at = name, turns[len(turns)-1].offset
			}
		}
		if at == 0 {
			return 0
		}
		threads[last] = threads[last][:len(threads[last])-1]
		first = min(first, at)
	}
	before := events.Offset(0)
	for _, k := range m.head() {
		if at := m.history[k-1].Offset; at < first {
			before = at
		}
	}
	return before
}

// asOf returns the longest prefix in which no change of the threads, and no record after the last change, is later.
func (m *modelSession) asOf(until time.Time) events.Offset {
	for k := len(m.history); k > 0; k-- {
		ok, behind := true, true
		for _, rec := range slices.Backward(m.history[:k]) {
			changes := slices.Contains([]string{"tally.turn.appended.v1", "tally.thread.replaced.v1", "tally.thread.truncated.v1", "tally.thread.pinned.v1", "tally.session.rewound.v1"}, rec.Type)
			behind = behind && !changes
			if (changes || behind) && shownAt(rec).Truncate(time.Second).After(until) {
				ok = false
			}
		}
		if ok {
			return m.history[k-1].Offset
		}
	}
	return 0
}

// shownAt returns the latest time of a record's turns, else the event's time.
func shownAt(rec events.Record) (latest time.Time) {
	type said struct{ Timestamp time.Time }
	var data struct {
		Entries []said
		Threads map[string]struct{ Items []said }
	}
	if json.Unmarshal(rec.Data, &data) != nil || rec.Type != "tally.turn.appended.v1" && rec.Type != "tally.thread.replaced.v1" {
		return rec.Time
	}
	for _, r := range data.Threads {
		data.Entries = append(data.Entries, r.Items...)
	}
	for _, e := range data.Entries {
		if e.Timestamp.After(latest) {
			latest = e.Timestamp
		}
	}
	if latest.IsZero() {
		return rec.Time
	}
	return latest
}
