// Package cmdutil has the parts that all commands share: the common flags, opening a store, naming sessions and
// documents, help texts, completion, and output.
package cmdutil

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// App is one run of a command.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	Format   cli.Format
	Progress cli.ProgressMode
	Color    cli.ColorMode
	root     func(*App) *cobra.Command
	call     config.Overrides
	logLevel string
	logForm  logForm
	noPager  bool
	pager    *pager        // set while output goes through a pager
	full     *fullness     // reports about a full disk
	lost     *lostRecords  // lost records that the command has met
	answers  *bufio.Reader // In, after the first question
}

// Main runs a command's tree and returns the exit code.
func Main(name string, root func(*App) *cobra.Command) int {
	limitMemory()
	ctx, stop := cli.Interruptible(context.Background(), os.Stderr)
	err := Run(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	return cli.Report(os.Stderr, name, err)
}

// Run runs a command's tree with arguments.
func Run(ctx context.Context, root func(*App) *cobra.Command, args []string, in io.Reader, out, errw io.Writer) error {
	a := &App{root: root, In: in, Out: out, Err: errw, Format: cli.Text, Progress: cli.ProgressAuto, Color: cli.ColorAuto}
	cmd := root(a)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errw)
	cmd.PersistentPreRun = func(c *cobra.Command, _ []string) { a.toScreen(c) }
	a.flags(cmd)
	speak(cmd)
	a.help(cmd)
	a.complete(cmd)
	if err := isKnown(cmd, args); err != nil {
		return err
	}
	a.lost = new(lostRecords)
	err := a.lost.answer(errw, cmd.ExecuteContext(log.NoteDamage(ctx, a.lost.note)))
	if a.pager != nil {
		err = errors.Join(err, a.pager.Close())
	}
	return cli.Cause(ctx, err)
}

// Again runs the program with other arguments as part of this run.
func (a *App) Again(ctx context.Context, args []string, out, errw io.Writer) error {
	return Run(ctx, a.root, args, strings.NewReader(""), out, errw)
}

func (a *App) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&a.call.Store, "store", "", "store directory (default $TALLY_STORE, tally.toml, else $XDG_DATA_HOME/tally)")
	f.StringVar(&a.call.URL, "server", "", "URL of a NATS server that others run, instead of a store directory (default $TALLY_SERVER, tally.toml, else $NATS_URL)")
	f.StringVar(&a.call.Context, "context", "", "context of the nats command that says how to get at the server (default $TALLY_CONTEXT, tally.toml, else $NATS_CONTEXT)")
	f.StringVar(&a.call.MinDurability, "min-durability", "", "refuse a store whose acknowledgements are worth less: buffered, durable or replicated (default $TALLY_MIN_DURABILITY, tally.toml, else any)")
	f.StringVar(&a.call.Namespace, "namespace", "", "namespace of sessions and documents (default $TALLY_NAMESPACE, tally.toml, else \"default\")")
	f.VarP(a.Format.Flag(), "output", "o", "text, json or jsonl")
	f.Var(a.Progress.Flag(), "progress", "auto, tty, plain, json or none")
	f.Var(a.Color.Flag(), "color", "auto, always or never; auto is NO_COLOR, FORCE_COLOR, else whether stdout is a terminal")
	f.BoolVar(&a.noPager, "no-pager", false, "print a long result at once; else $TALLY_PAGER, $PAGER or less shows it on a terminal")
	f.StringVar(&a.logLevel, "log-level", "warn", "debug, info, warn or error; the log goes to stderr")
	a.logForm = logText
	f.Var(cli.OneOf(&a.logForm, "form", logText, logJSON), "log-format", "text or json, a line for each record of the log on stderr")
}

// Style returns the colours of the output.
func (a *App) Style() cli.Style { return cli.NewStyle(a.Out, a.Color, os.Getenv) }

// Config resolves the configuration for the working directory.
func (a *App) Config() (config.Config, error) {
	dir, err := os.Getwd()
	if err != nil {
		return config.Config{}, err
	}
	return config.Resolve(dir, a.call, os.Getenv)
}

// logForm is the form of the log on standard error.
type logForm string

