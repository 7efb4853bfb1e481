package turns

import "github.com/tallylog/tally/events"

// usage reads how many tokens a response took, if it says so and no other did before.
func (r *reading) usage(o *object) {
	terms := events.TermsOf(events.Raw(o.peek("usage")))
	u, ok := o.object("usage", "usageMetadata", "usage_metadata", "token_usage", "totalUsage")
	if ok && r.turn.Usage == (events.Tokens{}) {
		r.turn.Usage, r.turn.Terms = tokens(u), terms
	}
}

// tokens reads a count. Each maker has names of its own, so that a count is known by them.
func tokens(u *object) events.Tokens {
	switch {
	case u.has("prompt_tokens", "completion_tokens"):
		return openaiTokens(u, "prompt_tokens", "completion_tokens")
	case u.has("promptTokenCount", "prompt_token_count", "totalTokenCount", "total_token_count"):
		return geminiTokens(u)
	case u.has("inputTokens", "outputTokens"):
		return sdkTokens(u)
	case u.has("promptTokens", "completionTokens"):
		return events.Tokens{Input: u.count("promptTokens"), Output: u.count("completionTokens")}
	case u.has("input_token_details", "output_token_details"):
		return chainTokens(u)
	case u.has("cacheRead", "cacheWrite"): // pi
		return events.Tokens{Input: u.count("input"), Output: u.count("output"), CacheRead: u.count("cacheRead"), CacheWrite: u.count("cacheWrite")}
	case u.has("input_tokens_details"):
		return openaiTokens(u, "input_tokens", "output_tokens")
	}
	return anthropicTokens(u)
}

// disjoint makes classes of an input that includes what was cached and an output that
// includes what was reasoned. What is larger than what should include it stands beside it
// instead: some who serve another's interface count so.
func disjoint(input, output, reasoning, read, write int64) events.Tokens {
	if read+write <= input {
		input -= read + write
	}
	if reasoning > output {
		output += reasoning
	}
	return events.Tokens{Input: input, Output: output, Reasoning: reasoning, CacheRead: read, CacheWrite: write}
}

// inside returns the counts in a member, none if it is not there.
func inside(u *object, name string) *object {
	if inner, ok := u.object(name); ok {
		return inner
	}
	return &object{}
}

// openaiTokens: the input includes cached_tokens, the output includes reasoning_tokens.
// Chat Completions and Responses differ in the names only.
func openaiTokens(u *object, input, output string) events.Tokens {
	in, out := inside(u, input+"_details"), inside(u, output+"_details")
	return disjoint(u.count(input), u.count(output), out.count("reasoning_tokens"), in.count("cached_tokens"), in.count("cache_write_tokens"))
}

// anthropicTokens: input_tokens excludes what was read from and written to the cache, and
// output_tokens includes thinking without saying how much.
func anthropicTokens(u *object) events.Tokens {
	return events.Tokens{
		Input: u.count("input_tokens"), Output: u.count("output_tokens"),
		CacheRead: u.count("cache_read_input_tokens"), CacheWrite: u.count("cache_creation_input_tokens"),
	}
}

// geminiTokens: the prompt includes cached content, the results of tools that Gemini runs
// come on top; the candidates exclude thoughts.
func geminiTokens(u *object) events.Tokens {
	thoughts := u.count("thoughtsTokenCount", "thoughts_token_count")
	t := disjoint(u.count("promptTokenCount", "prompt_token_count"), 0, 0, u.count("cachedContentTokenCount", "cached_content_token_count"), 0)
	t.Input += u.count("toolUsePromptTokenCount", "tool_use_prompt_token_count")
	t.Output, t.Reasoning = u.count("candidatesTokenCount", "candidates_token_count")+thoughts, thoughts
	return t
}

// sdkTokens: since version 6 of the AI SDK what was not cached is counted by itself;
// before it is part of all input tokens.
func sdkTokens(u *object) events.Tokens {
	in, out := inside(u, "inputTokenDetails"), inside(u, "outputTokenDetails")
	read, write := max(in.count("cacheReadTokens"), u.count("cachedInputTokens")), in.count("cacheWriteTokens")
	t := disjoint(u.count("inputTokens"), u.count("outputTokens"), max(out.count("reasoningTokens"), u.count("reasoningTokens")), read, write)
	if in.has("noCacheTokens") {
		t.Input = in.count("noCacheTokens")
	}
	return t
}

// chainTokens: both sums of LangChain include their details. Of what was written to
// Anthropic's cache, either one figure is there or one for each time that it is kept.
func chainTokens(u *object) events.Tokens {
	in, out := inside(u, "input_token_details"), inside(u, "output_token_details")
	write := in.count("cache_creation") + in.count("ephemeral_5m_input_tokens") + in.count("ephemeral_1h_input_tokens")
	return disjoint(u.count("input_tokens"), u.count("output_tokens"), out.count("reasoning"), in.count("cache_read"), write)
}
