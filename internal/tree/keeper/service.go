package keeper

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

// OwnerSubject begins the subject on which the owner of a store answers questions about its trees. The verb follows.
// Attached processes may publish there. Remote users of a listening owner may not: they have no access to this
// machine's files.
const OwnerSubject = "tally.api.v1.tree."

const (
	maxQuestion  = 8 << 10  // bytes of a question
	maxQuestions = 64       // questions under way
	partSize     = 64 << 10 // bytes of an answer in one message
)

// BeatPause is the time between the empty parts that the keeper sends while it prepares an answer. It is a variable for
// tests.
var BeatPause = time.Second

// maxSilence bounds how long a caller waits for a part. A killed keeper sends nothing.
const maxSilence = 10 * time.Second

// First byte of each message of an answer.
const (
	partFollows = '+' // another part follows
	partLast    = '.'
)

// Verbs of questions.
const (
	VerbKeep      = "keep"   // keep the tree from now on; the answer waits for an offset
	VerbMeet      = "meet"   // likewise, and import all files that the tree does not know
	VerbState     = "status" // of a tree that is kept already
	VerbConflicts = "conflicts"
	VerbAccept    = "accept"
	VerbRestore   = "restore"
	VerbVerify    = "verify"
	VerbRebuild   = "rebuild"
	VerbPull      = "pull"
	VerbResolve   = "resolve"
)

// Question is a question to the keeper of a tree.
type Question struct {
	Tree string        `json:"tree,omitempty"` // name of the tree's files; "": Name names the tree
	Name string        `json:"name,omitempty"`
	At   events.Offset `json:"at,omitempty"` // for VerbKeep
	ID   string        `json:"id,omitempty"` // of a conflict, for VerbResolve
}

// Answer is the keeper's answer.
type Answer struct {
	Status    Status            `json:"status"`
	Conflicts []tree.Conflict   `json:"conflicts,omitempty"`
	Problems  []layouts.Problem `json:"problems,omitempty"`

	Error *refusal `json:"error,omitempty"`
}

// refusal carries an error to the process that asked.
type refusal struct {
	Text string `json:"text"`
	Kind string `json:"kind,omitempty"` // key in branchErrors
}

func (r *refusal) Error() string { return r.Text }

// Unwrap returns the sentinel that callers branch on, or nil.
func (r *refusal) Unwrap() error { return branchErrors[r.Kind] }

var (
	errUnkept = fmt.Errorf("%w: no process keeps the tree", log.ErrUnavailable)
	errNotYet = errors.New("the tree does not show the requested offset yet")
)

// branchErrors lists the errors that callers branch on, by their name in answers.
var branchErrors = map[string]error{"notFound": tally.ErrNotFound, "conflict": log.ErrConflict, "noTrees": tally.ErrNoTrees, "unkept": errUnkept, "late": errNotYet}

func refusalOf(err error) *refusal {
	if err == nil {
		return nil
	}
	r := &refusal{Text: err.Error()}
	for kind, is := range branchErrors {
		if errors.Is(err, is) {
			r.Kind = kind
		}
	}
	return r
}

// service answers questions about the trees that this process keeps.
type service struct {
	ts      *Trees
	nc      *nats.Conn
	sub     *nats.Subscription
	subject string // the verb follows
	inboxes string // prefix of the subjects that it answers to
	life    context.Context
	end     context.CancelFunc
	busy    chan struct{} // has an element for each question under way
	running sync.WaitGroup
}

// Serve answers requests of attached processes until stop is called. The connection is the owner's own. The server
// maps the inboxes of attached processes to subjects that begin with "_R_".
func (ts *Trees) Serve(nc *nats.Conn) (stop func() error, err error) {
	return serve(ts, nc, OwnerSubject, "_R_.")
}

// serve answers requests on a subject until stop is called. It answers to inboxes only: a client could otherwise name
// a subject of the log for the answer, and this process may publish there.
func serve(ts *Trees, nc *nats.Conn, subject, inboxes string) (stop func() error, err error) {
	s := &service{ts: ts, nc: nc, subject: subject, inboxes: inboxes, busy: make(chan struct{}, maxQuestions)}
	s.life, s.end = context.WithCancel(context.Background())
	if s.sub, err = nc.Subscribe(subject+"*", s.take); err == nil {
		err = nc.Flush()
	}
	return s.close, err
}

func (s *service) close() error {
	err := s.sub.Unsubscribe()
	s.end()
	s.running.Wait()
	return err
}

func (s *service) take(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, s.inboxes) {
		return
	}
	select {
	case s.busy <- struct{}{}:
	default:
		s.say(m.Reply, Answer{Error: refusalOf(fmt.Errorf("%w: %d requests are in progress", log.ErrUnavailable, maxQuestions))})
		return
	}
	s.running.Go(func() {
		defer func() { <-s.busy }()
		ctx, cancel := context.WithCancel(s.life)
		var beats sync.WaitGroup
		beats.Go(func() { s.beat(ctx, m.Reply) })
		said, err := s.answer(ctx, strings.TrimPrefix(m.Subject, s.subject), m.Data)
		cancel()
		beats.Wait() // the answer is the last message
		said.Error = refusalOf(err)
		s.say(m.Reply, said)
	})
}

