//go:build !unix

package crew

import (
	"context"
	"os/exec"
)

// shell is a command that is ended when its time is over.
func shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", command)
}
