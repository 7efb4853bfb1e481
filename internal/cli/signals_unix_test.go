//go:build !windows

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestInterruptible(t *testing.T) {
	var errw bytes.Buffer
	ctx, stop := Interruptible(t.Context(), &errw)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if err := Cause(ctx, ctx.Err()); ExitCode(err) != 143 || err.Error() != "stopped by terminated" {
		t.Errorf("cause: %v", err)
	}
	if err := Cause(ctx, nil); err != nil {
		t.Errorf("what was done is done: %v", err)
	}
	stop()
	if !strings.Contains(errw.String(), "once more") {
		t.Errorf("said %q", errw.String())
	}
	ctx, stop = Interruptible(t.Context(), io.Discard)
	stop()
	wrong := errors.New("wrong")
	if err := Cause(ctx, wrong); err != wrong {
		t.Errorf("cause: %v", err)
	}
}
