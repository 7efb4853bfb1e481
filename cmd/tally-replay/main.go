// Command tally-replay has the verbs of tally that look at sessions, move and keep them.
package main

import (
	"os"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/program"
)

func main() { os.Exit(cmdutil.Main("tally-replay", program.Replay)) }
