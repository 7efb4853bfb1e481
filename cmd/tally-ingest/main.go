// Command tally-ingest has the verbs of tally that put sessions into an event log, or follow
// agents that write some.
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
	os.Exit(app.Main("tally-ingest", program.Ingest))
}
