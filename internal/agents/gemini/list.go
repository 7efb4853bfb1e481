package gemini

import (
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// itemList is the conversation that Gemini CLI would read from the file.
type itemList struct {
	entries []entry
	index   map[string]int // by id
	floor   int64          // positions in the file up to here have an older list
}

type entry struct {
	id     string
	digest digest
	start  int64 // start of the line that had it first; -1: it came in a list
}

func newList() *itemList { return &itemList{index: make(map[string]int)} }

func (l *itemList) len() int { return len(l.entries) }

func (l *itemList) find(id string) (int, bool) {
	i, ok := l.index[id]
	return i, ok
}

func (l *itemList) push(e entry) {
	l.index[e.id] = len(l.entries)
	l.entries = append(l.entries, e)
}

// cut keeps the first n messages.
func (l *itemList) cut(n int) {
	for _, e := range l.entries[n:] {
		delete(l.index, e.id)
	}
	l.entries = l.entries[:n]
}

// set replaces the list. It returns the new content of the thread: kept turns, and new turns for new or changed
// messages. It returns false if nothing changes.
func (l *itemList) set(messages []message) (items []events.Item, changed bool) {
	old, index := l.entries, l.index
	l.entries, l.index = nil, make(map[string]int, len(messages))
	changed = len(messages) != len(old)
	for i, m := range messages {
		e := entry{id: m.id, digest: m.digest(), start: -1}
		k, known := index[m.id]
		if known && old[k].digest.covers(e.digest) {
			l.push(old[k])
			items = keep(items, k)
			changed = changed || k != i
			continue
		}
		changed = true
		l.push(e)
		items = append(items, m.item())
	}
	return items, changed
}

// keep adds a turn of the previous thread.
func keep(items []events.Item, k int) []events.Item {
	if last := len(items) - 1; last >= 0 && items[last].Keep != nil && items[last].Keep[1] == k {
		items[last].Keep[1]++
		return items
	}
	return append(items, events.Item{Keep: &[2]int{k, k + 1}})
}

// stretch adds a range of turns of the previous thread, unless it is empty.
func stretch(items []events.Item, from, to int) []events.Item {
	if from == to {
		return items
	}
	return append(items, events.Item{Keep: &[2]int{from, to}})
}

func (m message) item() events.Item {
	it := events.Item{Turn: events.Raw(m.raw), Timestamp: m.spelled}
	if len(m.id) <= agents.MaxID {
		it.ID = m.id
	}
	return it
}

// replaced returns the fact that replaces the thread.
func (f *fold) replaced(key string, had int, items []events.Item) agents.Fact {
	return agents.Fact{Key: key, Had: had, Payload: &events.ThreadReplaced{
		Threads: map[string]events.Replacement{f.file.Thread: {Items: items}}, Others: "keep", Reason: sourceReason}}
}

// sourceReason is the reason of replaced threads and rewinds: the agent did it.
const sourceReason = "source"

// put adds a message that has its own line: a new one at the end, or a newer version in the position of the older.
func (f *fold) put(s *saying, m message) {
	e := entry{id: m.id, digest: m.digest(), start: s.at.Start}
	i, known := f.list.find(m.id)
	n := f.list.len()
	switch {
	case !known:
		f.list.push(e)
	case f.list.entries[i].digest.whole == e.digest.whole:
		return // a duplicate; the line is kept in log
	case i == n-1:
		s.Before = append(s.Before, f.replaced("version", n, stretch(nil, 0, i)))
		f.list.entries[i].digest = e.digest
	default:
		items := stretch(stretch(stretch(nil, 0, i), n, n+1), i+1, n)
		s.After = append(s.After, f.replaced("version", n+1, items))
		f.list.entries[i].digest = e.digest
		f.list.floor = s.at.End
	}
	s.Thread = f.file.Thread
	if len(m.id) <= agents.MaxID {
		s.Turn = m.id
	}
}

// rewind drops a message and all after it, or all messages if it is unknown. If the list at a position in the file
// equals the resulting one, which is the usual case, the event is session.rewound.
func (f *fold) rewind(s *saying, id string) {
	i, known := f.list.find(id)
	n := f.list.len()
	to := f.origin
	if known {
		to = f.list.entries[i].start
	} else {
		i = 0
	}
	if n == 0 {
		return
	}
	f.list.cut(i)
	if to > f.list.floor && f.file.Thread == agents.Main {
		s.Before = append(s.Before, agents.Fact{Key: "rewound", Payload: &events.SessionRewound{Reason: sourceReason, Raw: s.line}, Position: &agents.Position{Stem: f.file.Stem, End: to}})
		return
	}
	f.list.floor = s.at.End
	s.Before = append(s.Before, f.replaced("rewound", n, stretch(nil, 0, i)))
}
