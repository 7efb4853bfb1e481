// Command tally is durable memory for AI agents: it puts sessions into an event log, shows
// them as they are and as they were, moves, keeps and serves them.
package main

import (
	"os"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/cmd/internal/live"
	"github.com/tallylog/tally/cmd/internal/program"
)

func main() {
	if live.Hooked(os.Args) {
		return
	}
	os.Exit(app.Main("tally", program.Tally))
}
