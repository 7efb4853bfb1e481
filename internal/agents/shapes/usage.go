package shapes

import "github.com/tallylog/tally/events"

// Usage reads the tokens of a response, if the object has them and no earlier object had.
func (r *Reading) Usage(o *Object) {
	terms := events.TermsOf(events.Raw(o.Peek("usage")))
	u, ok := o.Object("usage", "usageMetadata", "usage_metadata", "token_usage", "totalUsage")
	if ok && r.Turn.Usage == (events.Tokens{}) {
		r.Turn.Usage, r.Turn.Terms = tokens(u), terms
	}
}

// tokens reads a usage. Each maker has its own names of members, by which the usage is recognised.
func tokens(u *Object) events.Tokens {
	switch {
	case u.Has("prompt_tokens", "completion_tokens"):
		return openaiTokens(u, "prompt_tokens", "completion_tokens")
	case u.Has("promptTokenCount", "prompt_token_count", "totalTokenCount", "total_token_count"):
		return geminiTokens(u)
	case u.Has("inputTokens", "outputTokens"):
		return sdkTokens(u)
	case u.Has("promptTokens", "completionTokens"):
		return events.Tokens{Input: u.Count("promptTokens"), Output: u.Count("completionTokens")}
	case u.Has("input_token_details", "output_token_details"):
		return chainTokens(u)
	case u.Has("cacheRead", "cacheWrite"): // pi
		return events.Tokens{Input: u.Count("input"), Output: u.Count("output"), CacheRead: u.Count("cacheRead"), CacheWrite: u.Count("cacheWrite")}
	case u.Has("input_tokens_details"):
		return openaiTokens(u, "input_tokens", "output_tokens")
	}
	return anthropicTokens(u)
}

// disjoint returns disjoint counts from an input that includes cached tokens and an output that includes reasoning
// tokens. If a count is larger than the one that should include it, both are added: some services with a compatible
// interface count so.
func disjoint(input, output, reasoning, read, write int64) events.Tokens {
	if read+write <= input {
		input -= read + write
	}
	if reasoning > output {
		output += reasoning
	}
	return events.Tokens{Input: input, Output: output, Reasoning: reasoning, CacheRead: read, CacheWrite: write}
}

// innerObject returns the counts in a member, none if it is missing.
func innerObject(u *Object, name string) *Object {
	if inner, ok := u.Object(name); ok {
		return inner
	}
	return &Object{}
}

// openaiTokens: the input includes cached_tokens, the output includes reasoning_tokens. Chat Completions and
// Responses differ only in names.
func openaiTokens(u *Object, input, output string) events.Tokens {
	in, out := innerObject(u, input+"_details"), innerObject(u, output+"_details")
	return disjoint(u.Count(input), u.Count(output), out.Count("reasoning_tokens"), in.Count("cached_tokens"), in.Count("cache_write_tokens"))
}

// anthropicTokens: input_tokens excludes reads and writes of the cache. output_tokens includes thinking, without a
// separate count.
func anthropicTokens(u *Object) events.Tokens {
	return events.Tokens{
		Input: u.Count("input_tokens"), Output: u.Count("output_tokens"),
		CacheRead: u.Count("cache_read_input_tokens"), CacheWrite: u.Count("cache_creation_input_tokens"),
	}
}

// geminiTokens: the prompt includes cached content; results of tools that Gemini runs are extra; the candidates
// exclude thoughts.
func geminiTokens(u *Object) events.Tokens {
	thoughts := u.Count("thoughtsTokenCount", "thoughts_token_count")
	t := disjoint(u.Count("promptTokenCount", "prompt_token_count"), 0, 0, u.Count("cachedContentTokenCount", "cached_content_token_count"), 0)
	t.Input += u.Count("toolUsePromptTokenCount", "tool_use_prompt_token_count")
	t.Output, t.Reasoning = u.Count("candidatesTokenCount", "candidates_token_count")+thoughts, thoughts
	return t
}

// sdkTokens: since version 6 of the AI SDK, input that was not cached has its own count. Before, cached input is part
// of all input tokens.
func sdkTokens(u *Object) events.Tokens {
	in, out := innerObject(u, "inputTokenDetails"), innerObject(u, "outputTokenDetails")
	read, write := max(in.Count("cacheReadTokens"), u.Count("cachedInputTokens")), in.Count("cacheWriteTokens")
	t := disjoint(u.Count("inputTokens"), u.Count("outputTokens"), max(out.Count("reasoningTokens"), u.Count("reasoningTokens")), read, write)
	if in.Has("noCacheTokens") {
		t.Input = in.Count("noCacheTokens")
	}
	return t
}

// chainTokens: both sums of LangChain include their details. Tokens written to Anthropic's cache have either one
// count, or one for each lifetime.
func chainTokens(u *Object) events.Tokens {
	in, out := innerObject(u, "input_token_details"), innerObject(u, "output_token_details")
	write := in.Count("cache_creation") + in.Count("ephemeral_5m_input_tokens") + in.Count("ephemeral_1h_input_tokens")
	return disjoint(u.Count("input_tokens"), u.Count("output_tokens"), out.Count("reasoning"), in.Count("cache_read"), write)
}
