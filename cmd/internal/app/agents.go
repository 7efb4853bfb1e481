package app

import (
	"slices"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/acp"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/codex"
	"github.com/tallylog/tally/internal/agents/gemini"
	"github.com/tallylog/tally/internal/agents/pi"
	"github.com/tallylog/tally/internal/agents/stream"
)

// Agents are all there are whose sessions can be followed, those first that most people
// have. What names an agent, or the format of its files, takes it from here.
var Agents = []agents.Agent{claude.Agent{}, codex.Agent{}, gemini.Agent{}, pi.Agent{}, acp.Agent{}, stream.Agent{}}

// AgentNamed returns the agent with a name, or whose files have a format of that name.
func AgentNamed(name string) (agents.Agent, bool) {
	i := slices.IndexFunc(Agents, func(a agents.Agent) bool { return a.Name() == name || a.Format() == name })
	if i < 0 {
		return nil, false
	}
	return Agents[i], true
}

// AgentFormats lists the formats of the agents' files.
func AgentFormats() []string {
	names := make([]string, len(Agents))
	for i, a := range Agents {
		names[i] = a.Format()
	}
	return names
}

// DescribeAgents lists the formats of agents' files for a help text.
func DescribeAgents() string {
	return describe("claude-code", "transcripts of Claude Code: ~/.claude, its projects/, a project's folder, a session", "codex", "rollouts of Codex CLI: ~/.codex, its sessions/, what is below, a rollout",
		"gemini", "chats of Gemini CLI: ~/.gemini, its tmp/, a project's folder, a chat", "pi", "sessions of pi: ~/.pi, its agent/sessions/, a project's folder, a session",
		"acp", "recorded connections of the Agent Client Protocol: *.acp.jsonl",
		"exec", "what tally exec recorded of other commands: *.codex.jsonl, *.lines ...")
}

// AgentNames lists the names of the agents.
func AgentNames() []string {
	names := make([]string, len(Agents))
	for i, a := range Agents {
		names[i] = a.Name()
	}
	return names
}
