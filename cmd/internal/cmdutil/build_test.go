package cmdutil

import (
	"runtime/debug"
	"testing"
)

// Build reads the versions that go install and go build write into a program.
func TestBuild(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.time", Value: "2026-08-22T10:00:00Z"}, {Key: "vcs.modified", Value: "false"}}
	changed := append(append([]debug.BuildSetting{}, vcs[:2]...), debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for name, c := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		"go install of a version":     {"v1.2.3", nil, "v1.2.3"},
		"go install of a commit":      {"v0.0.0-20260822100000-0123456789ab", nil, "v0.0.0-20260822100000-0123456789ab"},
		"go build":                    {"v0.0.0-20260822100000-0123456789ab", vcs, "devel, commit 0123456789ab of 2026-08-22T10:00:00Z"},
		"go build, changed":           {"v0.0.0-20260822100000-0123456789ab+dirty", changed, "devel, commit 0123456789ab of 2026-08-22T10:00:00Z, with changes"},
		"go build at a tag":           {"v1.2.3", vcs, "v1.2.3, commit 0123456789ab of 2026-08-22T10:00:00Z"},
		"go build, old Go":            {"(devel)", vcs, "devel, commit 0123456789ab of 2026-08-22T10:00:00Z"},
		"go run, or -buildvcs=false":  {"(devel)", nil, "devel"},
		"a test binary":               {"", nil, "devel"},
		"a commit that is no such id": {"v1.2.3", []debug.BuildSetting{{Key: "vcs.revision", Value: "7"}}, "v1.2.3, commit 7"},
	} {
		if got := buildOf(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings}).String(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
