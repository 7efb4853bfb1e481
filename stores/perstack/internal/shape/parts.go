package shape

// What several documents have inside.
var (
	usage = object(must("inputTokens", count), must("outputTokens", count), must("reasoningTokens", count),
		must("totalTokens", count), must("cachedInputTokens", count))

	expert = object(must("key", text), must("name", text), must("version", text))

	toolCall   = object(must("id", id), must("skillName", text), must("toolName", text), must("args", object()))
	toolResult = object(must("id", id), must("skillName", text), must("toolName", text), must("result", list(part)))

	message = object(must("id", id), must("type", word("instructionMessage", "userMessage", "expertMessage", "toolMessage")), must("contents", list(part)))
)

var partTypes = word("textPart", "imageUrlPart", "imageInlinePart", "imageBinaryPart", "fileUrlPart", "fileInlinePart", "fileBinaryPart",
	"toolCallPart", "toolResultPart", "thinkingPart")

// part is a part of a message. What it holds is the producer's: binary parts are whatever
// its serializer makes of them.
var part = object(must("id", text), must("type", partTypes))
