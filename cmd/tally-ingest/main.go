// Command tally-ingest has the verbs of tally that put sessions into an event log.
package main

import (
	"os"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/cmd/internal/program"
)

func main() { os.Exit(app.Main("tally-ingest", program.Ingest)) }
