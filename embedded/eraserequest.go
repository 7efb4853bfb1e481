package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/log"
)

// An attached process writes its plan into the store's folder, and asks the owner to carry it out. Only processes of this
// user can do either. The answer comes when the erasure is over, or says that it is not: then the process asks again.

// eraseSubject is the subject of these requests.
const eraseSubject = "tally.api.v1.erase"

// erasePatience is how long the owner keeps a request waiting. The server forgets the way back to the requester after two
// minutes.
const erasePatience = 5 * time.Second

// eraseRequest asks for an erasure, or for its outcome.
type eraseRequest struct {
	Receipt string `json:"receipt"`
}

type eraseReply struct {
	Pending bool   `json:"pending,omitempty"`
	Code    string `json:"code,omitempty"` // a key of eraseErrors, or "error"; "": no error
	Message string `json:"message,omitempty"`
}

// eraseErrors are the errors that callers of an erasure tell apart.
var eraseErrors = map[string]error{
	"full": log.ErrFull, "newer": log.ErrNewer, "conflict": log.ErrConflict, "unavailable": log.ErrUnavailable, "notFound": events.ErrNotFound,
}

func eraseReplyOf(err error) eraseReply {
	if err == nil {
		return eraseReply{}
	}
	r := eraseReply{Code: "error", Message: err.Error()}
	for code, is := range eraseErrors {
		if errors.Is(err, is) && (r.Code == "error" || code != "unavailable") {
			r.Code = code
		}
	}
	return r
}

func (r eraseReply) err() error {
	if r.Code == "" {
		return nil
	}
	return &requestError{r.Message, eraseErrors[r.Code]}
}

// requestError is an error of the owner.
type requestError struct {
	text string
	is   error
}

func (e *requestError) Error() string { return e.text }
func (e *requestError) Unwrap() error { return e.is }

// planFile returns the file in which a process leaves its plan for the owner.
func planFile(dir, receipt string) string { return filepath.Join(dir, "erase-"+receipt+".json") }

// eraseRequester erases in a store that another process owns.
type eraseRequester struct {
	dir string
	a   *Attached
}

func (r *eraseRequester) erase(ctx context.Context, p erasure.Plan) error {
	text, err := p.Encode()
	if err != nil {
		return err
	}
	path := planFile(r.dir, p.Receipt)
	if err := durable.Replace(path, text, 0o600, durable.NoSync); err != nil {
		return err
	}
	defer os.Remove(path)
	ctx, cancel := r.a.Log().UntilGone(ctx)
	defer cancel()
	request, err := json.Marshal(eraseRequest{p.Receipt})
	if err != nil {
		return err
	}
	for {
		m, err := r.a.conns[0].RequestWithContext(ctx, eraseSubject, request)
		if errors.Is(err, nats.ErrNoResponders) { // the owner is opening the store
			rest(ctx, 50*time.Millisecond)
			err = context.Cause(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("embedded: erase in %s: %w: if the owner of the store has begun, the next one completes the erasure: %w", r.dir, log.ErrUnknown, err)
		}
		var reply eraseReply
		if err := json.Unmarshal(m.Data, &reply); err != nil {
			return fmt.Errorf("embedded: erase in %s: %w: %v", r.dir, log.ErrUnknown, err)
		}
		if !reply.Pending {
			return reply.err()
		}
	}
}

// open completes an erasure that an earlier owner began, and then answers the requests of attached processes. A store
// that is opened to inspect it, that refuses appends or whose disk is full leaves the rest of the erasure to the next
// owner.
func (e *eraser) open(ctx context.Context, o Options) error {
	p, ok, err := erasure.Load(e.s.dir)
	if err != nil {
		return err
	}
	if ok && e.s.known && !o.Still && o.refused == nil {
		err := e.finish(ctx, p)
		if err != nil && !errors.Is(err, log.ErrFull) {
			return err
		}
		if err != nil {
			e.s.logger.Error("an erasure is not complete: views and snapshots may have what it erased", "dir", e.s.dir, "receipt", p.Receipt, "error", err)
		}
	}
	if e.s.local != nil {
		sub, err := e.s.conns[1].Subscribe(eraseSubject, e.take)
		if err != nil {
			return err
		}
		e.s.atEnd(func() error {
			err := sub.Unsubscribe()
			e.running.Wait()
			return err
		})
	}
	if e.s.announce != nil {
		return e.s.announce()
	}
	return nil
}

// take answers a request. It answers to inboxes only, as the keeper of trees does.
func (e *eraser) take(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, "_R_.") {
		return
	}
	e.running.Go(func() {
		text, err := json.Marshal(e.answer(m.Data))
		if err == nil {
			_ = e.s.conns[1].Publish(m.Reply, text) // the requester may be gone
		}
	})
}

// erasureJob is an erasure that an attached process asked for.
type erasureJob struct {
	over chan struct{}
	err  error // once over is closed
}

func (e *eraser) answer(request []byte) eraseReply {
	var r eraseRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return eraseReplyOf(err)
	}
	job, err := e.job(r.Receipt)
	if err != nil {
		return eraseReplyOf(err)
	}
	select {
	case <-job.over:
		e.asking.Lock()
		delete(e.jobs, r.Receipt)
		e.asking.Unlock()
		return eraseReplyOf(job.err)
	case <-time.After(erasePatience):
		return eraseReply{Pending: true}
	}
}

// job returns the erasure with a receipt. If none is under way, it begins one with the plan that the requester left.
func (e *eraser) job(receipt string) (*erasureJob, error) {
	e.asking.Lock()
	defer e.asking.Unlock()
	if job := e.jobs[receipt]; job != nil {
		return job, nil
	}
	if strings.ContainsAny(receipt, `/\`) {
		return nil, fmt.Errorf("erase: %q is not a receipt", receipt)
	}
	path := planFile(e.s.dir, receipt)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := erasure.Decode(path, text)
	if err == nil && p.Receipt != receipt {
		err = fmt.Errorf("erase: the plan has receipt %s, not %s", p.Receipt, receipt)
	}
	if err != nil {
		return nil, err
	}
	job := &erasureJob{over: make(chan struct{})}
	if e.jobs == nil {
		e.jobs = make(map[string]*erasureJob)
	}
	e.jobs[receipt] = job
	e.running.Go(func() {
		defer close(job.over)
		job.err = e.erase(context.Background(), p)
	})
	return job, nil
}
