package pi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// spend adds what an answer took. pi's classes are tally's but for what was reasoned, which
// it does not say. It was spent before the answer could be written; so who goes back to the
// answer goes back to what it took, too.
func (f *fold) spend(s *saying, copied bool) {
	usage := s.message.Object("usage")
	t := events.Tokens{Input: agents.Count(usage, "input"), Output: agents.Count(usage, "output"), CacheRead: agents.Count(usage, "cacheRead"), CacheWrite: agents.Count(usage, "cacheWrite")}
	usd := agents.USD(usage.Object("cost"), "total")
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

// responseOf returns the id of an answer: the provider's if it cannot be drawn twice, or one
// that every copy of the message has, as it has the time in it.
func responseOf(e entry) string {
	if id := e.message.Text("responseId"); events.IsUnique(id) && len(id) <= events.MaxResponse {
		return id
	}
	raw, _ := e.Get("message")
	hash := sha256.Sum256(rawjson.AppendCompact(nil, raw))
	return name + "/" + hex.EncodeToString(hash[:16])
}
