package cmdutil

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// sessions offers the ids that begin with the typed text, and the names of imported sessions, which follow the first
// slash of an id.
func sessions(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return onlyWords
	}
	defer v.Catalog.Close()
	list, err := v.Catalog.Beginning(ctx, namespace, c.typed, offered)
	if id, ok := unescaped(c.typed); ok && err == nil {
		var more []catalog.Session
		more, err = v.Catalog.Beginning(ctx, namespace, id, offered)
		list = append(list, more...)
	}
	if err != nil {
		return onlyWords
	}
	if len(list) > 0 {
		c.add(Last, "the session last active")
	}
	for _, s := range list {
		c.addSession(s, s.ID)
	}
	if c.typed != "" && len(c.found) < offered {
		c.named(ctx, v.Catalog, namespace)
	}
	return onlyWords
}

// offerIDs offers complete ids, for commands that take an id without searching for it.
func offerIDs(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return onlyWords
	}
	defer v.Catalog.Close()
	list, _ := v.Catalog.Beginning(ctx, namespace, c.typed, offered) // after an error it offers nothing
	for _, s := range list {
		if word, _ := spelled(s.ID); word == s.ID && word != Last {
			c.addSession(s, word)
		}
	}
	return onlyWords
}

// agentIDs, flowIDs and queues offer the ids of agents, flows and queues.
var agentIDs, flowIDs, queues = idsOf(events.KindAgent), idsOf(events.KindFlow), idsOf(events.KindQueue)

// receivers offers the receivers of messages: the user, agents, and programs with an inbox.
func receivers(ctx context.Context, c *completer) cobra.ShellCompDirective {
	c.add("user", "the person")
	return idsOf(events.KindAgent, events.KindInbox)(ctx, c)
}

// idsOf offers the ids of agents, flows and the like: the part after the slash in the ids of their sessions.
func idsOf(kinds ...string) source {
	return func(ctx context.Context, c *completer) cobra.ShellCompDirective {
		v, namespace, ok := c.views(ctx)
		if !ok {
			return onlyWords
		}
		defer v.Catalog.Close()
		for _, kind := range kinds {
			list, _ := v.Catalog.Beginning(ctx, namespace, kind+"/"+c.typed, offered) // after an error it offers nothing
			for _, s := range list {
				id := strings.TrimPrefix(s.ID, kind+"/")
				if word, ok := spelled(id); ok && word == id {
					c.add(id, s.About())
				}
			}
		}
		return onlyWords
	}
}

// named offers the parts of session ids after the first slash, if one session alone has this part.
func (c *completer) named(ctx context.Context, r catalog.Reader, namespace string) {
	ctx, stop := context.WithTimeout(ctx, rootsWithin())
	defer stop()
	roots, err := r.Roots(ctx, namespace, offered)
	if err != nil {
		return // too many sessions to look at
	}
	tails := make(map[string]int)
	var found []catalog.Session
	for _, root := range roots {
		list, err := r.Beginning(ctx, namespace, root+c.typed, offered)
		if err != nil {
			return
		}
		for _, s := range list {
			tails[afterSlash(s.ID)]++
		}
		found = append(found, list...)
	}
	slices.SortFunc(found, func(a, b catalog.Session) int { return cmp.Compare(b.Head, a.Head) })
	for _, s := range found {
		if tails[afterSlash(s.ID)] == 1 {
			c.addSession(s, afterSlash(s.ID))
		}
	}
}

func afterSlash(id string) string {
	_, behind, _ := strings.Cut(id, "/")
	return behind
}

func (c *completer) addSession(s catalog.Session, name string) {
	if word, ok := spelled(name); ok {
		c.add(word, cmp.Or(s.About(), s.Kind+" of "+plain.Count(s.Turns, "turn")))
	}
}

// isWord reports whether a text can be offered unchanged: it is one trimmed line without control characters.
func isWord(text string) bool {
	return plain.Printable(text) == text && strings.TrimSpace(text) == text && !strings.ContainsAny(text, "\n\t")
}

// spelled returns an id as a command takes it. Ids with control characters, and ids that look like the escaped form of
// another id, are escaped. The result is false if the id looks like a flag.
func spelled(id string) (string, bool) {
	other, err := events.UnescapeID(id)
	if !isWord(id) || err == nil && other != id {
		id = events.EscapeID(id)
	}
	return id, !strings.HasPrefix(id, "-")
}

// unescaped returns the beginning of an id whose escaped form was typed.
func unescaped(typed string) (string, bool) {
	if i := strings.LastIndexByte(typed, '='); i >= 0 && i > len(typed)-3 {
		typed = typed[:i]
	}
	id, err := events.UnescapeID(typed)
	return id, err == nil && strings.Contains(typed, "=")
}

