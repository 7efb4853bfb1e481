// Package sessiondir holds what the layouts of the stores share below their
// exported surface.
//
// An import finds the place ([Shape]), opens it ([Import]), lists sessions
// ([Intake.Units]) and their files ([Folder]), and brings each session in
// ([Intake.Bring]); what belongs to none is kept by [Intake.KeepRootFile]. What the
// files mean, and which events they come to, is the layout's. A dry run is an import
// into a [Rehearsal].
//
// An export asks where the bytes of a file come from ([OutputOf]): from the state, or
// from the document in which it was kept whole.
//
// Beside these: how files are read and spelled again, and how events are appended in
// batches.
package sessiondir
