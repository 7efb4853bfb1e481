package codex_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// A world has homes of Codex in which random things happen, written in the form of the verified versions, and the
// expected state of each thread.
type world struct {
	t       *rapid.T
	clock   time.Time
	threads []*thread
	files   []*rolloutFile
	said    int
}

// rolloutFile is a rollout.
type rolloutFile struct {
	folder, thread, id string
	began              time.Time
	content            strings.Builder
	lines              []entry // as they were written, the meta first
}

type entry struct {
	Timestamp string `json:"timestamp"`
	Ordinal   *int64 `json:"ordinal,omitempty"`
	Type      string `json:"type"`
	Payload   any    `json:"payload"`
}

// fields are members of an object.
type fields map[string]any

// lineEnd is the end of a line, and the number of the next one.
type lineEnd struct {
	file    *rolloutFile
	end     int64
	ordinal int64
}

// thread is the state that Codex would report for a thread.
type thread struct {
	id      string
	legacy  bool
	file    *rolloutFile
	ordinal int64
	shown   []string      // on the screen
	asked   []int         // indexes of the user's messages in shown
	turns   []worldTurn   // in effect, including inherited ones
	spent   events.Tokens // of the thread itself
	live    events.Tokens // in effect; for older threads, all that they count
	runs    map[string]string
	fork    string // the thread that it continues by reference
	parent  string
	reverts int
}

// worldTurn is the beginning of a turn.
type worldTurn struct {
	at    lineEnd
	shown int
	live  events.Tokens
}

func (w *world) n(label string, upto int) int { return rapid.IntRange(0, upto).Draw(w.t, label) }

// id returns a UUID of version 7, later than all others.
func (w *world) id() string {
	w.clock = w.clock.Add(3 * time.Millisecond)
	ms := fmt.Sprintf("%012x", w.clock.UnixMilli())
	return fmt.Sprintf("%s-%s-7abc-8def-%012x", ms[:8], ms[8:], w.said)
}

func (w *world) words() string {
	w.said++
	return fmt.Sprintf("words %d", w.said)
}

// begin begins a file.
func (w *world) begin(th *thread, id string, meta fields) {
	th.file = &rolloutFile{folder: "sessions/2026/01/02/", thread: th.id, id: id, began: w.clock}
	w.files = append(w.files, th.file)
	meta["id"], meta["cwd"], meta["timestamp"], meta["cli_version"] = th.id, "/pier", w.clock.Format(time.RFC3339Nano), "0.169.0"
	if !th.legacy {
		meta["history_mode"] = "paginated"
	}
	w.write(th, "session_meta", meta)
}

func (f *rolloutFile) name() string {
	name := f.folder + "rollout-" + f.began.Format("2006-01-02T15-04-05") + "-" + f.thread
	if f.id != f.thread {
		name += "_" + f.id
	}
	return name + ".jsonl"
}

// write writes a line, sometimes twice because the first one was torn.
func (w *world) write(th *thread, kind string, payload any) {
	w.clock = w.clock.Add(time.Millisecond)
	e := entry{Timestamp: w.clock.Format("2006-01-02T15:04:05.000Z"), Type: kind, Payload: payload}
	if !th.legacy {
		n := th.ordinal
		e.Ordinal = &n
		th.ordinal++
	}
	raw, err := json.Marshal(e)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.n("torn", 19) == 0 {
		th.file.content.Write(raw[:1+w.n("upto", len(raw)-2)])
	}
	th.file.content.Write(append(raw, '\n'))
	th.file.lines = append(th.file.lines, e)
}

func (w *world) event(th *thread, kind string, payload fields) {
	payload["type"] = kind
	w.write(th, "event_msg", payload)
}

func (w *world) item(th *thread, payload fields) { w.write(th, "response_item", payload) }

func (w *world) message(th *thread, role, kind, text string) {
	w.named(th, "msg_"+w.id(), role, kind, text)
}

