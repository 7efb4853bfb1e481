package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// A namespace sees nothing of another one, in lists, reads and streams.
func TestNamespaces(t *testing.T) {
	t.Run("W-14 random records", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		rnd := testkit.Random(t)
		other, err := k.store.In("other")
		if err != nil {
			t.Fatal(err)
		}
		// Both namespaces have the same ids, and some appends are to both at once.
		want := map[string]map[events.Offset]bool{"default": {}, "other": {}}
		stores := map[string]string{"default": "all", "other": "other"}
		live := k.follow("other", "/v1/records")
		for range 300 {
			ns, id := []string{"default", "other"}[rnd.IntN(2)], fmt.Sprint(rnd.IntN(4))
			turn := func(ns string) events.Event {
				e, err := events.New("urn:t", events.Session(ns, id), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(`"` + ns + `"`)}}})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			switch rnd.IntN(4) {
			case 0:
				a, b := events.Session("default", id), events.Session("other", id)
				acks, err := other.AppendAll(t.Context(), log.Part{Subject: a, Events: []events.Event{turn("default")}}, log.Part{Subject: b, Events: []events.Event{turn("other")}})
				if err != nil {
					t.Fatal(err)
				}
				want["default"][acks[0].Last], want["other"][acks[1].Last] = true, true
				k.copies(turn("other"))
			case 1:
				w := k.do(stores[ns], "PUT", "/v1/documents/note/"+id, `"`+ns+`"`, "If-None-Match", "*")
				if w.Code == 201 {
					want[ns][k.head()] = true
				}
			default:
				want[ns][k.turn(stores[ns], id, `"`+ns+`"`)] = true
			}
		}
		for ns, token := range stores {
			foreign := map[string]string{"default": `"other"`, "other": `"default"`}[ns]
			got := make(map[events.Offset]bool)
			for after := events.Offset(0); ; {
				var list recordList
				w := k.want(200, &list, token, "GET", fmt.Sprintf("/v1/records?limit=7&after=%d", uint64(after)), "")
				if strings.Contains(w.Body.String(), foreign) {
					t.Fatalf("%s sees %s", ns, w.Body)
				}
				for _, item := range list.Items {
					if got[item.Offset] {
						t.Errorf("record %v came twice", item.Offset)
					}
					got[item.Offset] = true
				}
				if after = list.Next; after == 0 {
					break
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want[ns]) {
				t.Errorf("%s: got records %v, want %v", ns, got, want[ns])
			}
			for _, path := range []string{"/v1/sessions/0/turns", "/v1/sessions/0/records", "/v1/documents/note/0", "/v1/documents"} {
				if w := k.do(token, "GET", path, ""); strings.Contains(w.Body.String(), foreign) {
					t.Errorf("%s sees %s by %s", ns, w.Body, path)
				}
			}
		}
		offsets := make([]events.Offset, 0, len(want["other"]))
		for at := range want["other"] {
			offsets = append(offsets, at)
		}
		slices.Sort(offsets)
		for _, from := range []int{0, len(offsets) / 2} {
			s := live
			if from > 0 {
				s = k.follow("other", "/v1/records", "Last-Event-ID", fmt.Sprint(uint64(offsets[from-1])))
			}
			for _, at := range offsets[from:] {
				if e := s.next(); e.at != at || e.name != "record" || strings.Contains(e.data, `"default"`) {
					t.Fatalf("the stream has %+v, want record %v", e, at)
				}
			}
		}
	})
	t.Run("W-14 a request names no namespace", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.turn("other", "s", `"secret"`)
		for _, headers := range [][]string{{"Tally-Namespace", "other"}, {"Namespace", "other"}} {
			checkProblem(t, k.do("all", "GET", "/v1/sessions/s", "", headers...), "notFound", 404)
		}
		k.problem("invalid", 400, "all", "GET", "/v1/sessions/s?namespace=other", "")
		k.want(201, nil, "all", "POST", "/v1/sessions", `{"id":"mine"}`)
		k.problem("notFound", 404, "all", "POST", "/v1/sessions/s/fork", `{}`)
		w := k.do("all", "POST", "/v1/sessions", `{"id":"f","fork":{"session":"s","offset":1}}`)
		if turns := k.do("all", "GET", "/v1/sessions/f/turns", ""); strings.Contains(turns.Body.String(), "secret") {
			t.Errorf("a fork reads another namespace: %s %s", w.Body, turns.Body)
		}
	})
}

