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

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
)

// What a shell does with what it is offered, beyond cobra's own words for it. Shell
// scripts know the numbers.
const (
	words   = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	noSpace = words | cobra.ShellCompDirectiveNoSpace
	files   = cobra.ShellCompDirectiveFilterFileExt
	folders = cobra.ShellCompDirectiveFilterDirs
)

const (
	// offered is how many sessions, turns or runs are offered at once, about.
	offered = 50

	// completeWithin is how long somebody who pressed a key is kept waiting. What is not
	// found by then is not offered.
	completeWithin = 150 * time.Millisecond

	// rootsWithin is how much of that is for what stands behind the slash of ids, which may
	// mean to look at all of them.
	rootsWithin = 60 * time.Millisecond
)

// completer is one completion.
type completer struct {
	*App
	cmd   *cobra.Command
	args  []string // before the one that is typed
	typed string
	found []cobra.Completion
}

// source offers what an argument or a flag may be.
type source func(context.Context, *completer) cobra.ShellCompDirective

// arguments are what is offered for an argument, by its name in the usage line or by verb
// and name.
var arguments = map[string]source{
	"SESSION": sessions, "append SESSION": ids, "A": positions, "B": positions, "A..B": ranges,
	"PATH": just(files), "DIR": just(folders), "NAMESPACE": namespaces,
	"TO": receivers, "INBOX": receivers, "QUEUE": queues,
	"KIND/ID": documents, "KIND": documents, "FILE": just(files), "backlinks KIND/ID": linkable,
	"agents ID": agentIDs, "save ID": agentIDs, "state ID": agentIDs, "commit ID": agentIDs, "verify ID": agentIDs, "reap ID": agentIDs, "dismiss ID": agentIDs,
	"flows ID": flowIDs, "move ID": flowIDs, "fail ID": flowIDs, "end ID": flowIDs, "recover ID": flowIDs, "transcripts SESSION": oneOf(Last),
}

// flags are what is offered for the value of a flag, by its name or by verb and name.
// Flags that know their words are not among them.
var flags = map[string]source{
	"at": positions, "to": positions, "thread": threads, "run": runs, "step": steps, "log type": types, "session": sessions, "parent": ids,
	"kind": used(catalog.FieldKind), "project": used(catalog.FieldProject), "cwd": just(folders), "model": models, "namespace": namespaces,
	"store": just(folders), "dir": just(folders), "out": just(folders), "tree": just(folders), "views": just(folders), "into": just(folders),
	"tls-cert": just(files), "tls-key": just(files), "tls-ca": just(files), "users": just(files),
	"log-level": oneOf("debug", "info", "warn", "error"), "min-durability": oneOf("buffered", "durable", "replicated"),
	"layer": oneOf("project", "personal"), "linked": linkable,
	"cat at": oneOf("head", "~1"), "put base": bases, "rm base": bases, "mv base": bases, "link": links,
	"send from": receivers, "send type": oneOf("message", "question", "status"),
	"queue state":   oneOf("ready", "claimed", "waiting", "done", "dead"),
	"put type":      oneOf("text/markdown", "text/plain", "application/json"),
	"agents state":  oneOf("idle", "working", "waiting", "verifying", "done", "error", "archived"),
	"new file":      just(files),
	"restore at":    oneOf(), // a backup's name
	"verify run":    oneOf(), // a commitment of an agent
	"save base":     oneOf(),
	"export output": oneOf("text", "json", "jsonl"),
	"cost by":       oneOf("model", "run", "day", "session"),
}

// complete says, for all verbs of a tree, what a shell is to offer. A verb's usage line
// names its arguments; a flag says by its name what it takes. What nothing is known of is
// not completed, with file names neither.
func (a *App) complete(root *cobra.Command) {
	none := words
	root.CompletionOptions.DefaultShellCompDirective = &none
	root.CompletionOptions.DisableDefaultCmd = true
	root.InitDefaultHelpCmd()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { a.completeFlag(root, f) })
	a.completeVerbs(root)
}