const (
	logText logForm = "text" // key=value
	logJSON logForm = "json" // an object on each line
)

// Logger returns a logger that writes to standard error.
func (a *App) Logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return nil, cli.Usagef("--log-level %q: want debug, info, warn or error", a.logLevel)
	}
	if a.full == nil {
		a.full = &fullness{errw: a.Err}
	}
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(a.Err, o)
	if a.logForm == logJSON {
		h = slog.NewJSONHandler(a.Err, o)
	}
	return slog.New(quietHandler{h, a.full}), nil
}

// Open opens the store that the configuration names.
func (a *App) Open(ctx context.Context) (*tally.Store, error) {
	return a.open(ctx, embedded.Options{})
}

// OpenExisting opens the store for a command that creates nothing. A missing local store counts as empty and is not
// created.
func (a *App) OpenExisting(ctx context.Context) (*tally.Store, error) {
	return a.open(ctx, embedded.Options{Existing: true})
}

// Own opens the local store as its owner, and waits until no other process owns it. The observer may be nil. The
// daemons run until the store is closed.
func (a *App) Own(ctx context.Context, seen log.Observer, l *embedded.Listen, daemons func(*tally.Store) ([]daemon.Daemon, error)) (*tally.Store, error) {
	return a.open(ctx, embedded.Options{Own: true, Observer: seen, Listen: l, Daemons: daemons})
}

// open opens the store that the configuration names, with options of the command.
func (a *App) open(ctx context.Context, o embedded.Options) (*tally.Store, error) {
	lg, err := a.Logger()
	if err != nil {
		return nil, err
	}
	o = a.called(o)
	o.Logger = lg
	o.Progress = func(elapsed time.Duration) {
		fmt.Fprintf(a.Err, "reading the store, %s so far\n", elapsed.Round(time.Second))
	}
	o.Kinds, o.Trees = storeKinds(), LiveLayout
	if o.Existing {
		a.warnMissing()
	}
	st, err := embedded.Open(ctx, o)
	if owned, ok := errors.AsType[*embedded.OwnedError](err); ok && !errors.Is(err, log.ErrNewer) {
		return nil, unanswered(owned)
	}
	return st, err
}

// called adds the options of the command line.
func (a *App) called(o embedded.Options) embedded.Options {
	o.Store, o.Namespace, o.URL, o.Context, o.MinDurability = a.call.Store, a.call.Namespace, a.call.URL, a.call.Context, a.call.MinDurability
	return o
}

// CheckSettings returns the error that Own would return for the configuration.
func (a *App) CheckSettings() error {
	return a.called(embedded.Options{Own: true, Trees: LiveLayout}).Check()
}

// storeKinds returns the rules for documents that the commands write, by kind.
func storeKinds() map[string]tally.Kind {
	table := tavern.Kinds()
	secret := table[sealed.Kind]
	secret.Validate = sealed.CheckDocument
	table[sealed.Kind] = secret
	return table
}

// unanswered returns the error for a store whose owner does not answer.
func unanswered(e *embedded.OwnedError) error {
	err := fmt.Errorf("process %d owns the store in %s and does not answer", e.PID, e.Dir)
	hint := fmt.Sprintf("It may be starting, stopping or suspended (ps -p %d): wait for it, or end it. A store is never taken from a live process.", e.PID)
	switch {
	case e.Err != nil:
		err = fmt.Errorf("another process owns the store in %s, and its address is unknown: %w", e.Dir, e.Err)
		hint = "End that process: the next owner writes a new owner.json."
	case e.Crowded:
		err = fmt.Errorf("process %d owns the store in %s and has reached its limit of connections", e.PID, e.Dir)
		hint = "End some of the processes that use the store, or start its owner with a higher limit of open files (ulimit -n)."
	case e.PID == 0:
		err = fmt.Errorf("another process owns the store in %s, and is starting or stopping", e.Dir)
		hint = "Wait for it to start or to stop."
	}
	return &cli.CodeError{Code: cli.Unreachable, Err: err, Hint: hint}
}

