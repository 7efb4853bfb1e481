package record

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// reporter prints the progress of a watch. On a terminal it prints when a session begins, continues after a pause, or
// is rewound; with -o jsonl it prints every change.
type reporter struct {
	app  *cmdutil.App
	once bool
	here string        // namespace of the other commands
	only string        // project whose sessions alone are recorded; "": all
	news chan struct{} // wakes follow

	mu        sync.Mutex      // guards the fields below
	wrong     map[string]bool // errors about projects' files that were printed
	locations []location
	sessions  map[events.Subject]*toldSession
	changed   []*toldSession // changed since the last report
	problems  []problem
	total     int64 // bytes at the beginning
	left      int   // files left out by --backfill
	appended  time.Time
	caughtUp  bool
	isBlocked bool
	last      anchor // last appended line
	failed    error  // error of writing
}

func newReporter(a *cmdutil.App, once bool) *reporter {
	return &reporter{app: a, once: once, news: make(chan struct{}, 1), wrong: make(map[string]bool), sessions: make(map[events.Subject]*toldSession)}
}

// format returns the output format: JSON lines instead of a JSON document, since the output has no end.
func (r *reporter) format() cli.Format {
	if r.app.Format == cli.JSON && !r.once {
		return cli.JSONL
	}
	return r.app.Format
}

// lines reports whether the output is JSON lines.
func (r *reporter) lines() bool { return r.format() == cli.JSONL }

// write writes a line of JSON, and keeps the first error.
func (r *reporter) write(v any) error {
	r.failed = cli.WriteJSON(r.app.Out, cli.JSONL, v)
	return r.failed
}

