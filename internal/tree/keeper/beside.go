package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/nats/natsdial"
)

// BesideSubject begins the subject for questions about a tree that is kept beside a server that others run. The names
// of the store's log, of this machine's key and of the tree follow, then the verb.
const BesideSubject = "tally.keep.v1."

// keyFile contains a random part of the subject, shared by this user's processes on this machine. Other users who may
// publish on the server cannot guess it.
const keyFile = "key"

// subjectBeside returns the subject of a tree. dir is the folder for the views of the server's log.
func subjectBeside(dir string, t config.Tree) (string, error) {
	key, err := os.ReadFile(filepath.Join(dir, folderName, keyFile))
	if err == nil && (len(key) < 20 || strings.ContainsAny(string(key), ".*> \t\r\n")) {
		err = fmt.Errorf("%s is not a key", filepath.Join(dir, folderName, keyFile))
	}
	return BesideSubject + filepath.Base(dir) + "." + string(key) + "." + natsdial.HashName(t.FileName()) + ".", err
}

// Keep keeps the trees of a configuration beside a server that others run, until ctx is done. If another process of
// this machine keeps one of the trees, the error matches *KeptError.
func Keep(ctx context.Context, st *tally.Store, c config.Config, layout func(string) (layouts.Layout, bool), lg *slog.Logger) error {
	dir, err := natsdial.ViewsOf(c.Server.URL)
	if err != nil {
		return err
	}
	ts, err := New(Config{Store: c, Layout: layout, Lazy: true, Logger: cmp.Or(lg, slog.New(slog.DiscardHandler))}, dir)
	if err == nil {
		err = makeKey(filepath.Join(ts.dir, keyFile))
	}
	if err != nil {
		return err
	}
	nc, err := natsdial.Connect(c.Server, "tally keeps trees")
	if err != nil {
		return err
	}
	defer nc.Close()
	life, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { ts.Run(life, st); close(ended) }()
	for _, t := range c.Trees {
		end, kerr := ts.keepBeside(ctx, nc, dir, t)
		if kerr != nil {
			err = errors.Join(err, fmt.Errorf("tree %s: %w", t.Name, kerr))
			continue
		}
		defer end()
	}
	if err == nil {
		<-ctx.Done()
	}
	stop()
	<-ended
	return err
}

// keepBeside keeps a tree and answers questions about it.
func (ts *Trees) keepBeside(ctx context.Context, nc *nats.Conn, dir string, t config.Tree) (end func() error, err error) {
	if said, err := Ask(ctx, ts.Store, t, VerbState, Question{}); err == nil {
		return nil, &KeptError{PID: said.Status.PID}
	}
	if _, err := ts.keep(ctx, t); err != nil {
		return nil, err
	}
	subject, err := subjectBeside(dir, t)
	if err != nil {
		return nil, err
	}
	return serve(ts, nc, subject, cmp.Or(nc.Opts.InboxPrefix, "_INBOX")+".")
}

// KeptError reports that another process already keeps a tree.
type KeptError struct{ PID int }

func (e *KeptError) Error() string { return fmt.Sprintf("process %d keeps it already", e.PID) }