// copies stores what a log on a server keeps of an append to several subjects: a record in the default namespace that
// has copies of all its events.
func (k *kit) copies(e events.Event) {
	k.t.Helper()
	unit := events.Event{ID: k.store.Log.NewID(), Source: "urn:tally:log", Type: events.TypeUnitAppended, Subject: events.Document("default", events.KindUnit, "log"), Data: e.Data}
	p := log.Publication{Writes: []log.Write{{Subject: unit.Subject.NATS(), Messages: []log.Outgoing{{ID: unit.ID, Header: events.AppendHeader(nil, unit), Data: unit.Data}}}}}
	if _, err := k.stored.Publish(k.t.Context(), p); err != nil {
		k.t.Fatal(err)
	}
}

// Every problem is made once here, in the form of RFC 9457, and nothing is written.
func TestProblems(t *testing.T) {
	k := newKit(t, web.Limits{})
	k.turn("all", "s", say(1))
	k.turn("all", "s", say(2))
	k.want(201, nil, "all", "PUT", "/v1/documents/note/a", `1`, "If-None-Match", "*")
	k.want(201, nil, "all", "POST", "/v1/sessions", `{"id":"box","kind":"inbox"}`)
	created := k.do("all", "POST", "/v1/sessions", `{"id":"keyed","title":"a"}`, "Idempotency-Key", "k")
	if created.Code != 201 {
		t.Fatal(created.Body)
	}
	for _, p := range []struct {
		code          string
		status        int
		token         string
		method, path  string
		body, headers string
	}{
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `{"a":`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `[]`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns?thread=*", `1`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `1`, "Tally-Seen: x"},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `1`, "Tally-Seen: 99999999999999999999"},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `1`, "If-Match: 12"},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `1`, "If-Match: W/\"@12\""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `1`, "If-None-Match: \"@12\""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/turns", `1`, "Idempotency-Key: a b"},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/events", `{"type":"tally.cost.accrued.v1","data":{"model":1}}`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/events", `{"type":"tally.nothing.v1","data":{}}`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/events", `{"type":"x.y","data":{},"more":1}`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions", `{"id":"x","kind":1}`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions", `{"id":""}`, "Idempotency-Key: "},
		{"invalid", 400, "all", "GET", "/v1/sessions/s/turns?limit=0", "", ""},
		{"invalid", 400, "all", "GET", "/v1/sessions/s/records?after=x", "", ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/plan", `{"op":"forward"}`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/plan", `{"op":"undo","to":"@1"}`, ""},
		{"invalid", 400, "all", "POST", "/v1/sessions/s/move", `{"op":"undo"}`, ""},
		{"invalid", 400, "all", "GET", "/v1", `{}`, ""},
		{"invalid", 400, "all", "PUT", "/v1/documents/unit/log", `1`, "If-None-Match: *"},
		{"invalid", 400, "all", "PUT", "/v1/documents/note/b", `1`, "If-None-Match: *\nTally-Title: a%0D%0AX-Evil: 1"},
		{"invalid", 400, "all", "PUT", "/v1/documents/note/b", `1`, "If-None-Match: *\nTally-Attributes: {"},
		{"forbidden", 403, "writer", "GET", "/v1/sessions/s", "", ""},
		{"forbidden", 403, "writer", "POST", "/v1/sessions/s/events", `{"type":"tally.session.rewound.v1","data":{"to":1}}`, "If-Match: \"@2\""},
		{"forbidden", 403, "writer", "POST", "/v1/sessions", `{"id":"f","kind":"conversation","createdAt":"2026-01-02T03:04:05Z","fork":{"session":"s","offset":1}}`, ""},
		{"forbidden", 403, "mover", "DELETE", "/v1/documents/note/a", "", "If-Match: \"@3\""},
		{"notFound", 404, "all", "GET", "/v1/sessions/none", "", ""},
		{"notFound", 404, "all", "GET", "/v1/sessions/s?at=%23999", "", ""},
		{"notFound", 404, "all", "GET", "/v1/documents/note/none", "", ""},
		{"notFound", 404, "all", "GET", "/nothing", "", ""},
		{"method", 405, "all", "DELETE", "/v1/sessions/s", "", ""},
		{"conflict", 409, "all", "POST", "/v1/sessions/s/plan", `{"op":"undo"}`, ""},
		{"conflict", 409, "all", "POST", "/v1/sessions", `{"id":"keyed","title":"b"}`, "Idempotency-Key: k"},
		{"exists", 409, "all", "POST", "/v1/sessions", `{"id":"s"}`, ""},
		{"exists", 409, "all", "POST", "/v1/sessions/s/fork", `{"id":"box"}`, ""},
		{"kind", 409, "all", "POST", "/v1/sessions/box/plan", `{"op":"rewind","to":"@1"}`, ""},
		{"kind", 409, "all", "POST", "/v1/sessions/box/fork", `{}`, ""},
		{"preconditionFailed", 412, "all", "POST", "/v1/sessions/s/turns", `1`, "If-Match: \"@1\""},
		{"preconditionFailed", 412, "all", "POST", "/v1/sessions/s/turns", `1`, "If-None-Match: *"},
		{"preconditionFailed", 412, "all", "PUT", "/v1/documents/note/a", `2`, "If-Match: \"@1\""},
		{"preconditionFailed", 412, "all", "PUT", "/v1/documents/note/a", `2`, "If-None-Match: *"},
		{"preconditionFailed", 412, "all", "PUT", "/v1/documents/note/none", `2`, "If-Match: \"@1\""},
		{"preconditionRequired", 428, "all", "PUT", "/v1/documents/note/a", `2`, ""},
		{"preconditionRequired", 428, "all", "POST", "/v1/sessions/s/events", `{"type":"tally.session.updated.v1","data":{"set":{"title":"t"}}}`, ""},
		{"preconditionRequired", 428, "all", "DELETE", "/v1/documents/note/a", "", ""},
		{"unsupportedType", 415, "all", "POST", "/v1/events", `{}`, ""},
	} {
		t.Run(fmt.Sprintf("W-15 %s %s %s", p.code, p.method, p.path), func(t *testing.T) {
			k.t = t
			var headers []string
			for line := range strings.SplitSeq(p.headers, "\n") {
				if name, value, ok := strings.Cut(line, ": "); ok {
					headers = append(headers, name, value)
				}
			}
			w := k.problem(p.code, p.status, p.token, p.method, p.path, p.body, headers...)
			if p.status == 412 && p.path != "/v1/documents/note/none" && !strings.Contains(w.Body.String(), `"have":`) {
				t.Errorf("the answer does not say where it is: %s", w.Body)
			}
		})
	}
	t.Run("W-15 404 of a turned-off route of the metrics", func(t *testing.T) {
		k.t = t
		k.problem("forbidden", 403, "reader", "GET", "/metrics", "")
	})
}

