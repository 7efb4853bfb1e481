package cmdutil

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// sessions offers ids that begin as what is typed does, and what is behind the first slash
// of ids: the names of imported sessions.
func sessions(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	list, err := v.Catalog.Beginning(ctx, namespace, c.typed, offered)
	if id, ok := unescaped(c.typed); ok && err == nil {
		var more []catalog.Session
		more, err = v.Catalog.Beginning(ctx, namespace, id, offered)
		list = append(list, more...)
	}
	if err != nil {
		return words
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
	return words
}

// ids offers whole ids, as they are: where an id is not looked for, but taken as it stands.
func ids(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	list, _ := v.Catalog.Beginning(ctx, namespace, c.typed, offered) // after an error nothing is known
	for _, s := range list {
		if word, _ := spelled(s.ID); word == s.ID && word != Last {
			c.addSession(s, word)
		}
	}
	return words
}

// agentIDs, flowIDs and queues offer ids: what is behind the slash of those of their sessions.
var agentIDs, flowIDs, queues = idsOf(events.KindAgent), idsOf(events.KindFlow), idsOf(events.KindQueue)

// receivers offers who gets messages: the user, agents, and whoever has an inbox.
func receivers(ctx context.Context, c *completer) cobra.ShellCompDirective {
	c.add("user", "the person")
	return idsOf(events.KindAgent, events.KindInbox)(ctx, c)
}

// idsOf offers what is behind the slash of the ids of sessions that begin with one of kinds.
func idsOf(kinds ...string) source {
	return func(ctx context.Context, c *completer) cobra.ShellCompDirective {
		v, namespace, ok := c.views(ctx)
		if !ok {
			return words
		}
		defer v.Catalog.Close()
		for _, kind := range kinds {
			list, _ := v.Catalog.Beginning(ctx, namespace, kind+"/"+c.typed, offered) // after an error nothing is known
			for _, s := range list {
				id := strings.TrimPrefix(s.ID, kind+"/")
				if word, ok := spelled(id); ok && word == id {
					c.add(id, s.About())
				}
			}
		}
		return words
	}
}

// named offers what is behind the first slash of ids, where that is one session alone.
func (c *completer) named(ctx context.Context, r catalog.Reader, namespace string) {
	ctx, stop := context.WithTimeout(ctx, rootsWithin)
	defer stop()
	roots, err := r.Roots(ctx, namespace, offered)
	if err != nil {
		return // there are too many sessions to look for that
	}
	tails := make(map[string]int)
	var found []catalog.Session
	for _, root := range roots {
		list, err := r.Beginning(ctx, namespace, root+c.typed, offered)
		if err != nil {
			return
		}
		for _, s := range list {
			tails[tail(s.ID)]++
		}
		found = append(found, list...)
	}
	slices.SortFunc(found, func(a, b catalog.Session) int { return cmp.Compare(b.Head, a.Head) })
	for _, s := range found {
		if tails[tail(s.ID)] == 1 {
			c.addSession(s, tail(s.ID))
		}
	}
}

func tail(id string) string {
	_, behind, _ := strings.Cut(id, "/")
	return behind
}

func (c *completer) addSession(s catalog.Session, name string) {
	if word, ok := spelled(name); ok {
		c.add(word, cmp.Or(s.About(), s.Kind+" of "+plain.Count(s.Turns, "turn")))
	}
}

// isWord reports whether a text can be offered as it is: one line, which is trimmed, for each.
func isWord(text string) bool {
	return plain.Printable(text) == text && strings.TrimSpace(text) == text && !strings.ContainsAny(text, "\n\t")
}

// spelled returns an id as a command takes it and a line can hold it: escaped, if it has
// control characters, or would be taken for the escaped form of another one. It is false
// for what is taken for a flag.
func spelled(id string) (string, bool) {
	other, err := events.UnescapeID(id)
	if !isWord(id) || err == nil && other != id {
		id = events.EscapeID(id)
	}
	return id, !strings.HasPrefix(id, "-")
}

// unescaped returns the beginning of the id of which the escaped form was begun to type.
func unescaped(typed string) (string, bool) {
	if i := strings.LastIndexByte(typed, '='); i >= 0 && i > len(typed)-3 {
		typed = typed[:i]
	}
	id, err := events.UnescapeID(typed)
	return id, err == nil && strings.Contains(typed, "=")
}

// session is the session that --session or else the first argument names.
func (c *completer) session(ctx context.Context) (v Views, s catalog.Session, ok bool) {
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

// threads offers the threads of the session.
func threads(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, s, ok := c.session(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	all := make(map[string]int)
	if s.Records > countable {
		for _, t := range spokenIn(ctx, v.Dir, s) {
			all[t.Thread]++
		}
	} else if history, ok, err := v.Catalog.Timeline(ctx, s.Namespace, s.ID); ok && err == nil {
		all = history.Lengths()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if isWord(name) {
			what := plain.Count(all[name], "turn")
			if s.Records > countable {
				what = "among the newest turns"
			}
			c.add(name, what)
		}
	}
	return words
}

// runs offers the runs of the session; those of one id that are of several kinds by both.
func runs(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, s, ok := c.session(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	list, err := v.Catalog.Runs(ctx, s.Namespace, s.ID, offered)
	if err != nil {
		return words
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
	return words
}

// steps offers the steps of the run that --run names, one of a job where it says no type.
func steps(ctx context.Context, c *completer) cobra.ShellCompDirective {
	f := c.cmd.Flags().Lookup("run")
	v, s, ok := c.session(ctx)
	if !ok || f == nil {
		return words
	}
	defer v.Catalog.Close()
	run := strings.TrimPrefix(f.Value.String(), perstack.RunKind+"/")
	list, _ := v.Catalog.Steps(ctx, s.Namespace, s.ID, events.RunRef{Kind: perstack.RunKind, ID: run}, offered) // after an error nothing is known
	for _, n := range list {
		c.add(n, "")
	}
	return words
}

// types offers the types of events, and what the session's programs call what happened.
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
	return words
}

// positions offers points of the session.
func positions(ctx context.Context, c *completer) cobra.ShellCompDirective {
	for _, p := range c.positions(ctx) {
		c.add(p.word, p.what)
	}
	return words
}

// ranges offers the beginning of a range, or its end once that is there.
func ranges(ctx context.Context, c *completer) cobra.ShellCompDirective {
	from, to, ended := strings.Cut(c.typed, "..")
	if !ended {
		to = from
	}
	for _, p := range (&completer{App: c.App, cmd: c.cmd, args: c.args, typed: to}).positions(ctx) {
		if ended {
			c.add(from+".."+p.word, p.what)
		} else {
			c.add(p.word+"..", p.what)
		}
	}
	if ended {
		return words
	}
	return noSpace
}

// point is a position that is offered.
type point struct{ word, what string }

// positions returns the points of the session, those first that are named most: the head,
// the newest turns by their number, then by how many are behind them, then by offset.
func (c *completer) positions(ctx context.Context) []point {
	list := []point{{"head", "where the session is now"}, {"start", "before everything"}}
	v, s, ok := c.session(ctx)
	if !ok {
		return append(list, point{"~1", "without the last turn"})
	}
	defer v.Catalog.Close()
	if s.Records > countable {
		return slices.Concat(list, back(map[string]int{"": s.Turns}), offsetsOf(spokenIn(ctx, v.Dir, s)))
	}
	history, ok, err := v.Catalog.Timeline(ctx, s.Namespace, s.ID)
	if err != nil || !ok {
		return list
	}
	turns, err := history.Newest(offered)
	if err != nil {
		return list
	}
	said := saidIn(ctx, v.Dir, s, turns)
	return slices.Concat(list, numbered(c.typed, history.Lengths(), turns, said), back(history.Lengths()), offsets(c.typed, turns, said))
}

// numbered are turns by their number: of main, or else of the only thread, the newest; of
// the other threads the last one each, unless the thread is typed.
func numbered(typed string, lengths map[string]int, turns []projector.Placed, said map[projector.Placed]string) []point {
	what := make(map[string]string)
	for t, text := range said {
		what[numberOf(t.Thread, t.Number)] = text
	}
	names := slices.Sorted(maps.Keys(lengths))
	unnamed := events.MainThread
	if len(names) == 1 {
		unnamed = names[0]
	}
	var list []point
	for _, name := range names {
		prefix, shown := name, 1
		if name == unnamed {
			prefix, shown = "", offered
		} else if !isWord(name) {
			continue
		} else if strings.HasPrefix(typed, name+"#") {
			shown = offered
		}
		for n := lengths[name]; n > max(0, lengths[name]-shown); n-- {
			list = append(list, point{numberOf(prefix, n), what[numberOf(name, n)]})
		}
	}
	return list
}

func numberOf(thread string, n int) string { return fmt.Sprintf("%s#%d", thread, n) }

// back are the points before the last turns, where they can be counted.
func back(lengths map[string]int) []point {
	total := 0
	for name, n := range lengths {
		if total += n; name == events.MainThread {
			total = n
			break
		}
	}
	var list []point
	for n := range min(total, 3) {
		list = append(list, point{fmt.Sprintf("~%d", n+1), "without the last " + strings.TrimPrefix(plain.Count(n+1, "turn"), "1 ")})
	}
	return list
}

// offsets are the newest turns by their offset, once @ is typed: they are those that the
// numbers name.
func offsets(typed string, turns []projector.Placed, said map[projector.Placed]string) []point {
	if !strings.HasPrefix(typed, "@") {
		return nil
	}
	var list []point
	for _, t := range turns {
		list = append(list, point{t.Offset.String(), said[t]})
	}
	return list
}

// countable is how many records a session has at the most whose threads are counted: that
// takes about 20 ms. Of a longer one the newest turns are offered by offset.
const countable = 100_000

func offsetsOf(turns []catalog.Spoken) []point {
	var list []point
	for _, t := range turns {
		list = append(list, point{t.Offset.String(), spokenBy(t)})
	}
	return list
}

// spokenIn returns the newest turns in effect that say something, as far as the search
// view tells.
func spokenIn(ctx context.Context, dir string, s catalog.Session) []catalog.Spoken {
	list, err := catalog.SpokenIn(ctx, dir, s.Namespace, s.ID, s.Head, 2*offered)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list, func(t catalog.Spoken) bool { return !s.Live.Contains(t.Offset) })
}

func spokenBy(t catalog.Spoken) string {
	if t.Roles == "" {
		return t.Text
	}
	return t.Roles + ": " + t.Text
}

// saidIn says who says what in turns, as far as the search view tells.
func saidIn(ctx context.Context, dir string, s catalog.Session, turns []projector.Placed) map[projector.Placed]string {
	type index struct {
		thread string
		at     events.Offset
		n      int
	}
	spoken := make(map[index]string)
	for _, t := range spokenIn(ctx, dir, s) {
		spoken[index{t.Thread, t.Offset, t.Number}] = spokenBy(t)
	}
	first := make(map[index]int) // the number of the first turn that a record brought to a thread
	for _, t := range turns {
		first[index{t.Thread, t.Offset, 0}] = t.Number // they descend
	}
	said := make(map[projector.Placed]string)
	for _, t := range turns {
		said[t] = spoken[index{t.Thread, t.Offset, t.Number - first[index{t.Thread, t.Offset, 0}]}]
	}
	if len(turns) == offered { // of the last record, some turns may be missing
		last := turns[len(turns)-1].Offset
		maps.DeleteFunc(said, func(t projector.Placed, _ string) bool { return t.Offset == last })
	}
	return said
}

// namespaces offers the namespaces of the store.
func namespaces(ctx context.Context, c *completer) cobra.ShellCompDirective {
	return c.texts(ctx, func(r catalog.Reader, _ string) ([]string, error) { return r.Namespaces(ctx, offered) })
}

// models offers the models that cost something.
func models(ctx context.Context, c *completer) cobra.ShellCompDirective {
	return c.texts(ctx, func(r catalog.Reader, namespace string) ([]string, error) { return r.Models(ctx, namespace) })
}

// used offers what sessions have in a field.
func used(f catalog.Field) source {
	return func(ctx context.Context, c *completer) cobra.ShellCompDirective {
		return c.texts(ctx, func(r catalog.Reader, namespace string) ([]string, error) { return r.Used(ctx, namespace, f) })
	}
}

func (c *completer) texts(ctx context.Context, read func(r catalog.Reader, namespace string) ([]string, error)) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	list, err := read(v.Catalog, namespace)
	if err != nil {
		return words
	}
	for _, text := range list {
		if isWord(text) {
			c.add(text, "")
		}
	}
	return words
}

// documents offers kinds, and then the ids that begin as what is typed does.
func documents(ctx context.Context, c *completer) cobra.ShellCompDirective {
	v, namespace, ok := c.views(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	q := projector.DocumentQuery{Namespace: namespace, Limit: offered}
	q.Kind, q.Prefix, _ = strings.Cut(c.typed, "/")
	if !strings.Contains(c.typed, "/") {
		q.Kind = ""
	}
	list, _, err := v.Catalog.Documents(ctx, q)
	if err != nil {
		return words
	}
	for _, d := range list {
		if id, ok := spelledAfter(d.Subject.ID); ok {
			c.add(d.Subject.Kind+"/"+id, cmp.Or(d.Title, plain.Bytes(d.Bytes)))
		}
	}
	return words
}

// spelledAfter is spelled of an id behind its kind, where nothing is taken for a flag.
func spelledAfter(id string) (string, bool) {
	word, _ := spelled(id)
	return word, isWord(word)
}

// linkable offers what a link may lead to.
func linkable(ctx context.Context, c *completer) cobra.ShellCompDirective {
	typed, isSession := strings.CutPrefix(c.typed, "session/")
	if !isSession {
		return documents(ctx, c)
	}
	of := &completer{App: c.App, cmd: c.cmd, args: c.args, typed: typed}
	ids(ctx, of)
	for _, f := range of.found {
		c.found = append(c.found, "session/"+f)
	}
	return words
}

// links offers what stands behind REL= in a link.
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
	return words
}

// bases offers the revision that the document is at.
func bases(ctx context.Context, c *completer) cobra.ShellCompDirective {
	if len(c.args) == 0 {
		return words
	}
	v, namespace, ok := c.views(ctx)
	if !ok {
		return words
	}
	defer v.Catalog.Close()
	kind, id, _ := strings.Cut(c.args[0], "/")
	list, _, err := v.Catalog.Documents(ctx, projector.DocumentQuery{Namespace: namespace, Kind: kind, Prefix: id, Limit: 1})
	if err == nil && len(list) == 1 && list[0].Subject.ID == id {
		c.add(list[0].Last.String(), "the revision that it is at")
	}
	return words
}
