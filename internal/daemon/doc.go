// Package daemon runs daemons. They make the decisions that time alone makes due, for example that an answer is
// overdue, that a flow lost its worker, or that the property of a dead agent may be removed.
//
// A [Daemon] decides from the log and the log's time. It appends a decision on the condition that its facts still hold,
// with ids that follow from the facts. So any number of daemons may run anywhere, and be killed at any moment: no
// decision is made twice, and another daemon makes a missed one. A [Loop] calls each daemon when an entry is due and
// when a record arrives, and sleeps in between.
package daemon
