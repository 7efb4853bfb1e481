package cmdutil

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // names of zones mean the same on every machine

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
)

// Zone is a time zone with its printed name.
type Zone struct {
	*time.Location
	Name string
}

// ZoneOf returns the zone that a flag names. local and "" are the zone of this machine.
func ZoneOf(name string) (Zone, error) {
	if name == "" || name == "local" {
		return localZone(os.Getenv), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return Zone{}, cli.Usagef("--tz %q: want a time zone such as Europe/Berlin or UTC, or local", name)
	}
	return Zone{loc, name}, nil
}

// CompleteZone offers common zones for the flag --tz of a command.
func CompleteZone(cmd *cobra.Command) {
	offer := cobra.FixedCompletions([]string{"local", "UTC"}, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("tz", offer); err != nil {
		panic(err) // the command has no such flag
	}
}

// localZone returns the zone of this machine: from TZ, else from the link that most systems keep.
func localZone(getenv func(string) string) Zone {
	name := strings.TrimPrefix(getenv("TZ"), ":")
	if name == "" {
		path, _ := filepath.EvalSymlinks("/etc/localtime")
		_, name, _ = strings.Cut(filepath.ToSlash(path), "zoneinfo/")
	}
	if loc, err := time.LoadLocation(name); name != "" && err == nil && name != "Local" {
		return Zone{loc, utcNamed(name)}
	}
	abbreviation, seconds := time.Now().Zone()
	if seconds == 0 {
		return Zone{time.Local, "UTC"}
	}
	return Zone{time.Local, fmt.Sprintf("%s (UTC%+03d:%02d)", abbreviation, seconds/3600, max(seconds, -seconds)/60%60)}
}

// utcNamed replaces the other names of UTC.
func utcNamed(name string) string {
	switch name {
	case "Etc/UTC", "Etc/Universal", "Etc/Zulu", "Zulu", "Universal", "UCT", "Etc/UCT":
		return "UTC"
	}
	return name
}

// Day returns the day of a time in the zone, such as 2026-03-01.
func (z Zone) Day(at time.Time) string { return at.In(z.Location).Format(time.DateOnly) }
