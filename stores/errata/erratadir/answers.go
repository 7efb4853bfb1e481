package erratadir

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

const groupBytes = 1 << 20 // size of the turns in one event

// roleAndText returns role and content of a turn, also of the oldest form.
func roleAndText(raw events.Raw) (role, content string) {
	m := panel.Object(raw)
	return textOr(m, "role", "Role"), textOr(m, "content", "Content")
}

func textOr(m rawjson.Members, name, old string) string {
	if _, ok := m.Get(name); ok {
		return m.Text(name)
	}
	return m.Text(old)
}

// planAnswers appends the turns of a run before it: for every model that answered, all up to the prompt and the
// answer. If a history no longer has them, because it was compacted or rewound, nothing is appended.
func (p *plan) planAnswers(n int, e sessionRow) {
	if len(p.pending) == 0 || e.content == nil {
		return
	}
	prompt, answers := e.answers()
	g := group{p: p, what: "turns/" + strconv.Itoa(n), at: e.at()}
	for _, model := range slices.Sorted(maps.Keys(answers)) {
		turns := p.pending[model]
		for i := 0; i+1 < len(turns); i++ {
			role, content := roleAndText(turns[i])
			if role != "user" || content != prompt {
				continue
			}
			if _, answer := roleAndText(turns[i+1]); answer == answers[model] {
				g.take(model, i+2)
				break
			}
		}
	}
	g.flush()
}

// planRest appends the turns that belong to no run of the folder: prompts one by one, and other turns round by round.
func (p *plan) planRest() {
	at := p.began()
	size := 2 // a question and its answer
	if p.u.ID == promptsID {
		size = 1
	}
	for n := 0; len(p.pending) > 0; n++ {
		g := group{p: p, what: "rest/" + strconv.Itoa(n), at: at}
		for _, name := range slices.Sorted(maps.Keys(p.pending)) {
			g.take(name, min(size, len(p.pending[name])))
		}
		g.flush()
	}
}

// group collects turns into one event, or several if they are large.
type group struct {
	p       *plan
	what    string
	at      events.Timestamp
	entries []events.Entry
	size    int
	n       int
}

// take moves the first turns of a thread into the group.
func (g *group) take(name string, n int) {
	turns := g.p.pending[name]
	for _, raw := range turns[:n] {
		if g.size > 0 && g.size+len(raw) > groupBytes {
			g.flush()
		}
		g.entries = append(g.entries, events.Entry{Thread: name, Turn: raw})
		g.size += len(raw)
	}
	if g.p.pending[name] = turns[n:]; n == len(turns) {
		delete(g.p.pending, name)
	}
}

func (g *group) flush() {
	if len(g.entries) == 0 {
		return
	}
	g.p.add(g.what+"/"+strconv.Itoa(g.n), g.at, &events.TurnAppended{Entries: g.entries})
	g.entries, g.size = nil, 0
	g.n++
}