func (w *world) named(th *thread, id, role, kind, text string) {
	block := "input_text"
	if role == "assistant" {
		block = "output_text"
	}
	p := fields{"type": "message", "role": role, "content": []fields{{"type": block, "text": text}}}
	if !th.legacy {
		p["id"] = id
		p["internal_chat_message_metadata_passthrough"] = fields{"content_item_kinds": []string{kind}}
	}
	w.item(th, p)
}

// ask writes a message of the user, twice: for the model and for the screen.
func (w *world) ask(th *thread) {
	text := w.words()
	w.message(th, "user", "user.text", text)
	if th.legacy {
		w.event(th, "user_message", fields{"message": text})
	} else {
		w.event(th, "item_completed", fields{"item": fields{"type": "UserMessage", "id": w.id(), "content": []fields{{"type": "text", "text": text}}}})
	}
	th.asked = append(th.asked, len(th.shown))
	th.shown = append(th.shown, "user: "+text)
}

// say writes a message of the model: for the screen, and for the conversation.
func (w *world) say(th *thread) {
	text, id := w.words(), "msg_"+w.id()
	if th.legacy {
		w.event(th, "agent_message", fields{"message": text})
	} else {
		w.event(th, "item_completed", fields{"item": fields{"type": "AgentMessage", "id": id, "content": []fields{{"type": "Text", "text": text}}}})
	}
	w.named(th, id, "assistant", "unknown", text)
	th.shown = append(th.shown, "assistant: "+text)
}

// answer writes a response of the model with its usage.
func (w *world) answer(th *thread, turn string) {
	if w.n("call", 1) == 0 {
		call := "call_" + w.id()
		w.item(th, fields{"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": call})
		w.item(th, fields{"type": "function_call_output", "call_id": call, "output": w.words()})
		th.shown = append(th.shown, "call")
	} else {
		w.say(th)
	}
	took := events.Tokens{Input: int64(1 + w.n("input", 50)), CacheRead: int64(w.n("cached", 50)), Output: int64(5 + w.n("output", 9)), Reasoning: int64(w.n("reasoning", 5))}
	th.spent, th.live = plus(th.spent, took), plus(th.live, took)
	if !th.legacy {
		w.write(th, "token_usage_record", fields{"thread_id": th.id, "turn_id": turn, "response_id": "resp_" + w.id(), "usage": codexUsage(took), "turn_token_usage": codexUsage(took), "thread_token_usage": codexUsage(th.live)})
	}
	for range 1 + w.n("again", 1) {
		w.event(th, "token_count", fields{"info": fields{"total_token_usage": codexUsage(th.live), "last_token_usage": codexUsage(took)}})
	}
}

func codexUsage(u events.Tokens) fields {
	return fields{"input_tokens": u.Input + u.CacheRead, "cached_input_tokens": u.CacheRead, "output_tokens": u.Output, "reasoning_output_tokens": u.Reasoning}
}

// turn writes a turn, with or without its end.
func (w *world) turn(th *thread) {
	id := w.id()
	th.turns = append(th.turns, worldTurn{lineEnd{th.file, int64(th.file.content.Len()), th.ordinal}, len(th.shown), th.live})
	for run, outcome := range th.runs {
		if outcome == "" {
			th.runs[run] = "interrupted" // without an end
		}
	}
	w.event(th, "task_started", fields{"turn_id": id})
	if w.n("context", 1) == 0 {
		w.message(th, "user", "environments.environment_context", "<environment_context>\n<cwd>/pier</cwd>")
	}
	w.write(th, "turn_context", fields{"turn_id": id, "model": "model"})
	if th.legacy && w.n("limits", 1) == 0 {
		w.event(th, "token_count", fields{"info": nil})
	}
	w.ask(th)
	for range w.n("answers", 3) {
		w.answer(th, id)
	}
	if w.n("steer", 4) == 0 {
		w.ask(th)
		w.answer(th, id)
	}
	switch w.n("end", 7) {
	case 0:
		th.runs[id] = ""
	case 1:
		w.event(th, "turn_aborted", fields{"turn_id": id, "reason": "interrupted"})
		th.runs[id] = "interrupted"
	default:
		w.event(th, "task_complete", fields{"turn_id": id, "last_agent_message": nil})
		th.runs[id] = "completed"
	}
}

