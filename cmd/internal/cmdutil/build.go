package cmdutil

import (
	"runtime/debug"
	"strings"
)

// Build describes the source of a program.
type Build struct {
	Version  string // of the installed module; devel for a checkout
	Commit   string // "" if unknown
	Date     string // of the commit
	Modified bool   // with uncommitted changes
}

// BuildOf returns the source of this program.
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
	// For a checkout without a tag on its commit, Go makes a version from the commit and its time.
	if b.Version == "" || b.Version == "(devel)" || b.Commit != "" && strings.Contains(b.Version, b.Commit[:min(12, len(b.Commit))]) {
		b.Version = "devel"
	}
	b.Version = strings.TrimSuffix(b.Version, "+dirty")
	return b
}

// String formats a build on one line: v1.2.3, or devel, commit 0123456789ab of 2026-08-22T10:00:00Z, with changes.
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
