//go:build !windows

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
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
	if errw.Len() > 0 {
		t.Errorf("said %q, and stopped at once", errw.String())
	}
	said, saying := io.Pipe()
	_, stop = interruptible(t.Context(), saying, 0)
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if n, err := said.Read(make([]byte, 1)); n != 1 || err != nil { // what takes time is said
		t.Errorf("%d, %v", n, err)
	}
	said.Close()
	stop()
	ctx, stop = Interruptible(t.Context(), io.Discard)
	stop()
	wrong := errors.New("wrong")
	if err := Cause(ctx, wrong); err != wrong {
		t.Errorf("cause: %v", err)
	}
}
