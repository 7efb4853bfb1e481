package pi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"slices"
	"strconv"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// spend adds what an answer took. pi's classes are tally's but for what was reasoned, which
// it does not say. It was spent before the answer could be written; so who goes back to the
// answer goes back to what it took, too.
func (f *fold) spend(s *saying, copied bool) {
	usage := s.message.Object("usage")
	t := events.Tokens{Input: count(usage, "input"), Output: count(usage, "output"), CacheRead: count(usage, "cacheRead"), CacheWrite: count(usage, "cacheWrite")}
	usd := paid(usage.Object("cost"))
	if t == (events.Tokens{}) && usd == "" {
		return
	}
	raw, _ := s.message.Get("usage")
	p := &events.CostAccrued{Model: cmp.Or(s.message.Text("model"), "unknown"), USD: usd, Tokens: &t, Response: responseOf(s.entry),
		Purpose: "run", Source: "reported", Raw: slices.Clone(raw)}
	if f.run.id != "" && !copied {
		ref := f.run.ref()
		p.Run = &ref
	}
	if p.Validate() == nil {
		s.Before = append(s.Before, agents.Fact{Key: "cost", Time: s.time, Payload: p})
	}
}

// responseOf returns the id of an answer: the provider's, or one that every copy of the
// message has, as it has the time in it.
func responseOf(e entry) string {
	if id := e.message.Text("responseId"); id != "" && len(id) <= events.MaxResponse {
		return id
	}
	raw, _ := e.Get("message")
	hash := sha256.Sum256(rawjson.AppendCompact(nil, raw))
	return name + "/" + hex.EncodeToString(hash[:16])
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

// paid returns what pi says that an answer cost, in dollars; "" if it does not know.
func paid(cost rawjson.Members) events.Amount {
	raw, _ := cost.Get("total")
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
