package admin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/render/plain"
)

// restored is the JSON output of restore.
type restored struct {
	Backup  string        `json:"backup"`
	Store   string        `json:"store"`
	Head    events.Offset `json:"head"`
	Durable events.Offset `json:"durable"` // durable offset of the backup; the head is never before it
	Lost    int           `json:"lost"`    // lost records
	Files   int           `json:"files"`
	Bytes   int64         `json:"bytes"`
}

func newRestore(a *cmdutil.App) *cobra.Command {
	var at string
	var list bool
	cmd := &cobra.Command{
		Use: "restore DIR --store NEW", Short: "Create a store from a backup", Args: cobra.ExactArgs(1),
		Long: `Create a store from a backup in the folder DIR: the newest one, or the one that --at
names. The directory of the store must be missing or empty. The store is built next to
it, and moved there after all content matched its hashes and the store could be opened
with all events of the backup. If that fails, the directory is not touched.`,
		Example: cmdutil.Examples("tally restore /mnt/backups --store restored",
			"tally restore /mnt/backups --store restored --at 20261122T1502", "tally restore --list /mnt/backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if list {
				return backupError(listBackups(a, dir))
			}
			return backupError(restore(cmd.Context(), a, dir, at))
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "name of the backup, or a unique prefix of it (default: the newest)")
	cmd.Flags().BoolVar(&list, "list", false, "list the backups in the folder")
	return cmd
}

func restore(ctx context.Context, a *cmdutil.App, dir, at string) error {
	c, err := localStore(a)
	if err != nil {
		return err
	}
	if err := apart(dir, c.Store); err != nil {
		return err
	}
	list, err := backup.List(dir)
	if err != nil {
		return err
	}
	m, err := backup.Find(list, at)
	if err != nil {
		return err
	}
	for _, left := range backup.Stages(c.Store) {
		fmt.Fprintf(a.Err, "%s belongs to another restore. If that was interrupted, remove the folder\n", plain.Printable(left))
	}
	r := restored{Backup: m.Name, Store: c.Store, Durable: events.Offset(m.Durable), Files: len(m.Files), Bytes: m.Bytes}
	p := cli.NewProgress(a.Err, a.Progress, "restoring")
	err = m.Restore(ctx, dir, c.Store, func(stage string) error { return r.open(ctx, a, c, stage) },
		func(done, total int64) { p.At(done, total, plain.Bytes(done)) })
	p.Done(m.Bytes, plain.Bytes(m.Bytes))
	if err != nil {
		return err
	}
	return r.report(a, m)
}

// open opens the restored store, which reads every record, and closes it.
func (r *restored) open(ctx context.Context, a *cmdutil.App, c config.Config, stage string) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: stage, Logger: lg, Private: true, SegmentBytes: c.Segment,
		Progress: func(elapsed time.Duration) {
			fmt.Fprintf(a.Err, "reading the restored store, %s so far\n", elapsed.Round(time.Second))
		}})
	if err != nil {
		return err
	}
	r.Head, err = srv.Log().Head(ctx)
	r.Lost = len(srv.Lost())
	return errors.Join(err, srv.Close())
}

// report prints the result of a restore. The backed-up store may have had damage that nobody had met. If the restored log
// lacks records because of it, report returns an error with the exit code of damage.
func (r *restored) report(a *cmdutil.App, m backup.Manifest) error {
	less := r.Head < r.Durable || r.Lost > m.Lost
	var err error
	if a.Format != cli.Text {
		err = cli.WriteJSON(a.Out, a.Format, r)
	} else {
		err = a.Say("Restored %s to %s: head %v, %s.", r.Backup, r.Store, r.Head, plain.Bytes(r.Bytes))
	}
	if r.Lost > 0 {
		fmt.Fprintf(a.Err, "%s lost, of them %d before the backup was made: tally verify lists them\n", plain.Count(r.Lost, "record"), m.Lost)
	}
	if r.Head < r.Durable {
		fmt.Fprintf(a.Err, "the backup should go up to %v\n", r.Durable)
	}
	if err == nil && less {
		return cli.Silent(cli.Integrity)
	}
	return err
}
