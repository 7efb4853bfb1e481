// Command tally-bench measures appends, documents and queues on a disk, and in the same run
// what the server, the disk and other stores do by themselves. It is a module of its own, so
// that tally links no driver of a database that it only compares itself with.
package main

import (
	"os"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

func main() { os.Exit(cmdutil.Main("tally-bench", newBench)) }
