package codex

import (
	"cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// spending is the state of a thread's usage.
type spending struct {
	records bool         // each response has a record
	total   *tokenCounts // total of the whole thread in the newest token_count
	based   bool         // the thread has a history that is not in the file
}

// tokenCounts are Codex' counts: the input includes cached tokens, the output includes reasoning.
type tokenCounts struct{ input, cached, written, output, reasoning int64 }

func countsOf(m rawjson.Members) (c tokenCounts, ok bool) {
	c.input, ok = count(m, "input_tokens")
	c.cached, _ = count(m, "cached_input_tokens")
	c.written, _ = count(m, "cache_write_input_tokens")
	c.output, _ = count(m, "output_tokens")
	c.reasoning, _ = count(m, "reasoning_output_tokens")
	return c, ok
}

// Tokens reads a usage, also from the output of codex exec.
func Tokens(usage rawjson.Members) events.Tokens {
	c, _ := countsOf(usage)
	return *c.tokens()
}

// tokens returns the counts in tally's classes. If a count is larger than the one that should include it, they are
// added.
func (c tokenCounts) tokens() *events.Tokens {
	t := &events.Tokens{Input: c.input, Output: c.output, Reasoning: c.reasoning, CacheRead: c.cached, CacheWrite: c.written}
	if c.cached <= c.input && c.written <= c.input-c.cached {
		t.Input -= c.cached + c.written
	}
	t.Output = max(t.Output, t.Reasoning)
	return t
}

// record adds the usage of one response, with its id.
func (f *fold) record(s *saying) {
	f.spent.records = true
	if id := s.payload.Text("thread_id"); f.copied.now() || id != "" && id != f.name.thread {
		return
	}
	if c, ok := countsOf(s.payload.Object("usage")); ok {
		f.spend(s, c, s.payload.Text("response_id"), s.payload.Text("turn_id"))
	}
}

// counted adds the usage of one response, in files without records. The line also has the total so far: the same
// count comes several times, and an unchanged total adds nothing. The first count of a file that continues another
// one was counted there. If a line lacks the response's usage, that is the difference of two totals; if the
// difference is impossible, it is unknown.
func (f *fold) counted(s *saying) {
	info := s.payload.Object("info")
	total, ok := countsOf(info.Object("total_token_usage"))
	before := f.spent.total
	if !ok || before != nil && *before == total {
		return
	}
	f.spent.total = &total
	if f.spent.records || f.copied.now() || before == nil && f.spent.based {
		return
	}
	last, said := countsOf(info.Object("last_token_usage"))
	if last == (tokenCounts{}) {
		if before == nil && said {
			return // the total of the parent, whose history it is
		}
		if before == nil {
			before = &tokenCounts{}
		}
		if last, ok = total.since(*before); !ok {
			f.pay(s, nil, "", f.run)
			return
		}
	}
	f.spend(s, last, "", f.run)
}

// since returns the increase over an earlier total. It returns false if the total was reset.
func (c tokenCounts) since(before tokenCounts) (tokenCounts, bool) {
	d := tokenCounts{c.input - before.input, c.cached - before.cached, c.written - before.written, c.output - before.output, c.reasoning - before.reasoning}
	return d, min(d.input, d.cached, d.written, d.output, d.reasoning) >= 0
}

// spend adds a cost, unless it is zero.
func (f *fold) spend(s *saying, c tokenCounts, response, run string) {
	if c != (tokenCounts{}) {
		f.pay(s, c.tokens(), response, run)
	}
}

// pay adds a cost. tokens is nil if they are unknown. Codex has no prices.
func (f *fold) pay(s *saying, tokens *events.Tokens, response, run string) {
	p := &events.CostAccrued{Model: cmp.Or(f.model, "unknown"), Tokens: tokens, Purpose: "run", Source: "reported"}
	if len(response) <= events.MaxResponse {
		p.Response = response
	}
	if run != "" && len(run) <= agents.MaxID {
		ref := runOf(run)
		p.Run = &ref
	}
	if p.Validate() == nil {
		s.after("cost", p)
	}
}
