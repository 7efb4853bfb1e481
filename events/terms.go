package events

import (
	"strconv"

	"github.com/tallylog/tally/internal/rawjson"
)

// Terms are the facts that determine the price of a response besides its counts of tokens. The zero Terms are the
// standard ones. A maker states them in the usage of a response, which CostAccrued keeps as Raw.
type Terms struct {
	CacheHour int64  `json:"cacheHour,omitempty"` // tokens of Tokens.CacheWrite that are kept for an hour; the others are kept for five minutes
	Searches  int64  `json:"searches,omitempty"`  // web searches that the maker ran
	Speed     string `json:"speed,omitempty"`     // "": standard; fast
	Tier      string `json:"tier,omitempty"`      // of service: "" standard; batch, priority, flex
	Region    string `json:"region,omitempty"`    // "": anywhere; us
}

// maxTerm bounds a word of the terms, in bytes.
const maxTerm = 64

// TermsOf reads the terms of a usage with the names of Anthropic's API, or of LangChain. If the usage has none, or
// cannot be read, it returns the zero Terms.
func TermsOf(usage Raw) Terms {
	u, err := rawjson.Object(usage)
	if err != nil {
		return Terms{}
	}
	return Terms{
		CacheHour: max(countIn(u.Object("cache_creation"), "ephemeral_1h_input_tokens"), countIn(u.Object("input_token_details"), "ephemeral_1h_input_tokens")),
		Searches:  countIn(u.Object("server_tool_use"), "web_search_requests"),
		Speed:     termIn(u, "speed", "standard"),
		Tier:      termIn(u, "service_tier", "standard", "default", "auto"),
		Region:    termIn(u, "inference_geo", "global", "not_available"),
	}
}

// countIn returns a count of a usage, 0 if it is missing or impossible.
func countIn(m rawjson.Members, name string) int64 {
	raw, _ := m.Get(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > maxTokens {
		return 0
	}
	return n
}

// termIn returns a word of a usage, or "" if it is missing or usual.
func termIn(m rawjson.Members, name string, usual ...string) string {
	word := m.Text(name)
	for _, u := range usual {
		if word == u {
			return ""
		}
	}
	return word[:min(len(word), maxTerm)]
}
