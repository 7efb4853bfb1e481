// Package flow says what a workflow is: the template with its states, what the records of a
// flow make of it, and what is due when a worker is lost. All of it is pure: no store, no
// clock.
package flow
