package record

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/acp"
	"github.com/tallylog/tally/internal/agents/stream"
	"github.com/tallylog/tally/internal/ingest/redact"
)

// recorder writes the lines of a tape to a file of the spool, without secrets, and copies it to the store meanwhile.
// The command never waits for it.
type recorder struct {
	app     *cmdutil.App
	format  string
	command []string
	redact  bool
	tape    *tape
	ending  *stream.Ending // set before the tape is closed; nil: the command did not run

	stop      context.CancelFunc
	begun     chan struct{} // closed when the file exists or its creation has failed
	written   chan struct{} // closed when the file is complete
	inStore   chan struct{} // closed when the store has the whole recording
	delivered chan delivery

	// The fields below belong to the writer until written is closed.
	spool    spool
	redactor *redact.Redactor
	own      *recording // nil: there is no file
	file     *os.File
	size     int64
	buf      []byte    // to be written
	held     []byte    // lines read before their session is known
	holding  int       // number of these lines
	rest     [2][]byte // incomplete line of each direction
	fold     agents.Fold
	id       string // session id in the agent's output
	out      recorded
	err      error // why the recording is incomplete
}

// delivery is the progress of copying to the store.
type delivery struct {
	err     error // nil: the store has the whole recording
	takenUp int
	twice   string
}

// Limits for lines that are held back to find the session, and for the length of a line.
const (
	maxHeld     = 16
	maxHeldLine = 16 << 20
)

// recorder begins to record a command that is about to run.
func (x *executor) recorder(command []string) *recorder {
	quiet := *x.app
	quiet.Err = io.Discard // standard error belongs to the command
	ctx, stop := context.WithCancel(context.Background())
	r := &recorder{app: &quiet, format: x.format, command: command, redact: x.redact == "on", tape: newTape(), stop: stop,
		begun: make(chan struct{}), written: make(chan struct{}), inStore: make(chan struct{}), delivered: make(chan delivery, 1)}
	go r.write()
	go func() { r.delivered <- r.deliver(ctx) }()
	return r
}

// discard drops the recording of a command that could not be started.
func (r *recorder) discard() {
	r.tape.close()
	<-r.delivered
}

// lastWords is the time limit for closing a store after the wait for it has ended.
const lastWords = 500 * time.Millisecond

// end ends the recording and returns its result. It waits until ctx is done, and little longer.
func (r *recorder) end(ctx context.Context, e stream.Ending) recorded {
	r.ending = &e
	r.tape.close()
	select {
	case d := <-r.delivered:
		return r.sum(d)
	case <-ctx.Done():
	}
	r.stop()
	select {
	case d := <-r.delivered:
		return r.sum(d)
	case <-time.After(lastWords):
	}
	if r.isIn() {
		return r.sum(delivery{})
	}
	return r.sum(delivery{err: errLate})
}

// sum returns the result of the recording so far.
func (r *recorder) sum(d delivery) recorded {
	select {
	case <-r.written:
	default:
		return recorded{Sessions: []string{}, Problem: "it was not written down in time"}
	}
	out := r.out
	out.TakenUp, out.Twice, out.Durable = d.takenUp, d.twice, d.err == nil && r.own != nil
	if out.Sessions == nil {
		out.Sessions = []string{}
	}
	switch {
	case r.own != nil && d.err != nil:
		out.File, out.Problem = r.own.path, errors.Join(r.err, d.err).Error()
	case r.err != nil:
		out.Problem = "not all was recorded: " + r.err.Error()
	}
	out.Problem = strings.ReplaceAll(out.Problem, "\n", "; ")
	return out
}

// write writes the lines of the tape until its end.
func (r *recorder) write() {
	defer close(r.written)
	defer func() {
		if r.own == nil {
			close(r.begun)
		}
	}()
	if r.err = r.prepare(); r.err != nil {
		r.tape.drop()
	}
	for {
		pieces, more := r.tape.take()
		if !more {
			break
		}
		for _, p := range pieces {
			r.take(p)
		}
		r.flush()
	}
	if r.ending != nil {
		r.finish()
	}
}

// prepare chooses the file of the recording, which the first line creates.
func (r *recorder) prepare() error {
	c, err := r.app.Config()
	if err != nil {
		return err
	}
	if r.spool, err = spoolOf(c); err == nil && r.redact {
		r.redactor, err = redactor(c.Redact, os.Getenv)
	}
	return err
}

// take splits a piece of the tape into lines.
func (r *recorder) take(p piece) {
	side := 0
	if p.toAgent {
		side = 1
	}
	for rest := p.bytes; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		ended := end >= 0
		if !ended {
			end = len(rest)
		}
		r.rest[side] = append(r.rest[side], rest[:end]...)
		rest = rest[min(end+1, len(rest)):]
		if ended || len(r.rest[side]) > maxHeldLine {
			r.line(p.toAgent, r.rest[side], ended)
			r.rest[side] = r.rest[side][:0]
		}
	}
}

// line adds a line, or a part of one that is too long.
func (r *recorder) line(toAgent bool, line []byte, ended bool) {
	r.out.Lines++
	if r.format == acpFormat {
		line, ended = acp.Record(toAgent, line), true
	}
	line = r.clean(line)
	if r.own == nil {
		r.hold(line, ended)
		return
	}
	r.add(line, ended)
}

// clean removes secrets from a line.
func (r *recorder) clean(line []byte) []byte {
	if r.redactor == nil {
		return line
	}
	clean, found := r.redactor.Line(line)
	for _, f := range found {
		r.out.Redacted += f.Count
	}
	return clean
}

