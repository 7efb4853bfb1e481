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

// A spool is the folder in which recordings lie until the store has them: one for each store
// and namespace. A recording is a file, and beside it the lock of who writes it.
type spool struct {
	dir       string
	namespace string
}

const lockSuffix = ".lock"

var errNoSpool = errors.New("there is no place to keep a recording: neither HOME nor XDG_STATE_HOME is set, or the store ends with the process")

// spoolOf returns the spool of the store that is configured.
func spoolOf(c config.Config) (spool, error) {
	state, store := config.StateFolder(os.Getenv), c.StoreName()
	if state == "" || store == "" {
		return spool{}, errNoSpool
	}
	return spool{filepath.Join(state, "exec", store, c.Namespace), c.Namespace}, nil
}

// recording is a file of the spool that is one's own.
type recording struct {
	name string
	path string
	lock *os.File
}

// create begins a recording.
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

// release gives the recording up, whatever there is of it.
func (r *recording) release() {
	if _, err := os.Lstat(r.path); errors.Is(err, fs.ErrNotExist) {
		os.Remove(r.path + lockSuffix)
	}
	r.lock.Close()
}

// remove removes the recording: the store has it.
func (r *recording) remove() error {
	err := os.Remove(r.path)
	r.release()
	return err
}

// left claims the recordings that nobody writes any more, and ends those that have no end.
func (s spool) left() (list []*recording) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // nothing was ever recorded, or the next one sees it
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
			_ = r.remove() // nothing was written down; if it stays, it is met again
		case err != nil || finish(r.path) != nil:
			r.release()
		default:
			list = append(list, r)
		}
	}
	return list
}

// agentOf returns who reads a recording, nil if nobody does.
func agentOf(name string) agents.Agent {
	for _, a := range []agents.Agent{stream.Agent{}, acp.Agent{}} {
		if a.Wants(name) {
			return a
		}
	}
	return nil
}

// finish ends a recording that a crash left without an end: its last line gets one, and where
// there are frames it is said.
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

// lastLine returns the last line of a file, or the end of it if it is longer than any frame.
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

// only is an agent of which only some files are read.
type only struct {
	agents.Agent
	names []string
}

// Wants implements agents.Agent.
func (o only) Wants(name string) bool { return slices.Contains(o.names, name) && o.Agent.Wants(name) }

// ingester returns what brings recordings into a log.
func (s spool) ingester(to ingest.Log, once bool, report func(ingest.Problem), names ...string) (*ingest.Ingester, error) {
	return ingest.New(ingest.Options{Log: to, Namespace: s.namespace, Once: once, Report: report, Sources: []ingest.Source{
		{Agent: only{stream.Agent{}, names}, Root: s.dir, ID: "exec"},
		{Agent: only{acp.Agent{}, names}, Root: s.dir, ID: "exec-acp"},
	}})
}

// bring brings recordings that have ended into a log, and removes those that are in it.
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

// takeUp brings into a log what recorders could not, because the store did not take it or they
// were ended. It says how many recordings that were. What others are writing it leaves.
func (s spool) takeUp(ctx context.Context, to ingest.Log) (int, error) {
	list := s.left()
	if len(list) == 0 {
		return 0, nil
	}
	defer func() {
		for _, r := range list {
			r.lock.Close() // once more does nothing
		}
	}()
	return s.bring(ctx, to, list...)
}

// keepTakingUp takes up what recorders leave, now and then, until ctx is done; with once it
// does so once.
func (s spool) keepTakingUp(ctx context.Context, to ingest.Log, once bool) {
	for {
		_, _ = s.takeUp(ctx, to) // what could not be taken up is there the next time
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

// takeUpEvery is how often a watch looks for what recorders left.
const takeUpEvery = time.Minute
