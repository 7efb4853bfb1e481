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

// spend adds the usage of an answer. pi's classes are tally's, except for reasoning, which it does not count. The
// cost precedes the answer, so a rewind to the answer keeps it.
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

// Usage returns the usage in a message.
func Usage(message rawjson.Members) (events.Tokens, events.Amount) {
	u := message.Object("usage")
	return events.Tokens{Input: agents.Count(u, "input"), Output: agents.Count(u, "output"), CacheRead: agents.Count(u, "cacheRead"), CacheWrite: agents.Count(u, "cacheWrite")},
		agents.USD(u.Object("cost"), "total")
}

// Response returns the id of an answer: the provider's if it is unique, else a hash of the message, which has its
// time. So all copies have the same id.
func Response(line, message rawjson.Members) string {
	if id := message.Text("responseId"); events.IsUnique(id) && len(id) <= events.MaxResponse {
		return id
	}
	raw, _ := line.Get("message")
	hash := sha256.Sum256(rawjson.AppendCompact(nil, raw))
	return agentName + "/" + hex.EncodeToString(hash[:16])
}
