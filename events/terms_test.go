package events

import (
	"strings"
	"testing"
)

func TestTermsOf(t *testing.T) { t.Run("B-13 what decides a price beside the tokens", termsOf) }

func termsOf(t *testing.T) {
	for text, want := range map[string]Terms{
		``: {}, `7`: {}, `{}`: {}, `{"cache_creation": 7, "speed": null}`: {},
		`{"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":30},"server_tool_use":{"web_search_requests":3,"web_fetch_requests":9},"service_tier":"standard","speed":"standard","inference_geo":"not_available"}`: {CacheHour: 30, Searches: 3},
		`{"speed":"fast","service_tier":"batch","inference_geo":"us"}`:                                      {Speed: "fast", Tier: "batch", Region: "us"},
		`{"inference_geo":"global","service_tier":"default"}`:                                               {},
		`{"cache_creation":{"ephemeral_1h_input_tokens":-1},"server_tool_use":{"web_search_requests":1e9}}`: {},
		`{"input_token_details":{"ephemeral_1h_input_tokens":5}}`:                                           {CacheHour: 5},
		`{"speed":"` + strings.Repeat("x", 1000) + `"}`:                                                     {Speed: strings.Repeat("x", maxTerm)},
	} {
		if got := TermsOf(Raw(text)); got != want {
			t.Errorf("TermsOf(%s) = %+v, want %+v", text, got, want)
		}
	}
}
