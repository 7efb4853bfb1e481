package program_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/stores/tavern"
)

// lookingVerbs begin the commands that read a store at rest without its server.
var lookingVerbs = []string{"show ", "log ", "diff ", "export ", "doc cat ", "doc diff ", "status "}

// Commands that only look answer without the store's server as with it.
func TestLooking(t *testing.T) {
	quietHome(t)
	s := newAllStore(t)
	lines := slices.DeleteFunc(slices.Clone(readingCommands), func(line string) bool {
		return !slices.ContainsFunc(lookingVerbs, func(verb string) bool { return strings.HasPrefix(line, verb) })
	})
	lines = append(lines, "show nothing", "show trip --at @999", "log trip @2..@4 --raw")
	sure := len(lines) // of being answered by the files
	lines = append(lines, "show tri", "show last", "log last -o json")

	rest, served := s.copy(t), s.copy(t)
	if err := os.Chmod(rest, 0o700); err != nil { // as its owner left it
		t.Fatal(err)
	}
	mark := filepath.Join(rest, "mark")
	before := mustStat(t, mark)
	got := make([]answered, len(lines))
	t.Setenv("TALLY_STORE", rest)
	for i, line := range lines {
		got[i] = command(line, false).ask(t.Context(), nil)
		if now := mustStat(t, mark); i < sure && line != "show nothing" && !now.ModTime().Equal(before.ModTime()) {
			t.Fatalf("tally %s opened the store with its server", line)
		}
		before = mustStat(t, mark)
	}

	t.Setenv("TALLY_STORE", served)
	st, err := embedded.Open(t.Context(), embedded.Options{Store: served, Backend: "local", Source: "urn:test", Kinds: tavern.Kinds(), Own: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i, line := range lines {
		if want := command(line, false).ask(t.Context(), nil); got[i] != want {
			t.Errorf("tally %s:\nwithout the server %v\nwith it            %v", line, got[i], want)
		}
	}
}

func mustStat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