// completeVerbs does so for the verbs of a command, and theirs.
func (a *App) completeVerbs(of *cobra.Command) {
	for _, cmd := range of.Commands() {
		if cmd.Name() == "help" {
			cmd.ValidArgsFunction = a.offer(helped)
		} else if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = a.argument(strings.Fields(cmd.Use))
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { a.completeFlag(cmd, f) })
		a.completeVerbs(cmd)
	}
}

// completeFlag registers what is offered for a flag.
func (a *App) completeFlag(cmd *cobra.Command, f *pflag.Flag) {
	offer := flags[cmd.Name()+" "+f.Name]
	if offer == nil {
		offer = flags[f.Name]
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

// argument returns what completes the arguments of a usage line, such as
// log SESSION [A..B], or import PATH... for as many as there are.
func (a *App) argument(usage []string) cobra.CompletionFunc {
	var list []source
	repeats := false
	for _, name := range usage[1:] {
		if strings.HasPrefix(name, "-") {
			break // flags follow
		}
		name = strings.Trim(name, "[]")
		name, repeats = strings.CutSuffix(name, "...")
		list = append(list, argumentNamed(usage[0], strings.TrimSuffix(name, "]")))
	}
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		n := len(args)
		if repeats {
			n = min(n, len(list)-1)
		}
		if n >= len(list) || list[n] == nil {
			return nil, words
		}
		return a.offer(list[n])(cmd, args, typed)
	}
}

// argumentNamed returns what is offered for an argument of a verb, nil if that is nothing.
// Words that are not capitals stand for themselves: bash|zsh|fish.
func argumentNamed(verb, name string) source {
	if name == strings.ToLower(name) {
		return oneOf(strings.Split(name, "|")...)
	}
	name, _, _ = strings.Cut(name, "|")
	name, _, _ = strings.Cut(name, "[")
	if own := arguments[verb+" "+name]; own != nil {
		return own
	}
	return arguments[name]
}

// offer returns what cobra calls. Whatever stands in the way, a damaged file, a disk that
// does not answer, it returns soon and says nothing.
func (a *App) offer(from source) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		type answer struct {
			found     []cobra.Completion
			directive cobra.ShellCompDirective
		}
		ctx, stop := context.WithTimeout(cmd.Context(), completeWithin)
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
			return nil, words
		}
	}
}

// add offers a word with what it is, if it begins as what is typed does.
func (c *completer) add(word, what string) {
	if word == "" || !strings.HasPrefix(word, c.typed) || slices.ContainsFunc(c.found, func(f cobra.Completion) bool { w, _, _ := strings.Cut(f, "\t"); return w == word }) {
		return
	}
	c.found = append(c.found, cobra.CompletionWithDesc(word, render.Cut(what, 60)))
}

// just offers the names of files or of folders, which the shell knows.
func just(directive cobra.ShellCompDirective) source {
	return func(context.Context, *completer) cobra.ShellCompDirective { return directive }
}

// helped offers what there is help on.
func helped(ctx context.Context, c *completer) cobra.ShellCompDirective {
	if len(c.args) > 0 {
		return words
	}
	for _, cmd := range c.cmd.Root().Commands() {
		if cmd.IsAvailableCommand() {
			c.add(cmd.Name(), cmd.Short)
		}
	}
	return oneOf("flags", "exit-codes", "positions")(ctx, c)
}

// oneOf offers some words.
func oneOf(list ...string) source {
	return func(_ context.Context, c *completer) cobra.ShellCompDirective {
		for _, word := range list {
			c.add(word, "")
		}
		return words
	}
}

// views opens the catalog as it stands, false if there is none. The store is not opened for
// it, and nothing is made.
func (c *completer) views(ctx context.Context) (v Views, namespace string, ok bool) {
	c.call.Store = expanded(c.call.Store)
	cfg, err := c.Config()
	v.Dir = cfg.Store
	if err == nil && cfg.Backend == config.NATS {
		v.Dir, err = embedded.ViewsOf(cfg.Server.URL)
	}
	if err == nil {
		v.Catalog, err = catalog.Glance(ctx, v.Dir)
	}
	return v, cfg.Namespace, err == nil
}

// expanded returns a path as a shell would: what a line is made of reaches a completion
// before that.
func expanded(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return os.ExpandEnv(path)
}
