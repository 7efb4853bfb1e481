package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// searched builds both views of a log and opens them.
func searched(t *testing.T, records testkit.Records) Finder {
	t.Helper()
	f, closed := searchedIn(t, t.TempDir(), records)
	t.Cleanup(closed)
	return f
}

func searchedIn(t failer, dir string, records testkit.Records) (Finder, func()) {
	t.Helper()
	ctx := t.Context()
	for _, v := range []interface {
		projector.View
		Close() error
	}{New(dir, openingOf, nullLogger), NewSearch(dir, textOf, nullLogger)} {
		_, _, err := v.Begin(ctx)
		must(t, err)
		for _, rec := range records {
			must(t, v.Apply(ctx, projector.Decode(rec)))
		}
		last := records[len(records)-1]
		must(t, v.Commit(ctx, projector.Cursor{Offset: last.Offset, EventID: last.ID}))
		must(t, v.Close())
	}
	list, err := Open(ctx, dir)
	must(t, err)
	f, err := OpenSearch(ctx, dir, list)
	must(t, err)
	return f, func() { f.Close(); list.Close() }
}

// mustFind returns the offsets of the hits.
func mustFind(t *testing.T, f Finder, l Lookup) (offsets []int, found Found) {
	t.Helper()
	l.Namespace = "default"
	found, err := f.Find(t.Context(), l)
	must(t, err)
	for _, h := range found.Hits {
		offsets = append(offsets, int(h.Offset))
	}
	return offsets, found
}

// Example queries.
func TestFind(t *testing.T) {
	f := searched(t, turnsOf(t, events.Session("", "s"),
		"Red cake and blue cake", "a blue house", "café NEAR the house", `"quoted" - AND (odd) * words`,
		"我要一个生日蛋糕", "誕生日ケーキをください", "ขนมเค้กวันเกิด", "place_order(--day, userID)", "生姜"))
	for _, c := range []struct {
		text string
		want []int // offsets, newest first
	}{
		{"blue", []int{2, 1}}, {"BLUE cake", []int{1}}, {`"blue cake"`, []int{1}}, {`"cake blue"`, nil}, {"cafe", []int{3}},
		{"near", []int{3}}, {"AND odd", []int{4}}, {"quoted", []int{4}}, {"(odd)", []int{4}}, {`house "a blue`, []int{2}}, {"nothing", nil},

		{"hous*", []int{3, 2}}, {"hous", nil}, {`"blue ca"*`, []int{1}}, {"* house", []int{3, 2}}, {"h*e", nil},
		{"red OR near", []int{3, 1}}, {"blue red OR near", []int{1}}, {"red OR near OR odd", []int{4, 3, 1}}, {"red or near", nil},
		{"OR blue", nil}, {"blue OR", nil}, {`blue "OR" near`, nil}, {"red OR -near", nil}, {`"blue cake" OR hous*`, []int{3, 2, 1}},
		{"house -blue", []int{3}}, {"-blue house", []int{3}}, {`cake OR house -"blue house"`, []int{3, 1}}, {"house -bl* -near", nil}, {"house -(", []int{3, 2}},
		{"blue-cake", []int{1}}, {"blue - cake", []int{1}}, {"--blue house", []int{2}}, {"--day", []int{8}},
		{`cake NEAR(red)`, nil}, {"text:cake", nil}, {"^red", []int{1}}, {"blue + cake", []int{1}}, {"NOT house", nil},

		{"生日", []int{6, 5}}, {"蛋糕", []int{5}}, {"糕蛋", nil}, {"ケーキ", []int{6}}, {"생일", nil}, {"เค้ก", []int{7}}, {"生日 -蛋糕", []int{6}}, {"生", []int{9, 6, 5}}, {"生*", []int{9, 6, 5}},
		{"place_order", []int{8}}, {"order", []int{8}}, {"userid", []int{8}}, {"user*", []int{8}}, {"id", nil},
	} {
		got, found := mustFind(t, f, Lookup{Text: c.text})
		if !slices.Equal(got, c.want) {
			t.Errorf("%q finds %v, want %v", c.text, got, c.want)
		}
		for _, h := range found.Hits {
			if !h.Live || h.Session != "s" || !slices.ContainsFunc(h.Spans, func(s Span) bool { return s.Match }) {
				t.Errorf("%q: got %+v", c.text, h)
			}
		}
		byRank, _ := mustFind(t, f, Lookup{Text: c.text, Sort: ByRank})
		if slices.Sort(byRank); !slices.Equal(byRank, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%q by rank finds %v, want %v", c.text, byRank, c.want)
		}
	}
	for _, text := range []string{"", ` "" `, "-blue", "(", "* - -(", "🎂"} {
		if _, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: text}); !isInvalid(err) {
			t.Errorf("search for %q, which has no word: %v", text, err)
		}
	}
	if _, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: "blue", Sort: "rowid"}); !isInvalid(err) {
		t.Errorf("search with an unknown order: %v", err)
	}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*events.InvalidError](err)
	return ok
}