// session returns the session that --session names, else the first argument.
func (c *completer) session(ctx context.Context) (v reads.Views, s catalog.Session, ok bool) {
	name := ""
	if f := c.cmd.Flags().Lookup("session"); f != nil {
		name = f.Value.String()
	} else if len(c.args) > 0 {
		name = c.args[0]
	}
	if name == "" {
		return v, s, false
	}
	v, namespace, ok := c.views(ctx)
	if !ok {
		return v, s, false
	}
	s, ok, err := v.Catalog.Named(ctx, namespace, name)
	if ok = ok && err == nil; !ok {
		v.Catalog.Close()
	}
	return v, s, ok
}

// runs offers the runs of the session. If several kinds have runs of one id, it offers KIND/ID.
func runs(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, s, ok := c.session(ctx)
	if !ok {
		return onlyWords
	}
	defer v.Catalog.Close()
	list, err := v.Catalog.Runs(ctx, s.Namespace, s.ID, offered)
	if err != nil {
		return onlyWords
	}
	kinds := make(map[string]int)
	for _, run := range list {
		kinds[run.ID]++
	}
	for _, run := range list {
		word := run.ID
		if kinds[run.ID] > 1 {
			word = run.Kind + "/" + run.ID
		}
		if isWord(word) && !strings.HasPrefix(word, "-") {
			c.add(word, run.Kind+", "+cmp.Or(run.Outcome, run.State))
		}
	}
	return onlyWords
}

// types offers the types of events, and the names of events that programs recorded in runs of the session.
func types(ctx context.Context, c *completer) cobra.ShellCompDirective {
	if v, s, ok := c.session(ctx); ok {
		defer v.Catalog.Close()
		list, _ := v.Catalog.Happened(ctx, s.Namespace, s.ID, offered)
		for _, name := range list {
			if isWord(name) && !strings.HasPrefix(name, "-") {
				c.add(name, "happened in a run")
			}
		}
	}
	for _, name := range events.Types() {
		c.add(strings.TrimSuffix(strings.TrimPrefix(name, "tally."), ".v1"), "")
	}
	return onlyWords
}

// namespaces offers the namespaces of the store.
func namespaces(ctx context.Context, c *completer) cobra.ShellCompDirective {
	return c.texts(ctx, func(r catalog.Reader, _ string) ([]string, error) { return r.Namespaces(ctx, offered) })
}

// models offers the models that have costs.
func models(ctx context.Context, c *completer) cobra.ShellCompDirective {
	return c.texts(ctx, func(r catalog.Reader, namespace string) ([]string, error) { return r.Models(ctx, namespace) })
}

// used offers the values of a field in the sessions of the store.
func used(f catalog.Field) source {
	return func(ctx context.Context, c *completer) cobra.ShellCompDirective {
		return c.texts(ctx, func(r catalog.Reader, namespace string) ([]string, error) { return r.Used(ctx, namespace, f) })
	}
}

func (c *completer) texts(ctx context.Context, read func(r catalog.Reader, namespace string) ([]string, error)) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return onlyWords
	}
	defer v.Catalog.Close()
	list, err := read(v.Catalog, namespace)
	if err != nil {
		return onlyWords
	}
	for _, text := range list {
		if isWord(text) {
			c.add(text, "")
		}
	}
	return onlyWords
}

// documents offers documents as KIND/ID, with the typed beginning.
func documents(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return onlyWords
	}
	defer v.Catalog.Close()
	q := projector.DocumentQuery{Namespace: namespace, Limit: offered}
	q.Kind, q.Prefix, _ = strings.Cut(c.typed, "/")
	if !strings.Contains(c.typed, "/") {
		q.Kind = ""
	}
	list, _, err := v.Catalog.Documents(ctx, q)
	if err != nil {
		return onlyWords
	}
	for _, d := range list {
		if id, ok := spelledAfter(d.Subject.ID); ok {
			c.add(d.Subject.Kind+"/"+id, cmp.Or(d.Title, plain.Bytes(d.Bytes)))
		}
	}
	return onlyWords
}

// spelledAfter is spelled for an id after its kind, where nothing looks like a flag.
func spelledAfter(id string) (string, bool) {
	word, _ := spelled(id)
	return word, isWord(word)
}

// linkable offers the targets of a link: documents and session/ID.
func linkable(ctx context.Context, c *completer) cobra.ShellCompDirective {
	typed, isSession := strings.CutPrefix(c.typed, "session/")
	if !isSession {
		return documents(ctx, c)
	}
	of := &completer{App: c.App, cmd: c.cmd, args: c.args, typed: typed}
	offerIDs(ctx, of)
	for _, f := range of.found {
		c.found = append(c.found, "session/"+f)
	}
	return onlyWords
}

// links offers the targets after REL= in a link.
func links(ctx context.Context, c *completer) cobra.ShellCompDirective {
	rel, to, ok := strings.Cut(c.typed, "=")
	if !ok {
		c.add("parent=", "the document above")
		return noSpace
	}
	of := &completer{App: c.App, cmd: c.cmd, args: c.args, typed: to}
	linkable(ctx, of)
	for _, f := range of.found {
		c.found = append(c.found, rel+"="+f)
	}
	return onlyWords
}
