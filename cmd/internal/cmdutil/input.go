package cmdutil

import (
	"io"
	"os"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
)

// Input opens the file that the first argument names. Without an argument, or with a dash, it returns standard input.
// The caller closes it.
func (a *App) Input(args []string) (io.ReadCloser, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(a.In), nil
	}
	return os.Open(args[0])
}

// Content reads the whole input that Input opens, up to the maximum size of a record.
func (a *App) Content(args []string) ([]byte, error) {
	in, err := a.Input(args)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, events.MaxValue+1))
	if err == nil && len(data) > events.MaxValue {
		err = cli.Usagef("the input has more than %s, which is the most that fits", plain.Bytes(events.MaxValue))
	}
	return data, err
}
