package share

// listLocations are in the order in which Split handles them: whole histories first, so that a thread has the order of
// the conversation. A model's answer occurs alone before it is in any list. If it were not stored as a turn then, the
// tool's answer to it would come first.
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
