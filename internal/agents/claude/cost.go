package claude

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// costs has the responses that may be incomplete: the last one of each thread. Each line of a response has its usage
// so far, which grows.
type costs struct{ open []*response }

// response is the usage of one response of a model.
type response struct {
	thread, id string
	line       string // uuid of the line with the usage
	time       time.Time
	cost       events.CostAccrued
	told       bool
}

// take takes the usage of a line's response. If it is another response than before, that one is complete, and its
// cost is returned.
func (c *costs) take(e *entry, thread string, run *events.RunRef) []agents.Fact {
	r := responseOf(e, thread, run)
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(c.open, func(o *response) bool { return o.thread == thread })
	if i < 0 {
		c.open = append(c.open, r)
		return nil
	}
	have := c.open[i]
	if r.id == "" || r.id != have.id {
		c.open[i] = r
		return have.tell()
	}
	now, before := r.cost.Tokens, have.cost.Tokens
	if cmp.Or(cmp.Compare(now.Output, before.Output), cmp.Compare(now.Total(), before.Total())) >= 0 {
		same := *r.cost.Tokens == *have.cost.Tokens && r.cost.USD == have.cost.USD && bytes.Equal(r.cost.Raw, have.cost.Raw)
		r.told, r.cost.Run, r.cost.Response = have.told && same, have.cost.Run, have.cost.Response
		c.open[i] = r
	}
	return nil
}

// flush returns the costs that were not reported.
func (c *costs) flush() []agents.Fact {
	var facts []agents.Fact
	for _, r := range c.open {
		facts = append(facts, r.tell()...)
	}
	return facts
}

func (r *response) tell() []agents.Fact {
	if r.told {
		return nil
	}
	r.told = true
	return []agents.Fact{{Key: "cost/" + keyed(cmp.Or(r.id, r.line)), Time: r.time, Payload: &r.cost}}
}

// responseOf returns the usage in a line, or nil.
func responseOf(e *entry, thread string, run *events.RunRef) *response {
	usage, _ := e.message.Get("usage")
	tokens, usd := Tokens(e.message.Object("usage")), agents.USD(e.Members, "costUSD")
	if tokens == (events.Tokens{}) && usd == "" {
		return nil
	}
	r := &response{thread: thread, id: cmp.Or(e.message.Text("id"), e.Text("requestId")), line: e.uuid, time: e.time}
	if len(r.id) > events.MaxResponse {
		r.id = ""
	}
	r.cost = events.CostAccrued{Model: cmp.Or(e.message.Text("model"), "unknown"), USD: usd, Tokens: &tokens, Run: run,
		Response: agents.Response(r.id, e.uuid), Purpose: "run", Source: "reported", Raw: slices.Clone(usage)}
	return r
}

// Tokens reads a usage. The output includes the model's reasoning, for which no line has a count.
func Tokens(usage rawjson.Members) events.Tokens {
	parts := usage.Object("cache_creation")
	written := agents.Count(parts, "ephemeral_5m_input_tokens") + agents.Count(parts, "ephemeral_1h_input_tokens")
	return events.Tokens{Input: agents.Count(usage, "input_tokens"), Output: agents.Count(usage, "output_tokens"),
		CacheRead: agents.Count(usage, "cache_read_input_tokens"), CacheWrite: max(agents.Count(usage, "cache_creation_input_tokens"), written)}
}
