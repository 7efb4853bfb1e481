package embedded

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/formats"
	"github.com/tallylog/tally/internal/tree"
	"github.com/tallylog/tally/log"
)

// treeDesk is where other processes of this user ask about the trees that this one keeps: on
// this machine only, by a token that stands in the files of the trees.
//
// It is not a part of the log's service: who keeps a tree need not own the store, and those who
// may use a store from elsewhere have no part in the files of this machine.
type treeDesk struct {
	ts         *trees
	url, token string // "": nobody can ask yet
	server     *http.Server
}

func newTreeDesk(ts *trees) *treeDesk { return &treeDesk{ts: ts} }

// open has the desk answer, unless it does.
func (d *treeDesk) open() error {
	if d.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.url, d.token = "http://"+l.Addr().String()+"/", rand.Text()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{tree}/{verb}", d.answer)
	d.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second}
	go d.server.Serve(netutil.LimitListener(l, max(descriptors()/16, 4))) // until close
	return nil
}

func (d *treeDesk) close() {
	if d.server != nil {
		_ = d.server.Close() // who waits looks who keeps the tree now
	}
}

// TreeAsk is a question to whoever keeps a tree.
type TreeAsk struct {
	At       events.Offset    `json:"at,omitempty"`
	Subjects []events.Subject `json:"subjects,omitempty"`
	ID       string           `json:"id,omitempty"` // of a conflict
}

// TreeAnswer is the answer.
type TreeAnswer struct {
	Status    TreeStatus        `json:"status"`
	Conflicts []tree.Conflict   `json:"conflicts,omitempty"`
	Problems  []formats.Problem `json:"problems,omitempty"`

	Error *treeRefusal `json:"error,omitempty"`
}

// treeRefusal is an error on its way to another process.
type treeRefusal struct {
	Text     string `json:"text"`
	Tree     string `json:"tree,omitempty"` // of a tally.TreeError
	Path     string `json:"path,omitempty"`
	NotFound bool   `json:"notFound,omitempty"`
	Conflict bool   `json:"conflict,omitempty"`
}

func (r *treeRefusal) Error() string { return r.Text }

// Unwrap returns what callers branch on.
func (r *treeRefusal) Unwrap() error {
	switch {
	case r.NotFound:
		return tally.ErrNotFound
	case r.Conflict:
		return log.ErrConflict
	}
	return nil
}

func refusalOf(err error) *treeRefusal {
	if err == nil {
		return nil
	}
	r := &treeRefusal{Text: err.Error(), NotFound: errors.Is(err, tally.ErrNotFound), Conflict: errors.Is(err, log.ErrConflict)}
	if e, ok := errors.AsType[*tally.TreeError](err); ok {
		r.Tree, r.Path, r.Text = e.Tree, e.Path, e.Err.Error()
	}
	return r
}

const mostAsk = 16 << 20 // bytes of a question: it names the subjects of an append

func (d *treeDesk) answer(w http.ResponseWriter, r *http.Request) {
	nonce := r.Header.Get(treeNonce)
	if !isTreeProof(r.Header.Get("Authorization"), d.token, "ask", nonce, []byte(r.URL.Path)) {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	k := d.ts.named(r.PathValue("tree"))
	var ask TreeAsk
	if k == nil {
		http.Error(w, "it is not kept here", http.StatusGone)
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostAsk)).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	said, err := k.answer(r.Context(), r.PathValue("verb"), ask)
	said.Error = refusalOf(err)
	text, err := json.Marshal(said)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Authorization", treeProof(d.token, "said", nonce, text))
	_, _ = w.Write(text) // whoever asked may be gone
}

// treeNonce is the header of what makes each proof another one.
const treeNonce = "Tally-Nonce"

// treeProof shows that whoever says something has the token, without saying it: where a process was
// killed that had a desk, anybody on this machine may be listening by now.
func treeProof(token, what, nonce string, text []byte) string {
	h := hmac.New(sha256.New, []byte(token))
	for _, part := range []string{what, nonce} {
		_, _ = fmt.Fprintf(h, "%d %s", len(part), part)
	}
	_, _ = h.Write(text)
	return "Tally " + hex.EncodeToString(h.Sum(nil))
}

func isTreeProof(proof, token, what, nonce string, text []byte) bool {
	return token != "" && hmac.Equal([]byte(proof), []byte(treeProof(token, what, nonce, text)))
}

