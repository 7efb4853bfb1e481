//go:build tally_perstack_whole

package share

// This file is in no product. The tests of a job's size build with it, to show that they
// would notice: every value is stored whole, whoever stores it, a program or an import.
var places []listPlace
