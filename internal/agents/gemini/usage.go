package gemini

import (
	"cmp"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// counts are Gemini's counts: input includes cached tokens, output excludes thoughts, and tool, for Gemini's own
// tools, is in neither. The total is the sum of all but cached.
type counts struct{ input, output, cached, thoughts, tool int64 }

func countsOf(m rawjson.Members) counts {
	return counts{agents.Count(m, "input"), agents.Count(m, "output"), agents.Count(m, "cached"), agents.Count(m, "thoughts"), agents.Count(m, "tool")}
}

// tokens returns the counts in tally's classes. If the cached count is larger than the input, it is not subtracted.
func (c counts) tokens() *events.Tokens {
	t := &events.Tokens{Input: c.input, Output: c.output + c.thoughts, Reasoning: c.thoughts, CacheRead: c.cached}
	if c.cached <= c.input {
		t.Input -= c.cached
	}
	t.Input += c.tool
	return t
}

// spend adds the usage of a response each time it changes in the message. Only one of these costs counts.
func (f *fold) spend(s *saying, m message) {
	c := countsOf(m.Object("tokens"))
	if c == (counts{}) || f.spent[m.id] == c {
		return
	}
	f.spent[m.id] = c
	p := &events.CostAccrued{Model: cmp.Or(m.Text("model"), "unknown"), Tokens: c.tokens(), Purpose: "run", Source: "reported"}
	p.Response = agents.Response(m.id, f.file.Session)
	if f.run.id != "" && f.ofSession() {
		ref := f.run.ref()
		p.Run = &ref
	}
	if p.Validate() == nil {
		s.after("cost", p, m.time)
	}
}

// folderIn returns the working folder in Gemini CLI's message to the model, "" if the text has none.
func folderIn(text string) string {
	if !strings.HasPrefix(strings.TrimSpace(text), "<session_context>") {
		return ""
	}
	_, rest, ok := strings.Cut(text, "**Workspace Directories:**\n")
	if !ok {
		return ""
	}
	line, _, _ := strings.Cut(rest, "\n")
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
	if !ok {
		return ""
	}
	return dir
}
