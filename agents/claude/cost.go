package claude

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// costs are the responses that may not have come whole: the last one of each thread. What
// a response took stands in each of its lines, and grows.
type costs struct{ open []*response }

// response is what one response of a model took.
type response struct {
	thread, id string
	line       string // uuid of the line that says so
	time       time.Time
	cost       events.CostAccrued
	told       bool
}

// take takes what a line says that its response took. If it is another response than
// before, that one is whole.
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
	if r.cost.Tokens.Output >= have.cost.Tokens.Output {
		same := *r.cost.Tokens == *have.cost.Tokens && r.cost.USD == have.cost.USD
		r.told, r.cost.Run = have.told && same, have.cost.Run
		c.open[i] = r
	}
	return nil
}

// flush tells what was not told.
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

// responseOf returns what a line says that its response took, nil if that is nothing.
func responseOf(e *entry, thread string, run *events.RunRef) *response {
	usage, _ := e.message.Get("usage")
	tokens, usd := tokensOf(e.message.Object("usage")), paid(e)
	if tokens == (events.Tokens{}) && usd == "" {
		return nil
	}
	r := &response{thread: thread, id: cmp.Or(e.message.Text("id"), e.Text("requestId")), line: e.uuid, time: e.time}
	if len(r.id) > events.MaxResponse {
		r.id = ""
	}
	r.cost = events.CostAccrued{Model: cmp.Or(e.message.Text("model"), "unknown"), USD: usd, Tokens: &tokens, Run: run,
		Response: r.id, Purpose: "run", Source: "reported", Raw: slices.Clone(usage)}
	return r
}

// tokensOf reads a usage. What the model thought is part of the output, and no line says
// how much it is.
func tokensOf(usage rawjson.Members) events.Tokens {
	return events.Tokens{Input: count(usage, "input_tokens"), Output: count(usage, "output_tokens"),
		CacheRead: count(usage, "cache_read_input_tokens"), CacheWrite: count(usage, "cache_creation_input_tokens")}
}

// maxCount is the largest number that is exact in every language.
const maxCount = 1 << 53

// count reads a number of tokens; what is none is 0.
func count(m rawjson.Members, name string) int64 {
	raw, _ := m.Get(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// paid returns what a line says that it cost: those of the first versions do.
func paid(e *entry) events.Amount {
	raw, _ := e.Get("costUSD")
	_, exponent, _ := bytes.Cut(bytes.ToLower(raw), []byte("e"))
	if len(raw) == 0 || len(raw) > 32 || len(exponent) > 3 || raw[0] < '0' || raw[0] > '9' {
		return ""
	}
	usd, ok := new(big.Rat).SetString(string(raw))
	if !ok || usd.Sign() == 0 {
		return ""
	}
	if amount := events.AmountOf(usd); len(amount) <= 64 {
		return amount
	}
	return ""
}
