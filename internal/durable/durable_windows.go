package durable

// unsupported: Windows has no sync of directories; a rename there is durable with
// the file system's own journal.
func unsupported(error) bool { return true }
