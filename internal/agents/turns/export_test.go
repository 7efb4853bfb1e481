package turns

// Quiet says in which members nobody says anything, for tests.
func Quiet(object, name string) bool {
	return quiet(object, name) || object == ClaudeLine && claudeQuiet[name]
}

// ClaudeLine stands for a line of Claude Code in what Quiet is asked.
const ClaudeLine = "claude-line"
