package storetest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/testkit"
)

// home is set in a process that has a home of its own, and in those that it starts.
const home = "TALLY_TEST_HOME"

// Main runs the tests of a package that opens stores, in a process that knows nothing of
// the user's: see Alone. Under the race detector laws play fewer programs: see testkit.Checks.
func Main(m interface{ Run() int }) {
	if dir := os.Getenv(serverDir); dir != "" {
		serve(dir)
	}
	testkit.Checks(100) // as many as rapid plays by itself
	done := Alone()
	code := m.Run()
	done()
	os.Exit(code)
}

// Alone takes from this process, and those that it starts, what says where the user's
// store is: the variables that the product reads and the home directory, of which it
// gets another one. done removes that.
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

// keepGo names the folders of the go command, which it finds by the home directory.
func keepGo() {
	cache, _ := os.UserCacheDir()
	settings, _ := os.UserConfigDir()
	user, _ := os.UserHomeDir()
	for name, dir := range map[string]string{"GOCACHE": filepath.Join(cache, "go-build"), "GOENV": filepath.Join(settings, "go", "env"), "GOPATH": filepath.Join(user, "go")} {
		os.Setenv(name, cmp.Or(os.Getenv(name), dir))
	}
}
