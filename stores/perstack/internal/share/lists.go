package share

// places are in the order in which they are looked at: whole histories first, so that the
// turns of a thread are in the order of the conversation. What a model says comes by itself
// before it is in any list; if it were no turn then, what a tool answers it would be one
// before it.
var listLocations = []listLocation{
	{pointer: "/messages"},
	{pointer: "/initialCheckpoint/messages"},
	{pointer: "/checkpoint/messages"},
	{pointer: "/nextCheckpoint/messages"},
	{pointer: "/inputMessages"},
	{pointer: "/newMessage", single: true},
	{pointer: "/newMessages"},
	{pointer: "/step/inputMessages"},
	{pointer: "/step/newMessages"},

	{pointer: "/toolCall", tools: true, single: true},
	{pointer: "/toolCalls", tools: true},
	{pointer: "/pendingToolCalls", tools: true},
	{pointer: "/step/toolCalls", tools: true},
	{pointer: "/step/pendingToolCalls", tools: true},
	{pointer: "/checkpoint/pendingToolCalls", tools: true},
	{pointer: "/nextCheckpoint/pendingToolCalls", tools: true},
	{pointer: "/initialCheckpoint/pendingToolCalls", tools: true},

	{pointer: "/toolResult", tools: true, single: true},
	{pointer: "/partialToolResults", tools: true},
	{pointer: "/toolResults", tools: true},
	{pointer: "/step/partialToolResults", tools: true},
	{pointer: "/step/toolResults", tools: true},
	{pointer: "/checkpoint/partialToolResults", tools: true},
	{pointer: "/nextCheckpoint/partialToolResults", tools: true},
	{pointer: "/initialCheckpoint/partialToolResults", tools: true},
}