// warnMissing prints that the named store does not exist or is empty: the name may be misspelled.
func (a *App) warnMissing() {
	switch c, state := a.local(); state {
	case storedir.Missing:
		fmt.Fprintf(a.Err, "there is no store in %s yet: the first append or import makes it\n", plain.Printable(c.Store))
	case storedir.Empty:
		fmt.Fprintf(a.Err, "%s is empty: the first append or import makes a store of it\n", plain.Printable(c.Store))
	}
}

// IsMissing reports whether the named store does not exist or is empty. It is false if that is unknown.
func (a *App) IsMissing() bool {
	_, state := a.local()
	return state == storedir.Missing || state == storedir.Empty
}

// local returns the state of the named store on this machine; "": it is elsewhere, or open reports the error.
func (a *App) local() (config.Config, storedir.State) {
	c, err := a.Config()
	if err != nil || c.Backend != config.Local {
		return c, ""
	}
	place, err := storedir.Inspect(c.Store)
	if err != nil {
		return c, ""
	}
	return c, place.State
}

// WithStore opens the store, calls f and closes the store. It returns an error of closing too, since data may then not
// be on disk.
func (a *App) WithStore(ctx context.Context, f func(*tally.Store) error) error {
	return a.with(ctx, embedded.Options{}, f)
}

// WithExisting is WithStore for a store that OpenExisting opens.
func (a *App) WithExisting(ctx context.Context, f func(*tally.Store) error) error {
	return a.with(ctx, embedded.Options{Existing: true}, f)
}

// WithLook is WithExisting for a command that only looks at a store as it is now. If no process has the store open, it
// is read without a server. f may be called a second time, with the store's server, if it returned log.ErrNeedsServer;
// so it asks such questions before it prints anything.
func (a *App) WithLook(ctx context.Context, f func(*tally.Store) error) error {
	return a.look(ctx, embedded.Options{Existing: true}, f)
}

// WithStillLook is WithLook for a command for which WithStillStore would open the store.
func (a *App) WithStillLook(ctx context.Context, f func(*tally.Store) error) error {
	return a.look(ctx, embedded.Options{Existing: true, Still: true}, f)
}

func (a *App) look(ctx context.Context, o embedded.Options, f func(*tally.Store) error) error {
	o.Look = true
	err := a.with(ctx, o, f)
	if errors.Is(err, log.ErrNeedsServer) {
		o.Look = false
		err = a.with(ctx, o, f)
	}
	return err
}

// WithStillStore is WithExisting for a command that reads snapshots and views as they are: this process does not repair
// them meanwhile.
func (a *App) WithStillStore(ctx context.Context, f func(*tally.Store) error) error {
	return a.with(ctx, embedded.Options{Existing: true, Still: true}, f)
}

func (a *App) with(ctx context.Context, o embedded.Options, f func(*tally.Store) error) error {
	st, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	err = f(st)
	return errors.Join(err, st.Close())
}

// Last names the latest active session, which tally ls lists first.
const Last = "last"

// Session returns the session that an argument names: by its id, the id without the prefix of its kind, or a unique
// beginning of either. "last" names the latest active session.
func (a *App) Session(ctx context.Context, st *tally.Store, arg string) (*tally.Session, error) {
	if arg == Last {
		return a.lastSession(ctx, st)
	}
	return SessionNamed(ctx, st, arg)
}

// SessionNamed is Session without the special meaning of "last".
func SessionNamed(ctx context.Context, st *tally.Store, arg string) (*tally.Session, error) {
	if isWhole(ctx, st, arg) {
		return st.Session(arg), nil
	}
	arg = strings.TrimSuffix(arg, "…") // a list on a terminal cuts ids so
	var failed error
	found := Meant(arg, func(yield func(string) bool) {
		for info, err := range st.Subjects(ctx, events.KindSession) {
			if failed = err; err != nil || !yield(info.Subject.ID) {
				return
			}
		}
	})
	switch {
	case failed != nil:
		return nil, failed
	case len(found) == 0:
		return nil, NoSession(arg, st.Namespace())
	case len(found) > 1:
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%q names %d sessions", arg, len(found)), Hint: some(ctx, st, found)}
	}
	return st.Session(found[0]), nil
}