// By rank, the best match is first, regardless of time.
func TestFindByRank(t *testing.T) {
	f := searched(t, turnsOf(t, events.Session("", "s"), "cake cake cake", "a cake, and many other words beside it in a long turn", "cake and tea"))
	if got, _ := mustFind(t, f, Lookup{Text: "cake", Sort: ByRank}); !slices.Equal(got, []int{1, 3, 2}) {
		t.Errorf("the hits by rank are %v", got)
	}
	if got, _ := mustFind(t, f, Lookup{Text: "cake", Sort: ByRank, Limit: 1}); !slices.Equal(got, []int{1}) {
		t.Errorf("the best hit is %v", got)
	}
}

// A snippet marks the matches, and the text of a turn cannot forge a mark.
func TestSnippet(t *testing.T) {
	f := searched(t, turnsOf(t, events.Session("", "s"), "say \x01hidden\x02 or [blue] cake", strings.Repeat("long ", 50)+"middle"+strings.Repeat(" long", 50), "我要一个生日蛋糕吃"))
	for _, c := range []struct{ text, want string }{
		{"blue ca*", "say \x01hidden\x02 or [<blue>] <cake>"}, {`"blue cake"`, "say \x01hidden\x02 or [<blue] cake>"}, {"蛋糕", "我要一个生日<蛋糕>吃"},
	} {
		_, found := mustFind(t, f, Lookup{Text: c.text})
		if len(found.Hits) != 1 {
			t.Fatalf("%q found %+v", c.text, found)
		}
		got := ""
		for _, s := range found.Hits[0].Spans {
			if s.Match {
				s.Text = "<" + s.Text + ">"
			}
			got += s.Text
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
	_, found := mustFind(t, f, Lookup{Text: "middle"})
	if s := found.Hits[0].Spans; len(s) != 3 || !strings.HasPrefix(s[0].Text, "…long") || s[1] != (Span{"middle", true}) || !strings.HasSuffix(s[2].Text, "long…") {
		t.Errorf("got %+v", s)
	}
}

// Rewound turns are found on request, and marked as such.
func TestFindRewound(t *testing.T) {
	sub := events.Session("", "s")
	records := append(turnsOf(t, sub, "one word", "two word", "three word"), record(t, sub, 4, &events.SessionRewound{To: 1}))
	f := searched(t, records)
	for _, c := range []struct {
		lookup  Lookup
		want    string
		rewound int
	}{
		{Lookup{Text: "word"}, "[{1 true}]", 2}, {Lookup{Text: "word", All: true}, "[{3 false} {2 false} {1 true}]", 0},
		{Lookup{Text: "three"}, "[]", 1}, {Lookup{Text: "word", All: true, Limit: 2}, "[{3 false} {2 false}]", 0}, {Lookup{Text: "nothing"}, "[]", 0},
	} {
		_, found := mustFind(t, f, c.lookup)
		type seen struct {
			at   int
			live bool
		}
		got := []seen{}
		for _, h := range found.Hits {
			got = append(got, seen{int(h.Offset), h.Live})
		}
		if fmt.Sprint(got) != c.want || found.Rewound != c.rewound {
			t.Errorf("%+v: found %v, %d of them rewound, want %s and %d", c.lookup, got, found.Rewound, c.want, c.rewound)
		}
	}
}

// A search since a time, without an end, finds recent turns and turns whose producer's clock is ahead.
func TestFindSince(t *testing.T) {
	now := time.Now()
	sub := events.Session("", "s")
	var records testkit.Records
	for i, at := range []time.Time{now.AddDate(0, 0, -3), now.Add(-time.Hour), now.Add(time.Hour), now.AddDate(0, 0, 2), now.AddDate(0, 2, 0), now.AddDate(974, 0, 0)} {
		records = append(records, record(t, sub, events.Offset(i+1), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Timestamp: events.TimestampOf(at), Turn: quoted(t, "word")}}}))
	}
	f := searched(t, records)
	for _, c := range []struct {
		since time.Duration
		want  []int
	}{{-2 * time.Hour, []int{6, 5, 4, 3, 2}}, {0, []int{6, 5, 4, 3}}, {-100 * 24 * time.Hour, []int{6, 5, 4, 3, 2, 1}}, {-300 * 24 * time.Hour, []int{6, 5, 4, 3, 2, 1}}, {30 * 24 * time.Hour, []int{6, 5}}} {
		if got, _ := mustFind(t, f, Lookup{Text: "word", Since: now.Add(c.since)}); !slices.Equal(got, c.want) {
			t.Errorf("since %v: %v, want %v", c.since, got, c.want)
		}
	}
}

