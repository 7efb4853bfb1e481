package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// minLeftover is the age from which a temporary file counts as left by a killed process.
const minLeftover = time.Minute

// clockSlack is how much the clocks of producers may be ahead of this machine's before doctor warns.
const clockSlack = 2 * time.Minute

// Checks. Each adds findings about one thing.
var (
	// storeChecks need a store in a local directory. They do not open it.
	storeChecks = []func(*examination){(*examination).directory, (*examination).owned, (*examination).versions, (*examination).log,
		(*examination).views, (*examination).snapshots, (*examination).leftovers}

	// openChecks need the store open. The commands verify, secrets check and tree verify print the same results in full.
	openChecks = []func(*examination, *tally.Store) error{(*examination).verify, (*examination).secrets, (*examination).trees}
)

// examine runs all checks that do not open the store.
func examine(ctx context.Context, a *cmdutil.App) []finding {
	x := &examination{ctx: ctx, app: a}
	var err error
	if x.config, err = a.Config(); err != nil {
		x.bad("configuration", cli.ExitCode(err), err.Error(), "tally config shows where each setting comes from")
		return x.findings
	}
	x.configured()
	if x.config.Backend == config.Local {
		x.local()
	}
	x.keys()
	return x.findings
}

// examination collects findings.
type examination struct {
	ctx      context.Context
	app      *cmdutil.App
	config   config.Config
	place    storedir.Info
	findings []finding
}

func (x *examination) add(f finding) { x.findings = append(x.findings, f) }

func (x *examination) ok(check, format string, args ...any) {
	x.add(finding{Check: check, Level: fine, What: fmt.Sprintf(format, args...)})
}

func (x *examination) warn(check, what, do string) {
	x.add(finding{Check: check, Level: warning, What: what, Do: do})
}

func (x *examination) bad(check string, code int, what, do string) {
	x.add(finding{Check: check, Level: problem, What: what, Do: do, code: code})
}

func (x *examination) configured() {
	c := x.config
	for _, n := range c.Notices {
		x.warn("configuration", n.Text+": found "+n.Path, "set it in "+n.Instead)
	}
	switch c.Backend {
	case config.Memory:
		x.ok("configuration", "the store is in memory, namespace %s: nothing outlives the process", c.Namespace)
	case config.NATS:
		x.ok("configuration", "the store is on a server, namespace %s; doctor does not ask it: tally status does", c.Namespace)
		x.files()
	default:
		x.ok("configuration", "the store is %s, namespace %s", c.Store, c.Namespace)
	}
}

// files checks that the files with credentials of a server can be read.
func (x *examination) files() {
	s := x.config.Server
	for _, path := range []string{s.Creds, s.NKey, s.CA, s.Cert, s.Key} {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			x.bad("configuration", cli.BadUsage, err.Error(), "tally config shows which file names it")
			continue
		}
		f.Close()
	}
}

// local checks a store on this machine.
func (x *examination) local() {
	var err error
	if x.place, err = storedir.Inspect(x.config.Store); err != nil {
		x.bad("directory", cli.ExitCode(err), err.Error(), "")
		return
	}
	x.disk()
	if x.place.State != storedir.Present {
		x.ok("directory", "there is no store yet: the first append or import creates it")
		return
	}
	for _, check := range storeChecks {
		check(x)
	}
}

func (x *examination) disk() {
	dir := nearestExisting(x.config.Store)
	switch free, err := storedir.FreeBytes(dir); {
	case err != nil:
		x.warn("disk", "the free space is unknown: "+err.Error(), "")
	case free < embedded.Reserve:
		x.bad("disk", cli.Unreachable, fmt.Sprintf("%s are free, and appends are refused below %s", plain.Bytes(int64(free)), plain.Bytes(embedded.Reserve)), "free some space; reads still work")
	case free < 8*embedded.Reserve:
		x.warn("disk", plain.Bytes(int64(free))+" are free; appends are refused below "+plain.Bytes(embedded.Reserve), "free some space")
	default:
		x.ok("disk", "%s are free", plain.Bytes(int64(free)))
	}
	x.ok("sync", "%s", storedir.SyncMethod(dir, embedded.ServerVersion))
}

func (x *examination) directory() {
	switch err := storedir.Writable(x.place.Dir); {
	case err != nil:
		x.bad("directory", cli.Unreachable, err.Error(), "copy the store to a writable file system")
	case x.place.Others && runtime.GOOS != "windows":
		x.warn("directory", x.place.Dir+" can be read by other users", "chmod 700 "+x.place.Dir+"; the next process that opens the store does so, too")
	default:
		x.ok("directory", "only this user can access %s", x.place.Dir)
	}
}

func (x *examination) owned() {
	pid, url := storedir.OwnerOf(x.place.Dir)
	switch {
	case pid == 0 && x.place.Clean:
		x.ok("owner", "no process has the store open, and its last owner stopped cleanly")
	case pid == 0:
		x.warn("owner", "no process serves the store, and its last owner did not stop cleanly: it was killed, or is starting or stopping now", "nothing: the next owner reads the log again")
	case pid < 0:
		x.warn("owner", "owner.json cannot be read", "nothing, if no process uses the store: the next owner writes the file again; otherwise stop that process")
	case storedir.Answers(x.ctx, url):
		x.ok("owner", "process %d owns the store and answers", pid)
	case cmdutil.Alive(pid):
		x.bad("owner", cli.Unreachable, fmt.Sprintf("process %d owns the store and does not answer", pid), fmt.Sprintf("look at it (ps -p %d), and stop it if it hangs", pid))
	default:
		x.warn("owner", fmt.Sprintf("process %d owned the store and was killed", pid), "nothing: the next owner reads the log again")
	}
}