// named returns a tree that is kept here by the name of its files.
func (ts *trees) named(file string) *treeKept {
	var found *treeKept
	ts.mu.Lock()
	for _, k := range ts.kept {
		if k.FileName() == file {
			found = k
		}
	}
	ts.mu.Unlock()
	return found.opened()
}

// What can be asked.
const (
	TreeShown     = "shown" // waits until it shows an offset
	TreeState     = "status"
	TreeConflicts = "conflicts"
	TreeAccept    = "accept"
	TreeRestore   = "restore"
	TreeVerify    = "verify"
	TreeRebuild   = "rebuild"
	TreePull      = "pull"
	TreeResolve   = "resolve"
)

func (k *treeKept) answer(ctx context.Context, verb string, ask TreeAsk) (said TreeAnswer, err error) {
	switch verb {
	case TreeShown:
		return said, k.shows(ctx, ask.At, ask.Subjects)
	case TreeState:
	case TreeConflicts:
		said.Conflicts, err = k.tree.Conflicts(ctx)
	case TreeVerify:
		said.Problems, err = k.tree.Verify(ctx)
	case TreeAccept, TreeRestore:
		err = k.decide(ctx, verb == TreeAccept)
	case TreePull:
		err = k.tree.Pull(ctx)
	case TreeResolve:
		err = k.resolve(ctx, ask.ID)
	case TreeRebuild:
		err = k.again(ctx, true)
	default:
		err = fmt.Errorf("%q cannot be asked", verb)
	}
	if err == nil && verb != TreeState && verb != TreeConflicts && verb != TreeVerify && verb != TreeShown {
		err = k.caughtUp(ctx)
	}
	said.Status = k.status(ctx)
	return said, err
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

// treeGoneError says that a process does not keep a tree any more that it kept.
type treeGoneError struct {
	Tree string
	Err  error
}

func (e *treeGoneError) Error() string { return "nobody keeps the tree " + e.Tree + " now" }

// Unwrap returns log.ErrUnavailable.
func (e *treeGoneError) Unwrap() error { return log.ErrUnavailable }

// treeClient asks the desks of others. Nothing of the environment leads it elsewhere.
var treeClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second}}

// ask asks who keeps the tree, as the file says.
func (f treeFile) ask(ctx context.Context, verb string, ask TreeAsk) (said TreeAnswer, err error) {
	if f.PID == 0 {
		return said, &treeGoneError{Tree: f.Tree.Name}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return said, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL+f.name+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return said, err
	}
	nonce := rand.Text()
	req.Header.Set(treeNonce, nonce)
	req.Header.Set("Authorization", treeProof(f.Token, "ask", nonce, []byte(req.URL.Path)))
	answer, err := treeClient.Do(req)
	if ctx.Err() != nil {
		return said, ctx.Err()
	}
	if err != nil {
		return said, &treeGoneError{f.Tree.Name, err}
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return said, &treeGoneError{f.Tree.Name, errors.New(answer.Status)}
	}
	text, err := io.ReadAll(answer.Body)
	if err == nil && !isTreeProof(answer.Header.Get("Authorization"), f.Token, "said", nonce, text) {
		err = errors.New("somebody else answers there")
	}
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if ctx.Err() != nil {
		return TreeAnswer{}, ctx.Err()
	}
	if err != nil {
		return TreeAnswer{}, &treeGoneError{f.Tree.Name, err}
	}
	if said.Error != nil {
		return said, said.Error
	}
	return said, nil
}

// shows waits until the tree shows what is at an offset in subjects.
func (f treeFile) shows(ctx context.Context, at events.Offset, subs []events.Subject) error {
	_, err := f.ask(ctx, TreeShown, TreeAsk{At: at, Subjects: subs})
	if r, ok := errors.AsType[*treeRefusal](err); ok && r.Tree != "" {
		return &tally.TreeError{Tree: r.Tree, Path: r.Path, Err: errors.New(r.Text)}
	}
	return err
}

// AskTree asks whoever keeps a tree of the store in a directory. If nobody does, the error
// matches log.ErrUnavailable, and the status is how the tree was left.
func AskTree(ctx context.Context, dir string, t config.Tree, verb string, ask TreeAsk) (TreeAnswer, error) {
	f, err := treeFileIn(filepath.Join(dir, treesDir), t.FileName())
	if err != nil {
		return TreeAnswer{Status: statusOfTree(t)}, &treeGoneError{t.Name, err}
	}
	said, err := f.ask(ctx, verb, ask)
	if _, gone := errors.AsType[*treeGoneError](err); gone {
		said.Status = f.Tree
		said.Status.PID = 0
	}
	return said, err
}
