package admin

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/storedir"
)

// version is the output of version.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // built from a checkout with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Server   string `json:"natsServer"`
	Sync     string `json:"sync"`
}

func newVersion(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of tally, and how it syncs events to disk", Args: cobra.NoArgs,
		Long: `Print the version of tally, of Go and of the embedded nats-server, and the system call
by which acknowledged events reach the disk in the store's directory.`,
		Example: cmdutil.Examples("tally version", "tally version -o json"),
		RunE: func(*cobra.Command, []string) error {
			c, err := a.Config()
			dir := c.Store
			if err != nil || dir == "" {
				dir = "."
			}
			b := cmdutil.BuildOf()
			v := version{b.Version, b.Commit, b.Date, b.Modified, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, embedded.ServerVersion, storedir.SyncMethod(nearestExisting(dir), embedded.ServerVersion)}
			if a.Format != cli.Text {
				return cli.WriteJSON(a.Out, a.Format, v)
			}
			return errors.Join(a.Say("tally %s", b), a.Say("built by %s for %s", v.Go, v.Platform), a.Say("nats-server %s, embedded", v.Server), a.Say("sync: %s", v.Sync))
		},
	}
}
