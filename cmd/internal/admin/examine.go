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
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// lively is the age below which a temporary file may be of a process that lives.
const lively = time.Minute

// clockSlack is how much the clocks of producers and this machine may differ before
// anybody is told.
const clockSlack = 2 * time.Minute

// examine looks at everything, without opening the store.
func examine(ctx context.Context, a *cmdutil.App) []remark {
	x := &examination{ctx: ctx, app: a}
	var err error
	if x.config, err = a.Config(); err != nil {
		x.bad("configuration", cli.ExitCode(err), err.Error(), "tally config shows who said what")
		return x.remarks
	}
	x.configured()
	if x.config.Backend == config.Local {
		x.local()
	}
	x.keys()
	return x.remarks
}

// examination gathers remarks.
type examination struct {
	ctx     context.Context
	app     *cmdutil.App
	config  config.Config
	place   embedded.Place
	owner   int // the process that owns the store and lives; 0: none
	remarks []remark
}

func (x *examination) say(r remark) { x.remarks = append(x.remarks, r) }

func (x *examination) ok(check, format string, args ...any) {
	x.say(remark{Check: check, Level: fine, What: fmt.Sprintf(format, args...)})
}

func (x *examination) warn(check, what, do string) {
	x.say(remark{Check: check, Level: warning, What: what, Do: do})
}

func (x *examination) bad(check string, code int, what, do string) {
	x.say(remark{Check: check, Level: problem, What: what, Do: do, code: code})
}

