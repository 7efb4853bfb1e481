package cmdutil

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
	"github.com/tallylog/tally/stores/errata/erratadir"
	"github.com/tallylog/tally/stores/evals/tallydir"
	"github.com/tallylog/tally/stores/perstack/perstackdir"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// Layout is a layout of files that import reads and export writes.
type Layout struct {
	layouts.Layout
	Redacted layouts.Renderer // writes only what may be shared; nil if there is no such renderer
	Named    layouts.Layout   // with --format, reads more than Layout does; nil if there is no such layout

	In, Out string // description of the files, for the help of import and export
	Sign    string // marks by which import recognises the files
}

// Layouts lists all layouts of files, in the order in which import tries them. Import, export and trees take layouts
// from here.
var Layouts = []Layout{
	{
		Layout: tallydir.Layout{},
		In:     "the folder of tally-evals: conversations/<id>/conversation.jsonl ...",
		Out:    "conversations, each a folder, as tally-evals has them",
		Sign:   "A folder of tally-evals holds conversations/, or is one conversation's folder",
	},
	{
		Layout: erratadir.Layout{}, Redacted: erratadir.Layout{Redact: true},
		In:   "the data folder of errata: sessions/ses_<id>/session_metadata.json, prompt_history.jsonl ...",
		Out:  "panels, each a folder in sessions/, the prompts and the recipes, as errata has them; with --redact only what may be shared: neither prompts nor answers, previews, files or notes",
		Sign: "one of errata holds sessions/ or prompt_history.jsonl",
	},
	{
		Layout: ailoopdir.Layout{},
		In:     "a snapshot file of ailoop: a JSON object with version, messages, pinned",
		Out:    "histories, each a file <id>.json, as ailoop has them",
		Sign:   "a file of ailoop is a JSON object with version, messages and pinned",
	},
	{
		Layout: perstackdir.Layout{Keys: sealed.FromEnvironment},
		In:     "the folder of @perstack/storage: perstack/jobs/<id>/job.json, checkpoints/<id>.json, runs/<id>/event-<ms>-<step>-<type>.json ...; secrets of settings are sealed with the key in the file that TALLY_SECRET_KEY_FILE names",
		Out:    "jobs, each a folder jobs/<id>, as @perstack/storage has them; without the key that sealed them, secrets are placeholders and the exit code is 3",
		Sign:   "one of @perstack/storage holds perstack/jobs/, or is one job's folder",
	},
	{
		Layout: taverndir.Layout{}, Named: taverndir.Layout{Flat: true},
		In:   "the folder of Tavern, .tavern or the one around it: docs/, agents/<name>/agent.md, workflows/<id>.json, overlays/, servitors/<name>/servitor.md ...; or a folder of documents <id>.md, some of which are agents (any such folder with --format tavern)",
		Out:  "documents, workflows, overlays and agents, as .tavern has them",
		Sign: "one of Tavern is called .tavern, or holds it, or documents of agents",
	},
}

// LayoutNamed returns the layout of a name.
func LayoutNamed(name string) (Layout, bool) {
	i := slices.IndexFunc(Layouts, func(l Layout) bool { return l.Name() == name })
	if i < 0 {
		return Layout{}, false
	}
	return Layouts[i], true
}

// LiveLayout returns the layout of a name, in the form of embedded.Options.Trees.
func LiveLayout(name string) (layouts.Layout, bool) {
	l, ok := LayoutNamed(name)
	return l.Layout, ok
}

// LayoutNames lists the names of the layouts for which is returns true; all if is is nil.
func LayoutNames(is func(Layout) bool) []string {
	var names []string
	for _, l := range Layouts {
		if is == nil || is(l) {
			names = append(names, l.Name())
		}
	}
	return names
}

// Or joins words for a sentence: a, b or c.
func Or(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// DescribeLayouts lists the layouts with a description of each, for a help text.
func DescribeLayouts(say func(Layout) string) string {
	var pairs []string
	for _, l := range Layouts {
		pairs = append(pairs, l.Name(), say(l))
	}
	return describe(pairs...)
}

// describe formats names with a description of each, for a help text.
func describe(pairs ...string) string {
	const indent, wide = 15, 82
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		text := strings.Join(render.Wrap(pairs[i+1], wide-indent), "\n"+strings.Repeat(" ", indent))
		fmt.Fprintf(&b, "  %-*s%s\n", indent-2, pairs[i], text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
