package cmdutil

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
)

// Directives for the shell, beside cobra's own. The scripts for the shells know their numbers.
const (
	onlyWords   = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	noSpace     = onlyWords | cobra.ShellCompDirectiveNoSpace
	files       = cobra.ShellCompDirectiveFilterFileExt
	onlyFolders = cobra.ShellCompDirectiveFilterDirs
)

// offered is the maximum number of sessions or runs that are offered at once.
const offered = 50

// CompleteLimit is the time limit for a completion. Candidates found later are not offered.
var CompleteLimit = 150 * time.Millisecond

// rootsWithin returns the part of CompleteLimit for the names after the first slash of ids, which may take a look at
// all sessions.
func rootsWithin() time.Duration { return CompleteLimit * 2 / 5 }

// completer is one completion.
type completer struct {
	*App
	cmd   *cobra.Command
	args  []string // complete arguments before the typed one
	typed string
	found []cobra.Completion
}

// source adds candidates for an argument or for the value of a flag.
type source func(context.Context, *completer) cobra.ShellCompDirective

// arguments maps an argument of a usage line to its candidates, by name or by command and name. Positions and threads
// are not completed.
var arguments = map[string]source{
	"SESSION": sessions, "append SESSION": offerIDs,
	"PATH": just(files), "DIR": just(onlyFolders), "NAMESPACE": namespaces,
	"TO": receivers, "INBOX": receivers, "QUEUE": queues,
	"KIND/ID": documents, "KIND": documents, "FILE": just(files), "doc links KIND/ID": linkable,
	"agent show ID": agentIDs, "agent save ID": agentIDs, "agent state ID": agentIDs, "agent commit ID": agentIDs, "agent verify ID": agentIDs,
	"agent reap ID": agentIDs, "agent dismiss ID": agentIDs,
	"flow show ID": flowIDs, "flow move ID": flowIDs, "flow fail ID": flowIDs, "flow end ID": flowIDs, "flow recover ID": flowIDs,
	"transcript show SESSION": oneOf(Last),
}

// flagSources maps a flag to the candidates for its value, by name or by command and name. Flags with a fixed list of
// words are not listed here.
var flagSources = map[string]source{
	"run": runs, "log type": types, "session": sessions, "parent": offerIDs,
	"kind": used(catalog.FieldKind), "project": used(catalog.FieldProject), "cwd": just(onlyFolders), "model": models, "namespace": namespaces,
	"store": just(onlyFolders), "dir": just(onlyFolders), "out": just(onlyFolders), "tree": just(onlyFolders), "views": just(onlyFolders), "into": just(onlyFolders),
	"tls-cert": just(files), "tls-key": just(files), "tls-ca": just(files), "users": just(files), "tokens": just(files), "token new scope": oneOf("read", "append", "move", "admin", "metrics"), "plan": just(files), "forget": just(files),
	"log-level": oneOf("debug", "info", "warn", "error"), "min-durability": oneOf("buffered", "durable", "replicated"),
	"layer": oneOf("project", "personal"), "linked": linkable, "link": links,
	"inbox send from": receivers, "inbox send type": oneOf("message", "question", "status"),
	"queue ls state":   oneOf("ready", "claimed", "waiting", "done", "dead"),
	"doc put type":     oneOf("text/markdown", "text/plain", "application/json"),
	"agent ls state":   oneOf("idle", "working", "waiting", "verifying", "done", "error", "archived"),
	"agent new file":   just(files),
	"agent verify run": oneOf(), // a commitment of the agent
	"export output":    oneOf("text", "json", "jsonl"),
	"cost by":          oneOf("model", "run", "day", "session"),
}

// complete registers candidates for the arguments and flags of all commands of a program. A command's usage line names
// its arguments. Without candidates nothing is completed, not even file names.
func (a *App) complete(root *cobra.Command) {
	none := onlyWords
	root.CompletionOptions.DefaultShellCompDirective = &none
	root.CompletionOptions.DisableDefaultCmd = true
	root.InitDefaultHelpCmd()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { a.completeFlag(root, f) })
	a.completeVerbs(root)
}

// completeVerbs registers candidates for the commands below a command.
func (a *App) completeVerbs(of *cobra.Command) {
	for _, cmd := range of.Commands() {
		if cmd.Name() == "help" {
			cmd.ValidArgsFunction = a.offer(helped)
		} else if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = a.argument(pathOf(cmd), strings.Fields(cmd.Use)[1:])
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { a.completeFlag(cmd, f) })
		a.completeVerbs(cmd)
	}
}