// The bytes of a turn and of a document come back as they were sent.
func TestBytes(t *testing.T) {
	turns := []string{`{"b":1,"a":2}`, `1.0`, `1e400`, `{"a":"\u00e9\/ é"}`, `[ 1 , 2 ]`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, `null`, `-0`, "{\"a\":\t1,\n\"b\":2}", `""`}
	t.Run("W-16 turns", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.turn("all", "array", "["+strings.Join(turns, ",")+"]")
		for _, turn := range turns {
			if !strings.HasPrefix(turn, "[") {
				k.turn("all", "single", turn)
			} else {
				k.turn("all", "single", "["+turn+"]")
			}
		}
		lines := slices.Clone(turns)
		lines[9] = `"a line"` // a line break ends a line
		k.turn("all", "lines", strings.Join(lines, "\n")+"\n\n", "Content-Type", "application/x-ndjson")
		for id, want := range map[string][]string{"array": turns, "single": turns, "lines": lines} {
			var list reads.Turns
			k.want(200, &list, "all", "GET", "/v1/sessions/"+id+"/turns", "")
			var got []string
			for i, turn := range list.Turns {
				if turn.Number != i+1 {
					t.Errorf("%s: turn %d has the number %d", id, i+1, turn.Number)
				}
				got = append(got, string(turn.Raw))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", id, got, want)
			}
		}
		data := "\x00\xff\r\n"
		k.turn("all", "bytes", data, "Content-Type", "application/octet-stream")
		var list reads.Turns
		if k.want(200, &list, "all", "GET", "/v1/sessions/bytes/turns", ""); string(list.Turns[0].Bytes) != data {
			t.Errorf("got %q", list.Turns[0].Bytes)
		}
	})
	t.Run("W-16 parts of a thread", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		for n := 1; n <= 20; n++ {
			k.turn("all", "s", fmt.Sprint(n))
		}
		for query, want := range map[string]string{"": "1-20", "?last=3": "18-20", "?from=4&to=6": "4-6", "?from=19": "19-20", "?limit=5": "1-5 next 6", "?from=18&limit=2": "18-19 next 20",
			"?around=10&limit=5": "8-12", "?around=1&limit=4": "1-4", "?last=100": "1-20", "?from=30": "none", "?at=@5": "1-5", "?at=%233": "1-3", "?at=start": "none", "?at=~2&last=1": "18-18"} {
			var list reads.Turns
			k.want(200, &list, "all", "GET", "/v1/sessions/s/turns"+query, "")
			got := "none"
			if n := len(list.Turns); n > 0 {
				got = fmt.Sprintf("%s-%s", list.Turns[0].Raw, list.Turns[n-1].Raw)
			}
			if list.Next > 0 && !strings.Contains(query, "around") && !strings.Contains(query, "to=") {
				got += fmt.Sprintf(" next %d", list.Next)
			}
			if got != want {
				t.Errorf("%s: got turns %s, want %s", query, got, want)
			}
		}
		for path, fixed := range map[string]bool{"/turns?at=@5": true, "": false, "/turns": false, "?at=@20": false, "?at=@21": false, "?at=%235": false} {
			w := k.want(200, nil, "all", "GET", "/v1/sessions/s"+path, "")
			if got := w.Header().Get("Cache-Control") != "no-store"; got != fixed {
				t.Errorf("%s: got %s", path, w.Header().Get("Cache-Control"))
			}
		}
	})
	t.Run("W-16 documents", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		content, title := "<script>\x00\xff</script>", "é \"%\" 100%"
		k.want(201, nil, "all", "PUT", "/v1/documents/note/a%2Fb", content, "If-None-Match", "*", "Content-Type", "text/html; charset=x",
			"Tally-Title", "%C3%A9 %22%25%22 100%25", "Tally-Owner", "ann", "Tally-Attributes", `{"k":"v\u0009"}`, "Tally-Links", `[{"rel":"about","to":"session/s"}]`)
		w := k.want(200, nil, "all", "GET", "/v1/documents/note/a%2Fb", "")
		h := w.Header()
		if w.Body.String() != content || h.Get("Content-Type") != "text/html; charset=x" || h.Get("Content-Disposition") != "attachment" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("got %q %v", w.Body, h)
		}
		doc, err := k.store.Documents().Read(t.Context(), "note", "a/b")
		if err != nil || doc.Meta.Title != title || doc.Meta.Owner != "ann" || doc.Meta.Attributes["k"] != "v\t" || len(doc.Meta.Links) != 1 {
			t.Errorf("got %+v, %v", doc, err)
		}
		// A document that was read can be written as it is.
		same := []string{"If-Match", h.Get("ETag"), "Content-Type", h.Get("Content-Type")}
		for _, name := range []string{"Tally-Title", "Tally-Owner", "Tally-Attributes", "Tally-Links"} {
			same = append(same, name, h.Get(name))
		}
		k.want(200, nil, "all", "PUT", "/v1/documents/note/a%2Fb", content, same...)
		again, err := k.store.Documents().Read(t.Context(), "note", "a/b")
		if err != nil || fmt.Sprint(again.Meta.Title, again.Meta.Links, again.Meta.Attributes) != fmt.Sprint(doc.Meta.Title, doc.Meta.Links, doc.Meta.Attributes) {
			t.Errorf("got %+v, %v", again, err)
		}
	})
}

