// Command tally-bench measures appends, documents and queues on a disk and, in the same run, the server, the disk and
// other stores alone. It is a module of its own, so that tally does not link the drivers of the databases that it is
// compared with.
package main

import (
	"os"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

func main() { os.Exit(cmdutil.Main("tally-bench", newBench)) }
