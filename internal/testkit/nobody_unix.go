//go:build unix

package testkit

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user without files.
const nobody = 65534

// AsNobody runs the test in a process of a user without rights if this process is the system's administrator, whom
// permissions do not restrict. It reports whether it did; then the test is over. The process has neither the package's
// folder nor the environment.
func AsNobody(t *testing.T) (over bool) {
	t.Helper()
	if os.Getuid() != 0 {
		return false
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	if err := copyProgram(program); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, "temp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(temp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^"+t.Name()+"$")
	c.Dir, c.Env = temp, []string{"HOME=" + temp, "TMPDIR=" + temp, "CI=" + os.Getenv("CI")}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	return true
}

// copyProgram copies this program to a place where every user may run it.
func copyProgram(to string) error {
	from, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