// The log keeps keys for ever: the same request again is the same event.
func TestKeys(t *testing.T) {
	t.Run("W-18 the same key from many connections", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		var first atomic.Int64
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				for range testkit.Times(60) {
					w := k.do("all", "POST", "/v1/sessions/s/turns", `[1,2]`, "Idempotency-Key", "key")
					if w.Code != 200 {
						t.Errorf("got %d %s", w.Code, w.Body)
					} else if !strings.Contains(w.Body.String(), `"duplicate":true`) {
						first.Add(1)
					}
				}
			})
		}
		wait.Wait()
		if first.Load() != 1 || k.head() != 1 {
			t.Errorf("%d requests were the first, and the log is at %v", first.Load(), k.head())
		}
		k.problem("conflict", 409, "all", "POST", "/v1/sessions/s/turns", `[1,3]`, "Idempotency-Key", "key")
		k.turn("mover", "s", `[1,3]`, "Idempotency-Key", "key") // another token has other keys
	})
	t.Run("W-18 sessions and forks take their id from the key", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		var one, two ack
		k.want(201, &one, "all", "POST", "/v1/sessions", `{"title":"x"}`, "Idempotency-Key", "born")
		w := k.want(201, &two, "all", "POST", "/v1/sessions", `{"title":"x"}`, "Idempotency-Key", "born")
		if one.ID != "born" || one.First != two.First || !two.Duplicate || w.Header().Get("Location") != "/v1/sessions/born" {
			t.Errorf("got %+v and %+v", one, two)
		}
		k.turn("all", "born", `1`)
		k.want(201, &one, "all", "POST", "/v1/sessions/born/fork", `{}`, "Idempotency-Key", "fork")
		k.turn("all", "born", `2`)
		k.want(201, &two, "all", "POST", "/v1/sessions/born/fork", `{}`, "Idempotency-Key", "fork")
		if one.ID != "fork" || one.First != two.First || !two.Duplicate {
			t.Errorf("got %+v and %+v", one, two)
		}
	})
	t.Run("W-18 documents", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		var one, two revision
		k.want(201, &one, "all", "PUT", "/v1/documents/note/a", `1`, "If-None-Match", "*", "Idempotency-Key", "k")
		k.want(201, &two, "all", "PUT", "/v1/documents/note/a", `1`, "If-None-Match", "*", "Idempotency-Key", "k")
		k.problem("conflict", 409, "all", "PUT", "/v1/documents/note/a", `2`, "If-None-Match", "*", "Idempotency-Key", "k")
		if one.Offset != two.Offset || k.head() != 1 {
			t.Errorf("got %+v and %+v", one, two)
		}
		etag := web.ETag(one.Offset)
		k.want(200, &one, "all", "PUT", "/v1/documents/note/a", `2`, "If-Match", etag, "Idempotency-Key", "l")
		k.want(200, &two, "all", "PUT", "/v1/documents/note/a", `2`, "If-Match", etag, "Idempotency-Key", "l")
		if one.Offset != two.Offset || k.head() != 2 {
			t.Errorf("got %+v and %+v", one, two)
		}
	})
}

