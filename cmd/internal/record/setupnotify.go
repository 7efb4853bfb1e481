package record

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/internal/rawjson"
)

// notifyIn returns Codex' config.toml, where notify is the program to call after a turn.
func notifyIn(path string) settings {
	return settings{path: path, add: addNotify, cut: cutNotify}
}

// notifyLine matches a line that sets notify, in a text with keys of the top level.
var notifyLine = regexp.MustCompile(`(?m)^[ \t]*notify[ \t]*=.*(\r?\n|$)`)

// addNotify sets notify in the first line, where keys belong to the top level. If notify is set already, it stays:
// Codex calls one program.
func addNotify(text []byte, program string) ([]byte, string, error) {
	was, err := tomlOf(text)
	if err != nil {
		return nil, "", err
	}
	if set, ok := was["notify"]; ok {
		if isNotify(set) {
			return text, "", nil
		}
		return text, fmt.Sprintf("notify is set already, to %v, and stays so: Codex calls one program; its hooks call tally", set), nil
	}
	line := append([]byte("notify = ["), rawjson.AppendString(nil, program)...)
	line = append(line, ", \"hook\", \"codex\"]\n"...)
	if bytes.Contains(text, []byte("\r\n")) {
		line = append(line[:len(line)-1], "\r\n"...)
	}
	to := append(line, text...)
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		to = append(append([]byte("\ufeff"), line...), text[len("\ufeff"):]...)
	}
	return to, "", sameBut(was, to)
}

// cutNotify removes the line that addNotify added.
func cutNotify(text []byte) ([]byte, error) {
	was, err := tomlOf(text)
	if err != nil || !isNotify(was["notify"]) {
		return text, err
	}
	line := notifyLine.FindIndex(text)
	if line == nil {
		return nil, errors.New("notify is not set in a line of its own")
	}
	to := append(bytes.Clone(text[:line[0]]), text[line[1]:]...)
	return to, sameBut(was, to)
}

// isNotify reports whether notify calls tally hook.
func isNotify(set any) bool {
	list, ok := set.([]any)
	if !ok || len(list) < 2 || list[1] != "hook" {
		return false
	}
	program, _ := list[0].(string)
	return ours.MatchString(program + " hook")
}

func tomlOf(text []byte) (map[string]any, error) {
	all := make(map[string]any)
	if _, err := toml.Decode(string(text), &all); err != nil {
		if bad, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, fmt.Errorf("line %d is not TOML: %s", bad.Position.Line, bad.Message)
		}
		return nil, err
	}
	return all, nil
}

// sameBut returns an error if a text differs from the parsed settings in more than notify.
func sameBut(was map[string]any, text []byte) error {
	is, err := tomlOf(text)
	if err != nil {
		return err
	}
	delete(is, "notify")
	rest := make(map[string]any)
	for name, value := range was {
		if name != "notify" {
			rest[name] = value
		}
	}
	if !reflect.DeepEqual(is, rest) {
		return errors.New("notify cannot be changed without changing something else")
	}
	return nil
}
