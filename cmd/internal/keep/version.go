package keep

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
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

func newVersion(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, and how acknowledged events reach the disk", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version{"devel", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, embedded.ServerVersion, embedded.SyncMethod(storeParent(a))}
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
func storeParent(a *app.App) string {
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