// beat sends empty parts until ctx is done. Each has its first byte: after a message without data, the server would
// pass no further message on to another account.
func (s *service) beat(ctx context.Context, to string) {
	for {
		select {
		case <-time.After(BeatPause):
			_ = s.nc.Publish(to, []byte{partFollows})
		case <-ctx.Done():
			return
		}
	}
}

// say sends an answer in parts. It ignores errors, as the caller may be gone.
func (s *service) say(to string, said Answer) {
	text, err := json.Marshal(said)
	if err != nil {
		text, _ = json.Marshal(Answer{Error: refusalOf(err)}) // a struct of strings always encodes
	}
	for ; len(text) > partSize; text = text[partSize:] {
		_ = s.nc.Publish(to, append([]byte{partFollows}, text[:partSize]...))
	}
	_ = s.nc.Publish(to, append([]byte{partLast}, text...))
}

func (s *service) answer(ctx context.Context, verb string, question []byte) (said Answer, err error) {
	if len(question) > maxQuestion {
		return said, fmt.Errorf("a request has %d bytes, at most %d are allowed", len(question), maxQuestion)
	}
	var q Question
	if err := json.Unmarshal(question, &q); err != nil {
		return said, fmt.Errorf("invalid request: %w", err)
	}
	select {
	case <-s.ts.begun:
	case <-ctx.Done():
		return said, errClosing
	}
	t, err := s.ts.asked(q)
	if err != nil {
		return said, err
	}
	if verb == VerbState && s.ts.now(t) == nil {
		return said, errUnkept
	}
	k, err := s.ts.keep(ctx, t)
	if err != nil {
		return said, err
	}
	return k.answer(ctx, verb, q)
}

// asked returns the tree that a question names. The tree is in the configuration, or an attached process wrote its
// settings into the store's directory.
func (ts *Trees) asked(q Question) (config.Tree, error) {
	for _, t := range ts.all() {
		if t.FileName() == q.Tree || q.Tree == "" && t.Name == q.Name {
			return t, nil
		}
	}
	t, err := readNamed(ts.dir, q.Tree)
	if err != nil {
		return t, err
	}
	if err := ts.Store.CheckNesting(&t, ts.all()); err != nil {
		return t, err
	}
	if _, err := ts.layoutOf(t); err != nil {
		return t, fmt.Errorf("%w: %w", err, tally.ErrNoTrees)
	}
	ts.add(t)
	return t, nil
}

func (k *keptTree) answer(ctx context.Context, verb string, q Question) (said Answer, err error) {
	ctx, done, err := k.use(ctx)
	if err != nil {
		return said, err
	}
	defer done()
	changes := false
	switch verb {
	case VerbKeep, VerbState:
		err = k.showsSoon(ctx, q.At)
	case VerbConflicts:
		said.Conflicts, err = k.tree.Conflicts(ctx)
	case VerbVerify:
		said.Problems, err = k.tree.Verify(ctx)
	case VerbMeet:
		err = k.meet(ctx)
	case VerbAccept, VerbRestore:
		changes, err = true, k.decide(ctx, verb == VerbAccept)
	case VerbPull:
		changes, err = true, k.tree.Pull(ctx)
	case VerbResolve:
		changes, err = true, k.resolve(ctx, q.ID)
	case VerbRebuild:
		changes, err = true, k.again(ctx, true)
	default:
		err = fmt.Errorf("unknown request %q", verb)
	}
	if err == nil && changes {
		err = k.caughtUp(ctx)
	}
	said.Status = k.status(ctx)
	return said, err
}

// showsSoon waits until the tree shows an offset, at most maxShow. After that it returns errNotYet, and the caller asks
// again.
func (k *keptTree) showsSoon(ctx context.Context, at events.Offset) error {
	if at == 0 {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, maxShow)
	defer cancel()
	err := k.runner.Wait(short, at)
	if short.Err() != nil && ctx.Err() == nil {
		return errNotYet
	}
	return err
}

// resolve closes the conflict whose id begins with a prefix.
func (k *keptTree) resolve(ctx context.Context, prefix string) error {
	list, err := k.tree.Conflicts(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, c := range list {
		if prefix != "" && strings.HasPrefix(c.ID, prefix) {
			ids = append(ids, c.ID)
		}
	}
	switch len(ids) {
	case 0:
		return fmt.Errorf("conflict %q: %w", prefix, tally.ErrNotFound)
	case 1:
		return k.tree.Resolve(ctx, ids[0])
	}
	return &events.InvalidError{Field: "conflict", Reason: fmt.Sprintf("%q is a prefix of %d conflicts", prefix, len(ids))}
}

// decide answers the tree's question about a mass change. If the tree does not ask, decide first lets it read the
// files, as the change may not have been noticed yet.
func (k *keptTree) decide(ctx context.Context, accept bool) error {
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

// caughtUp returns when the tree shows all records that are in the log now.
func (k *keptTree) caughtUp(ctx context.Context) error {
	if err := k.again(ctx, false); err != nil {
		return err
	}
	head, err := k.runner.Log.Head(ctx)
	if err != nil {
		return err
	}
	return k.runner.Wait(ctx, head)
}
