// Package shape says once what a job, a checkpoint, an event and the setting of a run of
// @perstack/storage are: what the original's schema asks of them, what their files are
// called, and which record of the log each one becomes. What a program stores and what an
// import reads become the same records by it. It works on the JSON as it stands: members
// that the schema does not know and the spelling of numbers stay as they are.
package shape
