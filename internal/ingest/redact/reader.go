package redact

import "slices"

// A reader is a text under examination, with cached results. It bounds the work per byte: without it, a word that
// repeats in a long run of token characters would have the run measured and judged at each occurrence.
type reader struct {
	text   []byte
	breaks []int     // positions of removed terminal sequences
	runs   []stretch // by part: the last long run of its class
	judged []verdict // by rule: the last judged secret
	steps  int       // bytes examined
}

type stretch struct{ from, to int }

type verdict struct {
	stretch
	ok bool
}

// broken reports whether a terminal sequence was removed right before i.
func (t *reader) broken(i int) bool {
	if len(t.breaks) == 0 {
		return false
	}
	_, ok := slices.BinarySearch(t.breaks, i)
	return ok
}

// longRun is the length from which a run is cached.
const longRun = 32

// runEnd returns the end of the run of a part's class that starts at i. For a part with an id it caches long runs, and
// measures each once.
func (t *reader) runEnd(p *shapePart, i int) int {
	if p.id > 0 && p.id < len(t.runs) && t.runs[p.id].from <= i && i < t.runs[p.id].to {
		return t.bounded(p, i, t.runs[p.id].to)
	}
	end := i
	for end < len(t.text) && p.class[t.text[end]] && (end-i < p.max || p.id > 0) {
		end++
	}
	t.steps += end - i + 1
	if p.id > 0 && end-i > longRun {
		t.remember(p.id, stretch{i, end})
	}
	return t.bounded(p, i, end)
}

func (t *reader) bounded(p *shapePart, i, end int) int {
	if end-i > p.max {
		return i + p.max
	}
	return end
}

func (t *reader) remember(id int, run stretch) {
	if id >= len(t.runs) {
		t.runs = append(t.runs, make([]stretch, id+1-len(t.runs))...)
	}
	t.runs[id] = run
}

// judge reports whether a secret is random enough for a rule. The end of a secret gets the same answer as the whole: if
// the whole is a secret, both are replaced, and if a text has no digit, its end has none.
func (t *reader) judge(r *ruleDef, from, to int) bool {
	if r.random == nil {
		return true
	}
	if r.id >= len(t.judged) {
		t.judged = append(t.judged, make([]verdict, r.id+1-len(t.judged))...)
	}
	last := &t.judged[r.id]
	if last.to == to && last.from < from && to-from >= 16 {
		return last.ok
	}
	t.steps += to - from
	*last = verdict{stretch{from, to}, r.random(t.text[from:to])}
	return last.ok
}
