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
		t.Errorf("got cause %v", err)
	}
	if err := Cause(ctx, nil); err != nil {
		t.Errorf("after the end: got %v", err)
	}
	stop()
	if errw.Len() > 0 {
		t.Errorf("got %q from a quick stop, want no output", errw.String())
	}
	said, saying := io.Pipe()
	_, stop = interruptible(t.Context(), saying, 0)
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if n, err := said.Read(make([]byte, 1)); n != 1 || err != nil { // a slow stop is announced
		t.Errorf("got %d bytes, %v", n, err)
	}
	said.Close()
	stop()
	ctx, stop = Interruptible(t.Context(), io.Discard)
	stop()
	wrong := errors.New("wrong")
	if err := Cause(ctx, wrong); err != wrong {
		t.Errorf("got cause %v", err)
	}
}
