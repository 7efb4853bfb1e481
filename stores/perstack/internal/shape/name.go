package shape

// EventName returns the name of an event's file, without .json. It escapes nothing: a type may contain a slash.
func EventName(timestamp, step int64, typ string) string {
	return "event-" + itoa(timestamp) + "-" + itoa(step) + "-" + typ
}
