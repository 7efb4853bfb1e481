package tree

// reached is called where a crash leaves something to mend. Tests end the process there.
var reached = func(point string) {}