// pathOf returns the words that call a command, without the program's name.
func pathOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// completeFlag registers candidates for a flag.
func (a *App) completeFlag(cmd *cobra.Command, f *pflag.Flag) {
	offer := flagSources[pathOf(cmd)+" "+f.Name]
	if offer == nil {
		offer = flagSources[f.Name]
	}
	if own, ok := f.Value.(interface{ Words() []string }); ok {
		offer = oneOf(own.Words()...)
	}
	if _, registered := cmd.GetFlagCompletionFunc(f.Name); offer == nil || registered {
		return
	}
	if err := cmd.RegisterFlagCompletionFunc(f.Name, a.offer(offer)); err != nil {
		panic(err) // the flag is one of the verb's
	}
}

// argument returns the completion of the arguments in a usage line, such as SESSION [A..B]. An argument with dots, such
// as PATH..., repeats.
func (a *App) argument(path string, usage []string) cobra.CompletionFunc {
	var list []source
	repeats := false
	for _, name := range usage {
		if strings.HasPrefix(name, "-") {
			break // flags follow
		}
		name = strings.Trim(name, "[]")
		name, repeats = strings.CutSuffix(name, "...")
		list = append(list, argumentNamed(path, strings.TrimSuffix(name, "]")))
	}
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		n := len(args)
		if repeats {
			n = min(n, len(list)-1)
		}
		if n >= len(list) || list[n] == nil {
			return nil, onlyWords
		}
		return a.offer(list[n])(cmd, args, typed)
	}
}

// argumentNamed returns the candidates for an argument of a command, or nil. Words in lower case stand for themselves:
// bash|zsh|fish.
func argumentNamed(path, name string) source {
	if name == strings.ToLower(name) {
		return oneOf(strings.Split(name, "|")...)
	}
	name, _, _ = strings.Cut(name, "|")
	name, _, _ = strings.Cut(name, "[")
	if own := arguments[path+" "+name]; own != nil {
		return own
	}
	return arguments[name]
}

// offer returns cobra's function for candidates. After an error or a timeout, such as of a disk that does not answer, the
// function offers nothing.
func (a *App) offer(from source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		type answer struct {
			found     []cobra.Completion
			directive cobra.ShellCompDirective
		}
		ctx, stop := context.WithTimeout(cmd.Context(), CompleteLimit)
		defer stop()
		done := make(chan answer, 1)
		go func() {
			c := &completer{App: a, cmd: cmd, args: args, typed: typed}
			directive := from(ctx, c)
			done <- answer{c.found, directive}
		}()
		select {
		case got := <-done:
			return got.found, got.directive
		case <-ctx.Done():
			return nil, onlyWords
		}
	}
}

// add offers a word with its description, if the word begins with the typed text.
func (c *completer) add(word, about string) {
	if word == "" || !strings.HasPrefix(word, c.typed) || slices.ContainsFunc(c.found, func(f cobra.Completion) bool { w, _, _ := strings.Cut(f, "\t"); return w == word }) {
		return
	}
	c.found = append(c.found, cobra.CompletionWithDesc(word, render.Cut(about, 60)))
}

// just lets the shell complete names of files or folders.
func just(directive cobra.ShellCompDirective) source {
	return func(context.Context, *completer) cobra.ShellCompDirective { return directive }
}

// helped offers the commands and the topics of the help.
func helped(ctx context.Context, c *completer) cobra.ShellCompDirective {
	if len(c.args) > 0 {
		return onlyWords
	}
	for _, cmd := range c.cmd.Root().Commands() {
		if cmd.IsAvailableCommand() {
			c.add(cmd.Name(), cmd.Short)
		}
	}
	return oneOf("concepts", "flags", "positions", "exit-codes")(ctx, c)
}

// oneOf offers some words.
func oneOf(list ...string) source {
	return func(_ context.Context, c *completer) cobra.ShellCompDirective {
		for _, word := range list {
			c.add(word, "")
		}
		return onlyWords
	}
}

// views opens the catalog as it is, without opening the store or creating files. It returns false if there is no
// catalog.
func (c *completer) views(ctx context.Context) (v reads.Views, namespace string, ok bool) {
	c.call.Store = expanded(c.call.Store)
	cfg, err := c.Config()
	v.Dir = cfg.Store
	if err == nil && cfg.Backend == config.NATS {
		v.Dir, err = natsdial.ViewsOf(cfg.Server.URL)
	}
	if err == nil {
		v.Catalog, err = catalog.Glance(ctx, v.Dir)
	}
	return v, cfg.Namespace, err == nil
}

// expanded expands ~ and variables in a path: the shell has not expanded the words of a completion.
func expanded(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return os.ExpandEnv(path)
}
