package cmdutil

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/reads"
)

// ZoneOf returns the zone that a flag names. local and "" are the zone of this machine.
func ZoneOf(name string) (reads.Zone, error) {
	if name == "" || name == "local" {
		return localZone(os.Getenv), nil
	}
	z, err := reads.ZoneNamed(name)
	if err != nil {
		return z, cli.Usagef("--tz %q: want a time zone such as Europe/Berlin or UTC, or local", name)
	}
	return z, nil
}

// CompleteZone offers common zones for the flag --tz of a command.
func CompleteZone(cmd *cobra.Command) {
	offer := cobra.FixedCompletions([]string{"local", "UTC"}, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("tz", offer); err != nil {
		panic(err) // the command has no such flag
	}
}

// localZone returns the zone of this machine: from TZ, else from the link that most systems keep.
func localZone(getenv func(string) string) reads.Zone {
	name := strings.TrimPrefix(getenv("TZ"), ":")
	if name == "" {
		path, _ := filepath.EvalSymlinks("/etc/localtime")
		_, name, _ = strings.Cut(filepath.ToSlash(path), "zoneinfo/")
	}
	if loc, err := time.LoadLocation(name); name != "" && err == nil && name != "Local" {
		return reads.Zone{Location: loc, Name: utcNamed(name)}
	}
	abbreviation, seconds := time.Now().Zone()
	if seconds == 0 {
		return reads.Zone{Location: time.Local, Name: "UTC"}
	}
	return reads.Zone{Location: time.Local, Name: fmt.Sprintf("%s (UTC%+03d:%02d)", abbreviation, seconds/3600, max(seconds, -seconds)/60%60)}
}

// utcNamed replaces the other names of UTC.
func utcNamed(name string) string {
	switch name {
	case "Etc/UTC", "Etc/Universal", "Etc/Zulu", "Zulu", "Universal", "UCT", "Etc/UCT":
		return "UTC"
	}
	return name
}
