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

// restored is what restore prints with -o json.
type restored struct {
	Backup  string        `json:"backup"`
	Store   string        `json:"store"`
	Head    events.Offset `json:"head"`
	Durable events.Offset `json:"durable"` // of the backup: the head is not before it
	Lost    int           `json:"lost"`    // records that are known to be
	Files   int           `json:"files"`
	Bytes   int64         `json:"bytes"`
}

func newRestore(a *cmdutil.App) *cobra.Command {
	var at string
	var list bool
	cmd := &cobra.Command{
		Use: "restore DIR --store NEW", Short: "Make a store of a backup", Args: cobra.ExactArgs(1),
		Long: `Make a store of a backup in the folder DIR, the newest one unless --at names
another. The store's directory must be missing or empty. It is made beside its
place, and put there when each content had its hash and the store was opened and
has everything that the backup has. If that fails, nothing is there.`,
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
	cmd.Flags().StringVar(&at, "at", "", "which backup: its name, or the beginning of it (default the newest)")
	cmd.Flags().BoolVar(&list, "list", false, "list the backups in the folder instead")
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
		fmt.Fprintf(a.Err, "%s is of a restore that was stopped, or is at work: if it was, remove it\n", plain.Printable(left))
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

// open opens what was restored, which has a look at every record of it, and closes it.
func (r *restored) open(ctx context.Context, a *cmdutil.App, c config.Config, stage string) error {
	lg, err := a.Logger()
	if err != nil {
		return err
	}
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: stage, Logger: lg, Private: true, SegmentBytes: c.Segment,
		Progress: func(elapsed time.Duration) {
			fmt.Fprintf(a.Err, "reading what was restored, %s so far\n", elapsed.Round(time.Second))
		}})
	if err != nil {
		return err
	}
	r.Head, err = srv.Log().Head(ctx)
	r.Lost = len(srv.Lost())
	return errors.Join(err, srv.Close())
}

// report says what was restored. If the backup was made of a store that had damage which
// nobody had met, there is less than it was thought to have: that is in the exit code.
func (r *restored) report(a *cmdutil.App, m backup.Manifest) error {
	less := r.Head < r.Durable || r.Lost > m.Lost
	var err error
	if a.Format != cli.Text {
		err = cli.WriteJSON(a.Out, a.Format, r)
	} else {
		err = a.Say("Restored %s to %s: head %v, %s.", r.Backup, r.Store, r.Head, plain.Bytes(r.Bytes))
	}
	if r.Lost > 0 {
		fmt.Fprintf(a.Err, "%s lost, of them %d when the backup was made: verify names them\n", plain.Count(r.Lost, "record"), m.Lost)
	}
	if r.Head < r.Durable {
		fmt.Fprintf(a.Err, "the backup was to go up to %v\n", r.Durable)
	}
	if err == nil && less {
		return cli.Silent(cli.Integrity)
	}
	return err
}
