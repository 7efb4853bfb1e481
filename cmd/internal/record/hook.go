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
		Use: "hook [AGENT]", Short: "Tell a running watch that an agent has written a file",
		Args: cobra.ArbitraryArgs, DisableFlagParsing: true, ValidArgsFunction: offerAgents,
		Long: `Tell a running watch that an agent has written a file, which the watch then reads first. An
agent calls this from its hooks, with the hook's JSON on standard input or, like Codex'
notify, as the last argument.

The call is optional, as a watch sees changes by itself. It takes a few milliseconds, opens
no store, waits for no other process and prints nothing. The exit code is always 0, so it
never blocks an agent.`,
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

// Hooked runs the hook if the arguments ask for it, and reports whether they do. A hook thus starts without setting up
// the other commands.
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

// Limits for reading a hook's JSON. The members that matter come first.
const (
	hookTime  = 4 * time.Millisecond
	hookBytes = 64 << 10
)

// Hook sends a kick to every running watch, with the contents of the last argument or else of the input.
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
	sockets, _ := filepath.Glob(filepath.Join(dir, socketNames)) // the pattern is a constant
	for _, socket := range sockets {
		for _, kick := range kicks {
			send(socket, kick)
		}
	}
}

// readFor reads the first JSON object of the input, or its first members. It waits for a limited time, and does not
// read beyond the object. It stops at input that is not an object.
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

// object is a JSON object while it is read.
type object struct {
	text              []byte
	whole             int  // length of the complete object, or of its complete members
	isOver            bool // the object is complete, or the input is not an object
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

// kicksIn returns the paths of transcripts, or the session of a Codex thread, in a hook's JSON. The JSON may be
// incomplete.
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

// kickOf returns the path or session that one member names, or "".
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
