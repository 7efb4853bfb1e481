package record

import (
	"context"
	"errors"
	"iter"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/ingest/tail"
)

func newWatch(a *cmdutil.App) *cobra.Command {
	w := &watcher{app: a, redact: on}
	cmd := &cobra.Command{
		Use: "watch [AGENT|PATH]...", Short: "Record the sessions of agents while they work", Args: cobra.ArbitraryArgs,
		Long: `Record the sessions of agents while they work: ` + cmdutil.Or(cmdutil.AgentNames()) + `. Each
line of their files is stored within milliseconds, so sessions that an agent rewinds, forks
or deletes stay readable. The files are only read.

Without arguments the command follows all agents on this machine, also those that write
their first session later, and the folders in your config.toml (a project's tally.toml may
list folders of the project):

  [[watch]]
  root = "~/team/.claude"   # the folder of an agent, one of its projects, or one file
  agent = "claude"          # default: by the contents
  namespace = "team"        # default: that of other sessions
  redact = false            # default: true

  [redact]
  patterns = ['T-[0-9]{6}', {name = "ticket", regexp = 'ticket=(\S+)'}]
  env = ["DB_PASSWORD"]     # the values of these variables are secrets

A session goes to the namespace in the tally.toml of the project in which it begins, and
stays there. --namespace sets one namespace for all. If a project's tally.toml names the
store, only sessions of that project are recorded.

Known shapes of secrets are removed from each line before it is stored, and counted. The
position in each file is kept in $XDG_STATE_HOME/tally. If it is lost, or the process is
killed, no line is lost or stored twice. If the store is full or unreachable, the command
waits. A second watch of a namespace waits and takes over when the first ends. Stop with
Ctrl-C.`,
		Example: cmdutil.Examples("tally watch", "tally watch --once && tally ls", "tally watch claude codex --backfill 30d",
			"tally watch ~/.claude/projects/-home-me-shop --namespace shop -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmdutil.CollectLess()
			cmdutil.WorkBesideSyncs()
			w.explicit = cmd.Flags().Changed("redact")
			return w.run(cmd.Context(), args)
		},
	}
	cmd.ValidArgsFunction = offerAgents
	w.flags(cmd.Flags())
	cmd.Flags().BoolVar(&w.once, "once", false, "end when everything that is there now is in the store; the exit code is 3 if something could not be taken, and 4 if no agent has sessions here")
	return cmd
}

// offerAgents completes agents and files.
func offerAgents(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return cmdutil.AgentNames(), cobra.ShellCompDirectiveDefault
}

// on is the value of --redact with which secrets are removed.
const on = "on"

// watcher is one run of watch.
type watcher struct {
	app      *cmdutil.App
	once     bool
	redact   string
	explicit bool // --redact is set on the command line
	backfill backfill
}

func (w *watcher) flags(f *pflag.FlagSet) {
	f.Var(cli.OneOf(&w.redact, "when", on, "off"), "redact",
		"on or off: whether known shapes of secrets are taken out of lines before they are stored (default on, or what tally.toml says of a folder)")
	f.Lookup("redact").DefValue = ""
	f.Var(&w.backfill, "backfill",
		"which files are read that are there already: all, those that were changed within a time such as 30d or 12h, or none; the others are read whole once they change")
}

// backfill is the value of --backfill: the age up to which existing files are read.
type backfill struct {
	text  string
	since func(now time.Time) time.Time // nil: all files
}

// Set implements pflag.Value.
func (b *backfill) Set(text string) error {
	b.text = text
	switch text {
	case "all":
		b.since = nil
		return nil
	case "none":
		// Some file systems round times to 2 s.
		b.since = func(now time.Time) time.Time { return now.Add(-2 * time.Second) }
		return nil
	}
	age, err := time.ParseDuration(text)
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		var n int
		n, err = strconv.Atoi(days)
		age = time.Duration(n) * 24 * time.Hour
		if n > 100_000 {
			err = errors.New("too long ago")
		}
	}
	if err != nil || age <= 0 {
		return errors.New("want all, none or a time such as 30d")
	}
	b.since = func(now time.Time) time.Time { return now.Add(-age) }
	return nil
}

// String implements pflag.Value.
func (b *backfill) String() string { return b.text }

// Words returns the words that a shell offers.
func (b *backfill) Words() []string { return []string{"all", "30d", "none"} }

