package team

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The end of an assertion's output is kept in bounded memory, and none of it moves a cursor.
func TestAssertionOutput(t *testing.T) {
	out := runAssertion(t.Context(), `i=0; while [ $i -lt 3000 ]; do echo "line $i of what is said"; i=$((i+1)); done; printf '\033[31mred\n\n'; exit 7`, time.Minute)
	if out.failure != "exit status 7: \u241b[31mred" {
		t.Errorf("got %q", out.failure)
	}
	if n := len(out.said); n < 16<<10 || n > 32<<10 || bytes.Contains(out.said, []byte("line 0 of")) || !bytes.Contains(out.said, []byte("line 2999 of")) {
		t.Errorf("got %d kept bytes", n)
	}
	var shown strings.Builder
	if out.print(&shown); strings.ContainsRune(shown.String(), 0x1b) {
		t.Error("the output has an escape")
	}
}

// Processes that an assertion leaves are not waited for, and are ended.
func TestAssertionLeavesBehind(t *testing.T) {
	begun := time.Now()
	out := runAssertion(t.Context(), "sleep 60 & echo $!", time.Minute)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out.said)))
	if out.failure != "" || err != nil {
		t.Fatalf("got %+v", out)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the run took %v", took)
	}
	for isRunning(pid) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the process still runs")
		}
		time.Sleep(time.Millisecond)
	}
}

// isRunning reports whether a process runs. A zombie does not.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}
