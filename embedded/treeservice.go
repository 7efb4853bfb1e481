package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/log"
)

// treeSubject is where the owner of a store answers questions about its trees; the verb follows.
// Processes that attach reach it, and users of a server that listens do not: the files of this
// machine are no part of what they share.
const treeSubject = "tally.api.v1.tree."

const (
	maxTreeAsk  = 8 << 10  // bytes of a question
	maxTreeAsks = 64       // questions under way
	treePart    = 64 << 10 // bytes of an answer in one message
)

// treeBeat is how often the keeper sends an empty part while it works on an answer; a variable for
// tests.
var treeBeat = time.Second

// treeSilence is how long a caller waits for a part. A keeper that was killed sends none.
const treeSilence = 10 * time.Second

// Each message of an answer begins with one of these.
const (
	treeMore = '+' // another part follows
	treeLast = '.'
)

// What can be asked.
const (
	TreeKeep      = "keep"   // the tree is kept from here on; the answer waits for an offset
	TreeMeet      = "meet"   // likewise, and all files that it does not know are taken in
	TreeState     = "status" // how a tree is that is kept
	TreeConflicts = "conflicts"
	TreeAccept    = "accept"
	TreeRestore   = "restore"
	TreeVerify    = "verify"
	TreeRebuild   = "rebuild"
	TreePull      = "pull"
	TreeResolve   = "resolve"
)

// TreeAsk is a question to the keeper of a tree.
type TreeAsk struct {
	Tree string        `json:"tree,omitempty"` // name of its files; "": the tree of the next name
	Name string        `json:"name,omitempty"`
	At   events.Offset `json:"at,omitempty"` // of TreeKeep
	ID   string        `json:"id,omitempty"` // of a conflict, for TreeResolve
}

// TreeAnswer is the answer.
type TreeAnswer struct {
	Status    TreeStatus        `json:"status"`
	Conflicts []tree.Conflict   `json:"conflicts,omitempty"`
	Problems  []layouts.Problem `json:"problems,omitempty"`

	Error *treeRefusal `json:"error,omitempty"`
}

// treeRefusal is an error on its way to another process.
type treeRefusal struct {
	Text string `json:"text"`
	Kind string `json:"kind,omitempty"` // which of treeErrors it is
}

func (r *treeRefusal) Error() string { return r.Text }

// Unwrap returns what callers branch on.
func (r *treeRefusal) Unwrap() error { return treeErrors[r.Kind] }

var (
	errTreeUnkept = fmt.Errorf("%w: nobody keeps it now", log.ErrUnavailable)
	errTreeLate   = errors.New("it does not show that yet")
)

// treeErrors are the errors that callers branch on.
var treeErrors = map[string]error{"notFound": tally.ErrNotFound, "conflict": log.ErrConflict, "noTrees": tally.ErrNoTrees, "unkept": errTreeUnkept, "late": errTreeLate}

func refusalOf(err error) *treeRefusal {
	if err == nil {
		return nil
	}
	r := &treeRefusal{Text: err.Error()}
	for kind, is := range treeErrors {
		if errors.Is(err, is) {
			r.Kind = kind
		}
	}
	return r
}

// treeService answers questions about the trees that this process keeps.
type treeService struct {
	ts      *trees
	nc      *nats.Conn
	sub     *nats.Subscription
	subject string // what is asked follows
	inboxes string // how subjects begin to which it answers
	life    context.Context
	end     context.CancelFunc
	busy    chan struct{} // holds a place for each question under way
	running sync.WaitGroup
}

// serveTrees answers at a subject until close is called. Anybody who may ask there could name a
// subject of the log for the answer, which this process may publish to: it answers to inboxes alone.
func serveTrees(ts *trees, nc *nats.Conn, subject, inboxes string) (close func() error, err error) {
	s := &treeService{ts: ts, nc: nc, subject: subject, inboxes: inboxes, busy: make(chan struct{}, maxTreeAsks)}
	s.life, s.end = context.WithCancel(context.Background())
	if s.sub, err = nc.Subscribe(subject+"*", s.take); err == nil {
		err = nc.Flush()
	}
	return s.close, err
}

func (s *treeService) close() error {
	err := s.sub.Unsubscribe()
	s.end()
	s.running.Wait()
	return err
}

func (s *treeService) take(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, s.inboxes) {
		return
	}
	select {
	case s.busy <- struct{}{}:
	default:
		s.say(m.Reply, TreeAnswer{Error: refusalOf(fmt.Errorf("%w: %d questions are being answered", log.ErrUnavailable, maxTreeAsks))})
		return
	}
	s.running.Go(func() {
		defer func() { <-s.busy }()
		ctx, cancel := context.WithCancel(s.life)
		var beats sync.WaitGroup
		beats.Go(func() { s.beat(ctx, m.Reply) })
		said, err := s.answer(ctx, strings.TrimPrefix(m.Subject, s.subject), m.Data)
		cancel()
		beats.Wait() // nothing comes behind the answer
		said.Error = refusalOf(err)
		s.say(m.Reply, said)
	})
}

