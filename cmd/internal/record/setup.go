package record

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/render/plain"
)

// setter adds tally's hook to the settings of an agent.
type setter struct {
	app                *cmdutil.App
	write, remove, yes bool
}

// hooked is an agent that supports hooks.
type hooked struct {
	name  string
	files []settings
	then  string // next step for the user, "" for none
}

// settings is a settings file of an agent, with functions that add and remove the hook.
type settings struct {
	path string
	add  func(text []byte, program string) (to []byte, remark string, err error)
	cut  func(text []byte) ([]byte, error)
}

func newSetup(a *cmdutil.App) *cobra.Command {
	s := &setter{app: a}
	cmd := &cobra.Command{
		Use: "setup claude|codex|gemini [--write | --remove]", Short: "Install hooks with which an agent calls tally",
		Long: `Print the settings with which an agent calls tally hook, so that a running watch reads new
lines at once. A watch sees most changes by itself. The hooks help on file systems that do
not report changes, and with agents that delete their files at the end.

--write adds the settings to the agent's files after a confirmation. All other bytes of the
files stay, a file that cannot be parsed is not changed, and a second run changes nothing.
--remove removes the settings.`,
		Example: cmdutil.Examples("tally setup claude", "tally setup codex --write", "tally setup gemini --remove -y"),
		Args:    cobra.ExactArgs(1), ValidArgs: []string{"claude", "codex", "gemini"},
		RunE: func(_ *cobra.Command, args []string) error { return s.run(args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&s.write, "write", false, "put the settings into the agent's files")
	f.BoolVar(&s.remove, "remove", false, "take the settings out of the agent's files")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	return cmd
}

// hookedAgent returns the agent with a name, and its files.
func hookedAgent(name string, env func(string) string) (hooked, error) {
	home := env("HOME")
	if home == "" {
		home = env("USERPROFILE")
	}
	folder := func(variable string, below ...string) string {
		if dir := env(variable); dir != "" {
			return filepath.Join(append([]string{dir}, below[1:]...)...)
		}
		return filepath.Join(append([]string{home}, below...)...)
	}
	h := hooked{name: name}
	switch name {
	case "claude":
		h.files = []settings{hooksIn(folder("CLAUDE_CONFIG_DIR", ".claude", "settings.json"), name, `{"type":"command","command":$,"async":true,"timeout":5}`,
			"SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStop", "Stop", "SessionEnd")}
	case "codex":
		h.files = []settings{notifyIn(folder("CODEX_HOME", ".codex", "config.toml")), hooksIn(folder("CODEX_HOME", ".codex", "hooks.json"), name,
			`{"type":"command","command":$,"timeout":5}`, "SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStop", "Stop")}
		h.then = "Codex asks once whether hooks are trusted: see /hooks there."
	case "gemini":
		dir := home
		if other := env("GEMINI_CLI_HOME"); other != "" {
			dir = other
		}
		h.files = []settings{hooksIn(filepath.Join(dir, ".gemini", "settings.json"), name, `{"name":"tally","type":"command","command":$,"timeout":5000}`,
			"SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd")}
		h.then = "Older versions of Gemini CLI heed hooks only with \"enableHooks\": true in \"tools\"."
	default:
		return h, cli.Usagef("there is no setup for %q: want claude, codex or gemini", name)
	}
	if home == "" && !filepath.IsAbs(h.files[0].path) {
		return h, cli.Usagef("HOME is not set, so the settings of %s cannot be found", name)
	}
	return h, nil
}

// change is the change of a file by setup.
type change struct {
	File    string `json:"file"`
	Changed bool   `json:"changed"` // the file differs from the wanted text
	Written bool   `json:"written"`
	Text    string `json:"text"`             // wanted text; with --remove the remaining text
	Remark  string `json:"remark,omitempty"` // a part that was not done
	old     []byte
	new     []byte
	mode    fs.FileMode
	target  string // target of a link
}

func (s *setter) run(name string) error {
	if s.write && s.remove {
		return cli.Usagef("use either --write or --remove, not both")
	}
	h, err := hookedAgent(name, os.Getenv)
	if err != nil {
		return err
	}
	program := programPath()
	var list []*change
	for _, f := range h.files {
		c, err := s.plan(f, program)
		if err != nil {
			return err
		}
		list = append(list, c)
	}
	if s.write || s.remove {
		if err := s.apply(list); err != nil {
			return err
		}
	}
	return s.say(h, list)
}

// programPath returns the command for hooks: the program's name if PATH finds it, else its path.
func programPath() string {
	self, err := os.Executable()
	if err != nil {
		return "tally"
	}
	if found, err := exec.LookPath("tally"); err == nil {
		a, errA := os.Stat(found)
		b, errB := os.Stat(self)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return "tally"
		}
	}
	return self
}

// plan returns the change of a file without writing.
func (s *setter) plan(f settings, program string) (*change, error) {
	c := &change{File: f.path, target: f.path, mode: 0o600}
	if resolved, err := filepath.EvalSymlinks(f.path); err == nil {
		c.target = resolved // the link itself stays
	}
	info, err := os.Stat(c.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", f.path)
	default:
		c.mode = info.Mode().Perm()
		if c.old, err = os.ReadFile(c.target); err != nil {
			return nil, err
		}
	}
	if s.remove {
		c.new, err = f.cut(c.old)
		c.Text = string(c.new)
	} else {
		c.new, c.Remark, err = f.add(c.old, program)
		fresh, _, _ := f.add(nil, program) // for an empty file, all of it
		c.Text = string(fresh)
	}
	if err != nil {
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%s: %w", f.path, err), Hint: "The file was not changed. Correct it, or add by hand what tally setup prints for an empty home."}
	}
	c.Changed = !bytes.Equal(c.old, c.new)
	return c, nil
}

// apply writes the changes.
func (s *setter) apply(list []*change) error {
	var files []string
	for _, c := range list {
		if c.Changed {
			files = append(files, plain.Printable(c.File))
		}
	}
	if len(files) == 0 {
		return nil
	}
	verb := "Put tally's hook into "
	if s.remove {
		verb = "Take tally's hook out of "
	}
	if err := s.confirm(verb + strings.Join(files, " and ") + "?"); err != nil {
		return err
	}
	for _, c := range list {
		if !c.Changed {
			continue
		}
		if err := c.apply(); err != nil {
			return err
		}
	}
	return nil
}

func (s *setter) confirm(question string) error {
	err := s.app.Confirm(s.yes, question)
	if code, ok := errors.AsType[*cli.CodeError](err); ok && code.Hint != "" {
		code.Hint = "Add -y to confirm. Without --write and --remove nothing is written."
	}
	return err
}

// apply replaces the file in one step, if its text is still the one that plan read.
func (c *change) apply() error {
	if err := os.MkdirAll(filepath.Dir(c.target), 0o700); err != nil {
		return err
	}
	now, err := os.ReadFile(c.target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(now, c.old) {
		return &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("%s was changed meanwhile", c.File), Hint: "Nothing was written to it: repeat the command."}
	}
	if err := durable.Replace(c.target, c.new, c.mode, durable.WithSync); err != nil {
		return err
	}
	c.Written = true
	return nil
}

func (s *setter) say(h hooked, list []*change) error {
	if s.app.Format != cli.Text {
		return cli.WriteList(s.app.Out, s.app.Format, list)
	}
	for _, c := range list {
		file := plain.Printable(c.File)
		var err error
		switch {
		case c.Written:
			err = s.app.Say("%s: done.", file)
		case !c.Changed && (s.write || s.remove || c.Remark == ""):
			err = s.app.Say("%s: already set up.", file)
		default:
			_, err = fmt.Fprintf(s.app.Out, "%s:\n%s", file, plain.Printable(c.Text))
		}
		if err != nil {
			return err
		}
		if c.Remark != "" {
			fmt.Fprintf(s.app.Err, "%s: %s\n", file, plain.Printable(c.Remark))
		}
	}
	changed := slices.ContainsFunc(list, func(c *change) bool { return c.Changed })
	if h.then != "" && changed && !s.remove {
		fmt.Fprintln(s.app.Err, h.then)
	}
	if changed && !s.write && !s.remove {
		fmt.Fprintf(s.app.Err, "Nothing was written: %s setup %s --write does it.\n", cmdutil.Program(), h.name)
	}
	return nil
}

// shellWord returns a path in shell quotes.
func shellWord(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:+@%") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