// A move by HTTP is the move that was planned, or none.
func TestMoves(t *testing.T) {
	t.Run("W-19 random histories", func(t *testing.T) {
		testkit.Checks(30)
		rapid.Check(t, func(r *rapid.T) {
			k := newKit(t, web.Limits{})
			byHTTP, byHand := k.store.Session("a"), k.store.Session("b")
			k.turn("all", "a", `0`)
			k.turn("all", "b", `0`)
			for range rapid.IntRange(1, 12).Draw(r, "steps") {
				switch op := rapid.SampledFrom([]string{"turn", "rewind", "undo", "redo"}).Draw(r, "op"); op {
				case "turn":
					value := fmt.Sprint(rapid.IntRange(0, 9).Draw(r, "value"))
					k.turn("all", "a", value)
					k.turn("all", "b", value)
				default:
					to := ""
					if op == "rewind" {
						to = fmt.Sprintf("#%d", rapid.IntRange(1, 4).Draw(r, "to"))
					}
					planned := k.do("all", "POST", "/v1/sessions/a/plan", fmt.Sprintf(`{"op":%q%s}`, op, map[bool]string{true: `,"to":"` + to + `"`}[to != ""]))
					move := map[string]func() error{
						"rewind": func() error { return moveTo(byHand)(byHand.PlanRewind(t.Context(), to, "")) },
						"undo":   func() error { return moveTo(byHand)(byHand.PlanUndo(t.Context())) },
						"redo":   func() error { return moveTo(byHand)(byHand.PlanRedo(t.Context())) },
					}[op]()
					if (planned.Code == 200) != (move == nil) {
						r.Fatalf("%s %s: the plan is %d %s, the move is %v", op, to, planned.Code, planned.Body, move)
					}
					if planned.Code == 200 {
						k.want(200, nil, "all", "POST", "/v1/sessions/a/move", planned.Body.String())
					}
				}
			}
			a, err := byHTTP.Load(t.Context(), "")
			b, err2 := byHand.Load(t.Context(), "")
			if err := errors.Join(err, err2); err != nil {
				r.Fatal(err)
			}
			if got, want := shape(a), shape(b); got != want {
				r.Fatalf("got %s, want %s", got, want)
			}
		})
	})
	t.Run("W-19 somebody else's turn", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		for n := range 4 {
			k.turn("all", "s", fmt.Sprint(n))
		}
		var p reads.Plan
		planned := k.want(200, &p, "all", "POST", "/v1/sessions/s/plan", `{"op":"rewind","to":"#2","reason":"why"}`)
		if p.Leaves.Count != 2 || len(p.Leaves.First) != 2 || string(p.Leaves.First[0].Raw) != "2" || p.To != 2 || p.Seen != 4 || k.head() != 4 {
			t.Errorf("got %+v", p)
		}
		theirs := k.turn("mover", "s", `"mine"`)
		w := k.problem("preconditionFailed", 412, "all", "POST", "/v1/sessions/s/move", planned.Body.String())
		if !strings.Contains(w.Body.String(), fmt.Sprintf(`"have":%d`, uint64(theirs))) || w.Header().Get("ETag") != web.ETag(theirs) {
			t.Errorf("got %v %s", w.Header(), w.Body)
		}
		planned = k.want(200, &p, "all", "POST", "/v1/sessions/s/plan", `{"op":"rewind","to":"#2"}`)
		k.want(200, nil, "all", "POST", "/v1/sessions/s/events", `{"type":"tally.cost.accrued.v1","data":{"model":"m","purpose":"run","source":"reported"}}`)
		var one, two moved
		k.want(200, &one, "all", "POST", "/v1/sessions/s/move", planned.Body.String()) // a cost moves nothing
		k.turn("all", "s", `"later"`)
		k.want(200, &two, "all", "POST", "/v1/sessions/s/move", planned.Body.String())
		if !one.Written || one.Duplicate || !two.Written || !two.Duplicate || one.First != two.First {
			t.Errorf("got %+v and %+v", one, two)
		}
	})
	t.Run("W-19 a plan that was changed", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		for n := range 4 {
			k.turn("all", "s", fmt.Sprint(n))
		}
		for _, body := range []string{`{"op":"undo","to":1,"undoes":3,"seen":4,"eventId":"x"}`, `{"op":"rewind","to":99,"seen":4,"eventId":"x"}`, `{"op":"rewind","to":2,"undoes":3,"seen":4,"eventId":"x"}`,
			`{"op":"rewind","to":2,"seen":3,"eventId":"x"}`, `{"op":"rewind","to":0,"seen":4,"eventId":"x"}`} {
			before := k.head()
			if w := k.do("all", "POST", "/v1/sessions/s/move", body); w.Code < 400 || w.Code >= 500 || k.head() != before {
				t.Errorf("%s: got %d %s", body, w.Code, w.Body)
			}
		}
	})
	t.Run("W-20 an answer to what was rewound is late", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.turn("all", "s", `1`)
		seen := k.turn("all", "s", `2`)
		planned := k.want(200, nil, "all", "POST", "/v1/sessions/s/plan", `{"op":"rewind","to":"#1"}`)
		k.want(200, nil, "all", "POST", "/v1/sessions/s/move", planned.Body.String())
		var a ack
		k.want(200, &a, "all", "POST", "/v1/sessions/s/turns", `3`, "Tally-Seen", fmt.Sprint(uint64(seen)))
		var list reads.Turns
		k.want(200, &list, "all", "GET", "/v1/sessions/s/turns", "")
		if !a.Late || list.Count != 1 {
			t.Errorf("got %+v, and %d turns", a, list.Count)
		}
		if k.want(200, &a, "all", "POST", "/v1/sessions/s/turns", `3`, "Tally-Seen", fmt.Sprint(uint64(k.head()))); a.Late {
			t.Errorf("got %+v", a)
		}
	})
}

