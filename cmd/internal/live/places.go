package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
)

// place is a folder in which an agent keeps sessions.
type place struct {
	agent agents.Agent
	root  string
}

// placesOf returns the places that arguments name, or those of every agent that has any.
func placesOf(args []string, env func(string) string) ([]place, error) {
	if len(args) == 0 {
		return found(app.Agents, env)
	}
	var list []place
	for _, arg := range args {
		agent, ok := app.AgentNamed(arg)
		if !ok {
			return nil, cli.Usagef("%q is no agent: want %s", arg, app.Or(app.AgentNames()))
		}
		more, err := found([]agents.Agent{agent}, env)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// found returns the places of agents that are there.
func found(of []agents.Agent, env func(string) string) (list []place, err error) {
	var looked []string
	for _, agent := range of {
		for _, root := range agent.Roots(env) {
			looked = append(looked, tilde(root))
			if info, err := os.Stat(root); err == nil && info.IsDir() {
				list = append(list, place{agent, filepath.Clean(root)})
			}
		}
	}
	if len(list) == 0 {
		return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there are no sessions of an agent in %s", strings.Join(looked, ", ")),
			Hint: "Name the folder: tally watch PATH."}
	}
	return list, nil
}
