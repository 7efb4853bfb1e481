package team

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

// bodyText returns a body for people: a text as it was written, else its JSON, or how many
// bytes it has.
func bodyText(body events.Raw, bytes []byte) string {
	if text, err := rawjson.String(body); err == nil {
		return text
	}
	switch {
	case len(body) > 0:
		return string(rawjson.AppendCompact(nil, body))
	case utf8.Valid(bytes):
		return string(bytes)
	}
	return plain.Bytes(int64(len(bytes))) + " that are not text"
}

func (r messageRow) text() string { return bodyText(r.Body, r.Bytes) }

// mark stands before a message that was not seen.
func (r messageRow) mark() string {
	if r.Unread {
		return "●"
	}
	return ""
}

func inboxTable(list []messageRow, style cli.Style) render.Table {
	const mark, offset, at, from, kind, thread, note, text = 0, 1, 2, 3, 4, 5, 6, 7
	t := render.Table{Head: []string{"", "OFFSET", "TIME", "FROM", "TYPE", "THREAD", "NOTE", "TEXT"},
		Right: []int{offset}, Cut: []int{text, thread, note, from}, Drop: []int{at, thread}}
	for _, r := range list {
		t.Rows = append(t.Rows, []string{r.mark(), r.Offset.String(), cli.Minute(r.Time), r.From, r.Type, r.Thread, r.note(), render.Cut(r.text(), 200)})
	}
	t.Paint = func(row, column int, cell string) string {
		switch {
		case row < 0:
		case column == note && (list[row].Overdue || list[row].Malfunction != ""):
			return style.Red(cell)
		case column == mark:
			return style.Bold(cell)
		case column == at:
			return style.Dim(cell)
		}
		return cell
	}
	return t
}

// print prints a message that came.
func (v *inboxView) print(r messageRow) error {
	if v.app.Format != cli.Text {
		return cli.WriteJSON(v.app.Out, cli.JSONL, r)
	}
	width := cli.Width(v.app.Out)
	text := fmt.Sprintf("%-7v %s  %s  %s  %s", r.Offset, cli.Minute(r.Time), r.From, r.Type, r.text())
	_, err := fmt.Fprintln(v.app.Out, render.Cut(text, min(width, 400)))
	return err
}

// whole prints one message.
func (v *inboxView) whole(ctx context.Context, m tavern.Message) error {
	rows, err := v.rows(ctx, []tavern.Message{m})
	if err != nil {
		return err
	}
	r := rows[0]
	if v.app.Format != cli.Text {
		return cli.WriteJSON(v.app.Out, v.app.Format, r)
	}
	width := cli.Width(v.app.Out)
	for _, f := range []struct{ name, value string }{{"id", r.ID}, {"at", r.Offset.String() + "  " + cli.Minute(r.Time)}, {"from", r.From}, {"to", r.To}, {"type", r.Type},
		{"thread", r.Thread}, {"answers", r.ReplyTo}, {"awaits", r.Expects}, {"until", string(r.Deadline)}, {"class", r.Class},
		{"through", strings.Join(r.Bubble, ", ")}, {"note", r.note()}} {
		if f.value == "" {
			continue
		}
		for _, line := range render.Field(f.name, f.value, width, v.app.Style().Dim) {
			fmt.Fprintln(v.app.Out, line)
		}
	}
	_, err = fmt.Fprintf(v.app.Out, "\n%s\n", strings.Join(render.Wrap(r.text(), width), "\n"))
	return err
}
