// Package flow implements workflows: templates with their states, instances folded from the records of a flow, and the
// decisions that are due when a worker is lost. It is pure: no store, no clock.
package flow
