package record

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/acp"
	"github.com/tallylog/tally/internal/agents/stream"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/lockfile"
	"github.com/tallylog/tally/internal/ingest"
)

// A spool is the folder for recordings that are not in the store yet. Each store and namespace has one. A recording is
// a file, with a lock file of its writer.
type spool struct {
	dir       string
	namespace string
}

const lockSuffix = ".lock"

var errNoSpool = errors.New("there is no folder for the recording: neither HOME nor XDG_STATE_HOME is set, or the store ends with the process")

// spoolOf returns the spool of the configured store.
func spoolOf(c config.Config) (spool, error) {
	state, name := config.StateFolder(os.Getenv), c.StoreName()
	if state == "" || name == "" {
		return spool{}, errNoSpool
	}
	return spool{filepath.Join(state, "exec", name, c.Namespace), c.Namespace}, nil
}

// recording is a file of the spool that this process has locked.
type recording struct {
	name string
	path string
	lock *os.File
}

// create creates a recording.
func (s spool) create(name string) (*recording, *os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, nil, err
	}
	r, err := s.claim(name)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		r.release()
		return nil, nil, err
	}
	return r, f, nil
}

// claim takes the lock of a recording.
func (s spool) claim(name string) (*recording, error) {
	path := filepath.Join(s.dir, name)
	lock, err := lockfile.Take(path + lockSuffix)
	if err != nil {
		return nil, err
	}
	return &recording{name, path, lock}, nil
}

// release releases the lock.
func (r *recording) release() {
	if _, err := os.Lstat(r.path); errors.Is(err, fs.ErrNotExist) {
		os.Remove(r.path + lockSuffix)
	}
	r.lock.Close()
}

// remove removes a recording that is in the store.
func (r *recording) remove() error {
	err := os.Remove(r.path)
	r.release()
	return err
}

// left claims the recordings without a writer, and completes those without an end.
func (s spool) left() (list []*recording) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // there is no spool yet; otherwise the next call sees it
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || agentOf(e.Name()) == nil {
			continue
		}
		r, err := s.claim(e.Name())
		if err != nil {
			continue
		}
		switch info, err := os.Stat(r.path); {
		case err == nil && info.Size() == 0:
			_ = r.remove() // it has no lines; if it cannot be removed, the next call tries again
		case err != nil || finish(r.path) != nil:
			r.release()
		default:
			list = append(list, r)
		}
	}
	return list
}

// agentOf returns the agent that reads a recording, or nil.
func agentOf(name string) agents.Agent {
	for _, a := range []agents.Agent{stream.Agent{}, acp.Agent{}} {
		if a.Wants(name) {
			return a
		}
	}
	return nil
}

// finish completes a recording that a crash left: it ends the last line, and in a format with frames adds an end frame.
func finish(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	last, size, err := lastLine(f)
	if err != nil || size == 0 {
		return err
	}
	var more []byte
	if !bytes.HasSuffix(last, []byte("\n")) {
		more = append(more, '\n')
	}
	if _, framed := agentOf(filepath.Base(path)).(stream.Agent); framed && !stream.IsEnd(bytes.TrimSpace(last)) {
		more = append(append(more, stream.End(stream.Ending{Cut: true, Torn: len(more) > 0}, time.Now())...), '\n')
	}
	if len(more) == 0 {
		return nil
	}
	_, err = f.WriteAt(more, size)
	return err
}

// lastLine returns the last line of a file, or its end if the line is longer than any frame.
func lastLine(f *os.File) (line []byte, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	const most = 4 << 10
	size = info.Size()
	b := make([]byte, min(size, most))
	if _, err := f.ReadAt(b, size-int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return b[bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n')+1:], size, nil
}

// only is an agent with a part of its files.
type only struct {
	agents.Agent
	names []string
}

// Wants implements agents.Agent.
func (o only) Wants(name string) bool { return slices.Contains(o.names, name) && o.Agent.Wants(name) }

// ingester returns an ingester for recordings.
func (s spool) ingester(to ingest.Log, once bool, report func(ingest.Problem), names ...string) (*ingest.Ingester, error) {
	return ingest.New(ingest.Options{Log: to, Namespace: s.namespace, Once: once, Report: report, Sources: []ingest.Source{
		{Agent: only{stream.Agent{}, names}, Root: s.dir, ID: "exec"},
		{Agent: only{acp.Agent{}, names}, Root: s.dir, ID: "exec-acp"},
	}})
}

// bring copies complete recordings to a log and removes those that are in it.
func (s spool) bring(ctx context.Context, to ingest.Log, list ...*recording) (n int, err error) {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.name
	}
	wrong := make(map[string]error)
	in, err := s.ingester(to, true, func(p ingest.Problem) {
		if !p.Taken {
			wrong[p.File] = errors.New(p.String())
		}
	}, names...)
	if err != nil {
		return 0, err
	}
	err = in.Run(ctx)
	if full := in.Status().Blocked; full != nil && ctx.Err() != nil {
		err = full
	}
	if err = errors.Join(err, in.Close()); err != nil {
		return 0, err
	}
	for _, r := range list {
		if bad := wrong[r.name]; bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		if bad := r.remove(); bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		n++
	}
	return n, err
}

// takeUp copies to a log the recordings that earlier processes could not store, and returns their number. It skips
// recordings that are being written.
func (s spool) takeUp(ctx context.Context, to ingest.Log) (int, error) {
	list := s.left()
	if len(list) == 0 {
		return 0, nil
	}
	defer func() {
		for _, r := range list {
			r.lock.Close() // closing twice has no effect
		}
	}()
	return s.bring(ctx, to, list...)
}

// keepTakingUp calls takeUp at intervals until ctx is done, with once only one time.
func (s spool) keepTakingUp(ctx context.Context, to ingest.Log, once bool) {
	for {
		_, _ = s.takeUp(ctx, to) // the next call tries again
		if once {
			return
		}
		select {
		case <-time.After(takeUpEvery):
		case <-ctx.Done():
			return
		}
	}
}

// takeUpEvery is the interval at which a watch looks for recordings.
const takeUpEvery = time.Minute
