package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/storedir"
)

// backedUp is the JSON output of backup.
type backedUp struct {
	listedBackup
	Directory    string `json:"directory"`
	Removed      int    `json:"removed"`      // number of older backups
	RemovedBytes int64  `json:"removedBytes"` // bytes that only these used
	Personal     bool   `json:"personal"`     // the backup contains the namespace _personal
}

// listedBackup is a backup in a list.
type listedBackup struct {
	Backup   string           `json:"backup"`
	Time     events.Timestamp `json:"time,omitempty"`
	Store    string           `json:"store,omitempty"`
	Durable  events.Offset    `json:"durable"`
	Lost     int              `json:"lost"`
	Files    int              `json:"files"`
	Bytes    int64            `json:"bytes"`
	NewBytes int64            `json:"newBytes"`
	Tally    string           `json:"tally,omitempty"`
	Error    string           `json:"error,omitempty"` // why the backup cannot be read
}

func listedOf(m backup.Manifest) listedBackup {
	return listedBackup{Backup: m.Name, Time: events.TimestampOf(m.Time), Store: m.Source, Durable: events.Offset(m.Durable), Lost: m.Lost, Files: len(m.Files),
		Bytes: m.Bytes, NewBytes: m.NewBytes, Tally: m.Program}
}

// backer is a run of backup.
type backer struct {
	app          *cmdutil.App
	list, verify bool
	keep         int
}

