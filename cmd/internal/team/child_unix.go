//go:build unix

package team

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// apart gives a command a process group of its own: a Ctrl-C is for who runs it, which then
// tells it to end, and all that it has started with it.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// killRest kills what is left of the group of a command that has ended.
func killRest(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // none may be left

// endOf says how a process ended.
func endOf(s *os.ProcessState) ended {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return ended{exit: bySignal + int(w.Signal()), signal: w.Signal().String()}
	}
	return ended{exit: s.ExitCode()}
}

// shell is a command that is ended, with all that it has started, when its time is over.
func shell(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	apart(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
