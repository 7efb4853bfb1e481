package acp

import (
	"cmp"
	"math/big"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// amount is in dollars; nil: none.
type amount = *big.Rat

// paid adds the increase of a session's cost. An agent reports the cost so far.
func (f *fold) paid(s *saying, t *talk, cost rawjson.Members) {
	usd := amountIn(cost)
	if usd == nil {
		return
	}
	more := new(big.Rat).Set(usd)
	if t.usd != nil {
		more.Sub(usd, t.usd)
	}
	t.usd = usd
	p := &events.CostAccrued{Model: "unknown", Purpose: "run", Source: "reported"}
	if p.USD = events.AmountOf(more); more.Sign() <= 0 || len(p.USD) > 64 {
		return
	}
	if t.turn != nil {
		ref := t.turn.ref()
		p.Run = &ref
	}
	if p.Validate() == nil {
		s.after("cost", p)
	}
}

// amountIn reads {amount, currency}; nil if it is not in dollars.
func amountIn(cost rawjson.Members) amount {
	usd, ok := agents.Number(cost, "amount")
	if !ok || cost.Text("currency") != "USD" {
		return nil
	}
	return usd
}

// took adds the tokens of a turn, in the protocol's form or, for each model, in that of Gemini CLI.
func (f *fold) took(s *saying, t *turn, result rawjson.Members) {
	if u := result.Object("usage"); u != nil {
		f.spend(s, t, "", "unknown", tokensOf(u))
		return
	}
	raw, _ := result.Object("_meta").Object("quota").Get("model_usage")
	list, err := rawjson.Array(raw)
	if err != nil {
		return
	}
	for i, elem := range list {
		m, err := rawjson.Object(elem)
		if err != nil {
			continue
		}
		c := m.Object("token_count")
		tokens := &events.Tokens{Input: agents.Count(c, "input_tokens"), Output: agents.Count(c, "output_tokens")}
		f.spend(s, t, "/"+strconv.Itoa(i), cmp.Or(m.Text("model"), "unknown"), tokens)
	}
}

func (f *fold) spend(s *saying, t *turn, key, model string, tokens *events.Tokens) {
	if *tokens == (events.Tokens{}) {
		return
	}
	ref := t.ref()
	p := &events.CostAccrued{Model: model, Tokens: tokens, Run: &ref, Purpose: "run", Source: "reported"}
	if p.Validate() == nil {
		s.after("tokens"+key, p)
	}
}

// tokensOf reads a turn's usage. The protocol does not define whether the input includes cached tokens and the output
// includes thoughts; the total decides.
func tokensOf(u rawjson.Members) *events.Tokens {
	in, out, thought := agents.Count(u, "inputTokens"), agents.Count(u, "outputTokens"), agents.Count(u, "thoughtTokens")
	read, written, total := agents.Count(u, "cachedReadTokens"), agents.Count(u, "cachedWriteTokens"), agents.Count(u, "totalTokens")
	t := &events.Tokens{Input: in, Output: out + thought, Reasoning: thought, CacheRead: read, CacheWrite: written}
	if (total == in+out || total == in+out+thought) && read+written <= in {
		t.Input -= read + written
	}
	if (total == in+out || total == in+out+read+written) && thought <= out {
		t.Output = out
	}
	return t
}
