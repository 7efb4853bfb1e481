package stream

import (
	"strings"

	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// Frame is the shape of the recorder's lines: the command, or how it ended. The agents' packages have the shapes of
// their output.
var Frame = shapes.Shape{Name: agentName, Is: func(o *shapes.Object) bool { return isFrame(o.Members) }, Read: readFrame}

func readFrame(r *shapes.Reading, o *shapes.Object) {
	list, begins := o.Elements("command")
	words := make([]string, len(list))
	for i, raw := range list {
		words[i], _ = rawjson.String(raw)
	}
	switch {
	case begins:
		o.Take("command")
		r.Add(shapes.Part{Role: "command", Name: o.Text("cwd"), Text: strings.Join(words, " ")})
	case o.Word("signal") != "":
		r.Add(shapes.Part{Role: "exit", Text: o.Text("signal")})
	default:
		r.Add(shapes.Part{Role: "exit", Text: o.Value("exit")})
	}
	r.Leave("command", o)
}
