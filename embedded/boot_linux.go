package embedded

import (
	"os"
	"strings"
)

// bootID names the time for which the machine has been running.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
