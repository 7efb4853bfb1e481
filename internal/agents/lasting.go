package agents

// Lasting is an Agent whose session ids contain the name of a folder that may be renamed.
type Lasting interface {
	// Lasts returns the part of a session's id that stays when its folder is renamed. It is unique. "": no part stays.
	Lasts(session string) string
}
