package codex

import (
	"cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// spending is what is known of what a thread took.
type spending struct {
	records bool         // there is a record of each response
	total   *tokenCounts // what the newest token_count says of the whole thread
	based   bool         // the thread has a history that is not in the file
}

// tokenCounts are Codex' words: the input includes what was cached, the output what was
// reasoned.
type tokenCounts struct{ input, cached, written, output, reasoning int64 }

func countsOf(m rawjson.Members) (c tokenCounts, ok bool) {
	c.input, ok = count(m, "input_tokens")
	c.cached, _ = count(m, "cached_input_tokens")
	c.written, _ = count(m, "cache_write_input_tokens")
	c.output, _ = count(m, "output_tokens")
	c.reasoning, _ = count(m, "reasoning_output_tokens")
	return c, ok
}

// Tokens reads a usage, as codex exec prints it too.
func Tokens(usage rawjson.Members) events.Tokens {
	c, _ := countsOf(usage)
	return *c.tokens()
}

// tokens are tally's words. What is larger than what should include it stands beside it.
func (c tokenCounts) tokens() *events.Tokens {
	t := &events.Tokens{Input: c.input, Output: c.output, Reasoning: c.reasoning, CacheRead: c.cached, CacheWrite: c.written}
	if c.cached <= c.input && c.written <= c.input-c.cached {
		t.Input -= c.cached + c.written
	}
	t.Output = max(t.Output, t.Reasoning)
	return t
}

// record is what one response took, with its id.
func (f *fold) record(s *saying) {
	f.spent.records = true
	if id := s.payload.Text("thread_id"); f.copied.now() || id != "" && id != f.name.thread {
		return
	}
	if c, ok := countsOf(s.payload.Object("usage")); ok {
		f.spend(s, c, s.payload.Text("response_id"), s.payload.Text("turn_id"))
	}
}

// counted is what one response took, in files without records, together with what all took
// so far: the same count comes several times, and then all took no more. What a file begins
// with that continues another one was counted there. Where a count does not say what the
// response took, it is the difference of two totals; if that is none, nobody knows it.
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

// since is what came since an earlier total. It is false if the total began again.
func (c tokenCounts) since(before tokenCounts) (tokenCounts, bool) {
	d := tokenCounts{c.input - before.input, c.cached - before.cached, c.written - before.written, c.output - before.output, c.reasoning - before.reasoning}
	return d, min(d.input, d.cached, d.written, d.output, d.reasoning) >= 0
}

// spend adds a cost, unless it is nothing.
func (f *fold) spend(s *saying, c tokenCounts, response, run string) {
	if c != (tokenCounts{}) {
		f.pay(s, c.tokens(), response, run)
	}
}

// pay adds a cost, of which tokens may be nil: not known. Codex knows of no prices.
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