// If the catalog was removed meanwhile, the error is ErrNoView, and no file is created in its place. A cancelled search
// does not affect the next one.
func TestFindWithoutCatalog(t *testing.T) {
	f := searched(t, turnsOf(t, events.Session("", "s"), "a word"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Find(ctx, Lookup{Namespace: "default", Text: "word"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled search: %v", err)
	}
	if got, _ := mustFind(t, f, Lookup{Text: "word"}); len(got) != 1 {
		t.Errorf("a search after a cancelled one found %v", got)
	}
	must(t, Remove(f.catalog.path))
	if _, err := f.Find(t.Context(), Lookup{Namespace: "default", Text: "word"}); !errors.Is(err, ErrNoView) {
		t.Errorf("a search without a catalog: %v", err)
	}
	if _, err := os.Stat(f.catalog.path); err == nil {
		t.Error("the search created a catalog")
	}
}

// spokenTurn is a turn in the naive search.
type spokenTurn struct {
	session, kind, project, thread, role string
	words                                []string
	offset                               int
	at                                   time.Time
	live                                 bool
}

// searchTerm is a word or phrase of a search.
type searchTerm struct {
	words       []string
	prefix, not bool
}

func (q searchTerm) isIn(words []string) bool {
	for i := range words {
		if len(words)-i < len(q.words) {
			return false
		}
		last := len(q.words) - 1
		same := slices.Equal(words[i:i+last], q.words[:last])
		if same && (words[i+last] == q.words[last] || q.prefix && strings.HasPrefix(words[i+last], q.words[last])) {
			return true
		}
	}
	return false
}

// typed returns the term as a user types it.
func (q searchTerm) typed() string {
	text := strings.Join(q.words, " ")
	if len(q.words) > 1 || text == "or" {
		text = `"` + text + `"`
	}
	if q.prefix {
		text += "*"
	}
	if q.not {
		text = "-" + text
	}
	return text
}

var drawnWords = []string{"ab", "abc", "abcd", "b", "or", "not", "x1", "été"}

func drawAsked(t *rapid.T) [][]searchTerm {
	var all [][]searchTerm
	for range rapid.IntRange(1, 3).Draw(t, "terms") {
		var either []searchTerm
		for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "either") {
			either = append(either, searchTerm{words: rapid.SliceOfN(rapid.SampledFrom(drawnWords), 1, 2).Draw(t, "words"),
				prefix: rapid.Bool().Draw(t, "prefix")})
		}
		if len(either) == 1 && len(all) > 0 {
			either[0].not = rapid.Bool().Draw(t, "not")
		}
		all = append(all, either)
	}
	return all
}

// answers reports whether a turn matches the search.
func answers(all [][]searchTerm, words []string) bool {
	for _, either := range all {
		if slices.ContainsFunc(either, func(q searchTerm) bool { return q.isIn(words) }) == either[0].not {
			return false
		}
	}
	return true
}

func typed(all [][]searchTerm) string {
	var terms []string
	for _, either := range all {
		var list []string
		for _, q := range either {
			list = append(list, q.typed())
		}
		terms = append(terms, strings.Join(list, " OR "))
	}
	return strings.Join(terms, " ")
}

// drawSaying draws a log with rewinds, and its turns.
func drawSaying(t *rapid.T) (testkit.Records, []spokenTurn) {
	var records testkit.Records
	var turns []spokenTurn
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	put := func(session string, p events.Payload) int {
		at := len(records) + 1
		e, err := events.New("urn:test", events.Session("", session), p)
		must(t, err)
		e.ID = fmt.Sprint("e", at)
		records = append(records, events.Record{Event: e, Offset: events.Offset(at), Recorded: begin})
		return at
	}
	for i, id := range []string{"s0", "s1", "s2"} {
		put(id, &events.SessionCreated{Kind: fmt.Sprintf("kind-%d", i%2), Project: fmt.Sprintf("p%d", i/2), Title: "T" + id, CWD: "/" + id, CreatedAt: "2026-01-01T00:00:00Z"})
	}
	for range rapid.IntRange(1, 25).Draw(t, "turns") {
		i := rapid.IntRange(0, 2).Draw(t, "session")
		id := fmt.Sprint("s", i)
		if rapid.IntRange(0, 7).Draw(t, "rewind") == 0 {
			to := rapid.SampledFrom(append(liveIn(turns, id), i+1)).Draw(t, "to")
			put(id, &events.SessionRewound{To: events.Offset(to)})
			for n := range turns {
				if turns[n].session == id && turns[n].offset > to {
					turns[n].live = false
				}
			}
			continue
		}
		words := rapid.SliceOfN(rapid.SampledFrom(drawnWords), 1, 6).Draw(t, "words")
		s := spokenTurn{session: id, kind: fmt.Sprintf("kind-%d", i%2), project: fmt.Sprintf("p%d", i/2), thread: rapid.SampledFrom([]string{"main", "side"}).Draw(t, "thread"),
			role: rapid.SampledFrom([]string{"user", "assistant"}).Draw(t, "role"), words: words, live: true, at: begin.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "at")) * time.Hour)}
		spelled := rapid.SampledFrom([]string{" ", ", ", "_", "\n"}).Draw(t, "between")
		turn, err := rawjson.Marshal(s.role + "|" + strings.ToUpper(strings.Join(words, spelled)))
		must(t, err)
		zone := time.FixedZone("", 3600*rapid.IntRange(-11, 11).Draw(t, "zone")) // the producer's clock
		s.offset = put(id, &events.TurnAppended{Entries: []events.Entry{{Thread: s.thread, Timestamp: events.Timestamp(s.at.In(zone).Format(time.RFC3339)), Turn: turn}}})
		turns = append(turns, s)
	}
	return records, turns
}

