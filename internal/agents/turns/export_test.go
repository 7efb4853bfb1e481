package turns

// Quiet is quiet, and ClaudeLine the name of a line in what it is asked, for tests.
var Quiet = quiet

const ClaudeLine = claudeLine
