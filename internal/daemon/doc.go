// Package daemon runs daemons: those who decide what time alone makes due, such as that an
// answer is late, that the worker of a flow was lost, or that what a dead agent had may go.
//
// A [Daemon] decides from the log and the log's time, and appends what it decided on the
// condition that it is so still, with ids that follow from it. So any number of daemons may
// run, anywhere, and be killed at any moment: nothing is decided twice, and what one did not
// get to another one does. A [Loop] has each look when the next thing is due, and when
// something is recorded; in between it sleeps.
package daemon
