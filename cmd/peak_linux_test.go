package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// peakFile is the variable that makes the test binary run the command of its arguments, and write the command's peak
// memory to the file of this name.
//
// For a child that has ended, Linux also counts the memory of its parent, because the child had the same memory until
// it executed another program. A large test would hide a small child. So a small process stands between the two.
const peakFile = "TALLY_TEST_PEAK_FILE"

func init() {
	if name := os.Getenv(peakFile); name != "" {
		os.Exit(writePeak(name))
	}
}

func writePeak(name string) int {
	os.Unsetenv(peakFile)  // the child may be this program again
	runtime.LockOSThread() // the child ends with the thread that started it
	c := exec.Command(os.Args[1], os.Args[2:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	if c.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	kilobytes := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if err := os.WriteFile(name, strconv.AppendInt(nil, kilobytes, 10), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return c.ProcessState.ExitCode()
}

// runPeak runs a command, and returns its peak resident memory in bytes, also if the command fails.
func runPeak(c *exec.Cmd) (int64, error) {
	f, err := os.CreateTemp("", "tally-peak-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	c.Args = append([]string{self, c.Path}, c.Args[1:]...)
	c.Path = self
	c.Env = append(c.Environ(), peakFile+"="+f.Name(), "GOGC=")
	failed := c.Run()
	var kilobytes int64
	if _, err := fmt.Fscan(f, &kilobytes); err != nil || kilobytes == 0 {
		return 0, errors.Join(errors.New("nothing is known of its memory"), failed, err)
	}
	return kilobytes << 10, failed
}

// peakMemory runs a command that must succeed, and returns its peak resident memory in bytes.
func peakMemory(t *testing.T, c *exec.Cmd) int64 {
	t.Helper()
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	most, err := runPeak(c)
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return most
}
