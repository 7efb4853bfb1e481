package turns

// Quiet is quiet, for tests.
var Quiet = quiet