func (x *examination) versions() {
	if unknown := x.place.Unknown(embedded.ServerVersion); len(unknown) > 0 {
		x.warn("versions", "the files of nats-server "+strings.Join(unknown, ", ")+" have an unknown format: they cannot be checked or repaired, and reads are slower", "use a newer version of tally")
		return
	}
	x.ok("versions", "written by nats-server %s, whose files this version of tally knows", strings.Join(x.place.Servers, ", "))
}

func (x *examination) log() {
	if n := len(x.place.Lost); n > 0 {
		x.lost(n, x.place.Lost[0].Offset)
		return
	}
	x.ok("log", "durable up to %v, no records are known to be lost", x.place.Durable)
}

// lost reports lost records. The first offset is 0 if no offset is known.
func (x *examination) lost(n int, first events.Offset) {
	what := plain.Count(n, "record") + isAre(n) + " lost"
	if first > 0 {
		what += fmt.Sprintf(", the first is %v", first)
	}
	x.bad("log", cli.Integrity, what, "tally verify lists them; a backup may still have them. The owner has repaired everything that can be repaired")
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// views checks the file of each view.
func (x *examination) views() {
	for _, name := range cmdutil.ViewNames(nil) {
		standing, err := catalog.StandingOf(x.ctx, x.place.Dir, name)
		switch {
		case err != nil && x.place.Durable == 0:
			x.ok(name, "the log is empty")
		case err != nil:
			x.add(finding{Check: name, Level: warning, What: err.Error(), Do: "nothing: the next command that needs it rebuilds it; --mend rebuilds it now",
				mend: x.rebuild(name), does: name + " was rebuilt"})
		case len(standing.Quarantined) > 0:
			x.add(finding{Check: name, Level: warning, What: fmt.Sprintf("it could not read %s, the first is %s", plain.Count(len(standing.Quarantined), "session"), standing.Quarantined[0].Subject.Name()),
				Do: "tally rebuild --quarantined after an update of tally, or --mend", mend: x.retry(name), does: "sessions that " + name + " could not read were tried again"})
		case standing.Cursor.Offset < x.place.Durable:
			x.ok(name, "as of %v of %v: it catches up when a command opens the store", standing.Cursor.Offset, x.place.Durable)
		default:
			x.ok(name, "as of %v", standing.Cursor.Offset)
		}
		if name == "catalog" && err == nil {
			x.clock(standing.Cursor.Recorded)
		}
	}
}

func (x *examination) rebuild(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return x.app.WithStore(ctx, func(st *tally.Store) error {
			_, err := x.app.Rebuild(ctx, st, name)
			return err
		})
	}
}

func (x *examination) retry(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return x.app.WithStore(ctx, func(st *tally.Store) error {
			_, err := x.app.Retry(ctx, st, []string{name})
			return err
		})
	}
}

// clock compares the time of the newest record with this machine's clock.
func (x *examination) clock(newest time.Time) {
	if ahead := time.Until(newest); ahead > clockSlack {
		x.warn("clock", fmt.Sprintf("the newest record is from %s, which is %s in the future", newest.UTC().Format(time.RFC3339), ahead.Round(time.Second)), "check this machine's clock; the order of records does not depend on it")
		return
	}
	x.ok("clock", "no record is from the future")
}

// snapshots reads the headers of all snapshots.
func (x *examination) snapshots() {
	files := snapshot.NewFiles(filepath.Join(x.place.Dir, "snapshots"))
	read, other := 0, 0
	var broken []string
	for m, err := range files.All(x.ctx) {
		switch corrupt, is := errors.AsType[*snapshot.CorruptError](err); {
		case is:
			broken = append(broken, corrupt.Name)
		case err != nil:
			x.warn("snapshots", err.Error(), "")
		case m.Fold == projector.SessionFold && m.Version != projector.SessionFoldVersion:
			other++
		case m.Fold == projector.SessionFold:
			read++
		}
	}
	switch {
	case len(broken) > 0:
		x.add(finding{Check: "snapshots", Level: warning, What: fmt.Sprintf("%s cannot be read: %s", plain.Count(len(broken), "snapshot"), baseNames(broken)),
			Do: "nothing: they are not used; --mend removes them", mend: func(context.Context) error { return removeAll(broken) }, does: "removed " + plain.Count(len(broken), "snapshot") + " that could not be read"})
	case other > 0:
		x.ok("snapshots", "%d, and %d from another version of tally, which are not used", read, other)
	default:
		x.ok("snapshots", "%d", read)
	}
}

// leftovers looks for temporary files of processes that were killed during a write.
func (x *examination) leftovers() {
	var old []string
	_ = filepath.WalkDir(x.place.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !durable.IsTemporary(d.Name()) || d.IsDir() {
			return nil // a file that cannot be examined is not removed
		}
		if info, err := d.Info(); err == nil && time.Since(info.ModTime()) > minLeftover {
			old = append(old, path)
		}
		return nil
	})
	if len(old) == 0 {
		x.ok("leftovers", "none")
		return
	}
	x.add(finding{Check: "leftovers", Level: warning, What: fmt.Sprintf("%s left by killed processes: %s", plain.Count(len(old), "file"), baseNames(old)), Do: "--mend removes them",
		mend: func(context.Context) error { return removeAll(old) }, does: "removed " + plain.Count(len(old), "file") + " left by killed processes"})
}
