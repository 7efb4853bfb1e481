package app

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/cli"
)

// version is what version prints.
type version struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Server   string `json:"natsServer"`
	Sync     string `json:"sync"`
}

// VersionCommand prints what this program is made of, and how it syncs.
func (a *App) VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, and how acknowledged events reach the disk", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version{"devel", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, embedded.ServerVersion, embedded.SyncMethod(a.storeParent())}
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
				v.Version = info.Main.Version
			}
			if a.Format != cli.Text {
				return cli.WriteJSON(a.Out, a.Format, v)
			}
			_, err := fmt.Fprintf(a.Out, "tally %s (%s, %s)\nnats-server %s, embedded\nsync: %s\n", v.Version, v.Go, v.Platform, v.Server, v.Sync)
			return err
		},
	}
}

// storeParent is the directory of the store, or what there is above it.
func (a *App) storeParent() string {
	c, err := a.Config()
	if err != nil {
		return "."
	}
	for dir := c.Store; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// DiskUse sums the files below a directory; what vanishes meanwhile does not count.
func DiskUse(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// Examples formats three real examples for --help.
func Examples(lines ...string) string {
	text := ""
	for i, line := range lines {
		if i > 0 {
			text += "\n"
		}
		text += "  " + line
	}
	return text
}

// Sibling is how to run the other command: the way this one was run.
func Sibling(name string) string {
	if exe, err := os.Executable(); err == nil && strings.Contains(filepath.ToSlash(exe), "/go-build") {
		return "go run ./cmd/" + name
	}
	return name
}

// StoreFlags repeats the flags that name the store, for commands to try next.
func (a *App) StoreFlags() string {
	text := ""
	for _, f := range []struct{ name, value string }{{"store", a.call.Store}, {"server", a.call.URL}, {"context", a.call.Context}, {"namespace", a.call.Namespace}} {
		if f.value == "" {
			continue
		}
		value := f.value
		if strings.ContainsAny(value, " '\"$&;|*?()<>\\`#~") {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		text += " --" + f.name + " " + value
	}
	return text
}
