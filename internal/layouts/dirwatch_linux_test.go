package layouts_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tallylog/tally/internal/layouts"
)

// Watch reports that the system cannot watch more folders.
func TestDirWatchLimit(t *testing.T) {
	if limit := os.Getenv("TALLY_TEST_WATCHES"); limit != "" {
		must(t, os.WriteFile("/proc/sys/user/max_inotify_watches", []byte(limit), 0)) // applies in the user name space
		d, _ := openDir(t)
		for n := range 5 {
			must(t, d.Write(t.Context(), fmt.Sprintf("%d/file", n), 0o644, text("x")))
		}
		err := d.Watch(t.Context(), nil, func(string) {})
		limited, ok := errors.AsType[*layouts.WatchLimitError](err)
		if !ok || limited.Watched != 3 || !strings.Contains(err.Error(), "3 watched folders") {
			t.Errorf("got the error %v", err)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TALLY_TEST_WATCHES=3")
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: id}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EACCES) {
		t.Skipf("cannot create a user name space: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
