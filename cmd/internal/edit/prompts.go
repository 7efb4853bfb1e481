package edit

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
)

// offeredPrompts is the number of prompts offered for a rewind.
const offeredPrompts = 10

// prompted is a prompt, with rewind -o json.
type prompted struct {
	To     string        `json:"to"` // position right before the prompt
	Offset events.Offset `json:"offset"`
	Turn   int           `json:"turn"`
	At     string        `json:"at,omitempty"`
	Prompt string        `json:"prompt"`
}

// promptsOf returns the last prompts of the main thread, the newest first.
func promptsOf(s *projector.Session) []prompted {
	var list []prompted
	turns := s.Threads.Turns(events.MainThread)
	for i := len(turns) - 1; i >= 0 && len(list) < offeredPrompts; i-- {
		text := render.OpeningOf(turns[i : i+1])
		if text == "" || i > 0 && turns[i-1].Offset == turns[i].Offset {
			continue // the turns of one record leave together
		}
		to := "start"
		if before := s.History.LastLive(turns[i].Offset - 1); before > 0 {
			to = before.String()
		}
		list = append(list, prompted{to, turns[i].Offset, i + 1, string(turns[i].Timestamp), text})
	}
	return list
}

// choosePrompt prints the last prompts of a session. On a terminal it asks for one and returns the position before it;
// otherwise it returns an error with the flag to use.
func (m *mover) choosePrompt(ctx context.Context, s *errata.Session) (string, error) {
	state, err := s.Load(ctx, "")
	if err != nil {
		return "", err
	}
	list := promptsOf(state)
	if len(list) == 0 {
		return "", &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("the rewind stack of %s is empty, and no prompt is in effect", s.Subject()), Hint: "Name a position with --to."}
	}
	if err := m.offerPrompts(list); err != nil {
		return "", err
	}
	if !cli.IsTerminal(m.app.In) {
		return "", &cli.CodeError{Code: cli.BadUsage, Err: errors.New("this command asks for a prompt, and standard input is not a terminal"), Hint: "Add --to with a position of the list."}
	}
	answer := m.app.Ask(fmt.Sprintf("Before which prompt? [1-%d, nothing for none]", len(list)))
	n, err := strconv.Atoi(answer)
	switch {
	case answer == "":
		return "", &cli.CodeError{Code: cli.Failed, Err: errors.New("nothing was written")}
	case err != nil || n < 1 || n > len(list):
		return "", cli.Usagef("%q is not a number from 1 to %d", answer, len(list))
	}
	return list[n-1].To, nil
}

// offerPrompts prints prompts.
func (m *mover) offerPrompts(list []prompted) error {
	if m.app.Format != cli.Text {
		return cli.WriteList(m.app.Out, m.app.Format, list)
	}
	t := render.Table{Head: []string{"", "FLAG", "TURN", "PROMPT"}, Right: []int{0, 2}, Cut: []int{3}, Drop: []int{2}}
	for i, p := range list {
		t.Rows = append(t.Rows, []string{strconv.Itoa(i + 1), "--to " + p.To, fmt.Sprintf("#%d", p.Turn), p.Prompt})
	}
	return m.app.Table(t)
}