// compact writes a summary by the model. Newer versions write the summary before the line about the compaction.
func (w *world) compact(th *thread) {
	if !th.legacy {
		w.message(th, "assistant", "unknown", w.words())
	}
	w.write(th, "compacted", fields{"message": w.words(), "replacement_history": []fields{{"type": "message", "role": "user", "content": []fields{{"type": "input_text", "text": w.words()}}}}})
	th.shown = append(th.shown, "compacted")
}

// base returns the end of a history, nil for before everything.
func base(at lineEnd) any {
	if at.ordinal <= 1 {
		return nil
	}
	return fields{"thread_id": at.file.id, "end_ordinal_exclusive": at.ordinal, "end_byte_offset": at.end}
}

// revert goes back to before a turn, in a new file.
func (w *world) revert(th *thread) {
	k := w.n("turn", len(th.turns)-1)
	back := th.turns[k]
	meta := fields{}
	th.ordinal = 0
	if b := base(back.at); b != nil {
		meta["history_base"], th.ordinal = b, back.at.ordinal
	}
	if th.fork != "" {
		meta["forked_from_id"] = th.fork
	}
	th.shown, th.turns, th.live = slices.Clone(th.shown[:back.shown]), slices.Clone(th.turns[:k]), back.live
	for run, outcome := range th.runs {
		if outcome == "" {
			th.runs[run] = "lost" // in another file
		}
	}
	w.begin(th, w.id(), meta)
	th.reverts++
}

// rollBack removes the user's last messages and everything after them.
func (w *world) rollBack(th *thread) {
	n := 1 + w.n("rolled back", len(th.asked))
	keep := max(0, len(th.asked)-n)
	w.event(th, "thread_rolled_back", fields{"num_turns": n})
	if len(th.asked) > 0 {
		th.shown, th.asked = th.shown[:th.asked[keep]], th.asked[:keep]
	}
	th.reverts++
}

// fork continues a thread in a new one.
func (w *world) fork(of *thread) *thread {
	th := &thread{id: w.id(), legacy: of.legacy, runs: make(map[string]string), shown: slices.Clone(of.shown), asked: slices.Clone(of.asked), live: of.live}
	meta := fields{"forked_from_id": of.id}
	if th.legacy {
		th.parent, th.reverts = of.id, of.reverts // its lines are copied, including removed ones
		w.begin(th, th.id, meta)
		w.copy(th, of.file.lines, func(entry) bool { return true })
		return th
	}
	at := lineEnd{of.file, int64(of.file.content.Len()), of.ordinal}
	th.turns = slices.Clone(of.turns)
	if k := w.n("upto", len(of.turns)); k > 0 && k < len(of.turns) {
		at, th.shown, th.turns, th.live = of.turns[k].at, th.shown[:of.turns[k].shown], th.turns[:k], of.turns[k].live
	}
	th.fork, th.ordinal = of.id, at.ordinal
	meta["history_base"], meta["forked_from_ordinal_exclusive"] = base(at), at.ordinal
	w.begin(th, th.id, meta)
	return th
}

// copy copies lines with the current time.
func (w *world) copy(th *thread, lines []entry, want func(entry) bool) {
	for _, e := range lines {
		if want(e) {
			w.write(th, e.Type, e.Payload)
		}
	}
}

// spawn starts a sub-agent with its parent's context.
func (w *world) spawn(of *thread) *thread {
	th := &thread{id: w.id(), runs: make(map[string]string), parent: of.id}
	wanted := func(e entry) bool {
		p, _ := e.Payload.(fields)
		return e.Type != "token_usage_record" && p["type"] != "token_count" && p["type"] != "item_completed"
	}
	start := int64(1)
	for _, e := range of.file.lines {
		if wanted(e) {
			start++
		}
	}
	meta := fields{"forked_from_id": of.id, "parent_thread_id": of.id, "subagent_history_start_ordinal": start,
		"source": fields{"subagent": fields{"thread_spawn": fields{"parent_thread_id": of.id, "depth": 1}}}}
	if w.n("fresh", 1) == 0 {
		delete(meta, "forked_from_id")
		delete(meta, "subagent_history_start_ordinal")
		w.begin(th, th.id, meta)
		return th
	}
	w.begin(th, th.id, meta)
	w.copy(th, of.file.lines, wanted)
	return th
}

