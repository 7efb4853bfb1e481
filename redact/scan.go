package redact

import "slices"

// Words that say that a text may read otherwise once it is unescaped: an escape
// of a printable ASCII character, and that of the slash, which some encoders
// write.
var escapeWords = []string{`\/`, `\u002`, `\u003`, `\u004`, `\u005`, `\u006`, `\u007`}

const escapeWord int32 = -1

// A sighting is what one pass over a text gave.
type sighting struct {
	spans  []span
	deeper bool // it may say more once it is unescaped
}

// quiet reports whether a text holds nothing, without a look at its structure.
// By far the most lines end here.
func (r *Redactor) quiet(text []byte) bool {
	a := r.words
	state := uint32(0)
	for i, c := range text {
		state = a.next[state+uint32(a.class[c])]
		if state < a.first {
			continue
		}
		for _, e := range a.ends[(state-a.first)/uint32(a.width)] {
			if e.rule == escapeWord || r.rules[e.rule].search != nil {
				return false
			}
			if m := r.rules[e.rule].match(text, i+1-int(e.size)); m.ok || m.deeper {
				return false
			}
		}
	}
	return true
}

// scan looks for the rules in a text as it stands. Rules that search all of a text
// do so if one of their words occurs, or if they are among always; without search
// they are left out.
func (r *Redactor) scan(text []byte, always []int, search bool) (got sighting) {
	a := r.words
	state := uint32(0)
	wanted := slices.Clone(always)
	for i, c := range text {
		state = a.next[state+uint32(a.class[c])]
		if state < a.first {
			continue
		}
		for _, e := range a.ends[(state-a.first)/uint32(a.width)] {
			if e.rule == escapeWord {
				got.deeper = true
			} else if r.rules[e.rule].search == nil {
				got.match(r.rules[e.rule], e.rule, text, i+1-int(e.size))
			} else if search && !slices.Contains(wanted, int(e.rule)) {
				wanted = append(wanted, int(e.rule))
			}
		}
	}
	for _, n := range wanted {
		got.deeper = true
		for _, s := range r.rules[n].search(text) {
			got.spans = append(got.spans, span{s[0], s[1], int32(n)})
		}
	}
	return got
}

func (got *sighting) match(one *rule, n int32, text []byte, at int) {
	m := one.match(text, at)
	if m.ok {
		got.spans = append(got.spans, span{m.from, m.to, n})
	}
	got.deeper = got.deeper || m.deeper
}