func newBackup(a *cmdutil.App) *cobra.Command {
	b := &backer{app: a}
	cmd := &cobra.Command{
		Use: "backup DIR", Short: "Copy the store to a folder of backups, while it is in use", Args: cobra.ExactArgs(1),
		Long: `Copy the store to a folder of backups, while it is in use. A backup contains all
events that were acknowledged before it began, up to one event, and none after it.
Each backup is complete by itself, but content of earlier backups is not copied
again. Views and snapshots are not included, because they can be rebuilt from the
log. An interrupted backup does not count, and the next one reuses what it copied.

A backup contains the whole store, personal settings included (namespace _personal):
keep it where nobody else can read it.

--list lists the backups in a folder. --verify reads all backups and compares their
content with its hashes. --keep removes older backups. To use a backup, see
tally restore.`,
		Example: cmdutil.Examples("tally backup /mnt/backups", "tally backup /mnt/backups --keep 30",
			"tally backup --list /mnt/backups", "tally backup --verify /mnt/backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if b.list && b.verify {
				return cli.Usagef("use either --list or --verify, not both")
			}
			if cmd.Flags().Changed("keep") && (b.keep < 1 || b.list || b.verify) {
				return cli.Usagef("--keep %d: want at least 1, without --list and --verify", b.keep)
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			switch {
			case b.list:
				return backupError(listBackups(a, dir))
			case b.verify:
				return backupError(verifyBackups(cmd.Context(), a, dir))
			}
			return backupError(b.run(cmd.Context(), dir))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&b.list, "list", false, "list the backups in the folder")
	f.BoolVar(&b.verify, "verify", false, "check the backups in the folder")
	f.IntVar(&b.keep, "keep", 0, "after the backup, remove all but this number of backups (default: remove none)")
	return cmd
}

func (b *backer) run(ctx context.Context, dir string) error {
	c, err := localStore(b.app)
	if err != nil {
		return err
	}
	if err := apart(dir, c.Store); err != nil {
		return err
	}
	place, err := storedir.Inspect(c.Store)
	if err != nil {
		return err
	}
	if place.State != storedir.Present {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no store in %s", c.Store)}
	}
	if err := backup.Check(dir); err != nil {
		return err
	}
	if err := private(dir); err != nil {
		return err
	}
	return b.app.WithStillStore(ctx, func(st *tally.Store) error {
		w, err := backup.Open(dir)
		if err != nil {
			return err
		}
		done, err := b.take(ctx, w, st, c.Store)
		done.Directory = dir
		for _, wrong := range st.Log.Subjects(ctx, events.PersonalNamespace, "") {
			done.Personal, err = true, errors.Join(err, wrong)
		}
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		return b.report(done)
	})
}

// take copies the durable part of the log, and removes older backups if asked to.
func (b *backer) take(ctx context.Context, w *backup.Writer, st *tally.Store, store string) (done backedUp, err error) {
	image, err := storedir.ImageOf(store, func() (events.Offset, error) { return st.Log.Durable(ctx) })
	if err != nil {
		return done, err
	}
	files := make([]backup.Source, len(image.Files))
	for i, f := range image.Files {
		files[i] = backup.Source(f)
	}
	m := backup.Manifest{Time: time.Now(), Source: store, Log: image.Log, Program: cmdutil.BuildOf().Version,
		Servers: image.Servers, Durable: uint64(image.Durable), Lost: image.Lost}
	p := cli.NewProgress(b.app.Err, b.app.Progress, "backing up")
	m, err = w.Take(ctx, m, files, func(done, total int64) { p.At(done, total, plain.Bytes(done)) })
	p.Done(m.Bytes, plain.Bytes(m.Bytes))
	if err != nil {
		return done, err
	}
	if err := storedir.NoteBackups(store, w.Dir()); err != nil {
		fmt.Fprintf(b.app.Err, "note: the store does not know of its backups: %v\n", err)
	}
	done.listedBackup = listedOf(m)
	if b.keep == 0 {
		return done, nil
	}
	k, err := w.Keep(b.keep)
	done.Removed, done.RemovedBytes = k.Backups, k.Bytes
	if err != nil {
		return done, fmt.Errorf("backup %s is complete, but older backups were not removed: %w", m.Name, err)
	}
	return done, nil
}

func (b *backer) report(done backedUp) error {
	if b.app.Format != cli.Text {
		return cli.WriteJSON(b.app.Out, b.app.Format, done)
	}
	b.app.Say("Backed up everything up to %v as %s: %s, %s new.", done.Durable, done.Backup,
		plain.Bytes(done.Bytes), plain.Bytes(done.NewBytes))
	if done.Personal {
		fmt.Fprintf(b.app.Err, "note: the backup contains personal settings (namespace %s)\n", events.PersonalNamespace)
	}
	if done.Removed > 0 {
		b.app.Say("Removed %s, %s.", plain.Count(done.Removed, "older backup"), plain.Bytes(done.RemovedBytes))
	}
	return nil
}

// localStore returns the configuration, if the store is in a local directory.
func localStore(a *cmdutil.App) (config.Config, error) {
	c, err := a.Config()
	switch {
	case err != nil:
		return c, err
	case c.Backend == config.NATS:
		return c, &cli.CodeError{Code: cli.BadUsage, Err: errors.New("the store is on a NATS server, and this command needs a local store directory"),
			Hint: "Run it on the machine with the store directory. For a NATS server of its own, use: nats stream backup TALLY_1 DIR."}
	case c.Backend == config.Memory:
		return c, cli.Usagef("a store in memory has no files")
	}
	return c, nil
}

// apart returns an error if the folder of backups is inside the store or the store inside the folder. Both could be
// lost together.
func apart(dir, store string) error {
	a, b := resolved(dir), resolved(store)
	if a == b || isBelow(a, b) || isBelow(b, a) {
		return cli.Usagef("%s and the store %s are inside one another: put backups elsewhere, best on another disk", dir, store)
	}
	return nil
}

func isBelow(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// resolved resolves links in the part of a path that exists.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return cmp.Or(target, path)
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// private creates a folder that only this user can access.
func private(dir string) error {
	err := storedir.MakePrivate(dir)
	if _, ok := errors.AsType[*embedded.ReadOnlyError](err); ok {
		return &cli.CodeError{Code: cli.Unreachable, Err: fmt.Errorf("%s: its file system is read-only", dir)}
	}
	return err
}

// backupError adds exit codes and hints to errors of package backup.
func backupError(err error) error {
	code, hint := 0, ""
	folder, notFolder := errors.AsType[*backup.NotFolderError](err)
	switch {
	case cli.Is[*backup.DamageError](err), errors.Is(err, backup.ErrUnreadable):
		code, hint = cli.Integrity, "tally backup --list lists the others; --at restores one of them."
	case cli.Is[*backup.BusyError](err):
		code, hint = cli.Unreachable, "Wait for the other process."
	case notFolder && folder.Other == "":
		code = cli.NotFound
	case notFolder, cli.Is[*backup.OtherError](err), cli.Is[*backup.TargetError](err), cli.Is[*backup.AmbiguousError](err):
		code = cli.BadUsage
	case errors.Is(err, backup.ErrNoBackup):
		code, hint = cli.NotFound, "tally backup --list lists all backups."
	default:
		return err
	}
	return &cli.CodeError{Code: code, Err: err, Hint: hint}
}

// listBackups lists the backups in a folder, including unreadable ones. Those also set the exit code.
func listBackups(a *cmdutil.App, dir string) error {
	list, err := backup.List(dir)
	if err != nil {
		return err
	}
	items, damaged := make([]listedBackup, len(list)), false
	for i, b := range list {
		items[i] = listedOf(b.Manifest)
		if b.Err != nil {
			items[i].Time, items[i].Error, damaged = "", b.Err.Error(), true
		}
	}
	if a.Format != cli.Text {
		err = cli.WriteList(a.Out, a.Format, items)
	} else {
		err = printBackups(a, dir, items)
	}
	if err == nil && damaged {
		return cli.Silent(cli.Integrity)
	}
	return err
}

func printBackups(a *cmdutil.App, dir string, items []listedBackup) error {
	if len(items) == 0 {
		fmt.Fprintf(a.Err, "there is no complete backup in %s\n", plain.Printable(dir))
		return nil
	}
	t := render.Table{Head: []string{"BACKUP", "DURABLE", "SIZE", "NEW", "STORE"}, Cut: []int{4}, Drop: []int{3, 1, 2}}
	for _, i := range items {
		row := []string{i.Backup, i.Durable.String(), plain.Bytes(i.Bytes), plain.Bytes(i.NewBytes), i.Store}
		if i.Error != "" {
			row = []string{i.Backup, "-", "-", "-", i.Error}
		}
		t.Rows = append(t.Rows, row)
	}
	return a.Table(t)
}

// oneLine returns text on one line, without control characters.
func oneLine(s string) string { return plain.Printable(strings.Join(strings.Fields(s), " ")) }

// verifiedBackups is the JSON output of backup --verify.
type verifiedBackups struct {
	Backups     int             `json:"backups"`
	Objects     int             `json:"objects"`
	Bytes       int64           `json:"bytes"`
	UnusedBytes int64           `json:"unusedBytes"`
	Findings    []backupFinding `json:"findings"`
}

type backupFinding struct {
	File   string `json:"file"`
	What   string `json:"what"`
	Backup string `json:"backup"` // one of the backups that need the file
}

func verifyBackups(ctx context.Context, a *cmdutil.App, dir string) error {
	p := cli.NewProgress(a.Err, a.Progress, "verifying")
	v, err := backup.Verify(ctx, dir, func(done, total int64) { p.At(done, total, plain.Bytes(done)) })
	p.Done(v.Bytes, plain.Bytes(v.Bytes))
	if err != nil {
		return err
	}
	found := verifiedBackups{Backups: v.Backups, Objects: v.Objects, Bytes: v.Bytes, UnusedBytes: v.Unused, Findings: []backupFinding{}}
	for _, b := range v.Unread {
		found.Findings = append(found.Findings, backupFinding{filepath.Join(dir, "backups", b.File), b.Err.Error(), b.Name})
	}
	for _, d := range v.Findings {
		found.Findings = append(found.Findings, backupFinding{d.Object, d.What, d.Backup})
	}
	if a.Format != cli.Text {
		err = cli.WriteJSON(a.Out, a.Format, found)
	} else {
		err = found.print(a)
	}
	if err == nil && len(found.Findings) > 0 {
		return cli.Silent(cli.Integrity)
	}
	return err
}

func (v verifiedBackups) print(a *cmdutil.App) error {
	for _, f := range v.Findings {
		a.Say("%s %s (backup %s)", oneLine(f.File), oneLine(f.What), f.Backup)
	}
	verdict := "all contents have their hashes"
	if len(v.Findings) > 0 {
		verdict = plain.Count(len(v.Findings), "finding")
	}
	err := a.Say("%s, %s, %s: %s", plain.Count(v.Backups, "backup"), plain.Count(v.Objects, "content"), plain.Bytes(v.Bytes), verdict)
	if v.UnusedBytes > 0 {
		fmt.Fprintf(a.Err, "%s belong to no backup, for example to an interrupted one; --keep removes them\n", plain.Bytes(v.UnusedBytes))
	}
	return err
}