// moveTo makes a planned move.
func moveTo(s *tally.Session) func(*tally.Move, error) error {
	return func(m *tally.Move, err error) error {
		if err == nil {
			_, err = s.Move(context.Background(), m)
		}
		return err
	}
}

// shape returns the turns of a session without their offsets.
func shape(s *projector.Session) string {
	var b strings.Builder
	for _, t := range s.Threads.Turns("main") {
		fmt.Fprintf(&b, "%s,", t.Raw)
	}
	return b.String()
}

// Many writers with conditions write one revision each.
func TestDocuments(t *testing.T) {
	t.Run("W-22 writers with If-Match", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.want(201, nil, "all", "PUT", "/v1/documents/note/a", `0`, "If-None-Match", "*")
		var won atomic.Int64
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				for range testkit.Times(12) {
					now := k.do("all", "GET", "/v1/documents/note/a", "")
					w := k.do("all", "PUT", "/v1/documents/note/a", now.Body.String()+"+", "If-Match", now.Header().Get("ETag"))
					switch w.Code {
					case 200:
						won.Add(1)
					case 412:
						if w.Header().Get("ETag") == "" {
							t.Error("a conflict does not say what is there")
						}
					default:
						t.Errorf("got %d %s", w.Code, w.Body)
					}
				}
			})
		}
		wait.Wait()
		var list historyList
		k.want(200, &list, "all", "GET", "/v1/documents/note/a/history?limit=1000", "")
		if now := k.do("all", "GET", "/v1/documents/note/a", ""); int64(len(list.Items)) != won.Load()+1 || int64(now.Body.Len()) != won.Load()+1 {
			t.Errorf("%d writes succeeded, and there are %d revisions and %d bytes", won.Load(), len(list.Items), now.Body.Len())
		}
	})
	t.Run("W-22 history and deletion", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		etag := k.want(201, nil, "all", "PUT", "/v1/documents/note/a", `1`, "If-None-Match", "*").Header().Get("ETag")
		for n := 2; n <= 5; n++ {
			etag = k.want(200, nil, "all", "PUT", "/v1/documents/note/a", fmt.Sprint(n), "If-Match", etag).Header().Get("ETag")
		}
		var got []events.Offset
		for below := events.Offset(0); ; {
			var list historyList
			k.want(200, &list, "all", "GET", fmt.Sprintf("/v1/documents/note/a/history?limit=2&below=%d", uint64(below)), "")
			for _, r := range list.Items {
				got = append(got, r.Offset)
			}
			if below = list.Next; below == 0 {
				break
			}
		}
		if fmt.Sprint(got) != "[@5 @4 @3 @2 @1]" {
			t.Errorf("got revisions %v", got)
		}
		if w := k.want(200, nil, "all", "GET", "/v1/documents/note/a?at=@2", ""); w.Body.String() != "2" || w.Header().Get("Cache-Control") == "no-store" {
			t.Errorf("got %s %v", w.Body, w.Header())
		}
		k.problem("preconditionFailed", 412, "all", "DELETE", "/v1/documents/note/a", "", "If-Match", `"@1"`)
		k.want(200, nil, "all", "DELETE", "/v1/documents/note/a", "", "If-Match", etag)
		k.problem("notFound", 404, "all", "GET", "/v1/documents/note/a", "")
		k.want(201, nil, "all", "PUT", "/v1/documents/note/b", ``, "If-None-Match", "*", "Content-Type", "text/markdown")
		var list documentList
		if k.want(200, &list, "all", "GET", "/v1/documents?kind=note", ""); len(list.Items) != 1 || list.Items[0].ID != "b" {
			t.Errorf("got %+v", list)
		}
	})
}

