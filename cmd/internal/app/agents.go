package app

import (
	"slices"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/agents/acp"
	"github.com/tallylog/tally/agents/claude"
	"github.com/tallylog/tally/agents/codex"
	"github.com/tallylog/tally/agents/gemini"
	"github.com/tallylog/tally/agents/pi"
)

// Agents are all there are whose sessions can be followed, those first that most people
// have. What names an agent, or the format of its files, takes it from here.
var Agents = []agents.Agent{claude.Agent{}, codex.Agent{}, gemini.Agent{}, pi.Agent{}, acp.Agent{}}

// AgentNamed returns the agent with a name, or whose files have a format of that name.
func AgentNamed(name string) (agents.Agent, bool) {
	i := slices.IndexFunc(Agents, func(a agents.Agent) bool { return a.Name() == name || a.Format() == name })
	if i < 0 {
		return nil, false
	}
	return Agents[i], true
}

// AgentNames lists the names of the agents.
func AgentNames() []string {
	names := make([]string, len(Agents))
	for i, a := range Agents {
		names[i] = a.Name()
	}
	return names
}
