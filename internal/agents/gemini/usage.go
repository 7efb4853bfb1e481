package gemini

import (
	"cmp"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// counts are Gemini's words: the input includes what was cached, what the model thought
// stands beside the output, and what Gemini's own tools brought beside the input. Their
// sum, without what was cached, is the total.
type counts struct{ input, output, cached, thoughts, tool int64 }

func countsOf(m rawjson.Members) counts {
	return counts{agents.Count(m, "input"), agents.Count(m, "output"), agents.Count(m, "cached"), agents.Count(m, "thoughts"), agents.Count(m, "tool")}
}

// tokens are tally's words. What is larger than what should include it stands beside it.
func (c counts) tokens() *events.Tokens {
	t := &events.Tokens{Input: c.input, Output: c.output + c.thoughts, Reasoning: c.thoughts, CacheRead: c.cached}
	if c.cached <= c.input {
		t.Input -= c.cached
	}
	t.Input += c.tool
	return t
}

// spend adds what a response took, as often as its message says something else of it: one of
// them counts.
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

// folderIn returns the folder that Gemini CLI tells the model it works in, "" if the text
// does not say so.
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
