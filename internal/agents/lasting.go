package agents

// Lasting is an Agent that keeps sessions in folders that may be renamed, which are part of
// their ids.
type Lasting interface {
	// Lasts returns what of a session's id stays when its folder is renamed: no other session
	// has it. "": nothing does.
	Lasts(session string) string
}