// beat sends empty parts until ctx is done. A message without a byte would be the last one that
// the server passes on to another account.
func (s *treeService) beat(ctx context.Context, to string) {
	for {
		select {
		case <-time.After(treeBeat):
			_ = s.nc.Publish(to, []byte{treeMore})
		case <-ctx.Done():
			return
		}
	}
}

// say sends an answer in parts. The caller may be gone.
func (s *treeService) say(to string, said TreeAnswer) {
	text, err := json.Marshal(said)
	if err != nil {
		text, _ = json.Marshal(TreeAnswer{Error: refusalOf(err)}) // strings
	}
	for ; len(text) > treePart; text = text[treePart:] {
		_ = s.nc.Publish(to, append([]byte{treeMore}, text[:treePart]...))
	}
	_ = s.nc.Publish(to, append([]byte{treeLast}, text...))
}

func (s *treeService) answer(ctx context.Context, verb string, question []byte) (said TreeAnswer, err error) {
	if len(question) > maxTreeAsk {
		return said, fmt.Errorf("a question has %d bytes, at most %d are read", len(question), maxTreeAsk)
	}
	var ask TreeAsk
	if err := json.Unmarshal(question, &ask); err != nil {
		return said, fmt.Errorf("the question cannot be read: %w", err)
	}
	select {
	case <-s.ts.begun:
	case <-ctx.Done():
		return said, errTreesEnd
	}
	t, err := s.ts.asked(ask)
	if err != nil {
		return said, err
	}
	if verb == TreeState && s.ts.now(t) == nil {
		return said, errTreeUnkept
	}
	k, err := s.ts.keep(ctx, t)
	if err != nil {
		return said, err
	}
	return k.answer(ctx, verb, ask)
}

// asked returns the tree that a question names: of the configuration, or one that another process
// of this user has named in the store's directory.
func (ts *trees) asked(ask TreeAsk) (config.Tree, error) {
	for _, t := range ts.all() {
		if t.FileName() == ask.Tree || ask.Tree == "" && t.Name == ask.Name {
			return t, nil
		}
	}
	t, err := readNamed(ts.dir, ask.Tree)
	if err != nil {
		return t, err
	}
	if err := ts.config.CheckNesting(&t, ts.all()); err != nil {
		return t, err
	}
	if _, err := ts.layoutOf(t); err != nil {
		return t, fmt.Errorf("%w: %w", err, tally.ErrNoTrees)
	}
	ts.add(t)
	return t, nil
}

func (k *treeKept) answer(ctx context.Context, verb string, ask TreeAsk) (said TreeAnswer, err error) {
	ctx, done, err := k.use(ctx)
	if err != nil {
		return said, err
	}
	defer done()
	changes := false
	switch verb {
	case TreeKeep, TreeState:
		err = k.late(ctx, ask.At)
	case TreeConflicts:
		said.Conflicts, err = k.tree.Conflicts(ctx)
	case TreeVerify:
		said.Problems, err = k.tree.Verify(ctx)
	case TreeMeet:
		err = k.meet(ctx)
	case TreeAccept, TreeRestore:
		changes, err = true, k.decide(ctx, verb == TreeAccept)
	case TreePull:
		changes, err = true, k.tree.Pull(ctx)
	case TreeResolve:
		changes, err = true, k.resolve(ctx, ask.ID)
	case TreeRebuild:
		changes, err = true, k.again(ctx, true)
	default:
		err = fmt.Errorf("%q cannot be asked", verb)
	}
	if err == nil && changes {
		err = k.caughtUp(ctx)
	}
	said.Status = k.status(ctx)
	return said, err
}

// late waits for an offset, as long as an answer may take: the caller asks again.
func (k *treeKept) late(ctx context.Context, at events.Offset) error {
	if at == 0 {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, maxShow)
	defer cancel()
	err := k.runner.Wait(short, at)
	if short.Err() != nil && ctx.Err() == nil {
		return errTreeLate
	}
	return err
}

// resolve closes the conflict whose id begins so.
func (k *treeKept) resolve(ctx context.Context, begin string) error {
	list, err := k.tree.Conflicts(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, c := range list {
		if begin != "" && strings.HasPrefix(c.ID, begin) {
			ids = append(ids, c.ID)
		}
	}
	switch len(ids) {
	case 0:
		return fmt.Errorf("conflict %q: %w", begin, tally.ErrNotFound)
	case 1:
		return k.tree.Resolve(ctx, ids[0])
	}
	return &events.InvalidError{Field: "conflict", Reason: fmt.Sprintf("%q names %d of them", begin, len(ids))}
}

// decide answers what the tree asks, which it may not have found out yet.
func (k *treeKept) decide(ctx context.Context, accept bool) error {
	if k.tree.Room() == nil {
		err := k.tree.Pull(ctx)
		if _, asks := errors.AsType[*tree.BulkError](err); err != nil && !asks {
			return err
		}
	}
	if accept {
		return k.tree.Accept(ctx)
	}
	return k.tree.Restore(ctx)
}

// caughtUp returns when the tree shows what is durable now.
func (k *treeKept) caughtUp(ctx context.Context) error {
	if err := k.again(ctx, false); err != nil {
		return err
	}
	head, err := k.runner.Log.Head(ctx)
	if err != nil {
		return err
	}
	return k.runner.Wait(ctx, head)
}
