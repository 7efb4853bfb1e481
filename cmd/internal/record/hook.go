package record

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/config"
)

func newHook(*cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "hook [AGENT]", Short: "Tell a running watch that an agent has just written something",
		Args: cobra.ArbitraryArgs, DisableFlagParsing: true, ValidArgsFunction: offerAgents,
		Long: `Tell a running watch that an agent has just written something: it looks at that file
before all others. An agent calls this from its hooks, with the hook's JSON on standard
input, or as the last argument, as Codex' notify has it.

Nobody has to call it: a watch sees what is written by itself. It opens no store, waits
for nobody, takes some ms, prints nothing, and the exit code is always 0, whatever it is
given: it never stands in an agent's way.`,
		Example: cmdutil.Examples(`echo '{"transcript_path":"/home/me/.claude/projects/shop/1.jsonl"}' | tally hook claude`,
			`tally hook codex '{"type":"agent-turn-complete","thread-id":"0199a213-81c0-7800-8aa1-bbab2a035a53"}'`,
			`jq -n '{hooks:{Stop:[{hooks:[{type:"command",command:"tally hook claude",async:true}]}]}}' # for ~/.claude/settings.json`),
		Run: func(cmd *cobra.Command, args []string) {
			if isHelp(args) {
				_ = cmd.Help()
				return
			}
			Hook(args, cmd.InOrStdin(), os.Getenv)
		},
	}
}

// Hooked is the way of the program for a hook: it does what that does, and reports whether
// the arguments ask for one. So a hook does not wait for the other commands to be set up.
func Hooked(args []string) bool {
	if len(args) < 2 || args[1] != "hook" || isHelp(args[2:]) {
		return false
	}
	Hook(args[2:], os.Stdin, os.Getenv)
	return true
}

func isHelp(args []string) bool {
	return slices.Contains(args, "--help") || slices.Contains(args, "-h")
}

// Bounds of what a hook is given: the members that count stand in front.
const (
	hookTime  = 4 * time.Millisecond
	hookBytes = 64 << 10
)

// Hook kicks every watch that runs, with what the last argument or else the input says.
func Hook(args []string, in io.Reader, env func(string) string) {
	var said []byte
	if n := len(args); n > 0 && strings.HasPrefix(strings.TrimSpace(args[n-1]), "{") {
		said = []byte(args[n-1][:min(len(args[n-1]), hookBytes)])
	} else {
		said = readFor(in, hookTime)
	}
	dir := config.StateFolder(env)
	kicks := kicksIn(said)
	if dir == "" || len(kicks) == 0 {
		return
	}
	sockets, _ := filepath.Glob(filepath.Join(dir, socketNames)) // the pattern is ours
	for _, socket := range sockets {
		for _, kick := range kicks {
			send(socket, kick)
		}
	}
}

// readFor reads the first object of the input, or the members that it begins with: it waits
// no longer than a time, and not for what follows. What is no object is not read to its end.
func readFor(in io.Reader, most time.Duration) []byte {
	var mu sync.Mutex // guards o
	var o object
	end := make(chan struct{})
	go func() {
		defer close(end)
		for chunk := make([]byte, 64<<10); ; {
			n, err := in.Read(chunk)
			mu.Lock()
			o.add(chunk[:min(n, hookBytes-len(o.text))])
			isOver := o.isOver || len(o.text) == hookBytes
			mu.Unlock()
			if isOver || err != nil {
				return
			}
		}
	}()
	select {
	case <-end:
	case <-time.After(most):
	}
	mu.Lock()
	defer mu.Unlock()
	return o.text[:o.whole:o.whole]
}

// object is an object of JSON while it is read.
type object struct {
	text              []byte
	whole             int  // so much of it is all, or whole members
	isOver            bool // with its end, or because it is none
	depth             int
	isText, isEscaped bool
}

func (o *object) add(next []byte) {
	at := len(o.text)
	o.text = append(o.text, next...)
	for i, c := range next {
		switch {
		case o.isEscaped:
			o.isEscaped = false
		case o.isText:
			o.isEscaped, o.isText = c == '\\', c != '"'
		case c == '"':
			o.isText = o.depth > 0
		case c == '{' || c == '[':
			o.depth++
		case c == '}' || c == ']':
			o.depth--
		case c == ',' && o.depth == 1:
			o.whole = at + i
		}
		if isBlank := c == ' ' || c == '\t' || c == '\r' || c == '\n'; o.depth <= 0 && !isBlank {
			o.whole, o.isOver = at+i+1, true
			return
		}
	}
}

// kicksIn returns what a hook's JSON says is to be looked at: paths of transcripts, or the
// session of a thread of Codex. The JSON need not be whole.
func kicksIn(said []byte) (kicks []string) {
	d := json.NewDecoder(bytes.NewReader(said))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil
	}
	for depth, name, isName := 1, "", true; depth > 0; {
		token, err := d.Token()
		if err != nil {
			return kicks
		}
		if delim, ok := token.(json.Delim); ok {
			depth += map[json.Delim]int{'{': 1, '[': 1, '}': -1, ']': -1}[delim]
			isName = depth == 1
			continue
		}
		text, isText := token.(string)
		switch {
		case depth > 1:
		case isName:
			name, isName = text, false
		default:
			isName = true
			if kick := kickOf(name, text); isText && kick != "" {
				kicks = append(kicks, kick)
			}
		}
	}
	return kicks
}

// kickOf is what one member says is to be looked at, "" if nothing.
func kickOf(name, value string) string {
	switch {
	case len(value) > maxKick || strings.ContainsRune(value, 0):
		return ""
	case name == "transcript_path" || name == "agent_transcript_path":
		if filepath.IsAbs(value) {
			return value
		}
	case name == "thread-id" && value != "":
		return "codex/" + value
	}
	return ""
}
