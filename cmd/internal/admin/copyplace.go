package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/backup"
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/snapshot"
)

// A place is an argument of copy: a folder, a folder of backups, or a server that others run.
type place struct {
	app    *cmdutil.App
	text   string // of the argument, without passwords
	dir    string // of a store or of backups; "": a server
	config config.Config
	merge  bool // it is opened as the target of a merge
}

// placeOf returns the place that an argument names.
func placeOf(a *cmdutil.App, arg string) (place, error) {
	p := place{app: a, text: natsdial.Redacted(arg)}
	call := config.Overrides{Backend: config.NATS}
	if name, ok := strings.CutPrefix(arg, "context:"); ok {
		call.Context = name
	} else if strings.Contains(arg, "://") {
		call.URL = arg
	} else {
		call = config.Overrides{Backend: config.Local, Store: arg}
	}
	dir, err := os.Getwd()
	if err == nil {
		p.config, err = config.Resolve(dir, call, os.Getenv)
	}
	if err == nil && call.Backend == config.Local {
		p.dir, err = filepath.Abs(arg)
		p.text = p.dir
	}
	return p, err
}

func (p place) isServer() bool { return p.dir == "" }

// isBackups reports whether the place is a folder of backups.
func (p place) isBackups() bool {
	if p.isServer() {
		return false
	}
	_, err := backup.List(p.dir)
	return err == nil
}

// An original is the opened source of a copy.
type original struct {
	storecopy.Source
	events    storecopy.Follower // nil: a backup
	snapshots snapshot.Store     // nil: none
	move      func(ctx context.Context, to string) error
	made      time.Time // of a log on a server
	close     func() error
}

// open opens a place to copy from. To move a store, this process must be its owner.
func (p place) open(ctx context.Context, lg *slog.Logger, move bool) (original, error) {
	switch {
	case p.isServer():
		s, err := p.dial(ctx, lg, false)
		if err != nil {
			return original{}, err
		}
		return original{Source: s.events, events: s.events, close: s.close, made: s.made, move: s.events.MarkMoved}, nil
	case p.isBackups():
		return p.openBackup(ctx)
	}
	info, err := storedir.Inspect(p.dir)
	switch {
	case err != nil:
		return original{}, err
	case info.State != storedir.Present:
		return original{}, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no store in %s", p.dir)}
	}
	o := original{snapshots: snapshot.NewFiles(filepath.Join(p.dir, "snapshots"))}
	if !move {
		var st *tally.Store
		st, err = embedded.Open(ctx, embedded.Options{Backend: config.Local, Store: p.dir, Existing: true, Still: true, Logger: lg})
		if err == nil {
			o.Source, o.events, o.close = st.Log, st.Log, st.Close
		}
		return o, err
	}
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: p.dir, Logger: lg, Private: true})
	if owned, is := errors.AsType[*embedded.OwnedError](err); is {
		return o, &cli.CodeError{Code: cli.Unreachable, Err: fmt.Errorf("process %d has the store in %s open", owned.PID, p.dir),
			Hint: "End it: only the owner of a store can move it. Programs that append should use the new place from then on."}
	}
	if err != nil {
		return o, err
	}
	o.Source, o.events, o.close = srv.Log(), srv.Log(), srv.Close
	o.move = func(_ context.Context, to string) error { return storedir.MarkMoved(p.dir, to) }
	return o, nil
}

// openBackup opens the newest backup of a folder.
func (p place) openBackup(ctx context.Context) (original, error) {
	list, err := backup.List(p.dir)
	if err != nil {
		return original{}, err
	}
	m, err := backup.Find(list, "")
	if err != nil {
		return original{}, err
	}
	b, err := storecopy.OpenBackup(ctx, p.dir, m)
	return original{Source: b, close: func() error { return nil }}, err
}

// A target is the opened target of a copy.
type target struct {
	events *log.Log
	mark   func(ctx context.Context) error // marks it as an unfinished copy
	unmark func(ctx context.Context) error // when the copy is complete
	back   func() error                    // when the store was moved here: it may have been moved away before
	made   time.Time                       // of a log on a server
	close  func() error
}

