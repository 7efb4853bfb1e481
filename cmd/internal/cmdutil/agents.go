package cmdutil

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

// known lists the agents whose sessions can be followed, with a description of their files for the help of import, the
// most used agents first. All other lists of agents are made from it.
var known = []struct {
	agents.Agent
	in string
}{
	{claude.Agent{}, "transcripts of Claude Code: ~/.claude, its projects/, a project's folder, a session"},
	{codex.Agent{}, "rollouts of Codex CLI: ~/.codex, its sessions/, a folder below, a rollout"},
	{gemini.Agent{}, "chats of Gemini CLI: ~/.gemini, its tmp/, a project's folder, a chat"},
	{pi.Agent{}, "sessions of pi: ~/.pi, its agent/sessions/, a project's folder, a session"},
	{acp.Agent{}, "recorded connections of the Agent Client Protocol: *.acp.jsonl"},
	{stream.Agent{}, "what tally exec recorded of other commands: *.codex.jsonl, *.lines ..."},
}

// Agents has the agents of known, in the same order.
var Agents = func() (list []agents.Agent) {
	for _, k := range known {
		list = append(list, k.Agent)
	}
	return list
}()

// AgentNamed returns the agent with a name, or the agent whose file format has that name.
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
	var pairs []string
	for _, k := range known {
		pairs = append(pairs, k.Format(), k.in)
	}
	return describe(pairs...)
}

// AgentNames lists the names of the agents.
func AgentNames() []string {
	names := make([]string, len(Agents))
	for i, a := range Agents {
		names[i] = a.Name()
	}
	return names
}