func (w *world) step() {
	if len(w.threads) == 0 || len(w.threads) < 6 && w.n("new", 9) == 0 {
		th := &thread{id: w.id(), legacy: w.n("legacy", 2) == 0, runs: make(map[string]string)}
		w.begin(th, th.id, fields{"source": "exec"})
		w.threads = append(w.threads, th)
		w.turn(th)
		return
	}
	th := rapid.SampledFrom(w.threads).Draw(w.t, "thread")
	switch op := w.n("op", 11); {
	case op < 6:
		w.turn(th)
	case op == 6:
		w.compact(th)
	case op == 7 && len(w.threads) < 6 && len(th.turns) > 0:
		w.threads = append(w.threads, w.fork(th))
	case op == 8 && len(w.threads) < 6 && !th.legacy && th.fork == "" && th.parent == "":
		w.threads = append(w.threads, w.spawn(th))
	case op > 8 && th.legacy:
		w.rollBack(th)
	case op > 8 && len(th.turns) > 0 && th.parent == "":
		w.revert(th)
	}
}

// home returns the files, some of them archived.
func (w *world) home() map[string][]byte {
	home := make(map[string][]byte)
	for _, f := range w.files {
		if w.n("where", 5) == 0 {
			f.folder = "archived_sessions/"
		}
		home[f.name()] = []byte(f.content.String())
	}
	return home
}

// After any history, a session has the state that Codex would report for the thread, and its usage.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			w.step()
		}
		s := store(t, w.home())
		for _, th := range w.threads {
			checkThread(rt, s, th)
		}
	})
}

func checkThread(t *rapid.T, s *stored, th *thread) {
	t.Helper()
	got := s.session("codex/"+th.id, 0)
	if shown := s.main(got); !slices.Equal(shown, th.shown) {
		t.Fatalf("the screen of thread %s is\n%q\nwant\n%q", th.id, shown, th.shown)
	}
	if spent := got.Ledger.Spent().Tokens; spent != th.spent {
		t.Fatalf("the usage of thread %s is %+v, want %+v", th.id, spent, th.spent)
	}
	if live := s.live(got); !th.legacy && live != th.live {
		t.Fatalf("the usage in effect of thread %s is %+v, want %+v", th.id, live, th.live)
	}
	if len(got.Ledger.Rewinds) > th.reverts || th.reverts > 0 && len(got.Ledger.Rewinds) == 0 {
		t.Fatalf("thread %s has %d rewinds, want %d", th.id, len(got.Ledger.Rewinds), th.reverts)
	}
	if fork := got.Ledger.Fork; (fork != nil) != (th.fork != "") || fork != nil && fork.Session != "codex/"+th.fork {
		t.Fatalf("thread %s is a fork of %+v, want %q", th.id, fork, th.fork)
	}
	if parent := got.Ledger.Parent; (parent != nil) != (th.parent != "") || parent != nil && parent.Session != "codex/"+th.parent {
		t.Fatalf("thread %s has the parent %+v, want %q", th.id, parent, th.parent)
	}
	checkRuns(t, s, th)
}

func checkRuns(t *rapid.T, s *stored, th *thread) {
	t.Helper()
	runs := make(map[string]string)
	for _, r := range s.session("codex/"+th.id, 0).Ledger.Runs {
		runs[r.ID] = ""
		if n := len(r.Results); n > 0 {
			runs[r.ID] = r.Results[n-1].Outcome
		}
	}
	for id, outcome := range th.runs {
		if outcome == "lost" {
			outcome = ""
		}
		if got, ok := runs[id]; !ok || got != outcome {
			t.Fatalf("turn %s of thread %s ended %q (%v), want %q", id, th.id, got, ok, outcome)
		}
	}
	if len(runs) != len(th.runs) {
		t.Fatalf("thread %s has %d turns of its own, want %d", th.id, len(runs), len(th.runs))
	}
}