// openTarget opens a place to copy to, and creates it if it is missing.
func (p place) openTarget(ctx context.Context, lg *slog.Logger, from string) (target, error) {
	if p.isServer() {
		s, err := p.dial(ctx, lg, true)
		if err != nil {
			return target{}, err
		}
		if moved, is := errors.AsType[*log.MovedError](s.events.IsMarked(ctx)); is {
			return target{}, errors.Join(moved, s.close())
		}
		return target{events: s.events, close: s.close, made: s.made, back: func() error { return nil },
			mark:   func(ctx context.Context) error { return s.events.MarkCopying(ctx, from) },
			unmark: func(ctx context.Context) error { return s.events.MarkCopying(ctx, "") }}, nil
	}
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: p.dir, Logger: lg, Private: true, Copy: !p.merge, Merge: p.merge, SegmentBytes: p.config.Segment})
	if owned, is := errors.AsType[*embedded.OwnedError](err); is {
		return target{}, &cli.CodeError{Code: cli.Unreachable, Err: fmt.Errorf("process %d has the store in %s open", owned.PID, p.dir), Hint: "End it, or name a new folder."}
	}
	if err != nil {
		return target{}, err
	}
	return target{events: srv.Log(), close: srv.Close, back: func() error { return storedir.UnmarkMoved(p.dir) },
		mark:   func(context.Context) error { return storedir.MarkCopying(p.dir, from) },
		unmark: func(context.Context) error { return storedir.UnmarkCopying(p.dir) }}, nil
}

// emptyTarget returns a target in memory, for a dry run.
func emptyTarget(ctx context.Context, lg *slog.Logger) (target, error) {
	l, err := log.OpenOn(ctx, memlog.New(memlog.Config{}), log.Config{Logger: lg})
	if err != nil {
		return target{}, err
	}
	return target{events: l, close: l.Close}, nil
}

// remote is the log on a server that others run.
type remote struct {
	events *log.Log
	made   time.Time // when its first stream was created, which no other log's was
	close  func() error
}

// dial opens the log on a server. An original must exist; the log of a target is created if it is missing, and no
// process may own it.
func (p place) dial(ctx context.Context, lg *slog.Logger, create bool) (remote, error) {
	var conns [2]*nats.Conn
	hangUp := func() {
		for _, nc := range conns {
			if nc != nil {
				nc.Close()
			}
		}
	}
	for i, name := range []string{"tally copy", "tally copy reads"} {
		var err error
		if conns[i], err = natsdial.Connect(p.config.Server, name); err != nil {
			hangUp()
			return remote{}, err
		}
	}
	l, err := openOn(ctx, conns[0], log.Config{Logger: lg, Replicas: p.config.Server.Replicas, Host: log.Host{Reads: conns[1], Shared: true, Merge: p.merge}}, p.text, create)
	if err != nil {
		hangUp()
		return remote{}, err
	}
	r := remote{events: l, close: func() error { defer hangUp(); return l.Close() }}
	if r.made, err = madeAt(ctx, conns[1]); err != nil {
		return r, errors.Join(err, r.close())
	}
	return r, nil
}

// madeAt returns when the first stream of a server's log was created.
func madeAt(ctx context.Context, nc *nats.Conn) (time.Time, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return time.Time{}, err
	}
	s, err := js.Stream(ctx, log.FirstStream)
	if err != nil {
		return time.Time{}, err
	}
	return s.CachedInfo().Created, nil
}

func openOn(ctx context.Context, nc *nats.Conn, c log.Config, name string, create bool) (*log.Log, error) {
	owner, err := log.OwnerAt(ctx, nc, 2*time.Second)
	switch {
	case err != nil:
		return nil, err
	case owner != nil && create:
		return nil, &cli.CodeError{Code: cli.Unreachable, Err: fmt.Errorf("a process owns the store at %s", name), Hint: "End it, and name the folder of the store."}
	case owner != nil:
		c.Host.Via, c.Host.Durability, c.Host.Holes = true, owner.Durability, owner.Holes
	case !create:
		if _, err := madeAt(ctx, nc); errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no store at %s", name)}
		}
	}
	return log.Open(ctx, nc, c)
}
