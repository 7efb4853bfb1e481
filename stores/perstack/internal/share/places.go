package share

// listPlace is where a checkpoint or an event of a runtime has a list that others repeat.
type listPlace struct {
	pointer string
	results bool // of results of tools, not of messages
}

// places are in the order in which they are looked at: whole histories first, so that the
// turns of a thread are in the order of the conversation.
var places = []listPlace{
	{pointer: "/messages"},
	{pointer: "/initialCheckpoint/messages"},
	{pointer: "/checkpoint/messages"},
	{pointer: "/nextCheckpoint/messages"},
	{pointer: "/inputMessages"},
	{pointer: "/newMessages"},
	{pointer: "/step/inputMessages"},
	{pointer: "/step/newMessages"},

	{pointer: "/partialToolResults", results: true},
	{pointer: "/toolResults", results: true},
	{pointer: "/step/partialToolResults", results: true},
	{pointer: "/step/toolResults", results: true},
	{pointer: "/checkpoint/partialToolResults", results: true},
	{pointer: "/nextCheckpoint/partialToolResults", results: true},
	{pointer: "/initialCheckpoint/partialToolResults", results: true},
}