func (x *examination) configured() {
	c := x.config
	for _, n := range c.Notices {
		x.warn("configuration", n.Text+": found "+n.Path, "say it in "+n.Instead)
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

// files looks for the files that say how to get at a server.
func (x *examination) files() {
	s := x.config.Server
	for _, path := range []string{s.Creds, s.NKey, s.CA, s.Cert, s.Key} {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			x.bad("configuration", cli.BadUsage, err.Error(), "tally config shows who named that file")
			continue
		}
		f.Close()
	}
}

// local looks at a store of this machine.
func (x *examination) local() {
	var err error
	if x.place, err = embedded.Look(x.config.Store); err != nil {
		x.bad("directory", cli.ExitCode(err), err.Error(), "")
		return
	}
	x.disk()
	if x.place.State != embedded.Present {
		x.ok("directory", "there is no store yet: the first append or import makes it")
		return
	}
	x.directory()
	x.owned()
	x.versions()
	x.log()
	x.views()
	x.snapshots()
	x.leftovers()
}

func (x *examination) disk() {
	dir := standing(x.config.Store)
	switch free, err := embedded.FreeBytes(dir); {
	case err != nil:
		x.warn("disk", "how much is free is not known: "+err.Error(), "")
	case free < embedded.Reserve:
		x.bad("disk", cli.Unreachable, fmt.Sprintf("%s are free, and appends are refused below %s", plain.Bytes(int64(free)), plain.Bytes(embedded.Reserve)), "free some space; reads go on")
	case free < 8*embedded.Reserve:
		x.warn("disk", plain.Bytes(int64(free))+" are free; appends are refused below "+plain.Bytes(embedded.Reserve), "free some space")
	default:
		x.ok("disk", "%s are free", plain.Bytes(int64(free)))
	}
	x.ok("sync", "%s", embedded.SyncMethod(dir))
}

func (x *examination) directory() {
	switch err := embedded.Writable(x.place.Dir); {
	case err != nil:
		x.bad("directory", cli.Unreachable, err.Error(), "copy it to where it can be written to")
	case x.place.Others && runtime.GOOS != "windows":
		x.warn("directory", x.place.Dir+" can be read by other users", "chmod 700 "+x.place.Dir+", as whoever opens it next does")
	default:
		x.ok("directory", "%s is this user's alone", x.place.Dir)
	}
}

func (x *examination) owned() {
	pid, url := embedded.OwnerOf(x.place.Dir)
	switch {
	case pid == 0 && x.place.Clean:
		x.ok("owner", "nobody has the store open; its last owner stopped by itself")
	case pid == 0:
		x.warn("owner", "nobody serves the store, and its last owner did not say that it stopped: one starts or stops now, or was killed", "the next owner reads the log again")
	case pid < 0:
		x.warn("owner", "owner.json cannot be read", "the next owner writes it anew; if one is at work, end it")
	case embedded.Answers(x.ctx, url):
		x.owner = pid
		x.ok("owner", "process %d owns the store and answers", pid)
	case cmdutil.Alive(pid):
		x.owner = pid
		x.bad("owner", cli.Unreachable, fmt.Sprintf("process %d owns the store and does not answer", pid), fmt.Sprintf("look at it (ps -p %d), and end it if it does not go on", pid))
	default:
		x.warn("owner", fmt.Sprintf("process %d owned the store and was killed", pid), "nothing: the next owner reads the log again")
	}
}

func (x *examination) versions() {
	if p := x.place; len(p.Unknown) > 0 {
		x.warn("versions", "the files of nats-server "+strings.Join(p.Unknown, ", ")+" are not known to this version of tally: they are neither looked through nor mended, and reads take longer", "use a version of tally that knows them")
		return
	}
	x.ok("versions", "written by nats-server %s, whose files are known", strings.Join(x.place.Servers, ", "))
}

func (x *examination) log() {
	if n := len(x.place.Lost); n > 0 {
		x.bad("log", cli.Integrity, fmt.Sprintf("%s lost, the first is %v", plain.Count(n, "record")+isAre(n), x.place.Lost[0].Offset),
			"tally verify names them, and an older copy of the store may have them. What can be mended, the owner mends by itself")
		return
	}
	x.ok("log", "durable up to %v, and nothing is known to be lost", x.place.Durable)
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// views looks at each view's file.
func (x *examination) views() {
	for _, name := range cmdutil.ViewNames(nil) {
		standing, err := catalog.StandingOf(x.ctx, x.place.Dir, name)
		switch {
		case err != nil && x.place.Durable == 0:
			x.ok(name, "there is nothing to show yet")
		case err != nil:
			x.say(remark{Check: name, Level: warning, What: err.Error(), Do: "the next command that needs it makes it anew, or --mend now",
				mend: x.rebuild(name), does: name + " was made anew"})
		case len(standing.Quarantined) > 0:
			x.say(remark{Check: name, Level: warning, What: fmt.Sprintf("it could not fold %s, the first is %s", plain.Count(len(standing.Quarantined), "session"), standing.Quarantined[0].Subject.Name()),
				Do: "tally rebuild --quarantined after an update of tally, or --mend", mend: x.retry(name), does: "what " + name + " could not fold was tried again"})
		case standing.Cursor.Offset < x.place.Durable:
			x.ok(name, "as of %v of %v: it catches up with the next command that opens the store", standing.Cursor.Offset, x.place.Durable)
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

// clock compares the log's clock with this machine's.
func (x *examination) clock(newest time.Time) {
	if ahead := time.Until(newest); ahead > clockSlack {
		x.warn("clock", fmt.Sprintf("the newest record is of %s, which is %s from now", newest.UTC().Format(time.RFC3339), ahead.Round(time.Second)), "set this machine's clock; the order of records does not depend on it")
		return
	}
	x.ok("clock", "no record is of the future")
}

// snapshots looks at the headers of all snapshots.
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
		x.say(remark{Check: "snapshots", Level: warning, What: fmt.Sprintf("%s cannot be read: %s", plain.Count(len(broken), "snapshot"), baseNames(broken)),
			Do: "nothing has to: loads do without; --mend removes them", mend: func(context.Context) error { return removeAll(broken) }, does: plain.Count(len(broken), "snapshot") + " removed that could not be read"})
	case other > 0:
		x.ok("snapshots", "%d, and %d of another version of tally, which are not used", read, other)
	default:
		x.ok("snapshots", "%d", read)
	}
}

// leftovers looks for what processes left that were killed while they wrote a file.
func (x *examination) leftovers() {
	var old []string
	_ = filepath.WalkDir(x.place.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !durable.IsTemporary(d.Name()) || d.IsDir() {
			return nil // what cannot be looked at is not removed either
		}
		if info, err := d.Info(); err == nil && time.Since(info.ModTime()) > lively {
			old = append(old, path)
		}
		return nil
	})
	if len(old) == 0 {
		x.ok("leftovers", "none")
		return
	}
	x.say(remark{Check: "leftovers", Level: warning, What: fmt.Sprintf("%s that killed processes left: %s", plain.Count(len(old), "file"), baseNames(old)), Do: "--mend removes them",
		mend: func(context.Context) error { return removeAll(old) }, does: plain.Count(len(old), "file") + " removed that killed processes had left"})
}