// liveIn returns the offsets of a session's records in effect.
func liveIn(turns []spokenTurn, session string) (offsets []int) {
	for _, s := range turns {
		if s.session == session && s.live {
			offsets = append(offsets, s.offset)
		}
	}
	return offsets
}

// For any log and search text, the hits equal those of a search through every turn.
func TestFindAgreesWithNaiveSearch(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		records, turns := drawSaying(t)
		f, closed := searchedIn(t, temporary(t), records)
		defer closed()
		for range 5 {
			all := drawAsked(t)
			pick := func(what string, of ...string) string { return rapid.SampledFrom(append(of, "", "", "")).Draw(t, what) }
			l := Lookup{Namespace: "default", Text: typed(all), Session: pick("session", "s0", "s1"), Thread: pick("thread", "main", "side"), Role: pick("role", "user", "assistant", "use"),
				Kind: pick("kind", "kind-0", "kind-1"), Project: pick("project", "p0", "p1"), CWD: pick("cwd", "/s0", "/s2"), All: rapid.Bool().Draw(t, "all"),
				Sort: rapid.SampledFrom([]Ranking{"", ByNewest, ByRank}).Draw(t, "sort"), Limit: rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "limit")}
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			if rapid.Bool().Draw(t, "between") {
				l.Since = begin.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "since")) * time.Hour)
				l.Until = l.Since.Add(20 * time.Hour)
			}
			var want []int
			for _, s := range slices.Backward(turns) {
				has := func(filter, value string) bool { return filter == "" || filter == value }
				if answers(all, s.words) && (s.live || l.All) && has(l.Session, s.session) && has(l.Thread, s.thread) && has(l.Role, s.role) &&
					has(l.Kind, s.kind) && has(l.Project, s.project) && has(l.CWD, "/"+s.session) &&
					(l.Since.IsZero() || !s.at.Before(l.Since)) && (l.Until.IsZero() || s.at.Before(l.Until)) {
					want = append(want, s.offset)
				}
			}
			mustHit(t, f, l, want)
		}
	})
}

// mustHit searches, and compares the hits with the wanted offsets, newest first.
func mustHit(t *rapid.T, f Finder, l Lookup, want []int) {
	t.Helper()
	found, err := f.Find(t.Context(), l)
	must(t, err)
	var got []int
	for _, h := range found.Hits {
		got = append(got, int(h.Offset))
		if h.Title != "T"+h.Session {
			t.Fatalf("the title of %+v differs", h)
		}
	}
	if l.Limit > 0 && len(want) > l.Limit {
		if l.Sort == ByRank {
			if len(got) != l.Limit || slices.ContainsFunc(got, func(at int) bool { return !slices.Contains(want, at) }) {
				t.Fatalf("%+v finds %v, want %d of %v", l, got, l.Limit, want)
			}
			return
		}
		want = want[:l.Limit]
	}
	if l.Sort == ByRank {
		slices.Sort(got)
		slices.Reverse(got)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v finds %v, want %v", l, got, want)
	}
}