// followed describes a location, with watch -o jsonl.
type followed struct {
	Event     string `json:"event"` // watching
	Agent     string `json:"agent"`
	Root      string `json:"root"`
	Below     string `json:"below,omitempty"`
	Namespace string `json:"namespace"`
	Redact    bool   `json:"redact"`
	Sessions  int    `json:"sessions"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	Left      int    `json:"left,omitempty"`    // files that are not read until they change
	Missing   bool   `json:"missing,omitempty"` // the folder does not exist yet
}

// begin prints what the watch follows.
func (r *reporter) begin(locations []location, since time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locations = locations
	isSome := func(p location) bool { return !p.isNamed }
	if r.only != "" && slices.ContainsFunc(locations, isSome) {
		fmt.Fprintf(r.app.Err, "only sessions that worked in %s: its %s names the store (--store, --server or your config.toml: all)\n", tilde(r.only), config.FileName)
	}
	for _, p := range locations {
		if p.isMissing && !p.isAwaited {
			continue
		}
		h := p.look(since)
		r.total, r.left = r.total+h.bytes, r.left+h.left
		var err error
		if r.lines() {
			err = r.write(followed{"watching", p.Agent.Name(), p.Root, p.Below, p.namespace, p.redact, len(h.bySession()), len(h.files), h.bytes, h.left, p.isMissing})
		} else if !r.once {
			err = r.app.Say("Watching %s%s", p.Agent.Name(), p.said(h))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// said returns the description of a location after the agent's name.
func (l location) said(h heldFiles) string {
	text := fmt.Sprintf(" in %s: %s", l, plain.Count(len(h.bySession()), "session"))
	if l.isMissing {
		text = fmt.Sprintf(" in %s: waiting, there is no such folder yet", l)
	}
	if h.left > 0 {
		text += fmt.Sprintf(", %s left out until they change", plain.Count(h.left, "file"))
	}
	if l.namespace != events.DefaultNamespace {
		text += ", namespace " + l.namespace
	}
	if !l.redact {
		text += ", not redacted"
	}
	return text
}

// spare prints that another process follows already.
func (r *reporter) spare() error {
	if r.lines() {
		return r.write(happened{Event: "spare"})
	}
	_, err := fmt.Fprintln(r.app.Err, "another watch already fills this store; this one takes over when the other ends")
	return err
}

// happened is an event of the watch itself, with watch -o jsonl.
type happened struct {
	Event  string `json:"event"` // spare, caughtUp, blocked, unblocked
	Reason string `json:"reason,omitempty"`
}

// problem is a problem with a file or a part of it.
type problem struct {
	Event   string `json:"event,omitempty"` // "problem" in JSON lines
	Root    string `json:"root,omitempty"`
	File    string `json:"file,omitempty"`
	Session string `json:"session,omitempty"`
	Offset  int64  `json:"offset,omitempty"` // in the file
	Reason  string `json:"reason"`
	Taken   bool   `json:"taken"` // all lines were recorded nevertheless
}

// problem prints a problem.
func (r *reporter) problem(p ingest.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.app.Err, "%s\n", plain.Printable(p.String()))
	one := problem{"problem", p.Root, p.File, p.Session, p.Offset, p.Reason, p.Taken}
	if r.lines() {
		r.write(one)
	}
	one.Event = ""
	if r.once {
		r.problems = append(r.problems, one)
	}
}

// wrongProject prints once that the file of a project cannot be read.
func (r *reporter) wrongProject(err error) {
	r.mu.Lock()
	isNew := !r.wrong[err.Error()]
	r.wrong[err.Error()] = true
	r.mu.Unlock()
	if isNew {
		r.problem(ingest.Problem{File: err.Error(), Reason: "its sessions go where those of no project do", Taken: true})
	}
}

// toldSession describes a session with new lines.
type toldSession struct {
	Event     string        `json:"event"` // session
	Session   string        `json:"session"`
	Namespace string        `json:"namespace"`
	Agent     string        `json:"agent"`
	New       bool          `json:"new"` // the session began with these lines
	Title     string        `json:"title,omitempty"`
	Project   string        `json:"project,omitempty"`
	Fork      string        `json:"fork,omitempty"`    // session it was forked from
	Rewound   events.Offset `json:"rewound,omitempty"` // offset it was rewound to
	Lines     int           `json:"lines"`
	Events    int           `json:"events"`
	Head      events.Offset `json:"head"` // last offset of the session

	file   string    // file of the last line, relative to its root
	asked  string    // first prompt in the new lines
	began  time.Time // time of the first report
	last   time.Time
	isNew  bool // it began after the watch
	calm   bool // it had no lines for a while before these
	queued bool
}

// extLine is the extension of an event with the position of its line in the file.
const extLine = "tallyline"

// silence is the pause after which a session is reported as continued.
const silence = 30 * time.Minute

// seen records an append.
func (r *reporter) seen(sub events.Subject, evs []events.Event, ack log.Ack, added int) {
	if added == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	s := r.sessions[sub]
	if s == nil {
		agent, _, _ := strings.Cut(sub.ID, "/")
		s = &toldSession{Event: "session", Session: cli.ID(sub.ID), Namespace: sub.Namespace, Agent: agent, began: now}
		r.sessions[sub] = s
	}
	s.calm = s.calm || now.Sub(s.last) > silence
	s.last, r.appended = now, now
	r.last = anchor{ack.Last, evs[len(evs)-1].ID}
	s.Head, s.Events = ack.Last, s.Events+added
	for _, e := range evs {
		s.take(e)
		if r.caughtUp && s.asked == "" && e.Type == events.TypeTurnAppended && r.app.Format == cli.Text {
			s.asked = render.Cut(render.Opening(projector.Decode(events.Record{Event: e})), 200)
		}
	}
	if !s.queued {
		s.queued = true
		r.changed = append(r.changed, s)
	}
	r.wake()
}

// wake wakes follow.
func (r *reporter) wake() {
	select {
	case r.news <- struct{}{}:
	default: // follow is awake
	}
}

// isCalm reports whether there is nothing to print until the next wake.
func (r *reporter) isCalm() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.caughtUp && !r.isBlocked && len(r.changed) == 0
}

// latest returns the last appended line.
func (r *reporter) latest() anchor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// take records the contents of an event.
func (s *toldSession) take(e events.Event) {
	switch e.Type {
	case events.TypeTurnAppended:
		s.Lines++
		if at := strings.LastIndexByte(e.Extensions[extLine], ':'); at >= 0 {
			s.file = e.Extensions[extLine][:at]
		}
	case events.TypeSessionCreated:
		if p, err := events.DecodeAs[events.SessionCreated](e); err == nil {
			s.New, s.isNew, s.Project, s.Title = true, true, cmp.Or(p.Project, p.CWD), p.Title
			if p.Fork != nil {
				s.Fork = cli.ID(p.Fork.Session)
			}
		}
	case events.TypeSessionUpdated:
		if p, err := events.DecodeAs[events.SessionUpdated](e); err == nil {
			for _, f := range p.Set {
				if f.Name == "title" {
					s.Title, _ = rawjson.String(f.Value) // any other value is not a title
				}
			}
		}
	case events.TypeSessionRewound:
		if p, err := events.DecodeAs[events.SessionRewound](e); err == nil {
			s.Rewound = p.To
		}
	}
}

// files returns the paths that a kick may mean: the path itself, or for a session the file of its last line.
func (r *reporter) files(kick string) (paths []string) {
	if filepath.IsAbs(kick) {
		paths = append(paths, kick)
		if resolved, err := filepath.EvalSymlinks(kick); err == nil && resolved != kick {
			paths = append(paths, resolved)
		}
		return paths
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for sub, s := range r.sessions {
		if sub.ID != kick || s.file == "" {
			continue
		}
		for _, p := range r.locations {
			paths = append(paths, filepath.Join(p.Root, filepath.FromSlash(s.file)))
		}
	}
	return paths
}

// pace is the interval between reports of changes. settled is the time without new lines after which existing files
// count as read.
const (
	pace    = 250 * time.Millisecond
	settled = time.Second
)

// follow prints changes until it is stopped. It sleeps between changes, as a watch does most of the day.
func (r *reporter) follow(f *following) (stop func()) {
	r.mu.Lock()
	r.appended = time.Now()
	r.mu.Unlock()
	progress := cli.NewProgress(r.app.Err, r.app.Progress, "reading")
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		var kept anchor
		for r.await(done) {
			r.tick(f, progress)
			if now := r.latest(); now != kept {
				kept = now
				_ = f.keep() // without it, the next watch reads more of the log
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.caughtUp {
			progress.Done(r.total, plain.Count(len(r.sessions), "session"))
		}
		r.sayChanges()
	}
}

// await waits until there may be something to print, and for what follows within a moment. It returns false when done
// is closed.
func (r *reporter) await(done <-chan struct{}) bool {
	if r.isCalm() {
		select {
		case <-r.news:
		case <-done:
			return false
		}
	}
	select {
	case <-time.After(pace):
		return true
	case <-done:
		return false
	}
}

// tick prints changes. Asking for the progress costs a look at each known file, so it is asked only until everything is
// read.
func (r *reporter) tick(f *following, progress *cli.Progress) {
	blocked := f.blocked()
	var s ingest.Status
	if !r.caughtUp { // no other goroutine writes it
		s = f.status()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayBlocked(blocked)
	if !r.caughtUp && blocked == nil {
		isReading := time.Since(r.appended) < settled
		switch {
		case isReading && s.Lag > 0:
			progress.At(max(0, r.total-s.Lag), r.total, fmt.Sprintf("%s, %s", plain.Count(len(r.sessions), "session"), plain.Count(s.Lines, "line")))
		case !isReading && !r.once:
			progress.Done(r.total, plain.Count(len(r.sessions), "session"))
			r.sayCaughtUp(s)
		}
	}
	r.sayChanges()
}

// sayBlocked prints that the store accepts no appends, and that it accepts them again.
func (r *reporter) sayBlocked(why error) {
	if (why != nil) == r.isBlocked {
		return
	}
	r.isBlocked = why != nil
	said := happened{Event: "unblocked"}
	if r.isBlocked {
		said = happened{"blocked", why.Error()}
		fmt.Fprintf(r.app.Err, "the store refuses events now; the watch waits, and loses nothing: %s\n", plain.Printable(said.Reason))
	} else {
		fmt.Fprintln(r.app.Err, "the store accepts events again")
	}
	if r.lines() {
		r.write(said)
	}
}

// sayCaughtUp prints that all existing files are read.
func (r *reporter) sayCaughtUp(s ingest.Status) {
	r.caughtUp = true
	if r.lines() {
		r.sayChanges()
		r.write(happened{Event: "caughtUp"})
		return
	}
	for _, s := range r.changed { // lines of existing files are not reported
		s.queued, s.New, s.calm = false, false, false
	}
	r.changed = nil
	if s.Lines > 0 {
		r.app.Say("Caught up: %s added to %s%s.", plain.Count(s.Lines, "line"), plain.Count(len(r.sessions), "session"), redactedText(s))
	}
}

// sayChanges prints the sessions that changed. On a terminal, a new session waits a little for its title.
func (r *reporter) sayChanges() {
	if !r.lines() && (r.once || !r.caughtUp) {
		return
	}
	list := r.changed
	r.changed = nil
	for _, s := range list {
		switch {
		case r.lines():
			r.write(*s)
		case s.New && s.title() == "" && time.Since(s.began) < 4*settled:
			r.changed = append(r.changed, s)
			continue
		default:
			r.line(s)
		}
		s.queued, s.New, s.calm = false, false, false
		s.Lines, s.Events, s.Rewound, s.asked = 0, 0, 0, ""
	}
}

// line prints a line about a session, if it has news.
func (r *reporter) line(s *toldSession) {
	what := "goes on"
	switch {
	case s.Rewound > 0:
		what = fmt.Sprintf("rewound to %v", s.Rewound)
	case s.New && s.Fork != "":
		what = "forked"
	case s.New:
		what = "new"
	case !s.calm || s.isNew:
		return
	}
	style, width := r.app.Style(), cli.Width(r.app.Out)
	head := fmt.Sprintf("%s  %-8s %s", time.Now().Format("15:04"), what, plain.Printable(s.Session))
	if name := filepath.Base(s.Project); s.Project != "" {
		head += "  " + render.Cut(name, 30)
	}
	text := render.Cut(s.title(), render.Beyond(len([]rune(head))+2, min(width, 200)))
	_, err := fmt.Fprintln(r.app.Out, strings.TrimRight(head+"  "+style.Bold(text), " "))
	r.failed = err
}

// title returns the title of a session, else its first prompt.
func (s *toldSession) title() string { return cmp.Or(s.Title, s.asked) }

// watchSummary is the summary of a watch.
type watchSummary struct {
	Event    string         `json:"event"`       // summary
	Sessions int            `json:"sessions"`    // sessions with new lines
	New      int            `json:"newSessions"` // of these, new sessions
	Files    int            `json:"files"`       // files found
	Left     int            `json:"left"`        // files not read until they change, by --backfill
	Alone    int            `json:"leftAlone"`   // sessions of projects other than the one whose tally.toml names the store
	Lines    int            `json:"lines"`       // lines added
	Events   int            `json:"events"`      // events added, including those of lines
	Redacted int            `json:"redacted"`    // places with removed secrets
	Rules    map[string]int `json:"rules"`       // the same by rule
	Problems []problem      `json:"problems"`    // with --once
	Head     uint64         `json:"head"`        // of the log; 0: unknown
}

// end prints the summary. cut is set if the command was interrupted.
func (r *reporter) end(s ingest.Status, head uint64, cut bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := watchSummary{Event: "summary", Sessions: len(r.sessions), Files: s.Files, Left: r.left, Alone: s.Alone,
		Lines: s.Lines, Events: s.Events, Redacted: s.Redacted, Rules: s.Rules, Problems: cli.NonNil(r.problems), Head: head}
	for _, told := range r.sessions {
		if told.isNew {
			sum.New++
		}
	}
	if s.Full {
		fmt.Fprintln(r.app.Err, "there are more files than can be followed: some are not read")
	}
	if s.State != nil {
		fmt.Fprintf(r.app.Err, "the watch's state cannot be used, so files are compared with the store: %s\n", plain.Printable(s.State.Error()))
	}
	var err error
	if r.app.Format != cli.Text {
		err = cli.WriteJSON(r.app.Out, r.format(), sum)
	} else {
		err = r.summary(sum, s, cut)
	}
	left := slices.DeleteFunc(slices.Clone(r.problems), func(p problem) bool { return p.Taken })
	if err == nil && !cut && r.once && (len(left) > 0 || s.Full) {
		return &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("%s; everything else is in the store", plain.Count(max(1, len(left)), "problem"))}
	}
	return err
}

func (r *reporter) summary(sum watchSummary, s ingest.Status, cut bool) error {
	switch {
	case !r.once || cut:
		return r.app.Say("Stopped: %s added to %s%s. All lines read so far are in the store.",
			plain.Count(sum.Lines, "line"), plain.Count(sum.Sessions, "session"), redactedText(s))
	case sum.Events == 0:
		left := ""
		if sum.Left > 0 {
			left = fmt.Sprintf(", and %s left out", plain.Count(sum.Left, "older file"))
		}
		if sum.Alone > 0 {
			left += fmt.Sprintf(", but for %s of other projects", plain.Count(sum.Alone, "session"))
		}
		if sum.Files == 0 && left == "" {
			return r.app.Say("Nothing new: there are no files to read%s.", left)
		}
		return r.app.Say("Nothing new: all of %s is in the store already%s.", plain.Count(sum.Files, "file"), left)
	}
	how := ""
	if sum.New > 0 && sum.New < sum.Sessions {
		how = fmt.Sprintf(" (%d new)", sum.New)
	}
	if err := r.app.Say("Took %s%s: %s as %s%s, head @%d.", plain.Count(sum.Sessions, "session"), how, plain.Count(sum.Lines, "line"),
		plain.Count(sum.Events, "event"), redactedText(s), sum.Head); err != nil {
		return err
	}
	if err := r.elsewhere(); err != nil {
		return err
	}
	program, flags := cmdutil.Program(), r.app.StoreFlags()
	_, err := fmt.Fprintf(r.app.Out, "\nNext:\n  %s ls%s\n  %s show last%s\n  %s cost --by model%s\n", program, flags, program, flags, program, flags)
	return err
}

// elsewhere prints how many sessions went to namespaces other than the one that commands use.
func (r *reporter) elsewhere() error {
	counts := make(map[string]int)
	for sub := range r.sessions {
		counts[sub.Namespace]++
	}
	for _, namespace := range slices.Sorted(maps.Keys(counts)) {
		if namespace == r.here {
			continue
		}
		if err := r.app.Say("Of them %d in namespace %s, as their project says (--namespace %s).", counts[namespace], namespace, namespace); err != nil {
			return err
		}
	}
	return nil
}

// redactedText returns the number of removed secrets by rule, the most frequent first.
func redactedText(s ingest.Status) string {
	if s.Redacted == 0 {
		return ""
	}
	rules := slices.SortedFunc(maps.Keys(s.Rules), func(a, b string) int {
		if s.Rules[a] != s.Rules[b] {
			return s.Rules[b] - s.Rules[a]
		}
		return strings.Compare(a, b)
	})
	for i, rule := range rules {
		rules[i] = fmt.Sprintf("%s %d", rule, s.Rules[rule])
	}
	return fmt.Sprintf(", %s redacted (%s)", plain.Count(s.Redacted, "place"), strings.Join(rules, ", "))
}