// hold keeps a line back until its session is known, or the limit is reached.
func (r *recorder) hold(line []byte, ended bool) {
	r.held = append(r.held, line...)
	if ended {
		r.held = append(r.held, '\n')
	}
	r.holding++
	r.id = stream.SessionIn(r.format, line)
	if r.id != "" || r.format == acpFormat || r.format == stream.Lines || r.holding == maxHeld || len(r.held) > maxHeldLine {
		r.begin()
	}
}

// begin creates the file.
func (r *recorder) begin() {
	if r.err != nil {
		return
	}
	now := time.Now()
	stamp := now.UTC().Format("20060102T150405.000") + "-" + strings.ToLower(rand.Text()[:8])
	name := stamp + ".acp.jsonl"
	if r.format != acpFormat {
		name = stream.FileName(r.format, stamp, r.id, r.command)
	}
	if r.own, r.file, r.err = r.spool.create(name); r.err != nil {
		r.own = nil
		r.tape.drop()
		return
	}
	close(r.begun)
	file, _ := agentOf(name).File(name, nil)
	if r.format == acpFormat {
		r.fold = acp.Agent{}.Fold(file)
	} else {
		cwd, _ := os.Getwd() // an unknown directory is left out
		r.out.Sessions = []string{file.Session}
		r.buf = append(append(r.buf, r.clean(stream.Begin(r.command, cwd, now))...), '\n')
	}
	held := r.held
	r.held = nil
	for line := range strings.Lines(string(held)) {
		text, ended := strings.CutSuffix(line, "\n")
		r.add([]byte(text), ended)
	}
}

// add adds a line to the file.
func (r *recorder) add(line []byte, ended bool) {
	r.buf = append(r.buf, line...)
	if ended {
		r.buf = append(r.buf, '\n')
	}
	if r.fold == nil {
		return
	}
	if m := r.fold.Line(agents.Span{}, line); m.Session != "" && !slices.Contains(r.out.Sessions, m.Session) {
		r.out.Sessions = append(r.out.Sessions, m.Session)
	}
}

// flush writes the added lines. After an error the file is cut at the last complete line, and later lines are dropped.
func (r *recorder) flush() {
	if r.own == nil || len(r.buf) == 0 {
		return
	}
	n, err := r.file.Write(r.buf)
	whole := n
	if err != nil {
		whole = bytes.LastIndexByte(r.buf[:n], '\n') + 1
	}
	r.buf = r.buf[:0]
	r.size += int64(whole)
	if err != nil {
		_ = r.file.Truncate(r.size) // else the next reader completes the line
		if r.err == nil {
			r.err = err
		}
		r.tape.drop()
	}
}

// finish writes the end of the file.
func (r *recorder) finish() {
	torn, isLost := false, r.err != nil || r.tape.isLost()
	for side, rest := range r.rest {
		if len(rest) > 0 && !isLost {
			torn = side == 0
			r.line(side == 1, rest, false)
		}
	}
	if r.own == nil && (r.format != acpFormat || r.holding > 0) {
		r.begin()
	}
	if r.own == nil {
		return
	}
	r.flush()
	e := *r.ending
	e.Torn, e.Lost = torn, isLost || r.err != nil
	if e.Lost && r.err == nil {
		r.err = errors.New("output arrived faster than it could be written")
	}
	if r.format != acpFormat {
		if torn {
			r.buf = append(r.buf, '\n')
		}
		r.buf = append(append(r.buf, stream.End(e, time.Now())...), '\n')
	}
	r.flush()
	r.file.Close()
}

// deliver copies the recording to the store while it is written, and then earlier recordings.
func (r *recorder) deliver(ctx context.Context) (d delivery) {
	select {
	case <-r.begun:
	case <-ctx.Done():
		return delivery{err: errLate}
	}
	if r.own == nil {
		<-r.written
		return delivery{err: r.err}
	}
	d.err = errLate
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		err := r.app.WithStore(ctx, func(st *tally.Store) error { return r.into(ctx, st, &d) })
		switch {
		case r.isIn(): // the records are durable whatever closing the store returns
			d.err = nil
			return d
		case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
			d.err = err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return d
		}
	}
}

// firstPause is the time before a second attempt to open the store.
const firstPause = 50 * time.Millisecond

var errLate = errors.New("the store did not answer in time")

// isIn reports whether the store has the whole recording.
func (r *recorder) isIn() bool {
	select {
	case <-r.inStore:
		return true
	default:
		return false
	}
}

// into copies the recording to a store until its end, and then earlier recordings.
func (r *recorder) into(ctx context.Context, st *tally.Store, d *delivery) error {
	if err := r.follow(ctx, st); err != nil {
		return err
	}
	if _, err := r.spool.bring(ctx, st.Log, r.own); err != nil {
		return err
	}
	close(r.inStore)
	if r.format == codexFormat || r.format == geminiFormat {
		own := r.format + "/" + r.id
		if _, err := st.Log.Last(ctx, events.Session(st.Namespace(), own)); err == nil && r.id != "" {
			d.twice = own
		}
	}
	d.takenUp, _ = r.spool.takeUp(ctx, st.Log) // the next exec or watch tries again
	return nil
}

// Formats of agents whose output does not name responses, and which keep files of their own.
const codexFormat, geminiFormat = "codex", "gemini"

// follow copies the recording until all of it is in the store.
func (r *recorder) follow(ctx context.Context, st *tally.Store) error {
	live, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-r.written:
			stop()
		case <-live.Done():
		}
	}()
	in, err := r.spool.ingester(st.Log, false, nil, r.own.name)
	if err != nil {
		return err
	}
	err = in.Run(live)
	if ctx.Err() == nil && live.Err() != nil {
		err = nil // the recording is complete
	}
	return errors.Join(err, in.Close())
}