// A follower gets each record once, wherever it is cut off.
func TestFollowing(t *testing.T) {
	t.Run("W-25 cut at random places", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		rnd := testkit.Random(t)
		const records = 200
		var wait sync.WaitGroup
		wait.Go(func() {
			for n := range records {
				k.do("all", "POST", "/v1/sessions/s/turns", say(n))
				k.do("all", "POST", "/v1/sessions/noise/turns", say(n))
			}
		})
		var last events.Offset
		for got := 0; got < records; {
			s := k.follow("all", "/v1/sessions/s/records?after=0", "Last-Event-ID", fmt.Sprint(uint64(last)))
			for range rnd.IntN(40) {
				e := s.next()
				if e.name != "record" || !strings.Contains(e.data, fmt.Sprintf(`turn %d"`, got)) || e.at <= last {
					t.Fatalf("got %+v behind %v, want turn %d", e, last, got)
				}
				last = e.at
				if got++; got == records {
					break
				}
			}
			s.close()
		}
		wait.Wait()
	})
	t.Run("W-25 the end of a stream", func(t *testing.T) {
		k := newKit(t, web.Limits{Ping: 1e6, Stream: 3e7})
		if e := k.follow("all", "/v1/records").next(); e.name != "end" || !strings.Contains(e.data, "time") {
			t.Errorf("got %+v", e)
		}
		k.turn("all", "s", `"a"`)
		s := newKitStream(k)
		k.server.Stop()
		if e := s.next(); e.name != "end" || !strings.Contains(e.data, "stopping") {
			t.Errorf("got %+v", e)
		}
		checkProblem(t, k.do("all", "GET", "/v1", ""), "unavailable", 503)
	})
	t.Run("W-25 data are one event", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		for _, data := range []string{"{\"a\":\n\"event: end\\nid: 9\"}", "{\"a\":\r1}", "{\"a\":\r\n1}", "\"\u2028\u0085\""} {
			at := k.turn("all", "s", data)
			e := k.follow("all", "/v1/sessions/s/records", "Last-Event-ID", fmt.Sprint(uint64(at-1))).next()
			got, err := events.ParseJSON("default", []byte(e.data))
			if err != nil || e.at != at {
				t.Fatalf("%q: got %+v, %v", data, e, err)
			}
			want, err := k.store.Log.Record(t.Context(), at)
			if err != nil || string(got.Data) != string(want.Data) {
				t.Errorf("%q: got %q, want %q, %v", data, got.Data, want.Data, err)
			}
		}
	})
}

// newKitStream returns a stream of which the first record has come.
func newKitStream(k *kit) *stream {
	s := k.follow("all", "/v1/sessions/s/records")
	s.next()
	return s
}

// Health says nothing of the content, and needs no token.
func TestHealth(t *testing.T) {
	k := newKit(t, web.Limits{})
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if w := k.do("", "GET", path, ""); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: got %d %q", path, w.Code, w.Body)
		}
	}
	k.full = &log.FullError{Free: 1, Reserve: 2}
	w := k.do("", "GET", "/readyz", "")
	checkProblem(t, w, "full", http.StatusServiceUnavailable)
	if strings.Contains(w.Body.String(), "detail") {
		t.Errorf("the answer has details: %s", w.Body)
	}
	k.problem("full", 503, "all", "POST", "/v1/sessions/s/turns", `1`)
	k.want(200, nil, "all", "GET", "/v1/records", "")
	k.full = nil
	k.turn("all", "s", `1`)
}
