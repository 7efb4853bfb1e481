package keeper

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
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/storedir"
)

// asker asks the process that keeps the trees of a store. It belongs to the process that asks.
type asker struct {
	nc      *nats.Conn
	subject string // the verb is appended to it
	dir     string // of the trees' own files
}

const maxAnswer = 256 << 20 // bytes

// ask sends a question and collects the answer. If no process answers, the error matches log.ErrUnavailable.
func (a asker) ask(ctx context.Context, verb string, q Question) (said Answer, err error) {
	question, err := json.Marshal(q)
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
		if text = append(text, part...); len(text) > maxAnswer {
			err = fmt.Errorf("an answer has more than %d bytes", maxAnswer)
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	switch {
	case ctx.Err() != nil:
		return said, ctx.Err()
	case err != nil:
		return said, fmt.Errorf("%w: %w", errUnkept, err)
	case said.Error != nil:
		return said, said.Error
	}
	return said, nil
}

// publish sends a question. If this user may not publish on the subject, it returns the server's error.
func (a asker) publish(ctx context.Context, verb, inbox string, question []byte) error {
	ctx, cancel := context.WithTimeout(ctx, maxSilence)
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

// part returns the next part of an answer, and whether another part follows.
func (a asker) part(ctx context.Context, sub *nats.Subscription) (part []byte, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxSilence)
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
	return m.Data[1:], m.Data[0] == partFollows, nil
}

// Ask asks the process that keeps a tree: the owner of a local store, or [Keep] on this machine beside a server that
// others run. If no process keeps the tree, the error matches log.ErrUnavailable, and the answer has the status that
// the last keeper left.
func Ask(ctx context.Context, c config.Config, t config.Tree, verb string, q Question) (said Answer, err error) {
	q.Tree = t.FileName()
	a, err := askerOf(c, t)
	if err == nil {
		defer a.nc.Close()
		said, err = a.ask(ctx, verb, q)
	}
	if said.Status.Name == "" {
		said.Status = readLeft(a.dir, t)
	}
	return said, err
}

// askerOf connects to the process that keeps a tree.
func askerOf(c config.Config, t config.Tree) (a asker, err error) {
	a.subject = OwnerSubject
	switch c.Backend {
	case config.Local:
		a.dir = filepath.Join(c.Store, folderName)
		o, err := storedir.LiveOwner(c.Store)
		if err == nil {
			a.nc, err = nats.Connect(o.URL, nats.UserInfo(o.User, o.Token), nats.Name("tally tree"), nats.NoReconnect(), nats.Timeout(5*time.Second))
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", errUnkept, err)
		}
		return a, err
	case config.NATS:
		dir, err := natsdial.ViewsOf(c.Server.URL)
		if err != nil {
			return a, err
		}
		a.dir = filepath.Join(dir, folderName)
		if a.subject, err = subjectBeside(dir, t); err != nil {
			return a, fmt.Errorf("%w: %w", errUnkept, err)
		}
		a.nc, err = natsdial.Connect(c.Server, "tally tree")
		return a, err
	}
	return a, fmt.Errorf("%w: a store in memory ends with its process", errUnkept)
}

// Attached has the trees of a store that another process owns. That process keeps the trees, and its acknowledgements
// wait for them.
type Attached struct {
	*Trees // as this process knows them; it keeps none
	asker  asker
	owner  int // process id
}

// Attached returns the trees of a store whose owner is reached by a connection. pid is the owner's process id.
func (ts *Trees) Attached(nc *nats.Conn, pid int) Attached {
	return Attached{ts, asker{nc, OwnerSubject, ts.dir}, pid}
}

// Wire lets callers of an attached store name trees and wait for them.
func (o Attached) Wire(st *tally.Config) {
	if o.Layout != nil {
		st.Host.KeepFiles = o.keepFiles
	}
	shown := st.Host.Shown
	st.Host.Shown = func(ctx context.Context, view string, at events.Offset) error {
		return waitFor(ctx, view, at, o.wait, shown)
	}
}

// Join asks the owner to keep the trees of this process's configuration: the owner may run in another project. Trees on
// servers are left out: they are configured in the user's own file, which the owner has read. Join logs errors.
func (o Attached) Join(ctx context.Context) {
	if o.Layout == nil || o.Lazy {
		return
	}
	for _, t := range o.all() {
		if t.Target != config.TreeDir {
			continue
		}
		if err := o.named(ctx, t, VerbKeep); err != nil {
			o.Logger.Warn("a tree is not kept", "tree", t.Name, "err", err)
		}
	}
}

// named asks the owner about a tree in a folder. If the owner does not know the tree, named writes the tree's settings
// into the store's directory and asks again. Questions never carry a path.
func (o Attached) named(ctx context.Context, t config.Tree, verb string) error {
	q := Question{Tree: t.FileName()}
	_, err := o.asker.ask(ctx, verb, q)
	if errors.Is(err, tally.ErrNotFound) {
		if err = writeNamed(o.dir, t); err == nil {
			_, err = o.asker.ask(ctx, verb, q)
		}
	}
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("process %d owns the store: %w", o.owner, tally.ErrNoTrees)
	}
	return err
}

// keepFiles implements [tally.Host.KeepFiles] for an attached process.
func (o Attached) keepFiles(ctx context.Context, namespace, layout, dir string) error {
	t, err := o.folder(namespace, layout, dir)
	if err != nil {
		return err
	}
	if err := o.named(ctx, t, VerbMeet); err != nil {
		return fmt.Errorf("tree %s: %w", t.Name, err)
	}
	return nil
}

// wait returns when the named tree shows the record at an offset. It asks again as long as the owner answers errNotYet.
func (o Attached) wait(ctx context.Context, name string, at events.Offset) error {
	q := Question{Name: name, At: at}
	list := o.all()
	if i := slices.IndexFunc(list, func(t config.Tree) bool { return t.Name == name }); i >= 0 {
		q.Tree = list[i].FileName()
	}
	for {
		_, err := o.asker.ask(ctx, VerbKeep, q)
		if errors.Is(err, nats.ErrNoResponders) {
			return tally.ErrNotFound
		}
		if !errors.Is(err, errNotYet) {
			return err
		}
	}
}
