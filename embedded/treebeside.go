package embedded

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
)

// besideSubject is where trees are asked about that are kept beside a server that others run. The
// names of the store's log, of this machine's key and of the tree follow, then the verb.
const besideSubject = "tally.keep.v1."

// keyFile has a name that nobody guesses, for the keepers of this user on this machine. Others who
// may publish on the server do not know it.
const keyFile = "key"

// subjectBeside returns the subject of a tree, by the folder of the views of the server's log.
func subjectBeside(dir string, t config.Tree) (string, error) {
	key, err := os.ReadFile(filepath.Join(dir, treesDir, keyFile))
	if err == nil && (len(key) < 20 || strings.ContainsAny(string(key), ".*> \t\r\n")) {
		err = fmt.Errorf("%s is not a key", filepath.Join(dir, treesDir, keyFile))
	}
	return besideSubject + filepath.Base(dir) + "." + string(key) + "." + nameOf(t.FileName()) + ".", err
}

// KeepTrees keeps the trees of a configuration beside a server that others run, until ctx is done.
// A tree that another process of this machine keeps is an error that names the process.
func KeepTrees(ctx context.Context, st *tally.Store, c config.Config, layout func(string) (layouts.Layout, bool), lg *slog.Logger) error {
	dir, err := ViewsOf(c.Server.URL)
	if err != nil {
		return err
	}
	ts, err := Options{Trees: layout, Logger: cmp.Or(lg, slog.New(slog.DiscardHandler)), Existing: true}.treesOf(c, dir)
	if err == nil {
		err = makeKey(filepath.Join(ts.dir, keyFile))
	}
	if err != nil {
		return err
	}
	nc, err := connect(c.Server, "tally keeps trees")
	if err != nil {
		return err
	}
	defer nc.Close()
	life, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { ts.run(life, st); close(ended) }()
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
func (ts *trees) keepBeside(ctx context.Context, nc *nats.Conn, dir string, t config.Tree) (end func() error, err error) {
	if said, err := AskTree(ctx, ts.config, t, TreeState, TreeAsk{}); err == nil {
		return nil, &TreeKeptError{PID: said.Status.PID}
	}
	if _, err := ts.keep(ctx, t); err != nil {
		return nil, err
	}
	subject, err := subjectBeside(dir, t)
	if err != nil {
		return nil, err
	}
	return serveTrees(ts, nc, subject, cmp.Or(nc.Opts.InboxPrefix, "_INBOX")+".")
}

// TreeKeptError reports that another process keeps a tree.
type TreeKeptError struct{ PID int }

func (e *TreeKeptError) Error() string { return fmt.Sprintf("process %d keeps it already", e.PID) }
