package redact

import (
	"bytes"
	"slices"
)

// escapeWords indicate that a text may differ after unescaping. They are escapes of printable ASCII characters, and of
// the slash, which some encoders write.
var escapeWords = slices.Concat(sequenceWords, []string{`\/`, `\u002`, `\u003`, `\u004`, `\u005`, `\u006`, `\u007`, `\u{`, `\U000`,
	`\x2`, `\x3`, `\x4`, `\x5`, `\x6`, `\x7`, `\04`, `\05`, `\06`, `\07`, `\10`, `\11`, `\12`, `\13`, `\14`, `\15`, `\16`, `\17`,
	"%2", "%3", "%4", "%5", "%6", "%7", "&#", "&quot;", "&apos;", "&equals;", "&colon;", "&lowbar;", "&amp;#", "&amp;quot;", "=3d", "=5f", "=2d", "=2e", "=3a", "=22"})

const escapeWord int32 = -1

// A sighting is the result of one pass over a text.
type sighting struct {
	spans  []span
	deeper bool // unescaping may reveal more
}

// quiet reports whether a text contains nothing to search for, without parsing it. It is true for most lines.
func (r *Redactor) quiet(text []byte) bool {
	a := r.words
	state := uint32(0)
	var t *reader
	for i, c := range text {
		state = a.next[state+uint32(a.class[c])]
		if state < a.first {
			continue
		}
		for _, e := range a.ends[(state-a.first)/uint32(a.width)] {
			if e.rule == escapeWord || r.rules[e.rule].search != nil {
				return false
			}
			if t == nil {
				t = &reader{text: text}
			}
			if m := r.rules[e.rule].match(t, i+1-int(e.size)); m.ok || m.deeper {
				return false
			}
		}
	}
	return true
}

// scan searches a text for the rules without unescaping. Rules that search a whole text run if one of their words
// occurs, or if they are in always. Without search they are skipped.
func (f *finder) scan(text []byte, breaks []int, search bool) (got sighting) {
	a := f.r.words
	state := uint32(0)
	var wanted []int
	if search {
		wanted = slices.Clone(f.r.always)
	}
	var t *reader
	for i, c := range text {
		state = a.next[state+uint32(a.class[c])]
		if state < a.first {
			continue
		}
		for _, e := range a.ends[(state-a.first)/uint32(a.width)] {
			if t == nil {
				t = &reader{text: text, breaks: breaks}
			}
			if e.rule == escapeWord {
				got.deeper = true
			} else if one := f.r.rules[e.rule]; one.search == nil {
				got.take(one.match(t, i+1-int(e.size)), e.rule)
			} else if search && !slices.Contains(wanted, int(e.rule)) {
				wanted = append(wanted, int(e.rule))
			}
		}
	}
	for _, n := range wanted {
		got.deeper = true
		for _, s := range f.r.rules[n].search(text) {
			got.spans = append(got.spans, span{s[0], s[1], int32(n)})
		}
	}
	f.steps += len(text) * (1 + len(wanted))
	if t != nil {
		f.steps += t.steps
	}
	return got
}

// take keeps a match unless the last one covers it.
func (got *sighting) take(m match, rule int32) {
	got.deeper = got.deeper || m.deeper
	if !m.ok {
		return
	}
	if n := len(got.spans); n > 0 && got.spans[n-1].rule == rule && got.spans[n-1].from <= m.from && m.to <= got.spans[n-1].to {
		return
	}
	got.spans = append(got.spans, span{m.from, m.to, rule})
}

// A finder searches one line.
type finder struct {
	r     *Redactor
	spans []span
	steps int // bytes examined, to measure the work
}

// maxLevels bounds the repeated unescaping of a text: JSON in a string of JSON in a string of the line takes two.
// maxOthers bounds the texts in which other encodings than backslashes were resolved.
const (
	maxLevels = 3
	maxOthers = 12
)

// text searches a text, and its unescaped forms.
func (f *finder) text(v view) {
	var others []view
	for {
		deeper := f.detect(v, true)
		if !deeper {
			break
		}
		others = append(others, v)
		next, other := v.decoded(backslashes)
		if !other || v.level == maxLevels {
			break
		}
		v = next
	}
	f.others(others)
}

// others resolves the other encodings in texts, repeatedly.
func (f *finder) others(list []view) {
	first := len(list)
	for i := 0; i < len(list); i++ {
		for _, s := range []spelling{percents, entities, quotedPrint, backslashes} {
			if len(list)-first == maxOthers || i < first && s.begin == backslashes.begin || i >= first && list[i].level > maxLevels {
				continue
			}
			v, other := list[i].decoded(s)
			if other && !slices.ContainsFunc(list, func(have view) bool { return bytes.Equal(have.text, v.text) }) && f.detect(v, true) {
				list = append(list, v)
			}
		}
	}
}

// detect searches a text with and without its terminal sequences. It reports whether unescaping may reveal more.
func (f *finder) detect(v view, search bool) (deeper bool) {
	got := f.scan(v.text, nil, search)
	if !got.deeper {
		f.keep(v, got.spans)
		return false
	}
	apart, other := v.stripped("\n")
	if !other {
		f.keep(v, got.spans)
		return true
	}
	first := len(f.spans)
	ended := f.scan(apart.text, nil, search).spans
	f.keep(apart, ended)
	joined, _ := v.stripped("")
	f.keep(joined, f.across(apart, ended, joined, search))
	f.keep(v, f.whole(v, apart, got.spans, f.spans[first:]))
	return true
}

// whole returns the spans of a text that contain no sequence. For spans next to a sequence, the search without
// sequences determines the bounds better.
func (f *finder) whole(v, apart view, spans, known []span) []span {
	begins := make(map[span]bool, len(known))
	for _, s := range known {
		begins[span{from: s.from, rule: s.rule}] = true
	}
	return slices.DeleteFunc(spans, func(s span) bool {
		inside, behind := apart.cuts(s)
		return f.r.rules[s.rule].search == nil && (inside || behind >= 0 && begins[span{from: v.begin(behind), rule: s.rule}])
	})
}

// across returns the matches in a text without its terminal sequences. A sequence ends a word. So if the text behind a
// secret continues as another word, across leaves that match out.
func (f *finder) across(apart view, ended []span, joined view, search bool) (list []span) {
	size := make(map[int]int, len(ended)) // lengths of secrets that end at a sequence, by start
	for _, s := range ended {
		size[apart.begin(s.from)] = s.to - s.from
	}
	for _, s := range f.scan(joined.text, joined.breaks(), search).spans {
		if n := size[joined.begin(s.from)]; n == 0 || n >= s.to-s.from || !plain(joined.text[s.from+n:s.to]) {
			list = append(list, s)
		}
	}
	return list
}

// keep adds spans of a view by their positions in the line.
func (f *finder) keep(v view, spans []span) {
	for _, s := range spans {
		f.spans = append(f.spans, span{v.begin(s.from), v.end(s.to), s.rule})
	}
}
