package storetest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/testkit"
)

// home is set in a process with a home of its own, and in its child processes.
const home = "TALLY_TEST_HOME"

// Main runs the tests of a package that opens stores, in a process that does not see the user's store: see Alone. Under
// the race detector laws play fewer programs: see testkit.Checks.
func Main(m interface{ Run() int }) {
	if dir := os.Getenv(serverDir); dir != "" {
		serve(dir)
	}
	testkit.Checks(100) // rapid's own default
	done := Alone()
	code := m.Run()
	done()
	os.Exit(code)
}

// Alone hides the user's store from this process and its children: it unsets the variables that the product reads, and
// sets another home directory, which done removes.
func Alone() (done func()) {
	if os.Getenv(home) != "" {
		return func() {}
	}
	dir, err := os.MkdirTemp("", "tally-home-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	keepGo()
	for _, name := range config.Variables() {
		os.Unsetenv(name)
	}
	for _, name := range []string{"HOME", "USERPROFILE", home} {
		os.Setenv(name, dir)
	}
	for _, name := range []string{"DATA", "CONFIG", "CACHE", "STATE"} {
		os.Setenv("XDG_"+name+"_HOME", filepath.Join(dir, name))
	}
	return func() { os.RemoveAll(dir) }
}

// keepGo sets the folders of the go command, which it would look for in the home directory.
func keepGo() {
	cache, _ := os.UserCacheDir()
	settings, _ := os.UserConfigDir()
	user, _ := os.UserHomeDir()
	for name, dir := range map[string]string{"GOCACHE": filepath.Join(cache, "go-build"), "GOENV": filepath.Join(settings, "go", "env"), "GOPATH": filepath.Join(user, "go")} {
		os.Setenv(name, cmp.Or(os.Getenv(name), dir))
	}
}