// Meant returns the ids that a name can mean: the equal id, else the ids equal without the prefix of their kind, else
// the ids that begin with the name, with or without that prefix.
func Meant(name string, ids iter.Seq[string]) []string {
	var exact, short, begin []string
	for id := range ids {
		_, tail, _ := strings.Cut(id, "/")
		switch {
		case id == name || events.EscapeID(id) == name:
			exact = append(exact, id)
		case tail == name:
			short = append(short, id)
		case strings.HasPrefix(id, name) || tail != "" && strings.HasPrefix(tail, name):
			begin = append(begin, id)
		}
	}
	switch {
	case len(exact) > 0:
		return exact
	case len(short) > 0:
		return short
	}
	return begin
}

// NoSession returns the error for a name that matches no session.
func NoSession(name, namespace string) error {
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no session %q in namespace %s", name, namespace), Hint: "tally ls lists the sessions."}
}

// isWhole reports whether an argument is the complete id of a session and cannot name another one. It saves a list of
// all sessions. A session with an unreadable last record is not found here.
func isWhole(ctx context.Context, st *tally.Store, arg string) bool {
	if id, err := events.UnescapeID(arg); err == nil && id != arg {
		return false // it may be the escaped form of another id
	}
	_, err := st.Log.Last(ctx, events.Session(st.Namespace(), arg))
	return err == nil
}

// some lists at most 10 sessions with their titles, one on each line.
func some(ctx context.Context, st *tally.Store, ids []string) string {
	const most = 10
	rest := len(ids) - most
	lines := make([]string, 0, most+1)
	for _, id := range ids[:min(len(ids), most)] {
		line := cli.ID(id)
		if o, err := st.Session(id).Outline(ctx); projector.Tolerate(err) == nil { // a damaged session is listed without its title
			line = strings.TrimSpace(line + "  " + render.Cut(o.Ledger().Text("title"), 60))
		}
		lines = append(lines, line)
	}
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(lines, "\n  ")
}

// lastSession returns the latest active session, which tally ls lists first.
func (a *App) lastSession(ctx context.Context, st *tally.Store) (*tally.Session, error) {
	var page catalog.Page
	err := a.withViewsOf(ctx, st, "catalog", func(dir string) error {
		r, err := catalog.Open(ctx, dir)
		if err != nil {
			return err
		}
		defer r.Close()
		page, err = r.List(ctx, catalog.Query{Namespace: st.Namespace(), Sort: catalog.ByActive, Limit: 1})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(page.Sessions) == 0:
		return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no session in namespace %s", st.Namespace())}
	}
	return st.Session(page.Sessions[0].ID), nil
}

// Confirm asks for confirmation on a terminal. Without a terminal it returns an error, unless yes is set.
func (a *App) Confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !cli.IsTerminal(a.In) {
		return &cli.CodeError{Code: cli.BadUsage, Err: errors.New("this command asks for confirmation, and standard input is not a terminal"), Hint: "Add -y to confirm, or --dry-run to see the effect."}
	}
	if answer := strings.ToLower(a.Ask(question + " [y/N]")); answer != "y" && answer != "yes" {
		return &cli.CodeError{Code: cli.Failed, Err: errors.New("nothing was written")}
	}
	return nil
}

// Ask prints a question and returns the typed line, "" at the end of input.
func (a *App) Ask(question string) string {
	fmt.Fprint(a.Err, question+" ")
	if a.answers == nil {
		a.answers = bufio.NewReader(a.In)
	}
	answer, _ := a.answers.ReadString('\n') // the end of the input is an empty answer
	return strings.TrimSpace(answer)
}

// WarnDamaged prints the offsets of unreadable records of a session, and returns the exit code for damage if there are
// any.
func (a *App) WarnDamaged(s *projector.Session) error {
	if len(s.Damaged) == 0 {
		return nil
	}
	fmt.Fprintf(a.Err, "%s: %s cannot be read: %v\n", s.Subject.Name(), plain.Count(len(s.Damaged), "record"), s.Damaged)
	return cli.Silent(cli.Integrity)
}
