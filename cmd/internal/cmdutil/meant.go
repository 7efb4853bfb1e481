package cmdutil

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// movedCommands maps the commands of earlier versions to the commands that replace them.
var movedCommands = map[string]string{
	"enqueue": "queue add", "requeue": "queue retry", "work": "queue work",
	"send": "inbox send", "seen": "inbox ack", "attend": "inbox run",
	"agents": "agent ls", "orphans": "agent orphans", "flows": "flow ls",
	"docs": "doc", "put": "doc put", "cat": "doc cat", "rm": "doc rm", "mv": "doc mv",
	"transcripts": "transcript ls", "tend": "daemon run", "project": "daemon views",
	"doc history": "doc log", "doc backlinks": "doc links --back",
}

// otherWords maps verbs of git, of shells and of other programs to the commands that do the same.
var otherWords = []struct{ words, meant string }{
	{"list l ll dir sessions session threads chats conversations recent", "ls"},
	{"find grep rg ag query lookup locate", "search"},
	{"view display print read less more head open inspect describe info get details", "show|doc cat"},
	{"history hist events event journal reflog timeline", "log"},
	{"tail follow", "log -f|watch"},
	{"monitor track capture observe", "watch"},
	{"record", "exec|watch"},
	{"usage costs price prices pricing spend spent spending bill billing money tokens", "cost"},
	{"statistics summary summarize report count dashboard metrics models projects tools", "stats"},
	{"compare delta changes difference", "diff"},
	{"resume continue clone branch cp duplicate", "fork"},
	{"revert reset checkout rollback back goto restore-point unwind", "rewind"},
	{"delete del remove unlink drop", "doc rm"},
	{"erase scrub", "forget"},
	{"prune gc clean cleanup compact vacuum purge expire", "doc rm --purge|quota"},
	{"rename move ren", "doc mv"},
	{"add insert commit save store write", "append|doc put"},
	{"new create edit touch upload", "doc put"},
	{"ingest load sync pull collect scan", "import|watch"},
	{"dump download share publish html markdown pdf out", "export"},
	{"snapshot archive", "backup"},
	{"recover repair fix mend heal", "doctor|restore"},
	{"check fsck validate audit lint integrity", "verify|doctor"},
	{"health diagnose ping", "doctor|status"},
	{"st state stat where", "status"},
	{"reindex index refresh migrate upgrade-views", "rebuild"},
	{"start up server listen host", "serve"},
	{"run", "serve|exec"},
	{"janitor background cron", "daemon"},
	{"web ui gui tui browse", "export|show"},
	{"blame annotate who", "log|show"},
	{"settings setting set conf preferences prefs env configure", "config"},
	{"install enable", "setup|init"},
	{"integrate hooks", "setup|hook"},
	{"update upgrade about release", "version"},
	{"man manual docs-help usage-help commands", "help"},
	{"concept glossary words terms", "help concepts"},
	{"completions complete", "completion"},
	{"message msg mail tell reply notify post", "inbox send"},
	{"messages mailbox unread inboxes", "inbox ls"},
	{"ack mark", "inbox ack"},
	{"push", "queue add|backup"},
	{"task tasks queues items", "queue ls"},
	{"worker consume dequeue pop take", "queue work"},
	{"retry", "queue retry"},
	{"job", "jobs"},
	{"evals eval simulations evaluations", "runs"},
	{"ps top team", "agent ls"},
	{"workflow workflows", "flow ls"},
	{"document documents files notes note", "doc ls"},
	{"key keys rotate encrypt decrypt seal sealed", "secrets"},
	{"limits limit", "quota"},
	{"trees mirror mount", "tree"},
	{"replay play", "show"},
	{"providers vendors", "sources"},
}

// otherPrograms maps verbs to instructions for running another program.
var otherPrograms = []struct{ words, how string }{
	{"bench benchmark perf speed", "The program tally-bench measures this. In a clone of the source, go -C cmd/tally-bench install builds it."},
	{"generate", "A clone of the source has sessions to try: tally import examples/bakery."},
}

// HintFor returns a hint for a word that is not a command of a parent.
func HintFor(parent *cobra.Command, word string) string {
	if how := elsewhere(word); how != "" && !parent.HasParent() {
		return how
	}
	list := suggestions(parent, word)
	path := ""
	if parent.HasParent() {
		path = strings.TrimPrefix(parent.CommandPath(), parent.Root().Name()+" ") + " "
	}
	switch {
	case movedCommands[path+word] != "":
		return "Use " + parent.Root().Name() + " " + movedCommands[path+word] + "."
	case len(list) > 0:
	case path == "queue " || path == "inbox ":
		return "Did you mean " + path + "ls " + Quoted(word) + "?"
	default:
		return parent.CommandPath() + " --help lists the commands."
	}
	return "Did you mean " + path + strings.Join(list, " or "+path) + "?"
}

// elsewhere returns instructions for running another program with a verb, "" if there is no such program.
func elsewhere(word string) string {
	for _, o := range otherPrograms {
		if slices.Contains(strings.Fields(o.words), strings.ToLower(word)) {
			return o.how
		}
	}
	return ""
}

// suggestions returns the commands that a user may have meant with an unknown word: commands for the same purpose, else
// commands with a similar name.
func suggestions(parent *cobra.Command, word string) []string {
	word = strings.ToLower(word)
	if !parent.HasParent() {
		for _, o := range otherWords {
			if slices.Contains(strings.Fields(o.words), word) {
				return there(parent, strings.Split(o.meant, "|"))
			}
		}
	}
	return slips(parent, word)
}

// there removes the commands that a program does not have.
func there(root *cobra.Command, list []string) []string {
	return slices.DeleteFunc(list, func(meant string) bool {
		cmd, _, err := root.Find(strings.Fields(meant)[:1])
		return err != nil || cmd == root && !strings.HasPrefix(meant, "help")
	})
}

// slips returns the names of the commands that are most similar to a word. They differ by one letter, in words from six
// letters on by at most two, or begin with the word.
func slips(parent *cobra.Command, word string) (list []string) {
	least := 1
	if len(word) >= 6 {
		least = 2
	}
	if len(word) < 3 {
		least = 0
	}
	for _, cmd := range parent.Commands() {
		name := cmd.Name()
		if cmd.Hidden || strings.HasPrefix(name, "_") {
			continue
		}
		n := distance(word, name)
		if len(word) >= 3 && strings.HasPrefix(name, word) {
			n = min(n, 1)
		}
		if n < least {
			least, list = n, nil
		}
		if n == least && n < len(name) {
			list = append(list, name)
		}
	}
	return list
}

// distance returns the number of letters that must be inserted, deleted, replaced or swapped with the next one to turn a
// into b (optimal string alignment distance).
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