// Type implements pflag.Value.
func (b *backfill) Type() string { return "all|AGE|none" }

// from returns the time since which files are read, zero for all files.
func (b *backfill) from(now time.Time) time.Time {
	if b.since == nil {
		return time.Time{}
	}
	return b.since(now)
}

// run follows the arguments until ctx is done, which is not an error. With once it ends when everything is read.
func (w *watcher) run(ctx context.Context, args []string) error {
	return w.follow(ctx, args, &store{Reopening: cmdutil.Reopening{Open: w.app.Open}})
}

// Follow follows all agents until ctx is done, as watch does without arguments. It is for a program that has the store
// open.
func Follow(ctx context.Context, a *cmdutil.App, st *tally.Store) error {
	s := new(store)
	s.Use(st)
	return (&watcher{app: a, redact: on}).follow(ctx, nil, s)
}

// CheckFollow returns the error that Follow would return for the configuration.
func CheckFollow(a *cmdutil.App) error {
	_, _, _, err := (&watcher{app: a, redact: on}).settings(nil)
	return err
}

// settings returns the settings for following from the configuration.
func (w *watcher) settings(args []string) (c config.Config, locations []location, secrets *redact.Redactor, err error) {
	if c, err = w.app.Config(); err != nil {
		return c, nil, nil, err
	}
	locations, err = locationsOf(args, c, wish{routing: c.Routing(), redact: w.redact == on, explicit: w.explicit, patient: !w.once}, os.Getenv)
	if err != nil {
		return c, nil, nil, err
	}
	secrets, err = redactor(c.Redact, os.Getenv)
	return c, locations, secrets, err
}

func (w *watcher) follow(ctx context.Context, args []string, into *store) error {
	c, locations, secrets, err := w.settings(args)
	if err != nil {
		return err
	}
	sayLinks(w.app, locations)
	t := newReporter(w.app, w.once)
	t.here, t.only = c.Namespace, c.Routing().Only
	into.seen = t.seen
	f := &following{watcher: w, config: c, groups: grouped(locations), secrets: secrets, since: w.backfill.from(time.Now()), reporter: t, store: into}
	if err := f.begin(ctx); err != nil {
		return errors.Join(unlessEnded(ctx, err), f.Close())
	}
	if err = t.begin(locations, f.since); err == nil && f.store.Open != nil && !w.once && w.app.Format == cli.Text {
		err = w.app.Say("Stop with Ctrl-C.")
	}
	if err == nil {
		err = unlessEnded(ctx, f.run(ctx))
	}
	head := f.head(ctx)
	return errors.Join(err, f.Close(), t.end(f.status(), head, err != nil || ctx.Err() != nil))
}

// unlessEnded returns nil for an error that the end of ctx caused.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, errEnded) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// redactor returns the remover of secrets.
func redactor(r config.Redact, env func(string) string) (*redact.Redactor, error) {
	o := redact.Options{Values: make(map[string]string)}
	for _, p := range r.Patterns {
		o.Patterns = append(o.Patterns, redact.Pattern{Name: p.Name, Regexp: p.Regexp})
	}
	for _, name := range r.Env {
		if value := env(name); strings.TrimSpace(value) != "" {
			o.Values[name] = value
		}
	}
	secrets, err := redact.New(o)
	if err != nil {
		return nil, &config.Error{File: "tally.toml", Field: "redact", Reason: err.Error()}
	}
	return secrets, nil
}

// following is the open state of a watch.
type following struct {
	*watcher
	config    config.Config
	groups    []*locationGroup
	secrets   *redact.Redactor
	since     time.Time // time since which unknown files are read
	reporter  *reporter
	store     *store
	locks     []*os.File
	ingesters []*ingest.Ingester
	kicks     *kickListener
}

// begin waits until no other process follows the same namespaces, and opens the store.
func (f *following) begin(ctx context.Context) error {
	remembers, err := f.lock(ctx)
	if err != nil {
		return err
	}
	if err := f.store.start(ctx); err != nil {
		return err
	}
	if err := f.anchor(ctx); err != nil {
		return err
	}
	for _, g := range f.groups {
		in, err := ingest.New(f.options(g, remembers))
		if err != nil {
			return err
		}
		f.ingesters = append(f.ingesters, in)
	}
	if remembers && !f.once {
		f.kicks = listen(f.kicked)
	}
	return nil
}

