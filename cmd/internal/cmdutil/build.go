package cmdutil

import (
	"runtime/debug"
	"strings"
)

// Build says which source a program was built from.
type Build struct {
	Version  string // of the module that was installed; devel of a checkout
	Commit   string // "" if the build did not see one
	Date     string // of the commit
	Modified bool   // there were changes that were not committed
}

// BuildOf returns what this program was built from.
func BuildOf() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "devel"}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	// In a checkout without a tag on its commit, Go makes a version up of commit and time.
	if b.Version == "" || b.Version == "(devel)" || b.Commit != "" && strings.Contains(b.Version, b.Commit[:min(12, len(b.Commit))]) {
		b.Version = "devel"
	}
	b.Version = strings.TrimSuffix(b.Version, "+dirty")
	return b
}

// String is one line: v1.2.3, or devel, commit 0123456789ab of 2026-08-22T10:00:00Z, with
// changes.
func (b Build) String() string {
	text := b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Date != "" {
			text += " of " + b.Date
		}
	}
	if b.Modified {
		text += ", with changes"
	}
	return text
}
