// Command tally-ingest has the verbs of tally that put sessions into an event log, or follow
// agents that write some.
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
	os.Exit(cmdutil.Main("tally-ingest", program.Ingest))
}