// options returns the options of the ingester for a group.
func (f *following) options(g *locationGroup, remembers bool) ingest.Options {
	o := ingest.Options{Log: f.store, Namespace: g.namespace, Once: f.once, Report: f.reporter.problem, Blocked: f.reporter.wake, Tail: tail.Options{Since: f.since}}
	o.Sessions = func(ctx context.Context) iter.Seq2[string, error] {
		return cmdutil.SessionIDs(ctx, f.store.Store(), g.namespace)
	}
	byID := make(map[string]location)
	for _, p := range g.locations {
		o.Sources = append(o.Sources, p.source())
		byID[p.id()] = p
	}
	routing := f.config.Routing()
	o.Route = func(id, cwd string) (string, bool) {
		namespace, taken, err := byID[id].route(routing, cwd)
		if err != nil {
			f.reporter.wrongProject(err)
		}
		return namespace, taken
	}
	o.Tail.Enters = func(root, folder string) bool { return byID[root].enters(folder) }
	if g.redact {
		o.Redactor = f.secrets
	}
	if remembers {
		o.State = stateFile(f.config, g)
	}
	return o
}

// run follows all groups until one of them fails.
func (f *following) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := f.reporter.follow(f)
	defer stop()
	errs := make([]error, len(f.ingesters))
	var all sync.WaitGroup
	for i, in := range f.ingesters {
		all.Go(func() {
			if errs[i] = in.Run(ctx); errs[i] != nil && !errors.Is(errs[i], ingest.ErrStuck) {
				cancel()
			}
		})
	}
	if s, err := spoolOf(f.config); err == nil {
		all.Go(func() { s.keepTakingUp(ctx, f.store, f.once) })
	}
	all.Wait()
	var failed error
	for _, err := range errs {
		switch {
		case errors.Is(err, ingest.ErrStuck): // the errors of the files were reported
		case failed == nil || errors.Is(failed, context.Canceled):
			failed = err
		}
	}
	return failed
}

// kicked reads a file before all others.
func (f *following) kicked(path string) {
	for _, path := range f.reporter.files(path) {
		for _, in := range f.ingesters {
			in.Kick(path)
		}
	}
}

// status returns the sum of the status of all groups.
func (f *following) status() (sum ingest.Status) {
	sum.Rules = make(map[string]int)
	for _, in := range f.ingesters {
		s := in.Status()
		sum.Files += s.Files
		sum.Lag += s.Lag
		sum.Lines += s.Lines
		sum.Events += s.Events
		sum.Redacted += s.Redacted
		sum.Alone += s.Alone
		sum.Full = sum.Full || s.Full
		sum.State = errors.Join(sum.State, s.State)
		for rule, n := range s.Rules {
			sum.Rules[rule] += n
		}
	}
	return sum
}

// blocked returns the reason for which nothing can be appended now, or nil.
func (f *following) blocked() error {
	for _, in := range f.ingesters {
		if err := in.Blocked(); err != nil {
			return err
		}
	}
	return nil
}

// head returns the last offset of the log, 0 if it is unknown.
func (f *following) head(ctx context.Context) uint64 {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	at, err := f.store.Store().Log.Head(ctx)
	if err != nil {
		return 0
	}
	return uint64(at)
}

// Close closes the ingesters, the locks and the store.
func (f *following) Close() (err error) {
	f.kicks.Close()
	for _, in := range f.ingesters {
		err = errors.Join(err, in.Close())
	}
	err = errors.Join(err, f.store.Close(), f.keep())
	for _, l := range f.locks {
		err = errors.Join(err, l.Close())
	}
	return err
}

// lock waits until no other process follows the same namespaces: a second process is the spare of the first, and takes
// over when it ends. With once it does not wait. It then reads beside the other process and does not store how far it
// has read, and neither does it if that cannot be stored.
func (f *following) lock(ctx context.Context) (remembers bool, err error) {
	paths, err := lockFiles(f.config, f.groups)
	if err != nil || len(paths) == 0 {
		return false, err
	}
	for _, path := range paths {
		l, err := takeLock(ctx, path, !f.once, f.reporter.spare)
		if l == nil {
			return false, err
		}
		f.locks = append(f.locks, l)
	}
	return true, nil
}
