package cmdutil

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// otherWords are verbs that people type who know them from git, from a shell or from
// another program, with the commands that do what they ask for.
var otherWords = []struct{ words, meant string }{
	{"list l ll dir sessions session threads chats conversations recent", "ls"},
	{"find grep rg ag ack query lookup locate", "search"},
	{"view display print read less more head open inspect describe info get details transcript", "show|cat"},
	{"history hist events event journal reflog timeline", "log"},
	{"tail follow", "log -f|watch"},
	{"monitor track capture observe", "watch"},
	{"record", "exec|watch"},
	{"usage costs price prices pricing spend spent spending bill billing money tokens", "cost"},
	{"statistics summary summarize report count dashboard metrics models projects tools", "stats"},
	{"compare delta changes difference", "diff"},
	{"resume continue clone branch copy cp duplicate", "fork"},
	{"revert reset checkout rollback back goto restore-point unwind", "rewind"},
	{"delete del remove erase unlink drop", "rm"},
	{"prune gc clean cleanup compact vacuum purge expire", "rm --purge|quota"},
	{"rename move ren", "mv"},
	{"add insert commit save store write", "append|put"},
	{"new create edit touch upload", "put"},
	{"ingest load sync pull collect scan", "import|watch"},
	{"dump download share publish html markdown pdf out", "export"},
	{"snapshot archive", "backup"},
	{"recover repair fix mend heal", "doctor|restore"},
	{"check fsck validate audit lint integrity", "verify|doctor"},
	{"health diagnose ping", "doctor|status"},
	{"st state stat where", "status"},
	{"reindex index refresh migrate upgrade-views", "rebuild"},
	{"start run up daemon server listen host", "serve"},
	{"web ui gui tui browse", "export|show"},
	{"blame annotate who", "log|show"},
	{"settings setting set conf preferences prefs env configure", "config"},
	{"install enable", "setup|init"},
	{"integrate hooks", "setup|hook"},
	{"update upgrade about release", "version"},
	{"man manual docs-help usage-help commands", "help"},
	{"completions complete", "completion"},
	{"message msg mail tell reply notify post", "send"},
	{"messages mailbox unread", "inbox"},
	{"ack mark", "seen"},
	{"push", "enqueue|backup"},
	{"task tasks queues items", "queue"},
	{"worker consume dequeue pop take", "work"},
	{"retry", "requeue"},
	{"job", "jobs"},
	{"evals eval simulations evaluations", "runs"},
	{"ps top team", "agents"},
	{"workflow workflows", "flows|flow"},
	{"document documents doc files notes note", "docs"},
	{"key keys rotate encrypt decrypt seal", "secrets"},
	{"limits limit", "quota"},
	{"sealed", "secrets"},
	{"trees mirror mount", "tree"},
	{"replay play", "show"},
	{"providers vendors", "sources"},
}

// otherPrograms are verbs of programs of their own, with how to run these.
var otherPrograms = []struct{ words, how string }{
	{"bench benchmark perf speed", "The program tally-bench measures this. In a clone of the source, go -C cmd/tally-bench install builds it."},
}

// HintFor says what may be meant by a word that is no command of a parent.
func HintFor(parent *cobra.Command, word string) string {
	if how := elsewhere(word); how != "" && !parent.HasParent() {
		return how
	}
	list := meant(parent, word)
	if len(list) == 0 {
		return parent.CommandPath() + " --help lists the commands."
	}
	path := ""
	if parent.HasParent() {
		path = strings.TrimPrefix(parent.CommandPath(), parent.Root().Name()+" ") + " "
	}
	return "Did you mean " + path + strings.Join(list, " or "+path) + "?"
}

// elsewhere returns how to run the program that has a verb, "" if no other program has it.
func elsewhere(word string) string {
	for _, o := range otherPrograms {
		if slices.Contains(strings.Fields(o.words), strings.ToLower(word)) {
			return o.how
		}
	}
	return ""
}

// meant returns what somebody may have meant who typed a word that is no command: a
// command that does so, or one whose name differs by a slip.
func meant(parent *cobra.Command, word string) []string {
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

// there leaves the commands out that a program does not have.
func there(root *cobra.Command, list []string) []string {
	return slices.DeleteFunc(list, func(meant string) bool {
		cmd, _, err := root.Find(strings.Fields(meant)[:1])
		return err != nil || cmd == root && meant != "help"
	})
}

// slips returns the names of commands that differ least from a word, if that is by one
// letter, by two from six letters on, or by an ending that was not typed.
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

// distance returns how many letters must be put in, taken out, replaced or exchanged with
// the next one for a to become b (optimal string alignment).
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
