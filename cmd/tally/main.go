// Command tally is durable memory for AI agents: it puts sessions into an event log, shows
// them as they are and as they were, moves, keeps and serves them.
package main

import (
	"os"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
	"github.com/tallylog/tally/cmd/internal/record"
)

func main() {
	if record.Hooked(os.Args) {
		return
	}
	os.Exit(cmdutil.Main("tally", program.Tally))
}
