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
	t, usd := Usage(s.message)
	if t == (events.Tokens{}) && usd == "" {
		return
	}
	raw, _ := s.message.Get("usage")
	p := &events.CostAccrued{Model: cmp.Or(s.message.Text("model"), "unknown"), USD: usd, Tokens: &t, Response: Response(s.entry.Members, s.message),
		Purpose: "run", Source: "reported", Raw: slices.Clone(raw)}
	if f.run.id != "" && !copied {
		ref := f.run.ref()
		p.Run = &ref
	}
	if p.Validate() == nil {
		s.Before = append(s.Before, agents.Fact{Key: "cost", Time: s.time, Payload: p})
	}
}

// Usage returns what a message says that it took.
func Usage(message rawjson.Members) (events.Tokens, events.Amount) {
	u := message.Object("usage")
	return events.Tokens{Input: agents.Count(u, "input"), Output: agents.Count(u, "output"), CacheRead: agents.Count(u, "cacheRead"), CacheWrite: agents.Count(u, "cacheWrite")},
		agents.USD(u.Object("cost"), "total")
}

// Response returns the id of an answer: the provider's if it cannot be drawn twice, or one
// that every copy of the message has, as it has the time in it.
func Response(line, message rawjson.Members) string {
	if id := message.Text("responseId"); events.IsUnique(id) && len(id) <= events.MaxResponse {
		return id
	}
	raw, _ := line.Get("message")
	hash := sha256.Sum256(rawjson.AppendCompact(nil, raw))
	return name + "/" + hex.EncodeToString(hash[:16])
}
