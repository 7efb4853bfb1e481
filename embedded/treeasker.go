package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/lockfile"
)

// treeAsker asks the process that keeps the trees of a store.
type treeAsker struct {
	nc      *nats.Conn
	subject string // the verb follows
	dir     string // of the files of the trees
}

const maxTreeAnswer = 256 << 20 // bytes

// ask asks about a tree. If nobody answers, the error matches log.ErrUnavailable, and the status
// is how the tree was left.
func (a treeAsker) ask(ctx context.Context, verb string, ask TreeAsk) (said TreeAnswer, err error) {
	question, err := json.Marshal(ask)
	if err != nil {
		return said, err
	}
	inbox := a.nc.NewInbox()
	sub, err := a.nc.SubscribeSync(inbox)
	if err == nil {
		defer sub.Unsubscribe()
		err = a.publish(ctx, verb, inbox, question)
	}
	var text []byte
	for more := true; err == nil && more; {
		var part []byte
		part, more, err = a.part(ctx, sub)
		if text = append(text, part...); len(text) > maxTreeAnswer {
			err = fmt.Errorf("an answer has more than %d bytes", maxTreeAnswer)
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	switch {
	case ctx.Err() != nil:
		return said, ctx.Err()
	case err != nil:
		return said, fmt.Errorf("%w: %w", errTreeUnkept, err)
	case said.Error != nil:
		return said, said.Error
	}
	return said, nil
}

// publish sends a question, and returns an error if this user may not ask there.
func (a treeAsker) publish(ctx context.Context, verb, inbox string, question []byte) error {
	ctx, cancel := context.WithTimeout(ctx, treeSilence)
	defer cancel()
	err := a.nc.PublishRequest(a.subject+verb, inbox, question)
	if err == nil {
		err = a.nc.FlushWithContext(ctx)
	}
	if last := a.nc.LastError(); err == nil && errors.Is(last, nats.ErrPermissionViolation) {
		err = last
	}
	return err
}

// part returns the next part of an answer, and whether another one follows.
func (a treeAsker) part(ctx context.Context, sub *nats.Subscription) (part []byte, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, treeSilence)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	switch {
	case err != nil:
		return nil, false, err
	case m.Header.Get("Status") == "503":
		return nil, false, nats.ErrNoResponders
	case len(m.Data) == 0:
		return nil, true, nil
	}
	return m.Data[1:], m.Data[0] == treeMore, nil
}

// AskTree asks the process that keeps the trees of a store about one of them: the owner of a local
// store, or [KeepTrees] on this machine beside a server that others run. If nobody keeps the tree,
// the error matches log.ErrUnavailable, and the status is how the tree was left.
func AskTree(ctx context.Context, c config.Config, t config.Tree, verb string, ask TreeAsk) (said TreeAnswer, err error) {
	ask.Tree = t.FileName()
	a, err := askerOf(c, t)
	if err == nil {
		defer a.nc.Close()
		said, err = a.ask(ctx, verb, ask)
	}
	if said.Status.Name == "" {
		said.Status = readLeft(a.dir, t)
	}
	return said, err
}

// askerOf connects to the process that keeps a tree.
func askerOf(c config.Config, t config.Tree) (a treeAsker, err error) {
	a.subject = treeSubject
	switch c.Backend {
	case config.Local:
		a.dir = filepath.Join(c.Store, treesDir)
		o, err := ownerNow(c.Store)
		if err == nil {
			a.nc, err = nats.Connect(o.URL, nats.UserInfo(o.User, o.Token), nats.Name("tally tree"), nats.NoReconnect(), nats.Timeout(5*time.Second))
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", errTreeUnkept, err)
		}
		return a, err
	case config.NATS:
		dir, err := ViewsOf(c.Server.URL)
		if err != nil {
			return a, err
		}
		a.dir = filepath.Join(dir, treesDir)
		if a.subject, err = subjectBeside(dir, t); err != nil {
			return a, fmt.Errorf("%w: %w", errTreeUnkept, err)
		}
		a.nc, err = connect(c.Server, "tally tree")
		return a, err
	}
	return a, fmt.Errorf("%w: a store in memory ends with its process", errTreeUnkept)
}

// ownerNow returns the owner of a store if it is alive. Where an owner was killed, anybody on this
// machine may listen at its address.
func ownerNow(dir string) (owner, error) {
	o, err := readOwner(dir)
	if err != nil {
		return o, err
	}
	f, err := lockfile.Take(filepath.Join(dir, lockFile))
	switch {
	case errors.Is(err, lockfile.ErrLocked):
		return o, nil
	case err == nil:
		err = errors.Join(&NoOwnerError{Dir: dir}, f.Close())
	}
	return o, err
}

// ownersTrees are the trees of a store that another process owns. That process keeps them, and
// its acknowledgements wait for them.
type ownersTrees struct {
	*trees // as this process sees them; it keeps none
	asker  treeAsker
	owner  int // its process id
}

// on lets callers of an attached store name trees and wait for them.
func (o ownersTrees) on(st *tally.Config) {
	if o.layout != nil {
		st.Host.KeepFiles = o.keepFiles
	}
	shown := st.Host.Shown
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		return waitTree(ctx, view, at, o.wait, shown)
	}
}

// join asks the owner to keep the trees of this process's configuration: the owner may run in
// another project. Trees on servers are in the user's own file, which the owner has read.
func (o ownersTrees) join(ctx context.Context) {
	if o.layout == nil || o.lazy {
		return
	}
	for _, t := range o.all() {
		if t.Target != config.TreeDir {
			continue
		}
		if err := o.named(ctx, t, TreeKeep); err != nil {
			o.logger.Warn("a tree is not kept", "tree", t.Name, "err", err)
		}
	}
}

// named asks the owner about a tree in a folder. If the owner does not know the tree, its settings
// are written into the store's directory first: no question carries a path.
func (o ownersTrees) named(ctx context.Context, t config.Tree, verb string) error {
	ask := TreeAsk{Tree: t.FileName()}
	_, err := o.asker.ask(ctx, verb, ask)
	if errors.Is(err, tally.ErrNotFound) {
		if err = writeNamed(o.dir, t); err == nil {
			_, err = o.asker.ask(ctx, verb, ask)
		}
	}
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("process %d owns the store: %w", o.owner, tally.ErrNoTrees)
	}
	return err
}

// keepFiles is [tally.Host.KeepFiles] of an attached process.
func (o ownersTrees) keepFiles(ctx context.Context, namespace, layout, dir string) error {
	t, err := o.folder(namespace, layout, dir)
	if err != nil {
		return err
	}
	if err := o.named(ctx, t, TreeMeet); err != nil {
		return fmt.Errorf("tree %s: %w", t.Name, err)
	}
	return nil
}

// wait returns when a tree shows the record at an offset.
func (o ownersTrees) wait(ctx context.Context, name string, at events.Offset) error {
	ask := TreeAsk{Name: name, At: at}
	list := o.all()
	if i := slices.IndexFunc(list, func(t config.Tree) bool { return t.Name == name }); i >= 0 {
		ask.Tree = list[i].FileName()
	}
	for {
		_, err := o.asker.ask(ctx, TreeKeep, ask)
		if errors.Is(err, nats.ErrNoResponders) {
			return tally.ErrNotFound
		}
		if !errors.Is(err, errTreeLate) {
			return err
		}
	}
}
